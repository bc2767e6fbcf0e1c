"""Our actors on a cluster, the batches of items they run, and their replies."""

from __future__ import annotations

import time
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import inf
from typing import Any, NamedTuple

from hesrpt.engines.engine import CommandTask, Task


@dataclass(eq=False)
class Batch:
    """Items that one actor runs one after another, and that it reports together."""

    job: str
    tasks: dict[int, Task]
    servers: int
    references: list[Any] = field(default_factory=list)  # to results that stay in the cluster
    deadline: float = inf

    def compute_time_limit(self, slack: float = 0.0) -> float:
        """Return how many seconds the batch may take.

        Commands enforce their time limits on their server. A batch of several items gets some
        slack, because its items are short; if it takes too long, they run again one at a time.
        """
        if any(isinstance(task, CommandTask) for task in self.tasks.values()):
            return inf
        longest = max(task.timeout or inf for task in self.tasks.values())
        return longest + (slack if len(self.tasks) > 1 else 0.0)


@dataclass(eq=False)
class Actor:
    """An actor of ours. It is one server, or the several servers of one command."""

    handle: Any
    node: str
    servers: int
    reserved_for: Batch | None
    created_at: float = field(default_factory=time.monotonic)
    ready_since: float = inf
    idle_since: float = inf
    batch: Batch | None = None

    @property
    def is_ready(self) -> bool:
        """Whether the actor has started."""
        return self.ready_since < inf

    @property
    def is_idle(self) -> bool:
        """Whether the actor, started or not, has nothing to run."""
        return self.batch is None


class Reply(NamedTuple):
    """An actor's answer: that it has started (``batch`` is None), or the reports of a batch."""

    actor: Actor
    batch: Batch | None
    future: Future[Any]


class Assignment(NamedTuple):
    """A batch, and the actor that is to run it now."""

    actor: Actor
    batch: Batch
