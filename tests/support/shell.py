"""Running the command line, in a new process or in this one."""

from __future__ import annotations

import contextlib
import io
import subprocess
import sys
from pathlib import Path
from unittest import mock

from hesrpt.cli.main import main


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run hesrpt as a user does, in a new process."""
    return subprocess.run(
        [sys.executable, "-m", "hesrpt", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=1200,
    )


def call(*arguments: str, cwd: Path, stdin: str = "") -> subprocess.CompletedProcess[str]:
    """Run hesrpt in this process, which is many times faster."""
    stdout, stderr = io.StringIO(), io.StringIO()
    given = io.TextIOWrapper(io.BytesIO(stdin.encode()), encoding="utf-8")
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(stdout),
        contextlib.redirect_stderr(stderr),
        mock.patch.object(sys, "argv", ["hesrpt", *arguments]),
        mock.patch.object(sys, "stdin", given),
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    return subprocess.CompletedProcess(arguments, code, stdout.getvalue(), stderr.getvalue())


def assert_refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    """Check that hesrpt printed a message of one line, and nothing else."""
    assert message in done.stderr, done.stderr
    assert done.stderr.startswith("hesrpt: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert done.returncode == 2
