"""The reference model of the live scheduler: what a user may rely on, and nothing else."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.failures import OnError
from hesrpt.jobs.job_spec import JobSpec, Resizing
from hesrpt.pool.executor import PoolExecutor
from hesrpt.pool.job_handle import Job
from support.stepping import GuidedItems


def double(x: Any) -> Any:
    return x * 2


def triple(x: Any) -> Any:
    return x * 3


FUNCTIONS = {"double": double, "triple": triple}
#: How a script may have changed a job since the run was interrupted.
CHANGES = ["none", "none", "reversed", "shorter", "longer", "function"]


@dataclass(frozen=True)
class Request:
    """A job as the user's script adds it, the same in every life of the scheduler."""

    name: str
    items: tuple[int, ...]
    retries: int = 1
    on_error: OnError = "raise"
    function: str = "double"
    is_sized: bool = True
    resize: Resizing | None = None
    is_command: bool = False
    tag: str = ""  # identifies a submission
    serial: int = 0  # identifies the request, whatever changes
    needs_gpu: bool = False  # whether each item needs one
    after: tuple[str, ...] = ()  # the jobs that must have ended, well or not

    def create_spec(self) -> JobSpec:
        """Return the job of a command."""
        items = None if self.resize else tuple(map(str, self.items))
        program = ("true", self.tag) if self.resize else ("true", self.tag, "{item}")
        template = CommandTemplate(job=self.name, command=program, items=items)
        return JobSpec(
            name=self.name,
            items=1 if items is None else len(items),
            retries=self.retries,
            on_error=self.on_error,
            resize=self.resize,
            restart_cost=2.0,
            command=template,
            resources={"gpu": 1.0} if self.needs_gpu else {},
            after=self.after,
            after_failure="release",
        )


def get_tag(spec: JobSpec) -> str:
    """Return the tag of a submission."""
    return "" if spec.command is None else spec.command.command[1]


@dataclass
class ModelJob:
    """A job of the present life, and what should have become of it."""

    request: Request
    handle: Job[Any]
    source: GuidedItems | None = None
    done: set[int] = field(default_factory=set)
    failures: Counter[int] = field(default_factory=Counter)
    losses: Counter[int] = field(default_factory=Counter)
    given_up: set[int] = field(default_factory=set)  # items that have failed too often
    failed: str | None = None  # "failed" or "cancelled"

    @property
    def name(self) -> str:
        return self.handle.name

    @property
    def items(self) -> int:
        return len(self.request.items)

    @property
    def offered(self) -> int:
        return self.items if self.source is None else self.source.offered

    @property
    def end(self) -> str | None:
        """The state in which it has ended; None if it has not."""
        if self.failed is not None:
            return self.failed
        if len(self.done) + len(self.given_up) < self.items:
            return None
        return "failed" if self.given_up else "done"

    @property
    def unfinished(self) -> set[int]:
        """The items that can be read and are neither done nor given up."""
        return set(range(self.offered)) - self.done - self.given_up

    @property
    def can_be_retried(self) -> bool:
        """Whether there are failed items, and the scheduler has room to read them again.

        A command that was cancelled can go on, too.
        """
        if self.failed == "cancelled":
            return self.request.is_command
        has_room = self.offered == self.items or len(self.unfinished | self.given_up) <= 2
        return bool(self.given_up) and has_room

    def give_up(self, item: int) -> None:
        """Note that an item has failed too often."""
        self.given_up.add(item)
        if self.request.on_error == "raise":
            self.failed = "failed"

    def retry(self) -> None:
        """Note that the failed items run again, or that the job goes on."""
        for item in self.given_up:
            self.failures[item] = self.losses[item] = 0
        self.given_up, self.failed = set(), None


@dataclass
class ModelExecutor:
    """An executor of the present life."""

    executor: PoolExecutor
    calls: list[tuple[int, Future[Any]]] = field(default_factory=list)
    is_shut_down: bool = False


def find_done(items: Sequence[int], results: Mapping[int, Sequence[Any]]) -> set[int]:
    """Return the positions of the items that earlier results belong to; equal items may repeat."""
    return {
        position
        for position, item in enumerate(items)
        if items[:position].count(item) < len(results.get(item, ()))
    }
