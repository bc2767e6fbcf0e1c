"""Where the items of a job come from, and where their results go."""

from __future__ import annotations

import shlex
import threading
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path, PurePath
from string import Formatter
from typing import Any, Protocol

import cloudpickle

from hesrpt.errors import InputError
from hesrpt.runtime.engines.base import CommandTask, PythonTask, Task


class Feed(Protocol):
    """Whom a source tells about its items, from a thread of its own."""

    def read(self, items: int) -> None:
        """Say that so many items, without those done before, can be started."""

    def exhausted(self, items: int) -> None:
        """Say that there are so many items, and no more."""

    def failed(self, error: str) -> None:
        """Say that no further items can be had."""


class Source(Protocol):
    """Makes the tasks of a job, as they are started."""

    def feed(self, to: Feed, done: frozenset[int]) -> None:
        """Begin to read the items, if that takes reading; those done before are passed over."""

    def task(self, item: int, servers: int, log: Path | None) -> Task:
        """Return the task of an item."""

    def forget(self, item: int) -> None:
        """Take note that an item will not be asked for again."""

    def close(self) -> None:
        """Take note that no item will be asked for again."""


class PythonSource:
    """A function and an iterable of what to call it with, which is read as items are started.

    Only what is in flight, and a few more, are kept: a million arguments are never in memory at
    once. The iterable is read by a thread of its own, since it may take its time.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        arguments: Iterable[Any],
        timeout: float | None,
        ahead: int,
    ) -> None:
        self.function = _pickled(function)
        self.arguments = arguments
        self.timeout = timeout
        self.room = threading.Semaphore(ahead)
        self.kept: dict[int, bytes] = {}
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
                    self.room.acquire()
                    if self.closed:
                        return
                    self.kept[items] = _pickled(argument)
                    new += 1
                    to.read(new)
                items += 1
        except BaseException as error:  # the user's iterable may raise anything
            to.failed(f"its items: {type(error).__name__}: {error}")
        else:
            to.exhausted(items)

    def task(self, item: int, servers: int, log: Path | None) -> Task:
        return PythonTask(self.function, self.kept[item], self.timeout, log)

    def forget(self, item: int) -> None:
        if self.kept.pop(item, None) is not None:
            self.room.release()

    def close(self) -> None:
        self.closed = True
        self.kept.clear()
        self.room.release()


def _pickled(value: Any) -> bytes:
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise InputError(f"{value!r} cannot be sent to another process: {error}") from error


#: What a command may refer to.
PLACEHOLDERS = ("item", "stem", "name", "index", "servers", "job")


class CommandSource:
    """A command for each of several items, or one for all servers of the job."""

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
        return CommandTask(command, self.timeout, log, self.directory, self.pinned)

    def forget(self, item: int) -> None:
        """Nothing is kept."""

    def close(self) -> None:
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
