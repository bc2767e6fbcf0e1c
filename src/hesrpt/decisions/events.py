"""The events that the core handles, and the commands it returns. Plain values, no behaviour."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

from hesrpt.jobs.job_end import DONE, STOPPED, EndState, JobEnd
from hesrpt.jobs.job_spec import Group, Hook, JobSpec

# --- events -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class JobArrived:
    """A job has been submitted; the items in ``done`` were finished in an earlier run."""

    time: float
    spec: JobSpec
    done: tuple[range, ...] = ()


@dataclass(frozen=True)
class JobEnded:
    """A job for which others may wait has ended in an earlier run."""

    time: float
    name: str
    outcome: EndState


@dataclass(frozen=True)
class _AboutJob:
    """What all events about a job have that has already arrived."""

    time: float
    job: str


@dataclass(frozen=True)
class ItemsRead(_AboutJob):
    """So far, ``items`` items of a job were read, not counting those done in an earlier run.

    Of the items read since the last such event, those in ``done`` were done in an earlier run.
    """

    items: int
    done: tuple[range, ...] = ()


@dataclass(frozen=True)
class ItemsExhausted(_AboutJob):
    """All items of a job were read, and there are ``items`` of them."""

    items: int


@dataclass(frozen=True)
class ItemsFinished(_AboutJob):
    """An item finished, or several of a batch did, after ``seconds`` seconds each."""

    items: Sequence[int]
    seconds: Sequence[float]


@dataclass(frozen=True)
class ItemFailed(_AboutJob):
    """An item raised an error, crashed or exceeded its time limit."""

    item: int
    error: str


@dataclass(frozen=True)
class ItemLost(_AboutJob):
    """The server of an item was lost; the item must run again, and is probably not to blame."""

    item: int
    was_started: bool = True


@dataclass(frozen=True)
class JobCancelled(_AboutJob):
    """A job is to end before its items have: it was cancelled, or they cannot be read."""

    end: JobEnd = STOPPED


@dataclass(frozen=True)
class ItemsRetried(_AboutJob):
    """The failed items of a job are to run again.

    If the job has ended because of them, it continues, with those that never ran.
    """


@dataclass(frozen=True)
class JobSteered(_AboutJob):
    """A job is paused or goes on, or has another weight; None: as before.

    A paused job starts no items, and its running command is suspended or stopped.
    """

    is_paused: bool | None = None
    weight: float | None = None


@dataclass(frozen=True)
class GroupChanged:
    """A group was paused or resumed, or has another weight."""

    time: float
    name: str
    group: Group


@dataclass(frozen=True)
class CapacityChanged:
    """The number of servers has changed, or the number that one command can have."""

    time: float
    servers: int
    max_width: int | None = None  # None: a command can have all servers


@dataclass(frozen=True)
class Tick:
    """Time has passed."""

    time: float


#: Events about a job that has already arrived.
JobEvent: TypeAlias = (
    ItemsRead | ItemsExhausted | ItemsFinished | ItemFailed | ItemLost | JobCancelled | JobSteered
)
Event: TypeAlias = (
    JobArrived | JobEnded | JobEvent | ItemsRetried | GroupChanged | CapacityChanged | Tick
)

# --- commands ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Start:
    """Start an item; its server then runs the ``next_items``, one after another."""

    job: str
    item: int
    servers: int = 1
    next_items: Sequence[int] = ()
    gpus: tuple[int, ...] = ()  # the indices of the GPUs that it may use

    @property
    def items(self) -> Sequence[int]:
        """All items of this start."""
        return (self.item, *self.next_items)


@dataclass(frozen=True)
class Stop:
    """Stop a running item, and the ``next_items`` of its batch, unless they are done already."""

    job: str
    item: int
    next_items: Sequence[int] = ()

    @property
    def items(self) -> Sequence[int]:
        """All items to stop."""
        return (self.item, *self.next_items)


@dataclass(frozen=True)
class Resize:
    """Change the number of servers of a running command."""

    job: str
    item: int
    servers: int


@dataclass(frozen=True)
class Suspend:
    """Suspend a running command, which then holds no servers."""

    job: str
    item: int


@dataclass(frozen=True)
class Continue:
    """Let a suspended command go on, with this many servers."""

    job: str
    item: int
    servers: int


@dataclass(frozen=True)
class Admit:
    """Read the items of a job: it need not wait for others, or does so no more."""

    job: str


@dataclass(frozen=True)
class Finish:
    """End a job."""

    job: str
    end: JobEnd = DONE


@dataclass(frozen=True)
class CallHook:
    """Do what is to be done when a job has ended."""

    job: str
    hook: Hook
    end: JobEnd = DONE


@dataclass(frozen=True)
class Reopen:
    """Continue a job whose failed items run again, even if it has ended."""

    job: str


@dataclass(frozen=True)
class Drop:
    """Give up on an item that failed; if its job continues, it does so without the item."""

    job: str
    item: int
    error: str
    losses: int = 0  # how often its server was lost, if that is why


Command: TypeAlias = (
    Start | Stop | Resize | Suspend | Continue | Admit | Finish | CallHook | Reopen | Drop
)


def finish(spec: JobSpec, end: JobEnd = DONE) -> list[Command]:
    """Return the commands that end a job."""
    return [Finish(spec.name, end), *map(partial(CallHook, spec.name, end=end), spec.on_end)]


def steer(spec: JobSpec, event: JobSteered) -> JobSpec:
    """Return the specification of a job that is steered."""
    is_paused = spec.is_paused if event.is_paused is None else event.is_paused
    weight = spec.weight if event.weight is None else event.weight
    return replace(spec, is_paused=is_paused, weight=weight)
