"""What runs items: a small protocol, so that one machine, a cluster and a test look alike."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias


@dataclass(frozen=True)
class PythonTask:
    """A function and what to call it with, both pickled by value."""

    function: bytes
    argument: bytes
    timeout: float | None = None
    log: Path | None = None


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
    """What became of an item: a result, pickled, or an error."""

    job: str
    item: int
    seconds: float
    result: bytes = b""
    error: str | None = None


class Engine(Protocol):
    """Runs items, and says what became of each of them, once.

    Methods are called by one thread, but :meth:`wake`, which any thread may call.
    """

    def now(self) -> float:
        """Return the time, in seconds, by the clock that items are timed with."""

    def capacity(self) -> int:
        """Return how many servers there are now."""

    def start(self, job: str, item: int, task: Task, servers: int) -> None:
        """Start an item."""

    def stop(self, job: str, item: int) -> None:
        """End an item; nothing will be heard of it."""

    def resize(self, job: str, item: int, servers: int) -> None:
        """Let a running item have another number of servers, if that can be done."""

    def outcomes(self, timeout: float) -> list[Outcome]:
        """Wait until something has ended, or somebody wakes us, but no longer than so."""

    def wake(self) -> None:
        """Let :meth:`outcomes` return at once."""

    def close(self) -> None:
        """End everything that runs, and leave nothing behind."""
