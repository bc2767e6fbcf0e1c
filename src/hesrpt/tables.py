"""Rows of results as files and data frames."""

from __future__ import annotations

import csv
import os
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hesrpt.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to a CSV file, whole or not at all."""
    target = Path(path)
    try:
        handle, draft = tempfile.mkstemp(dir=target.parent, suffix=".csv")
        try:
            with os.fdopen(handle, "w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, list(rows[0]))
                writer.writeheader()
                writer.writerows(rows)
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
