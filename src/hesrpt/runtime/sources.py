"""Where the items of a job come from, and where their results go."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from string import Formatter
from typing import Any, Protocol

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import CommandTask, Outcome, PythonTask, Task

# Arguments are read ahead for more than there are servers only while they are no larger.
_AHEAD_BYTES = 32 * 2**20


class Feed(Protocol):
    """Whom a source tells about its items, from a thread of its own."""

    def read(self, items: int) -> None:
        """Say that so many items, without those done before, can be started."""

    def exhausted(self, items: Callable[[], int]) -> None:
        """Say that there are no more; how many there were is asked when nothing is started."""

    def failed(self, error: str) -> None:
        """Say that no further items can be had."""


class Source(Protocol):
    """Makes the tasks of a job, as they are started."""

    #: Whether results go to it, and are not to be kept for anybody else.
    takes_results: bool

    def feed(self, to: Feed, done: frozenset[int]) -> None:
        """Begin to read the items, if that takes reading; those done before are passed over."""

    def task(self, item: int, servers: int, log: Path | None) -> Task:
        """Return the task of an item."""

    def done(self, outcome: Outcome) -> None:
        """Take note that an item is done; it will not be asked for again."""

    def failed(self, item: int, error: str) -> None:
        """Take note that an item is given up, though its job goes on."""

    def close(self, why: str = "the job has ended") -> None:
        """Take note that no item will be asked for again."""


class PythonSource:
    """A function and an iterable of what to call it with, which is read as items are started.

    Only what is in flight, and a few more, are kept: a million arguments are never in memory at
    once. The iterable is read by a thread of its own, since it may take its time.
    """

    takes_results = False

    def __init__(
        self,
        function: Any,
        arguments: Iterable[Any],
        pack: Callable[[Any], Any],
        ahead: Callable[[], tuple[int, int]],
        timeout: float | None = None,
        keep: bool = False,
    ) -> None:
        self.function, self.arguments, self.pack = function, arguments, pack
        self.ahead = ahead  # how many to read ahead: in any case, and where they are small
        self.timeout, self.keep = timeout, keep
        self.kept: dict[int, Any] = {}
        self.bytes = 0
        self.room = threading.Condition()
        self.closed = False

    def feed(self, to: Feed, done: frozenset[int]) -> None:
        threading.Thread(
            target=self._read, args=(to, done), name="hesrpt-items", daemon=True
        ).start()

    def _read(self, to: Feed, done: frozenset[int]) -> None:
        items = new = 0
        try:
            for argument in self.arguments:
                if items not in done:
                    packed = self.pack(argument)
                    with self.room:
                        while not self.closed and not self._has_room():
                            self.room.wait(1.0)  # there may be more servers by then
                        if self.closed:
                            return
                        self.kept[items] = packed
                        self.bytes += _size(packed)
                    new += 1
                    to.read(new)
                items += 1
        except BaseException as error:  # the user's iterable may raise anything
            to.failed(f"its items: {type(error).__name__}: {error}")
        else:
            to.exhausted(lambda: items)

    def _has_room(self) -> bool:
        least, most = self.ahead()
        return len(self.kept) < (most if self.bytes < _AHEAD_BYTES else least)

    def task(self, item: int, servers: int, log: Path | None) -> Task:
        return PythonTask(
            function=self.function,
            argument=self.kept[item],
            timeout=self.timeout,
            log=log,
            keep_result=self.keep,
        )

    def done(self, outcome: Outcome) -> None:
        with self.room:
            self.bytes -= _size(self.kept.pop(outcome.item, b""))
            self.room.notify()

    def failed(self, item: int, error: str) -> None:
        """No item is given up: the job would fail."""

    def close(self, why: str = "") -> None:
        with self.room:
            self.closed = True
            self.kept.clear()
            self.function = None  # it may carry much
            self.room.notify()


def _size(packed: Any) -> int:
    return len(packed) if isinstance(packed, bytes) else 0


#: What a command may refer to.
PLACEHOLDERS = ("item", "stem", "name", "index", "servers", "job")


class CommandSource:
    """A command for each of several items, or one for all servers of the job."""

    takes_results = False

    def __init__(
        self,
        job: str,
        command: str | Sequence[str],
        items: Sequence[str],
        timeout: float | None,
        directory: Path | None = None,
        pinned: bool = False,
    ) -> None:
        self.job, self.items, self.timeout, self.directory = job, items, timeout, directory
        self.pinned = pinned
        self.command = command if isinstance(command, str) else tuple(command)
        check_placeholders(self.command)

    def feed(self, to: Feed, done: frozenset[int]) -> None:
        """All items are known from the start."""

    def task(self, item: int, servers: int, log: Path | None) -> Task:
        value = self.items[item] if self.items else ""
        path = PurePath(value)
        values = {
            "item": value, "stem": path.stem, "name": path.name, "index": str(item),
            "servers": str(servers), "job": self.job,
        }  # fmt: skip
        command: str | tuple[str, ...]
        if isinstance(self.command, str):
            command = self.command.format(**{k: shlex.quote(v) for k, v in values.items()})
        else:
            command = tuple(part.format(**values) for part in self.command)
        return CommandTask(
            command,
            timeout=self.timeout,
            log=log,
            directory=self.directory,
            pin_cores=self.pinned,
        )

    def done(self, outcome: Outcome) -> None:
        """Nothing is kept."""

    def failed(self, item: int, error: str) -> None:
        """No item is given up: the job would fail."""

    def close(self, why: str = "") -> None:
        """Nothing is kept."""


def check_placeholders(command: str | tuple[str, ...]) -> None:
    """Raise an error if a command refers to what does not exist, or would break its quotes."""
    for part in [command] if isinstance(command, str) else command:
        try:
            fields = list(Formatter().parse(part))
        except ValueError as error:
            raise InputError(f"{part!r}: {error}; write {{{{ and }}}} for braces") from None
        for _, field, spec, conversion in fields:
            if field is not None and (field not in PLACEHOLDERS or spec or conversion):
                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                how = f"!{conversion}" if conversion else f":{spec}" if spec else ""
                raise InputError(
                    f"unknown placeholder {{{field}{how}}} in {part!r}; there are {known}; write "
                    "{{ and }} for braces"
                )
        if isinstance(command, str):
            _check_quotes(part, fields)


def _check_quotes(command: str, fields: Iterable[tuple[str, str | None, Any, Any]]) -> None:
    """Raise an error if a placeholder stands in quotes: it is quoted itself, which ends them."""
    quote, escaped = "", False
    for text, field, _, _ in fields:
        for letter in text:
            if escaped:
                escaped = False
            elif letter == "\\" and quote != "'":
                escaped = True
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"`":
                quote = letter
        if field is not None and quote:
            raise InputError(
                f"{{{field}}} stands in quotes in {command!r}: leave them out, since values are "
                "quoted for the shell by themselves"
            )
