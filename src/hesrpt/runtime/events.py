"""What the core of the scheduler is told, and what it answers. Plain values, no behaviour."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from hesrpt.speedups import Speedup

#: How a job of one long command follows its number of servers; a bag of items always can.
Resizing: TypeAlias = Literal["restart", "affinity", "never"]


@dataclass(frozen=True)
class JobSpec:
    """A job as the core sees it: a bag of items, or one command that runs on several servers."""

    items: int | None = None  # None: not known before they run out
    size: float | None = None  # seconds of work on one server; None: to be learned
    speedup: Speedup | None = None  # None: to be learned
    weight: float = 1.0
    retries: int = 1
    resize: Resizing | None = None  # None: a bag of items
    restart_cost: float = 10.0  # seconds lost when it is started again
    fed: bool = False  # whether it is said how many items can be started (ItemsRead)
    calls: bool = False  # whether items come as somebody calls; those that fail are given up


# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class JobArrived:
    """A job wants to run. ``done`` of its items were done before."""

    time: float
    job: str
    spec: JobSpec
    done: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ItemsRead:
    """So many items of a job, without those done before, can be started or have been."""

    time: float
    job: str
    items: int


@dataclass(frozen=True)
class ItemsExhausted:
    """A job turned out to have so many items."""

    time: float
    job: str
    items: int


@dataclass(frozen=True)
class ItemFinished:
    """An item is done; it took so many seconds."""

    time: float
    job: str
    item: int
    seconds: float


@dataclass(frozen=True)
class ItemFailed:
    """An item raised an error, crashed or ran out of time."""

    time: float
    job: str
    item: int
    error: str


@dataclass(frozen=True)
class ItemLost:
    """An item must be done again, by no fault of its own, or not for certain."""

    time: float
    job: str
    item: int
    ran: bool = True  # otherwise it was not even begun


@dataclass(frozen=True)
class JobCancelled:
    """Somebody no longer wants a job, or its items cannot be had."""

    time: float
    job: str
    error: str = "cancelled"


@dataclass(frozen=True)
class CapacityChanged:
    """There are now so many servers, and one command can have so many of them."""

    time: float
    servers: int
    widest: int | None = None  # None: all


@dataclass(frozen=True)
class Tick:
    """Time has passed."""

    time: float


Event: TypeAlias = (
    JobArrived
    | ItemsRead
    | ItemsExhausted
    | ItemFinished
    | ItemFailed
    | ItemLost
    | JobCancelled
    | CapacityChanged
    | Tick
)

# --- commands ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """Start an item on so many servers."""

    job: str
    item: int
    servers: int = 1
    also: tuple[int, ...] = ()  # further items, which the same server does afterwards

    @property
    def items(self) -> tuple[int, ...]:
        """All items that are started."""
        return (self.item, *self.also)


@dataclass(frozen=True)
class Stop:
    """End an item that is running; nothing will be heard of it again."""

    job: str
    item: int


@dataclass(frozen=True)
class Resize:
    """Let a running item have another number of servers."""

    job: str
    item: int
    servers: int


@dataclass(frozen=True)
class Finish:
    """A job has ended; with an error if it failed."""

    job: str
    error: str | None = None


@dataclass(frozen=True)
class Drop:
    """An item is given up, though its job goes on."""

    job: str
    item: int
    error: str


Command: TypeAlias = Start | Stop | Resize | Finish | Drop
