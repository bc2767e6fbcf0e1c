"""Results as files and data frames."""

from __future__ import annotations

import csv
import io
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hesrpt.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to a CSV file, whole or not at all. The first row names the columns."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: str | Path, text: str) -> None:
    """Write a file, whole or not at all; what is no plain file is written to as it is."""
    try:
        if Path(path).exists() and not Path(path).is_file():
            Path(path).write_text(text, encoding="utf-8", errors="replace")
            return
        target = Path(path).resolve()  # a link stays one
        handle, draft = tempfile.mkstemp(dir=target.parent, suffix=target.suffix)
        try:
            with os.fdopen(handle, "w", newline="", encoding="utf-8", errors="replace") as file:
                file.write(text)
            Path(draft).chmod(0o644)
            Path(draft).replace(target)
        except BaseException:
            Path(draft).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror}") from None


def frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a pandas data frame."""
    try:
        import pandas as pd
    except ImportError:
        raise InputError("to_frame() needs pandas: pip install pandas") from None
    return pd.DataFrame(rows)
