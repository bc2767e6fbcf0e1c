"""The items of a job in a jobs file: a pattern, a list, the lines of a file or a range."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator
from itertools import islice
from math import isfinite
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import Block, read_blocks
from hesrpt.jobs.text import describe_value

#: The most items of one job. They are all in memory, and in the journal.
MAX_ITEMS = 1_000_000
#: The longest file with items, in characters.
MAX_LENGTH = 200_000_000

#: What the key ``items`` of a job must be.
EXPECTED_ITEMS = 'a pattern like "photos/*.jpg", a list, {lines = "file.txt"} or {range = [0, 500]}'
_LIST_EXPECTED = "a list of items must hold one or more strings or numbers"


class ItemReader:
    """Lists the items of jobs. It reads any kind of file, without a time limit."""

    def list_items(self, value: Any, directory: Path, cwd: Path) -> tuple[str, ...]:
        """Return the items of a job; a pattern is that of files in ``cwd``, where commands run."""
        if isinstance(value, str):
            return self._list_files(value, cwd)
        if isinstance(value, list):
            if not value:
                raise InputError(f"{_LIST_EXPECTED}, got an empty list")
            return _take_items(map(_convert_item, value))
        if isinstance(value, dict) and list(value) == ["lines"] and isinstance(value["lines"], str):
            return self._list_lines(directory / value["lines"])
        if isinstance(value, dict) and list(value) == ["range"]:
            return _list_range(value["range"])
        raise InputError(f"must be {EXPECTED_ITEMS}, got {describe_value(value)}", argument="items")

    def find_files(self, pattern: str, directory: Path) -> Iterable[str]:
        """Return the paths that match a pattern, in any order."""
        return glob.iglob(pattern, root_dir=directory, recursive=True)

    def read_blocks(self, path: Path) -> Iterable[Block]:
        """Return the lines of a file."""
        return read_blocks(path)

    def _list_files(self, pattern: str, directory: Path) -> tuple[str, ...]:
        if "\0" in pattern:
            raise InputError(f"a pattern cannot contain a zero byte, got {describe_value(pattern)}")
        paths = sorted(_take_items(self.find_files(pattern, directory)))
        if not paths:
            raise InputError(f"no file matches {describe_value(pattern)} in {directory}")
        # No command can take ./-x for an option.
        return tuple(f"./{path}" if path.startswith("-") else path for path in paths)

    def _list_lines(self, path: Path) -> tuple[str, ...]:
        lines = _take_items(line for line in self._read_lines(path) if line.strip())
        if not lines:
            raise InputError(f"{path}: has no lines")
        return lines

    def _read_lines(self, path: Path) -> Iterator[str]:
        length = 0
        for block in self.read_blocks(path):
            length += sum(map(len, block.lines))
            if length > MAX_LENGTH:
                raise InputError(f"{path}: is longer than {MAX_LENGTH:,} characters")
            yield from block.lines


def _take_items(items: Iterable[str]) -> tuple[str, ...]:
    found = tuple(islice(items, MAX_ITEMS + 1))
    if len(found) > MAX_ITEMS:
        raise InputError(
            f"a job can have at most {MAX_ITEMS:,} items; split it into several jobs, or let each "
            "item stand for many"
        )
    return found


def _convert_item(item: Any) -> str:
    if not isinstance(item, str | int | float) or isinstance(item, bool):
        raise InputError(f"{_LIST_EXPECTED}, got {describe_value(item)}")
    if isinstance(item, float) and not isfinite(item):
        raise InputError(f"an item must be a finite number, got {item}")
    if isinstance(item, str) and "\0" in item:
        raise InputError(f"an item cannot contain a zero byte, got {describe_value(item)}")
    return str(item)


def _list_range(bounds: Any) -> tuple[str, ...]:
    if isinstance(bounds, list) and all(type(bound) is int for bound in bounds):
        has_step = 0 not in bounds[2:]
        if 1 <= len(bounds) <= 3 and has_step and (numbers := range(*bounds)):
            return _take_items(map(str, numbers))
    raise InputError(f"a range must be like [0, 500] and not empty, got {describe_value(bounds)}")
