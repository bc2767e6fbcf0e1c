"""Follows the output of a job's items while they run."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, nullcontext, suppress
from pathlib import Path
from typing import NamedTuple

from hesrpt.reports.inspection import ItemLog, UnknownItemError, list_logs
from hesrpt.storage.journal import Journal
from hesrpt.storage.logs import find_logs

_BLOCK_BYTES = 1 << 16


class Output(NamedTuple):
    """Something that an item has printed."""

    log: ItemLog
    content: bytes


class LogFollower:
    """Reads what the items of a job print, from the beginning of their logs on.

    Without a journal, it opens that of the directory for each look.
    """

    def __init__(
        self, directory: Path, job: str, item: int | None = None, journal: Journal | None = None
    ) -> None:
        self.directory, self.job, self.item = directory, job, item
        self._journal = journal
        self._positions: dict[Path, int] = {}  # how much of each log has been read
        with self._open_journal() as opened:
            record = opened.get_record(job)
        self._number, self.items = record.number, record.items
        self._logs: dict[Path, ItemLog] = {}
        with suppress(UnknownItemError):  # the item was not read yet
            self._logs = {log.path: log for log in list_logs(directory, job, item)}

    def _open_journal(self) -> AbstractContextManager[Journal]:
        if self._journal is not None:
            return nullcontext(self._journal)
        return closing(Journal.read(self.directory))

    def read(self) -> tuple[list[Output], bool]:
        """Return what was printed since the last call, and whether there may be more."""
        with self._open_journal() as journal:
            record = journal.read_record(self._number)
            is_running = journal.is_running
        # What was printed before the job ended is in the files now.
        for name, path in sorted(find_logs(self.directory, self._number).items()):
            is_current = name.run == record.spec.resumed
            if path not in self._logs and is_current and self.item in (None, name.item):
                title = record.spec.describe_item(name.item)
                self._logs[path] = ItemLog(name.item, title, path)
        outputs = [
            Output(log, block) for log in self._logs.values() for block in self._read_new(log.path)
        ]
        return outputs, is_running and not record.has_ended

    def _read_new(self, path: Path) -> Iterator[bytes]:
        position = self._positions.get(path, 0)
        with suppress(OSError), open(path, "rb") as file:  # it may have been removed
            size = os.fstat(file.fileno()).st_size
            if size < position:  # it was cut, because it had become too large
                yield b"\nhesrpt: output was dropped here, because the log was too large\n"
                position = size
            file.seek(position)
            while block := file.read(_BLOCK_BYTES):
                position += len(block)
                yield block
        self._positions[path] = position
