"""What a source of a job's items must offer, and what it reports.

There are three kinds: an iterable of arguments (:mod:`~hesrpt.scheduler.python_source`), the
items of a command (:mod:`~hesrpt.scheduler.source`), and calls submitted to an executor
(:mod:`~hesrpt.scheduler.call_source`).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from itertools import repeat
from pathlib import Path

from hesrpt.engines.engine import CommandTask, Task
from hesrpt.errors import InputError
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.fingerprints import fingerprint_command_items
from hesrpt.jobs.text import describe_value
from hesrpt.pickling import Pickled
from hesrpt.storage.earlier_items import EarlierItems, Match, Matches, create_keys
from hesrpt.storage.journal_entries import NO_POSITION
from hesrpt.storage.logs import LogPaths


@dataclass(kw_only=True)
class SourceNews:
    """What the source of a job has reported since the last time."""

    items: int = 0  # how many were read so far, not counting those done before
    matches: Matches = field(default_factory=Matches)  # the items that were done before
    count_items: Callable[[], int] | None = None  # counts all items, if there are no more to read
    failure: tuple[str, BaseException | None] | None = None  # why no more can be read


@dataclass(eq=False)
class SourceListener:
    """Receives what a source reports about its items, from any thread."""

    on_news: Callable[[], None]  # not called again until the news have been taken
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _news: SourceNews = field(default_factory=SourceNews)
    _is_announced: bool = False

    def take(self) -> SourceNews:
        """Return what was reported since the last call; called by the driver."""
        with self._lock:
            news, self._news = self._news, SourceNews(items=self._news.items)
            self._is_announced = False
            return news

    def report_items(self, items: int) -> None:
        """Report that this many items have been read, not counting those done before."""
        with self._lock:
            self._news.items = items
        self._announce()

    def report_match(self, match: Match, item: int) -> None:
        """Report that an item was read which was done before."""
        with self._lock:
            self._news.matches.add(match, item)
        self._announce()

    def report_end(self, count_items: Callable[[], int], removed: Iterable[bytes] = ()) -> None:
        """Report that there are no more items; ``count_items`` returns how many there were.

        The keys of results whose items the job no longer has are in ``removed``.
        """
        with self._lock:
            self._news.count_items = count_items
            self._news.matches.moved += zip(removed, repeat(NO_POSITION))
        self._announce()

    def report_failure(self, error: str, cause: BaseException | None = None) -> None:
        """Report that no further items can be read, and what was raised."""
        with self._lock:
            self._news.failure = error, cause
        self._announce()

    def _announce(self) -> None:
        if not self._is_announced:
            self._is_announced = True
            self.on_news()


class Source:
    """Creates the tasks of a job as its items are started.

    By default, all items are known from the start, and nothing of them is to be released.
    """

    #: Whether the source itself delivers the results, so that nobody else has to store them.
    delivers_results = False
    #: Whether everything was released.
    is_closed = False

    def resume(self, earlier: EarlierItems, run: int) -> Matches:
        """Find items that were done in earlier runs; those read later are reported then."""
        return Matches()

    def open(self, listener: SourceListener) -> None:
        """Start reading items."""

    def create_tasks(
        self, items: Sequence[int], servers: int, logs: LogPaths | None
    ) -> Mapping[int, Task]:
        """Return the tasks of items that start together, by item."""
        raise NotImplementedError

    def describe_value(self, item: int) -> str:
        """Return an item that is not done as a short text; an empty one if that is not known."""
        return ""

    def get_keys(self, items: Sequence[int]) -> Sequence[bytes]:
        """Return what identifies items in the journal, while they are not done."""
        raise NotImplementedError

    def finish_items(self, items: Sequence[int], results: Sequence[Pickled]) -> None:
        """Release items that are done: no task will be created for them again."""

    def drop_item(self, item: int, error: str) -> None:
        """Release an item that has failed; it may be retried later."""

    def retry_items(self) -> None:
        """Take back the items that have failed: tasks will be created for them again."""

    def close(self, reason: str = "the job has ended") -> None:
        """Release everything: no task will be created again, and no item can be retried."""
        self.is_closed = True


# --- commands: each item fills in the placeholders of its template --------------------------------


@dataclass(eq=False)
class CommandSource(Source):
    """A command for each item, or one command on all servers of the job."""

    template: CommandTemplate
    _: KW_ONLY
    pin_cores: bool = False
    max_servers: int | None = None
    run: int = 0

    @cached_property
    def fingerprints(self) -> Sequence[bytes]:
        """The fingerprints of all items."""
        return fingerprint_command_items(self.template)

    def resume(self, earlier: EarlierItems, run: int) -> Matches:
        self.run = run
        return earlier.match_all(self.fingerprints)

    def create_tasks(
        self, items: Sequence[int], servers: int, logs: LogPaths | None
    ) -> Mapping[int, Task]:
        get_log = (lambda item: None) if logs is None else logs.get
        return {item: self._create_task(item, servers, get_log(item)) for item in items}

    def _create_task(self, item: int, servers: int, log: Path | None) -> CommandTask:
        template = self.template
        try:
            filled = template.fill_in(item, servers)
        except InputError as error:
            # An earlier version has accepted the line, which is in the state directory since then.
            command = ("sh", "-c", 'printf "%s\\n" "$1" >&2; exit 2', "sh", f"hesrpt: {error}")
            return CommandTask(command, log=log)
        return CommandTask(
            filled.command,
            shell=template.shell,
            variables=filled.variables,
            directory=filled.directory,
            stdin=filled.stdin,
            stdin_file=filled.stdin_file,
            timeout=template.timeout,
            log=log,
            pin_cores=self.pin_cores,
            max_servers=self.max_servers,
        )

    def describe_value(self, item: int) -> str:
        return describe_value(self.template.items[item]) if self.template.items else ""

    def get_keys(self, items: Sequence[int]) -> Sequence[bytes]:
        return create_keys(map(self.fingerprints.__getitem__, items), self.run, items)
