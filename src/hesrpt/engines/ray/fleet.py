"""Our servers on a cluster: starting them, assigning batches to them, and giving them back.

A server is an actor that holds the resources of one server on one node. A command on several
servers gets one larger actor, which must fit on one node. If no node has room for it yet, one node
is reserved: nothing else starts there until the command does. Idle servers are given back after a
few seconds.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass, field
from math import ceil, inf
from typing import Any, NamedTuple, TypeAlias

import ray
from ray.exceptions import ActorUnschedulableError, RayError, RuntimeEnvSetupError
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from hesrpt.engines.engine import CommandTask, Task
from hesrpt.engines.ray.cluster import REPORT_DELAY, ClusterView, OwnServers, is_connected
from hesrpt.engines.ray.server import Server
from hesrpt.errors import InputError


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


#: A batch, and the actor that is to run it now.
Assignment: TypeAlias = tuple[Actor, Batch]

# --- the resources of servers as Ray understands them -------------------------------------------


def build_actor_options(resources: Mapping[str, float], servers: int) -> dict[str, Any]:
    """Return the options of a Ray actor that holds the resources of some servers.

    >>> build_actor_options({"CPU": 2, "licence": 1}, 3)
    {'num_cpus': 6, 'resources': {'licence': 3}}
    """
    total = {name: amount * servers for name, amount in resources.items()}
    if total.get("GPU", 0.0) > 1:
        total["GPU"] = ceil(total["GPU"] - 1e-6)  # above 1, Ray accepts whole GPUs only
    known = {"CPU": "num_cpus", "GPU": "num_gpus", "memory": "memory"}
    options: dict[str, Any] = {known[name]: total.pop(name) for name in known if name in total}
    return {"num_cpus": 0, **options, "resources": total}


def count_threads(resources: Mapping[str, float], servers: int) -> int:
    """Return how many threads libraries should start on some servers: as many as these have CPUs.

    >>> count_threads({"CPU": 4}, 2), count_threads({"CPU": 0.5}, 1), count_threads({"GPU": 1}, 2)
    (8, 1, 2)
    """
    return max(int(resources.get("CPU", 1) * servers), 1)


# Seconds between two looks at the cluster.
_REFRESH_INTERVAL = 0.5
# Seconds after which an idle server is given back.
_IDLE_SECONDS = 3.0
# Seconds a server may take to start. After that, we assume that others took its resources.
_START_SECONDS = 20.0
# If this many servers failed to start and none ever started, we give up.
_START_FAILURES = 5
# The number of nodes that are probed at each look at the cluster.
_PROBED_NODES = 4


class _Stopped(NamedTuple):
    """An actor that we killed; Ray may not have noticed yet."""

    time: float
    node: str
    servers: int


class Fleet:
    """All servers of one engine."""

    def __init__(
        self,
        cluster_address: str,
        *,
        resources: Mapping[str, float],
        max_servers: float,
        runtime_env: Mapping[str, Any] | None,
        on_reply: Callable[[Reply], None],
    ) -> None:
        self.cluster_address = cluster_address
        self.max_servers = max_servers
        self.cluster = ClusterView(resources)
        self.actors: list[Actor] = []
        self._on_reply = on_reply
        self._start_failures: Counter[str] = Counter()  # by node
        self._has_ever_started = False
        self._refreshed_at = -inf
        self._stopped: list[_Stopped] = []
        self._remote_server = ray.remote(Server)
        self._options: dict[str, Any] = {"max_restarts": 0}
        if runtime_env is not None:
            self._options["runtime_env"] = dict(runtime_env)

    @property
    def capacity(self) -> int:
        """The servers we have or could start now."""
        return int(min(sum(self.cluster.room.values()), self.max_servers))

    @property
    def widest(self) -> int:
        """The most servers we could have on one node."""
        return int(min(max(self.cluster.room.values(), default=0), self.max_servers))

    def count_servers_by_node(self) -> Counter[str]:
        """Count our servers on each node, including those that are starting."""
        servers: Counter[str] = Counter()
        for actor in self.actors:
            servers[actor.node] += actor.servers
        return servers

    # --- the cluster --------------------------------------------------------------------------

    def refresh(self, useful_servers: int) -> list[Batch]:
        """Update the view of the cluster if it is old; return the batches that ran on dead nodes.

        ``useful_servers`` is how many servers the jobs could use.
        """
        now = time.monotonic()
        if now - self._refreshed_at < _REFRESH_INTERVAL:
            return []
        self._refreshed_at = now
        self._stopped = [stop for stop in self._stopped if now - stop.time < REPORT_DELAY]
        nodes = {actor.node for actor in self.actors} | {stop.node for stop in self._stopped}
        try:
            self.cluster.refresh({node: self._count_own_servers(node, now) for node in nodes})
            capacity = self.capacity
            missing = min(useful_servers, self.max_servers) - capacity
            # Ask the autoscaler to at most double the cluster, and for more once that is in use.
            self.cluster.request_servers(int(max(min(missing, max(capacity, 1)), 0)))
        except (RayError, ConnectionError, TimeoutError):
            return []  # keep the last view until the cluster answers again
        self._release_servers(now)
        return self._probe_nodes(now)

    def _count_own_servers(self, node: str, now: float) -> OwnServers:
        here = [actor for actor in self.actors if actor.node == node]
        stopped = sum(stop.servers for stop in self._stopped if stop.node == node)
        return OwnServers(
            ready=sum(actor.servers for actor in here if actor.is_ready),
            surely_reported=sum(
                actor.servers for actor in here if now - actor.ready_since > REPORT_DELAY
            ),
            possibly_reported=sum(actor.servers for actor in here) + stopped,
        )

    def _release_servers(self, now: float) -> None:
        """Give back idle servers, and give up on servers that cannot start."""
        servers = self.count_servers_by_node()
        for actor in list(self.actors):
            if not actor.is_ready:
                is_late = now - actor.created_at > _START_SECONDS
                if is_late or servers[actor.node] > self.cluster.room.get(actor.node, 0):
                    servers[actor.node] -= actor.servers
                    self.kill(actor)
                    if is_late:
                        self.cluster.avoid(actor.node, _START_SECONDS)
            elif actor.is_idle and now - actor.idle_since > _IDLE_SECONDS:
                self.kill(actor)

    def _probe_nodes(self, now: float) -> list[Batch]:
        """Probe a few nodes in turn; return the batches that ran on one that is dead."""
        nodes = sorted({actor.node for actor in self.actors})
        first = int(now / _REFRESH_INTERVAL) * _PROBED_NODES
        for place in range(min(_PROBED_NODES, len(nodes))):
            node = nodes[(first + place) % len(nodes)]
            if not self.cluster.probe(node):
                return self.remove_node(node)
        return []

    def remove_node(self, node: str) -> list[Batch]:
        """Remove the actors of a dead node; return the batches that ran there."""
        self.cluster.mark_unreachable(node)
        actors = [actor for actor in self.actors if actor.node == node]
        for actor in actors:
            self.kill(actor)
        return [actor.batch for actor in actors if actor.batch is not None]

    # --- assigning batches --------------------------------------------------------------------

    def assign(self, queue: list[Batch]) -> list[Assignment]:
        """Assign waiting batches to idle servers, and start servers for the others."""
        assignments, reserved = self._assign_wide([batch for batch in queue if batch.servers > 1])
        waiting = [batch for batch in queue if batch.servers == 1]
        singles = [actor for actor in self.actors if actor.servers == 1 and actor.is_idle]
        ready = [actor for actor in singles if actor.is_ready and actor.node not in reserved]
        assignments += zip(ready, waiting, strict=False)
        starting = sum(not actor.is_ready for actor in singles)
        self._start_servers(len(waiting) - len(ready) - starting, reserved)
        return assignments

    def _start_servers(self, count: int, reserved: set[str]) -> None:
        """Start up to ``count`` servers, each on the node with the most room."""
        servers = self.count_servers_by_node()
        free = {
            node: room - servers[node]
            for node, room in self.cluster.room.items()
            if node not in reserved
        }
        for _ in range(int(min(count, self.max_servers - servers.total()))):
            node = max(free, key=free.__getitem__, default="")
            if free.get(node, 0) <= 0:
                return
            free[node] -= 1
            self._start_actor(node, 1, reserved_for=None)

    def _assign_wide(self, batches: list[Batch]) -> tuple[list[Assignment], set[str]]:
        """Assign commands on several servers; return the assignments and the nodes reserved."""
        assignments: list[Assignment] = []
        reserved: set[str] = set()
        for batch in batches:
            actor = next((actor for actor in self.actors if actor.reserved_for is batch), None)
            if actor is not None:
                reserved.add(actor.node)
                if actor.is_ready and actor.is_idle:
                    assignments.append((actor, batch))
                continue
            large_enough = [
                node
                for node, room in self.cluster.room.items()
                if room >= batch.servers and node not in reserved
            ]
            if large_enough:
                node = min(large_enough, key=self._count_busy_servers)
                reserved.add(node)
                self._start_wide(batch, node)
        return assignments, reserved

    def _start_wide(self, batch: Batch, node: str) -> None:
        """Start the actor of a command on several servers, if the node has room for it now."""
        idle = [actor for actor in self.actors if actor.is_idle and actor.reserved_for is None]
        for actor in idle:
            total = self.count_servers_by_node().total()
            if actor.node == node or total + batch.servers > self.max_servers:
                self.kill(actor)
        servers = self.count_servers_by_node()
        has_room = self.cluster.room[node] - servers[node] >= batch.servers
        if has_room and servers.total() + batch.servers <= self.max_servers:
            self._start_actor(node, batch.servers, reserved_for=batch)

    def _count_busy_servers(self, node: str) -> int:
        busy = [actor for actor in self.actors if actor.node == node and not actor.is_idle]
        return sum(actor.servers for actor in busy)

    # --- actors -------------------------------------------------------------------------------

    def _start_actor(self, node: str, servers: int, reserved_for: Batch | None) -> None:
        try:
            handle = self._remote_server.options(
                **build_actor_options(self.cluster.resources, servers),
                **self._options,
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            ).remote(count_threads(self.cluster.resources, servers))
        except (ValueError, TypeError) as error:
            raise InputError(f"Ray cannot start a server: {error}") from None
        actor = Actor(handle, node, servers, reserved_for)
        self.actors.append(actor)
        self.report_reply(actor, None, handle.confirm_start.remote())

    def report_reply(self, actor: Actor, batch: Batch | None, reference: Any) -> None:
        """Report an actor's reply to the engine as soon as it arrives."""

        def report(future: Future[Any]) -> None:
            self._on_reply(Reply(actor, batch, future))

        reference.future().add_done_callback(report)

    def mark_ready(self, actor: Actor) -> None:
        """Record that a server has started."""
        actor.ready_since = actor.idle_since = time.monotonic()
        self._has_ever_started = True
        self._start_failures.pop(actor.node, None)

    def handle_start_failure(self, actor: Actor, error: BaseException) -> None:
        """Avoid the node on which a server failed to start, for a while or for good."""
        self.kill(actor)
        if isinstance(error, RuntimeEnvSetupError):
            raise InputError(f"cannot be set up on the cluster: {error}", argument="runtime_env")
        if isinstance(error, ActorUnschedulableError) or not self.cluster.probe(actor.node):
            self.cluster.mark_unreachable(actor.node)
            return
        self._start_failures[actor.node] += 1
        if not self._has_ever_started and self._start_failures.total() >= _START_FAILURES:
            raise InputError(f"servers cannot be started on the cluster: {error}")
        self.cluster.avoid(actor.node, min(2.0 ** self._start_failures[actor.node], 60.0))

    def kill(self, actor: Actor) -> None:
        """Kill an actor, whatever it is doing."""
        self.actors.remove(actor)
        self._stopped.append(_Stopped(time.monotonic(), actor.node, actor.servers))
        if is_connected(self.cluster_address):
            with contextlib.suppress(Exception):  # it may have died
                ray.kill(actor.handle)

    def close(self) -> None:
        """Kill all actors and withdraw the request for more servers."""
        for actor in list(self.actors):
            self.kill(actor)
        if is_connected(self.cluster_address):
            with contextlib.suppress(Exception):  # the cluster may be gone
                self.cluster.request_servers(0)
