"""The command line as a process."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def run(*arguments: str, cwd: Path, stdin: str | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "hesrpt", *arguments],
        cwd=cwd, input=stdin, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
