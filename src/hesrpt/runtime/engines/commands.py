"""Running a command: its start, its end, its output."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from hesrpt.runtime.engines.engine import CommandTask
from hesrpt.runtime.engines.processes import end_tree


class CannotStartError(Exception):
    """A command could not be started."""


def begin(
    task: CommandTask, output: IO[bytes], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a command."""
    try:
        return subprocess.Popen(
            task.command, shell=isinstance(task.command, str), cwd=task.directory,
            stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
            env=environment, start_new_session=True,
        )  # fmt: skip
    except FileNotFoundError as problem:
        missing = f"{problem.filename}: " if problem.filename == str(task.directory) else ""
        raise CannotStartError(f"cannot be started: {missing}{problem.strerror}") from None
    except (OSError, ValueError) as problem:
        reason = getattr(problem, "strerror", None) or problem
        raise CannotStartError(f"cannot be started: {reason}") from None


def wait(process: subprocess.Popen[bytes], timeout: float | None) -> str | None:
    """Return what went wrong with a command, when it has ended."""
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        end_tree(process.pid)
        process.wait()
        return f"took longer than its time limit ({timeout:g} s)"
    if code == 0:
        return None
    return f"exit code {code}" if code > 0 else f"ended by signal {-code}"


def output_to(log: Path | None) -> IO[bytes]:
    """Return where a command's output goes: its log, or a file that nobody else sees."""
    return tempfile.TemporaryFile() if log is None else open(log, "a+b")


def add_last_lines(error: str, output: IO[bytes], lines: int = 10) -> str:
    """Return an error with what was printed last."""
    said = last_bytes(output, 4096).decode("utf-8", "replace").splitlines()[-lines:]
    return "\n".join([error, *said])


def last_bytes(output: IO[bytes], count: int) -> bytes:
    """Return the end of a file."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - count, 0))
    return output.read()
