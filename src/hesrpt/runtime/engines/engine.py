"""What runs items: a small protocol, so that one machine, a cluster and a test look alike."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, TypeAlias

import cloudpickle

from hesrpt.errors import InputError

# A clock that no one sets.
_EPOCH = time.time() - time.monotonic()


def steady_time() -> float:
    """Return the time, in seconds."""
    return _EPOCH + time.monotonic()


def pickled(value: Any) -> bytes:
    """Return a value for another process: anything, also lambdas and closures."""
    try:
        return bytes(cloudpickle.dumps(value))
    except Exception as error:
        raise InputError(f"{value!r} cannot be sent to another process: {error}") from error


@dataclass(frozen=True)
class PythonTask:
    """A function and what to call it with, as the engine has packed them."""

    function: Any
    argument: Any
    timeout: float | None = None
    log: Path | None = None
    keep: bool = False  # whether the result stays where it was made


@dataclass(frozen=True)
class CommandTask:
    """A program with its arguments, or one line for the shell."""

    command: str | tuple[str, ...]
    timeout: float | None = None
    log: Path | None = None
    directory: Path | None = None
    pinned: bool = False  # whether it runs on as many cores as it has servers, and no others


Task: TypeAlias = PythonTask | CommandTask


@dataclass(frozen=True)
class Outcome:
    """What became of an item: a result, pickled, or a reference to it, or an error."""

    job: str
    item: int
    seconds: float
    result: bytes = b""
    error: str | None = None
    reference: Any = None
    lost: bool = False  # whether it must be done again, by no fault of its own, or not for certain
    ran: bool = True  # whether it was begun, if it is lost


class Engine(Protocol):
    """Runs items, and says what became of each of them, once.

    Methods are called by one thread, but :meth:`wake`, :meth:`packed` and :meth:`shared`, which any
    thread may call.
    """

    #: How long a server should be busy with what it is given in one go; 0: one item at a time.
    batch_seconds: float
    #: Whether a running command can be given another number of servers.
    resizes: bool
    #: Whether results can stay where they were made.
    keeps: bool

    def now(self) -> float:
        """Return the time, in seconds, by the clock that items are timed with."""

    def capacity(self) -> int:
        """Return how many servers there are now."""

    def widest(self) -> int:
        """Return how many of them one command can have."""

    def want(self, servers: int) -> None:
        """Take note that jobs could use so many: what can grow may."""

    def shared(self, function: Any) -> Any:
        """Return a function as tasks hold it; what it carries is sent to a place only once."""

    def packed(self, argument: Any) -> Any:
        """Return an argument as tasks hold it."""

    def fetch(self, reference: Any) -> Any:
        """Return a result that has stayed where it was made."""

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        """Start items, which one server, or a command's servers, do one after the other."""

    def stop(self, job: str, item: int) -> None:
        """End an item; nothing will be heard of it."""

    def resize(self, job: str, item: int, servers: int) -> None:
        """Let a running command have another number of servers."""

    def outcomes(self, timeout: float) -> list[Outcome]:
        """Wait until something has ended, or somebody wakes us, but no longer than so."""

    def wake(self) -> None:
        """Let :meth:`outcomes` return at once."""

    def close(self) -> None:
        """End everything that runs, and leave nothing behind."""
