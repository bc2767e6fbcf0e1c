"""Where the items of a job come from, and where their results go."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path, PurePath
from string import Formatter
from typing import Any, Protocol

import cloudpickle

from hesrpt.errors import InputError
from hesrpt.runtime.engines.base import CommandTask, PythonTask, Task


class NoSuchItem(Exception):  # noqa: N818 (nothing is wrong: now it is known)
    """A job has no more items; it has so many."""

    def __init__(self, items: int) -> None:
        self.items = items


class Source(Protocol):
    """Makes the tasks of a job, as they are started."""

    def task(self, item: int, servers: int, log: Path | None) -> Task:
        """Return the task of an item, or raise :class:`NoSuchItem`."""

    def forget(self, item: int) -> None:
        """Take note that an item will not be asked for again."""


class PythonSource:
    """A function and an iterable of what to call it with, which is read as items are started.

    Only what is in flight is kept: a million arguments are never in memory at once.
    """

    def __init__(
        self, function: Callable[[Any], Any], arguments: Iterable[Any], timeout: float | None
    ) -> None:
        try:
            self.function = cloudpickle.dumps(function)
        except Exception as error:
            raise InputError(f"{function!r} cannot be sent to another process: {error}") from error
        self.arguments: Iterator[Any] = iter(arguments)
        self.timeout = timeout
        self.read = 0
        self.in_flight: dict[int, Any] = {}

    def task(self, item: int, servers: int, log: Path | None) -> Task:
        if item >= self.read:
            # Items that were done before are passed over.
            skipped = sum(1 for _ in islice(self.arguments, item - self.read))
            self.read += skipped
            try:
                self.in_flight[item] = next(self.arguments)
            except StopIteration:
                raise NoSuchItem(self.read) from None
            self.read += 1
        return PythonTask(self.function, self.in_flight[item], self.timeout, log)

    def forget(self, item: int) -> None:
        self.in_flight.pop(item, None)


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
    ) -> None:
        self.job, self.items, self.timeout, self.directory = job, items, timeout, directory
        self.command = command if isinstance(command, str) else tuple(command)
        check_placeholders(self.command)

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
        return CommandTask(command, self.timeout, log, self.directory)

    def forget(self, item: int) -> None:
        """Nothing is kept."""


def check_placeholders(command: str | tuple[str, ...]) -> None:
    """Raise an error if a command refers to what does not exist."""
    for part in [command] if isinstance(command, str) else command:
        try:
            fields = [(field, spec) for _, field, spec, _ in Formatter().parse(part)]
        except ValueError as error:
            raise InputError(f"{part!r}: {error}; write {{{{ and }}}} for braces") from None
        for field, spec in fields:
            if field is not None and (field not in PLACEHOLDERS or spec):
                known = ", ".join(f"{{{name}}}" for name in PLACEHOLDERS)
                raise InputError(
                    f"unknown placeholder {{{field}}} in {part!r}; there are {known}; write {{{{ "
                    "and }} for braces"
                )
