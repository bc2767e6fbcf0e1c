"""The servers are actors of a Ray cluster.

Each is an actor that holds one server's resources on one node, and is given items as long as there
are any; when it has been idle for a while it is ended, so that others can have what it held. A
command on several servers gets an actor of its own, on one node.

When a connection breaks, an item has crashed, or its node has died. Ray takes long to say which;
the node is asked instead. Where it does not answer, its items are lost, and done again elsewhere.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any

import ray
from ray.exceptions import ActorDiedError, RayActorError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hesrpt.errors import InputError
from hesrpt.runtime.engines.base import CommandTask, Outcome, Task, pickled, steady_time
from hesrpt.runtime.engines.ray_cluster import Cluster, as_options, connect
from hesrpt.runtime.engines.ray_server import Report, Server

# How often to look at the cluster, in seconds.
_LOOK = 0.5
# So long after a change of ours, Ray's news of what is free are right.
_SETTLED = 1.5
# A server that nobody needs is given back after so many seconds.
_IDLE = 3.0
# After so many servers in a row that could not be started, there is something wrong.
_MOST_FAILURES = 5


@dataclass(eq=False)
class _Batch:
    """What a server is given in one go."""

    job: str
    tasks: dict[int, Task]
    servers: int
    references: list[Any] = field(default_factory=list)  # to results that stay in the cluster
    deadline: float = inf

    @property
    def timeout(self) -> float:
        """When it has taken too long in all; commands are watched where they run."""
        if any(isinstance(task, CommandTask) for task in self.tasks.values()):
            return inf
        return sum(task.timeout or inf for task in self.tasks.values())


@dataclass(eq=False)
class _Actor:
    """One of our servers, or several for one command."""

    handle: Any
    node: str
    servers: int
    ready: bool = False
    since: float = inf  # when it was
    batch: _Batch | None = None
    idle_since: float = field(default_factory=time.monotonic)


class RayEngine:
    """Runs items on a Ray cluster.

    Parameters
    ----------
    servers
        The most servers to use; all that are free by default.
    address
        Where the cluster is, as for ``ray.init``.
    resources
        What a server is.
    runtime_env
        What the servers' processes need, as for ``ray.init``.
    """

    batch_seconds = 0.1
    resizes = False  # Ray cannot change what a running actor holds
    keeps = True

    def __init__(
        self,
        servers: int | None = None,
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
    ) -> None:
        self.most = inf if servers is None else servers
        self.cluster = Cluster(_checked({"CPU": 1} if resources is None else resources))
        self.is_ours = connect(address, runtime_env)
        self.session = ray.get_runtime_context().gcs_address
        self.actors: list[_Actor] = []
        self.queue: list[_Batch] = []
        self.awaited: dict[tuple[str, int], _Batch] = {}
        self.events: queue.SimpleQueue[tuple[_Actor, _Batch | None, Future[Any]] | None]
        self.events = queue.SimpleQueue()
        self.wanted = 0
        self.failures = 0
        self._looked = -inf
        self._ended: list[tuple[float, str, int]] = []  # servers that may not be free yet
        self._remote = ray.remote(Server)
        self._look()
        if not self.cluster.could_ever_fit():
            told = (
                f"no node of the cluster has {self.cluster.resources}: {self.cluster.described()}"
            )
            self.close()
            raise InputError(told)

    def now(self) -> float:
        return steady_time()

    def capacity(self) -> int:
        return int(min(sum(self.cluster.room.values()), self.most))

    def widest(self) -> int:
        return int(min(max(self.cluster.room.values(), default=0), self.most))

    def want(self, servers: int) -> None:
        self.wanted = servers

    def shared(self, function: Any) -> Any:
        return ray.put(pickled(function))

    def packed(self, argument: Any) -> Any:
        # A reference stands for what it refers to, as in a call of Ray's own.
        return argument if isinstance(argument, ray.ObjectRef) else pickled(argument)

    def fetch(self, reference: Any) -> Any:
        return ray.get(reference)

    # --- items --------------------------------------------------------------------------------

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        batch = _Batch(job, dict(tasks), servers)
        self.awaited |= {(job, item): batch for item in tasks}
        self.queue.append(batch)
        self._place()

    def stop(self, job: str, item: int) -> None:
        batch = self.awaited.pop((job, item), None)
        if batch is None or any(self._awaits(batch)):
            return
        if batch in self.queue:
            self.queue.remove(batch)
        for actor in [actor for actor in self.actors if actor.batch is batch]:
            self._end(actor)

    def resize(self, job: str, item: int, servers: int) -> None:
        """Nothing to do: the scheduler does not ask for it."""

    def wake(self) -> None:
        self.events.put(None)

    def outcomes(self, timeout: float) -> list[Outcome]:
        if not self._is_connected():
            raise InputError("the connection to Ray was closed while the pool was open")
        self._look()
        self._place()
        deadline = min((a.batch.deadline for a in self.actors if a.batch is not None), default=inf)
        patience = max(min(timeout, deadline - time.monotonic()), 0.0)
        found: list[Outcome] = []
        with contextlib.suppress(queue.Empty):
            event = self.events.get(timeout=patience)
            while True:
                if event is not None:
                    found += self._heard(*event)
                event = self.events.get_nowait()
        found += self._overdue()
        found += self._too_wide()
        self._place()
        return found

    def close(self) -> None:
        self.queue.clear()
        self.awaited.clear()
        for actor in list(self.actors):
            self._end(actor)
        if self._is_connected():
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.cluster.ask_for(0)
            if self.is_ours:
                ray.shutdown()

    def _is_connected(self) -> bool:
        """Return whether Ray is still there: a call of it would start another one otherwise."""
        return bool(ray.is_initialized() and ray.get_runtime_context().gcs_address == self.session)

    # --- what is heard ------------------------------------------------------------------------

    def _heard(self, actor: _Actor, batch: _Batch | None, future: Future[Any]) -> Iterator[Outcome]:
        if actor not in self.actors or actor.batch is not batch:
            return  # it was ended
        error = future.exception()
        if isinstance(error, RayActorError):
            yield from self._died(actor, error)
        elif batch is None:
            if error is not None:
                raise error
            actor.ready, self.failures = True, 0
            actor.since = actor.idle_since = time.monotonic()
        else:
            actor.batch, actor.idle_since = None, time.monotonic()
            if actor.servers > 1:
                self._end(actor)
            if error is None:
                yield from self._told(batch, future.result())
            else:
                yield from self._failed(batch, str(error))

    def _told(self, batch: _Batch, reports: list[Report]) -> Iterator[Outcome]:
        for place, (item, task) in enumerate(batch.tasks.items()):
            if self.awaited.pop((batch.job, item), None) is None:
                continue
            report = reports[place]
            if report.said and task.log is not None:
                with task.log.open("ab") as log:
                    log.write(report.said)
            kept = batch.references[place] if batch.references and report.error is None else None
            yield Outcome(batch.job, item, report.seconds, report.result, report.error, kept)

    def _failed(self, batch: _Batch, error: str) -> Iterator[Outcome]:
        """Tell of a batch that came to nothing: whose fault it was, if it was only one."""
        if len(batch.tasks) > 1:
            yield from self._lost(batch)
        for item in self._awaits(batch):
            del self.awaited[batch.job, item]
            yield Outcome(batch.job, item, 0.0, error=error)

    def _lost(self, batch: _Batch) -> Iterator[Outcome]:
        for item in self._awaits(batch):
            del self.awaited[batch.job, item]
            yield Outcome(batch.job, item, 0.0, lost=True)

    def _awaits(self, batch: _Batch) -> list[int]:
        return [item for item in batch.tasks if self.awaited.get((batch.job, item)) is batch]

    def _died(self, actor: _Actor, error: RayActorError) -> Iterator[Outcome]:
        if self.cluster.has_died(actor.node):
            for other in [other for other in self.actors if other.node == actor.node]:
                self._end(other)
                if other.batch is not None:
                    yield from self._lost(other.batch)
            return
        self._end(actor)
        if actor.batch is None:
            self.failures += 1
            if self.failures >= _MOST_FAILURES:
                raise InputError(f"servers cannot be started on the cluster: {error}")
        elif isinstance(error, ActorDiedError) and not error.preempted:
            yield from self._failed(actor.batch, _death(error))
        else:
            yield from self._lost(actor.batch)

    def _overdue(self) -> Iterator[Outcome]:
        now = time.monotonic()
        for actor in list(self.actors):
            if actor.batch is not None and actor.batch.deadline <= now:
                self._end(actor)
                told = f"took longer than its time limit ({actor.batch.timeout:g} s)"
                yield from self._failed(actor.batch, told)

    def _too_wide(self) -> Iterator[Outcome]:
        """Give back commands for which there is no node any more."""
        for batch in [batch for batch in self.queue if batch.servers > max(self.widest(), 1)]:
            self.queue.remove(batch)
            yield from self._lost(batch)

    # --- servers ------------------------------------------------------------------------------

    def _look(self) -> None:
        """Look at the cluster, now and then."""
        now = time.monotonic()
        if now - self._looked < _LOOK:
            return
        self._looked = now
        self._ended = [one for one in self._ended if now - one[0] < _SETTLED]
        nodes = {actor.node for actor in self.actors} | {node for _, node, _ in self._ended}
        self.cluster.look({node: self._known_and_possible(node, now) for node in nodes})
        for node in nodes:
            # Others were faster: what is not there yet is not to be had.
            for actor in [a for a in self.actors if a.node == node and not a.ready]:
                if self._held(node) > self.cluster.room.get(node, 0):
                    self._end(actor)
        for actor in list(self.actors):
            if actor.ready and actor.batch is None and now - actor.idle_since > _IDLE:
                self._end(actor)
        capacity = self.capacity()
        more = min(self.wanted, self.most) - capacity
        # An autoscaler is asked for as much again, no more: what it adds is used first.
        self.cluster.ask_for(int(max(min(more, max(capacity, 1)), 0)))

    def _known_and_possible(self, node: str, now: float) -> tuple[int, int]:
        """Return how many servers of ours Ray's news of a node surely, and at most, speak of."""
        known = sum(a.servers for a in self.actors if a.node == node and now - a.since > _SETTLED)
        gone = sum(servers for _, where, servers in self._ended if where == node)
        return known, self._held(node) + gone

    def _held(self, node: str | None = None) -> int:
        return sum(actor.servers for actor in self.actors if node in (None, actor.node))

    def _place(self) -> None:
        """Give what waits to servers that are idle, and have more servers started for the rest."""
        reserved = self._make_room()
        idle = [a for a in self.actors if a.ready and a.batch is None and a.node not in reserved]
        waiting = [batch for batch in self.queue if batch.servers == 1]
        for actor, batch in zip(idle, waiting, strict=False):
            self._give(actor, batch)
        missing = len(waiting) - len(idle)
        missing -= sum(not a.ready and a.servers == 1 for a in self.actors)
        for _ in range(missing):
            free = {
                node: room - self._held(node)
                for node, room in self.cluster.room.items()
                if node not in reserved
            }
            node = max(free, key=free.__getitem__, default=None)
            if node is None or free[node] <= 0 or self._held() >= self.most:
                break
            self._begin(node, 1)

    def _make_room(self) -> set[str]:
        """Start servers for commands that need several, where they fit; return where they will.

        Nothing else is started on a node on which there will be room when what runs has ended.
        """
        reserved: set[str] = set()
        for batch in [batch for batch in self.queue if batch.servers > 1]:
            actor = next(
                (a for a in self.actors if a.servers == batch.servers and a.batch is None), None
            )
            if actor is not None:
                if actor.ready:
                    self._give(actor, batch)
                continue
            fitting = [
                node
                for node, room in self.cluster.room.items()
                if room >= batch.servers and node not in reserved
            ]
            if not fitting:
                continue
            node = min(fitting, key=self._busy)
            reserved.add(node)
            for idle in [a for a in self.actors if a.node == node and a.batch is None]:
                self._end(idle)
            if self.cluster.room[node] - self._held(node) >= batch.servers:
                self._begin(node, batch.servers)
        return reserved

    def _busy(self, node: str) -> int:
        return sum(a.servers for a in self.actors if a.node == node and a.batch is not None)

    def _begin(self, node: str, servers: int) -> None:
        handle = self._remote.options(
            **as_options(self.cluster.resources, servers),
            max_restarts=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        ).remote()
        actor = _Actor(handle, node, servers)
        self.actors.append(actor)
        self._listen(actor, None, handle.begin.remote())

    def _end(self, actor: _Actor) -> None:
        self.actors.remove(actor)
        self._ended.append((time.monotonic(), actor.node, actor.servers))
        if self._is_connected():
            with contextlib.suppress(Exception):  # it may have died
                ray.kill(actor.handle)

    def _give(self, actor: _Actor, batch: _Batch) -> None:
        self.queue.remove(batch)
        actor.batch = batch
        batch.deadline = time.monotonic() + batch.timeout
        first = next(iter(batch.tasks.values()))
        logged = first.log is not None
        if isinstance(first, CommandTask):
            reference = actor.handle.command.remote(first, logged)
        else:
            arguments = [task.argument for task in batch.tasks.values()]  # type: ignore[union-attr]
            packed = [isinstance(argument, bytes) for argument in arguments]
            call = actor.handle.python
            if first.keep:
                call = call.options(num_returns=1 + len(arguments))
            told = call.remote([first.function], packed, logged, first.keep, *arguments)
            reference, *batch.references = told if first.keep else [told]
        self._listen(actor, batch, reference)

    def _listen(self, actor: _Actor, batch: _Batch | None, reference: Any) -> None:
        """Have it told when something has ended."""
        reference.future().add_done_callback(partial(_tell, self.events, actor, batch))


def _tell(
    events: queue.SimpleQueue[Any], actor: _Actor, batch: _Batch | None, future: Future[Any]
) -> None:
    events.put((actor, batch, future))


def _death(error: RayActorError) -> str:
    """Return why an actor died, without Ray's advice."""
    told = str(error).strip().splitlines()[-1]
    detail = told.partition("Worker exit detail: ")[2] or told
    return f"the process ended abnormally: {detail.partition(' Some common causes')[0]}"


def _checked(resources: Mapping[str, float]) -> dict[str, float]:
    if not isinstance(resources, Mapping) or not resources:
        raise InputError(f"resources must be like {{'CPU': 1}}, got {resources!r}")
    for name, amount in resources.items():
        if not isinstance(amount, int | float) or isinstance(amount, bool) or not amount > 0:
            raise InputError(f"resources: {name!r} must be a number greater than 0, got {amount!r}")
    return dict(resources)
