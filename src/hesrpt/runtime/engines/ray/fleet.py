"""The servers on a cluster: actors, where they are, and what they are for.

A server is an actor that holds one server's resources on one node. A command on several servers
gets an actor of its own, on one node; where none has room, nothing else is started on the node that
will have it first. Servers that nobody needs are given back after a while.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import ray
from ray.exceptions import ActorUnschedulableError, RayError, RuntimeEnvSetupError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import CommandTask, Task
from hesrpt.runtime.engines.ray.cluster import SETTLED, Cluster, Held
from hesrpt.runtime.engines.ray.connection import as_options, is_connected
from hesrpt.runtime.engines.ray.server import Server

# How often to look at the cluster, in seconds.
_LOOK = 0.5
# A server that nobody needs is given back after so many seconds.
_IDLE = 3.0
# A server that has not started after so many seconds will not: others were faster.
_PENDING = 20.0
# After so many servers that could not be started, and none that could, there is something wrong.
_MOST_FAILURES = 5
# So many nodes are asked at a time whether they are still there.
_ASKED = 4


@dataclass(eq=False)
class Batch:
    """What a server is given in one go."""

    job: str
    tasks: dict[int, Task]
    servers: int
    references: list[Any] = field(default_factory=list)  # to results that stay in the cluster
    deadline: float = inf

    def limit(self, slack: float) -> float:
        """Return after how many seconds it has taken too long; commands are watched elsewhere.

        Items in batches are short. If one is not, all are done again, one at a time.
        """
        if any(isinstance(task, CommandTask) for task in self.tasks.values()):
            return inf
        longest = max(task.timeout or inf for task in self.tasks.values())
        return longest + (slack if len(self.tasks) > 1 else 0.0)


@dataclass(eq=False)
class Actor:
    """One of our servers, or several for one command."""

    handle: Any
    node: str
    servers: int
    meant_for: Batch | None
    begun: float = field(default_factory=time.monotonic)
    ready: bool = False
    since: float = inf  # when it was
    batch: Batch | None = None
    idle_since: float = inf


#: What is told of an actor: that it is there (no batch), or what came of a batch.
Hear = Callable[[Actor, Batch | None, "Future[Any]"], None]


class Fleet:
    """All servers of a pool."""

    def __init__(
        self,
        session: str,
        resources: Mapping[str, float],
        most: float,
        runtime_env: Mapping[str, Any] | None,
        hear: Hear,
    ) -> None:
        self.session, self.most, self.hear = session, most, hear
        self.cluster = Cluster(resources)
        self.actors: list[Actor] = []
        self.failures: Counter[str] = Counter()  # of starts, by node
        self.has_worked = False
        self._looked = -inf
        self._ended: list[tuple[float, str, int]] = []  # servers that may not be free yet
        self._remote = ray.remote(Server)
        self._options: dict[str, Any] = {"max_restarts": 0}
        if runtime_env is not None:
            self._options["runtime_env"] = dict(runtime_env)

    @property
    def capacity(self) -> int:
        """How many servers there are, or can be had at once."""
        return int(min(sum(self.cluster.room.values()), self.most))

    @property
    def widest(self) -> int:
        """How many of them are on one node."""
        return int(min(max(self.cluster.room.values(), default=0), self.most))

    # --- the cluster --------------------------------------------------------------------------

    def look(self, wanted: int) -> list[Batch]:
        """Look at the cluster, now and then; return what ran on nodes that are gone."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return []
        self._looked = now
        self._ended = [one for one in self._ended if now - one[0] < SETTLED]
        nodes = {actor.node for actor in self.actors} | {node for _, node, _ in self._ended}
        try:
            self.cluster.look({node: self._held_on(node, now) for node in nodes})
            capacity = self.capacity
            more = min(wanted, self.most) - capacity
            # An autoscaler is asked for as much again, no more: what it adds is used first.
            self.cluster.ask_for(int(max(min(more, max(capacity, 1)), 0)))
        except (RayError, ConnectionError, TimeoutError):
            return []  # it may come back; what was seen last must do
        self._give_up(now)
        return self._lost(now)

    def _held_on(self, node: str, now: float) -> Held:
        here = [actor for actor in self.actors if actor.node == node]
        gone = sum(servers for _, where, servers in self._ended if where == node)
        return Held(
            ready=sum(actor.servers for actor in here if actor.ready),
            known=sum(actor.servers for actor in here if now - actor.since > SETTLED),
            possible=sum(actor.servers for actor in here) + gone,
        )

    def _give_up(self, now: float) -> None:
        """End servers that are not to be had, and those that nobody needs."""
        held = self._held()
        for actor in list(self.actors):
            if not actor.ready:
                too_late = now - actor.begun > _PENDING
                if too_late or held[actor.node] > self.cluster.room.get(actor.node, 0):
                    held[actor.node] -= actor.servers
                    self.end(actor)
                    if too_late:
                        self.cluster.avoid(actor.node, _PENDING)
            elif actor.batch is None and now - actor.idle_since > _IDLE:
                self.end(actor)

    def _lost(self, now: float) -> list[Batch]:
        """Ask a few nodes whether they are still there: Ray would say it much later."""
        in_use = sorted({actor.node for actor in self.actors})
        turn = int(now / _LOOK) * _ASKED
        for place in range(min(_ASKED, len(in_use))):
            node = in_use[(turn + place) % len(in_use)]
            if self.cluster.has_died(node):
                return self.node_died(node)
        return []

    def node_died(self, node: str) -> list[Batch]:
        """Take note that a node is gone; return what ran on it."""
        self.cluster.drop(node)
        there = [actor for actor in self.actors if actor.node == node]
        for actor in there:
            self.end(actor)
        return [actor.batch for actor in there if actor.batch is not None]

    # --- servers ------------------------------------------------------------------------------

    def place(self, queue: list[Batch]) -> list[tuple[Actor, Batch]]:
        """Return who can be given what; have more servers started for the rest."""
        pairs, reserved = self._place_wide([batch for batch in queue if batch.servers > 1])
        waiting = [batch for batch in queue if batch.servers == 1]
        singles = [a for a in self.actors if a.servers == 1 and a.batch is None]
        idle = [actor for actor in singles if actor.ready and actor.node not in reserved]
        pairs += zip(idle, waiting, strict=False)
        starting = sum(not actor.ready for actor in singles)
        self._begin_more(len(waiting) - len(idle) - starting, reserved)
        return pairs

    def _begin_more(self, count: int, reserved: set[str]) -> None:
        held = self._held()
        free = {
            node: room - held[node]
            for node, room in self.cluster.room.items()
            if node not in reserved
        }
        for _ in range(min(count, int(min(self.most - held.total(), 1 << 30)))):
            node = max(free, key=free.__getitem__, default="")
            if free.get(node, 0) <= 0:
                return
            free[node] -= 1
            self._begin(node, 1, None)

    def _place_wide(self, batches: list[Batch]) -> tuple[list[tuple[Actor, Batch]], set[str]]:
        """Find commands that need several servers a node; return also which nodes they will use."""
        pairs, reserved = [], set()
        for batch in batches:
            actor = next((actor for actor in self.actors if actor.meant_for is batch), None)
            if actor is not None:
                reserved.add(actor.node)
                if actor.ready and actor.batch is None:
                    pairs.append((actor, batch))
                continue
            fitting = [
                node
                for node, room in self.cluster.room.items()
                if room >= batch.servers and node not in reserved
            ]
            if fitting:
                node = min(fitting, key=self._busy)
                reserved.add(node)
                self._make_room(batch, node)
        return pairs, reserved

    def _make_room(self, batch: Batch, node: str) -> None:
        """Start servers for a command on a node, as soon as it has room."""
        idle = [a for a in self.actors if a.batch is None and a.meant_for is None]
        for actor in idle:
            if actor.node == node or self._held().total() + batch.servers > self.most:
                self.end(actor)
        held = self._held()
        has_room = self.cluster.room[node] - held[node] >= batch.servers
        if has_room and held.total() + batch.servers <= self.most:
            self._begin(node, batch.servers, batch)

    def _busy(self, node: str) -> int:
        return sum(a.servers for a in self.actors if a.node == node and a.batch is not None)

    def _held(self) -> Counter[str]:
        held: Counter[str] = Counter()
        for actor in self.actors:
            held[actor.node] += actor.servers
        return held

    def _begin(self, node: str, servers: int, meant_for: Batch | None) -> None:
        try:
            handle = self._remote.options(
                **as_options(self.cluster.resources, servers),
                **self._options,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            ).remote()
        except (ValueError, TypeError) as error:
            raise InputError(f"Ray cannot start a server: {error}") from None
        actor = Actor(handle, node, servers, meant_for)
        self.actors.append(actor)
        self.listen(actor, None, handle.begin.remote())

    def listen(self, actor: Actor, batch: Batch | None, reference: Any) -> None:
        """Have it told when something has ended."""
        reference.future().add_done_callback(partial(self.hear, actor, batch))

    def started(self, actor: Actor) -> None:
        """Take note that a server is there."""
        actor.ready, self.has_worked = True, True
        actor.since = actor.idle_since = time.monotonic()
        self.failures.pop(actor.node, None)

    def not_started(self, actor: Actor, error: BaseException) -> None:
        """Take note that a server could not be started; its node is left alone for a while."""
        self.end(actor)
        if isinstance(error, RuntimeEnvSetupError):
            raise InputError(f"runtime_env cannot be set up on the cluster: {error}")
        if isinstance(error, ActorUnschedulableError) or self.cluster.has_died(actor.node):
            self.cluster.drop(actor.node)
            return
        self.failures[actor.node] += 1
        if not self.has_worked and self.failures.total() >= _MOST_FAILURES:
            raise InputError(f"servers cannot be started on the cluster: {error}")
        self.cluster.avoid(actor.node, min(2.0 ** self.failures[actor.node], 60.0))

    def end(self, actor: Actor) -> None:
        """End a server, and whatever it does."""
        self.actors.remove(actor)
        self._ended.append((time.monotonic(), actor.node, actor.servers))
        if is_connected(self.session):
            with contextlib.suppress(Exception):  # it may have died
                ray.kill(actor.handle)

    def close(self) -> None:
        """End all."""
        for actor in list(self.actors):
            self.end(actor)
        if is_connected(self.session):
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.cluster.ask_for(0)
