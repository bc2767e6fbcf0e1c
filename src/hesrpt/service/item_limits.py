"""The items of jobs that clients send: patterns and files are read within limits.

A pattern is looked up by a process of its own, because nothing else can be stopped that searches a
large tree for nothing. It starts quickly: it imports nothing of this package.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Self

from hesrpt.errors import InputError
from hesrpt.files import Block, open_regular, read_blocks
from hesrpt.jobs.job_items import MAX_ITEMS, MAX_LENGTH, ItemReader
from hesrpt.jobs.text import describe_value

#: How long the items of a request may take to be read, in seconds.
READ_SECONDS = 10.0

_TOO_LONG = "reading the items took longer than {:g} s; send a list of items instead"
# Answers each line, a pattern in a directory with limits, by a line; null: the paths are too long.
_SEARCH = """
import glob, json, sys
for line in sys.stdin:
    pattern, directory, most, longest = json.loads(line)
    found, length = [], 0
    for path in glob.iglob(pattern, root_dir=directory, recursive=True):
        found.append(path)
        length += len(path)
        if len(found) >= most or length > longest:
            break
    print(json.dumps(None if length > longest else found), flush=True)
"""


class LimitedItemReader(ItemReader):
    """Lists the items of the jobs in one request, within limits of time and number."""

    def __init__(self) -> None:
        self._deadline = time.monotonic() + READ_SECONDS
        self._left = MAX_ITEMS
        self._search: subprocess.Popen[str] | None = None
        self._timer = threading.Timer(READ_SECONDS, self._stop_search)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        self._timer.cancel()
        if self._search is not None:
            self._search.kill()
            self._search.communicate()

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
        question = json.dumps([pattern, str(directory), MAX_ITEMS + 1, MAX_LENGTH])
        answer = self._ask(question)
        if not answer:
            is_late = time.monotonic() >= self._deadline
            shown = describe_value(pattern)
            problem = _TOO_LONG.format(READ_SECONDS) if is_late else "cannot be looked up"
            raise InputError(f"{shown}: {problem}")
        if (paths := json.loads(answer)) is None:
            raise InputError(f"the paths that match are longer than {MAX_LENGTH:,} characters")
        return list(paths)

    def _ask(self, question: str) -> str:
        """Return the answer to a question; it is empty if the process was stopped or has failed."""
        if self._search is None:
            # -I and -S: neither the current directory nor packages are looked at.
            self._search = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _SEARCH],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                text=True,
            )
            self._timer.start()
        assert self._search.stdin is not None
        assert self._search.stdout is not None
        try:
            self._search.stdin.write(f"{question}\n")
            self._search.stdin.flush()
        except BrokenPipeError:
            return ""
        return self._search.stdout.readline()

    def _stop_search(self) -> None:
        if self._search is not None:
            self._search.kill()
