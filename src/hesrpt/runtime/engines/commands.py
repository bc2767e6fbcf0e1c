"""Starting a command, waiting for its end, and reading its output."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import IO

from hesrpt.runtime.engines.engine import CommandTask
from hesrpt.runtime.engines.processes import kill_tree
from hesrpt.runtime.logs import open_log


class CommandStartError(Exception):
    """A command could not be started."""


def start_command(
    task: CommandTask, output: IO[bytes], environment: dict[str, str]
) -> subprocess.Popen[bytes]:
    """Start a command whose standard output and error go to ``output``."""
    try:
        return subprocess.Popen(
            task.command,
            shell=isinstance(task.command, str),
            cwd=task.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            start_new_session=True,
        )
    except OSError as error:  # about the program or the directory
        subject = "" if error.filename is None else f"{os.fspath(error.filename)}: "
        raise CommandStartError(f"cannot be started: {subject}{error.strerror or error}") from None
    except ValueError as error:
        raise CommandStartError(f"cannot be started: {error}") from None


def wait_for_command(process: subprocess.Popen[bytes], timeout: float | None) -> str | None:
    """Wait until a command ends; return its error, or None if it succeeded."""
    try:
        code = process.wait(timeout)
    except subprocess.TimeoutExpired:
        kill_tree(process.pid)
        process.wait()
        return f"took longer than its time limit ({timeout:g} s)"
    if code == 0:
        return None
    return f"exit code {code}" if code > 0 else f"ended by signal {-code}"


def open_output(log: Path | None) -> IO[bytes]:
    """Open the file for a command's output: its log, or a temporary file if it has none."""
    return tempfile.TemporaryFile() if log is None else os.fdopen(open_log(log), "a+b")


def add_last_lines(error: str, output: IO[bytes], *, lines: int = 10, skip: int = 0) -> str:
    """Return an error followed by the last lines of a command's output.

    The first ``skip`` bytes of the file are not part of the command's output.
    """
    tail = read_tail(output, 4096, skip=skip)
    last_lines = tail.decode("utf-8", "replace").splitlines()[-lines:]
    return "\n".join([error, *last_lines])


def read_tail(output: IO[bytes], count: int, *, skip: int = 0) -> bytes:
    """Return the last ``count`` bytes of a file, but nothing of its first ``skip`` bytes."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - count, skip))
    return output.read()
