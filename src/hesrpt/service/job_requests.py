"""Jobs in the body of a request: checked like those of a jobs file; errors name the key.

Patterns and files with items are read within limits. Each pattern is looked up by a process of its
own, because nothing else can be stopped that searches a large tree for nothing. It starts quickly:
it imports nothing of this package.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Container, Iterable
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import Block, open_regular, read_blocks
from hesrpt.jobs.job_items import MAX_ITEMS, MAX_LENGTH, ItemReader
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.jobs_file import TomlLines, parse_jobs
from hesrpt.jobs.text import describe_value

# The longest name that is made from a command.
_MAX_NAME = 40
#: The most jobs in one request.
MAX_JOBS = 10_000
#: How long the items of a request may take to be read, in seconds.
READ_SECONDS = 10.0

_TOO_LONG = "reading the items took longer than {:g} s; send a list of items instead"
# Prints the paths that match a pattern in a directory, within limits; null: they are too long.
# The timer ends it even if the service was killed meanwhile.
_SEARCH = """
import glob, json, signal, sys
pattern, directory, most, longest, seconds = json.loads(sys.argv[1])
signal.setitimer(signal.ITIMER_REAL, seconds)
found, length = [], 0
for path in glob.iglob(pattern, root_dir=directory, recursive=True):
    found.append(path)
    length += len(path)
    if len(found) >= most or length > longest:
        break
print(json.dumps(None if length > longest else found))
"""


class _Places(TomlLines):
    """Says which job of a request an error is about."""

    def __init__(self, count: int) -> None:
        super().__init__("", "")
        self._count = count

    def create_error(
        self, number: int | None, key: str, error: InputError, kind: str = "job"
    ) -> InputError:
        return InputError(f"jobs[{number}]: {error}") if self._count > 1 else error


def read_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in the body of a request."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise InputError(f"the body is not valid JSON: {error}") from None
    if not isinstance(value, dict):
        raise InputError(f"the body must be a JSON object, got {describe_value(value)}")
    return value


def read_jobs(content: dict[str, Any], known: Container[str]) -> list[JobSpec]:
    """Return the jobs that a request asks for: one, or those in its list ``jobs``.

    They may wait for each other, and for the ``known`` jobs.
    """
    jobs = content.get("jobs", [content])
    if "jobs" in content and len(content) > 1:
        other = next(key for key in content if key != "jobs")
        raise InputError(f"{other!r} must be in the jobs, not beside them")
    if not isinstance(jobs, list) or not jobs or len(jobs) > MAX_JOBS:
        raise InputError(f"jobs must be a list of 1 to {MAX_JOBS:,} jobs")
    places = _Places(len(jobs))
    tables = []
    for number, values in enumerate(jobs):
        if not isinstance(values, dict):
            error = InputError(f"a job must be an object, got {describe_value(values)}")
            raise places.create_error(number, "", error)
        given = {key: value for key, value in values.items() if value is not None}
        tables.append({"name": name_command(given.get("command"))} | given)
    return parse_jobs(tables, places, Path.cwd(), known, LimitedItemReader())


def name_command(command: Any) -> str:
    """Return a name for the job of a command: that of its program."""
    words = command.split() if isinstance(command, str) else command
    first = words[0] if isinstance(words, list) and words and isinstance(words[0], str) else "job"
    return os.path.basename(first)[:_MAX_NAME] or "job"


# --- items, within limits -------------------------------------------------------------------------


class LimitedItemReader(ItemReader):
    """Lists the items of the jobs in one request, within limits of time and number."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + READ_SECONDS
        self._left = MAX_ITEMS

    def list_items(self, value: Any, directory: Path, cwd: Path) -> tuple[str, ...]:
        """Return the items of a job, unless the request has too many."""
        items = super().list_items(value, directory, cwd)
        self._left -= len(items)
        if self._left < 0:
            raise InputError(f"the jobs of one request can have at most {MAX_ITEMS:,} items")
        return items

    def read_blocks(self, path: Path) -> Iterable[Block]:
        """Yield the lines of a regular file."""
        for block in read_blocks(path, opener=open_regular):
            if time.monotonic() > self._deadline:
                raise InputError(f"{path}: {_TOO_LONG.format(READ_SECONDS)}")
            yield block

    def find_files(self, pattern: str, directory: Path) -> Iterable[str]:
        """Return the paths that match a pattern."""
        left = max(self._deadline - time.monotonic(), 0.001)
        question = json.dumps([pattern, str(directory), MAX_ITEMS + 1, MAX_LENGTH, left])
        # -I and -S: neither the current directory nor packages are looked at.
        command = [sys.executable, "-I", "-S", "-c", _SEARCH, question]
        search = subprocess.run(command, capture_output=True, text=True)
        if search.returncode != 0:
            is_late = search.returncode == -signal.SIGALRM
            problem = _TOO_LONG.format(READ_SECONDS) if is_late else "cannot be looked up"
            raise InputError(f"{describe_value(pattern)}: {problem}")
        if (paths := json.loads(search.stdout)) is None:
            raise InputError(f"the paths that match are longer than {MAX_LENGTH:,} characters")
        return list(paths)
