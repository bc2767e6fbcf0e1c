"""The engine that runs items on the servers of a Ray cluster.

When an actor dies, either its item crashed or its node died. Ray is slow to report which, so we
probe the node ourselves. If the node does not answer, its items are lost and run again elsewhere.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterable, Iterator, Mapping
from math import inf
from typing import Any, NamedTuple

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayTaskError

from hesrpt.engines.engine import (
    CommandTask,
    Engine,
    Outcome,
    Task,
    check_server_resources,
    pickle_value,
    take_all,
)
from hesrpt.engines.item_reports import NO_DETAILS, ErrorDetails, create_timeout_report
from hesrpt.engines.local.output import append_output
from hesrpt.engines.ray.cluster import connect, disconnect, is_connected
from hesrpt.engines.ray.fleet import Actor, Batch, Fleet, Reply
from hesrpt.engines.ray.server import ItemReport
from hesrpt.errors import InputError

# Seconds by which a batch may exceed the time limit of one of its items.
_BATCH_SLACK = 1.0
# Seconds to wait before we blame an item for the death of its actor: its node may be dying.
_VERDICT_DELAY = 1.0


class _DeadActor(NamedTuple):
    """An actor that died while its node was alive. If the node stays alive, its item crashed."""

    time: float
    node: str
    batch: Batch
    error: str


class RayEngine(Engine):
    """Runs items on a Ray cluster.

    Parameters
    ----------
    servers
        The most servers to use; by default, all that are free.
    address
        The address of the cluster, as for ``ray.init``.
    resources
        The resources of one server; by default, one CPU.
    runtime_env
        The runtime environment of the servers, as for ``ray.init``.
    """

    batch_seconds = 0.1
    max_batch = 100  # a batch is reported as a whole: if its job is cancelled, all of it is lost
    # Ray cannot change the resources of a running actor, so commands are not resized, and a
    # suspended command would hold its resources.
    can_grow = True
    can_keep_results = True

    def __init__(
        self,
        servers: int | None = None,
        *,
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
    ) -> None:
        bundle = check_server_resources({"CPU": 1} if resources is None else resources)
        if runtime_env is not None and not isinstance(runtime_env, Mapping):
            raise InputError(f"must be a dictionary, got {runtime_env!r}", argument="runtime_env")
        self._cluster_address = connect(address)
        # None only wakes the thread that waits for outcomes.
        self._replies: queue.SimpleQueue[Reply | None] = queue.SimpleQueue()
        self._queue: list[Batch] = []
        self._batches: dict[tuple[str, int], Batch] = {}  # of each item without an outcome
        self._dead_actors: list[_DeadActor] = []
        self._outcomes: list[Outcome] = []  # of replies that were read when items were stopped
        self._useful_servers = 0
        self.fleet = Fleet(
            self._cluster_address,
            resources=bundle,
            max_servers=inf if servers is None else servers,
            runtime_env=runtime_env,
            on_reply=self._replies.put,
        )
        self.fleet.refresh(0)
        if not self.fleet.cluster.can_fit_server():
            nodes = self.fleet.cluster.describe_nodes()
            self.close()
            raise InputError(
                f"{bundle} do not fit on any node of the cluster: {nodes}", argument="resources"
            )

    def capacity(self) -> int:
        return self.fleet.capacity

    def max_capacity(self) -> float:
        return self.fleet.max_servers

    def widest_command(self) -> int:
        return self.fleet.widest

    def request_servers(self, servers: int) -> None:
        self._useful_servers = servers

    def pack_function(self, function: Any) -> Any:
        return ray.put(pickle_value(function))

    def pack_argument(self, argument: Any) -> Any:
        # A reference stands for its value, as in Ray's own calls.
        return argument if isinstance(argument, ray.ObjectRef) else pickle_value(argument)

    def fetch(self, reference: Any) -> Any:
        return ray.get(reference)

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        batch = Batch(job, dict(tasks), servers)
        self._batches |= {(job, item): batch for item in tasks}
        self._queue.append(batch)
        with self._check_connection():
            self._assign_batches()

    def stop(self, job: str, item: int) -> None:
        self._outcomes += self._read_replies(0.0)  # what is done need not be stopped
        batch = self._batches.pop((job, item), None)
        if batch is None or self._list_pending_items(batch):
            return
        if batch in self._queue:
            self._queue.remove(batch)
        for actor in list(self.fleet.actors):
            if batch in (actor.batch, actor.reserved_for):
                self.fleet.kill(actor)

    def is_stopping(self, job: str) -> bool:
        return any(outcome.job == job for outcome in self._outcomes)

    def wake(self) -> None:
        self._replies.put(None)

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        with self._check_connection():
            outcomes = self._lose_all(self.fleet.refresh(self._useful_servers))
            self._assign_batches()
            patience = min(timeout, self._next_deadline() - time.monotonic())
            early, self._outcomes = self._outcomes, []
            outcomes += early
            outcomes += self._read_replies(0.0 if outcomes else max(patience, 0.0))
            outcomes += self._stop_overdue()
            outcomes += self._judge_dead_actors()
            outcomes += self._return_too_wide()
            self._assign_batches()
            return outcomes

    def _read_replies(self, timeout: float) -> list[Outcome]:
        """Return the outcomes in all replies that have arrived; wait for the first one."""
        outcomes: list[Outcome] = []
        for reply in take_all(self._replies, timeout):
            if reply is not None:
                outcomes += self._handle_reply(reply)
        return outcomes

    def close(self) -> list[Outcome]:
        outcomes = self._outcomes
        if is_connected(self._cluster_address):
            outcomes = outcomes + self._read_replies(0.0)
        self._queue.clear()
        self._batches.clear()
        self.fleet.close()
        disconnect(self._cluster_address)
        return [outcome for outcome in outcomes if outcome.is_done]

    @contextlib.contextmanager
    def _check_connection(self) -> Iterator[None]:
        """Raise a clear error if the connection is closed: Ray would open another one, or crash."""
        closed = InputError("the connection to Ray was closed while the pool was open")
        if not is_connected(self._cluster_address):
            raise closed
        try:
            yield
        except Exception as error:
            if isinstance(error, InputError) or is_connected(self._cluster_address):
                raise
            raise closed from None

    def _next_deadline(self) -> float:
        """Return when the next time limit expires, or when a dead actor should next be judged."""
        batches = (actor.batch for actor in self.fleet.actors)
        deadlines = [batch.deadline for batch in batches if batch is not None]
        verdicts = [dead.time + _VERDICT_DELAY for dead in self._dead_actors]
        return min([*deadlines, *verdicts], default=inf)

    # --- sending batches ----------------------------------------------------------------------

    def _assign_batches(self) -> None:
        for actor, batch in self.fleet.assign(self._queue):
            self._queue.remove(batch)
            self._send(actor, batch)

    def _send(self, actor: Actor, batch: Batch) -> None:
        actor.batch = batch
        batch.deadline = time.monotonic() + batch.compute_time_limit(_BATCH_SLACK)
        tasks = list(batch.tasks.values())
        first = tasks[0]  # all tasks of a batch belong to one job and have the same options
        with_output = first.log is not None
        if isinstance(first, CommandTask):
            reference = actor.handle.run_commands.remote(tasks, with_output)
        else:
            arguments = [task.argument for task in tasks if not isinstance(task, CommandTask)]
            is_pickled = [isinstance(argument, bytes) for argument in arguments]
            method, keep = actor.handle.call_function, first.keep_result
            if keep:
                method = method.options(num_returns=1 + len(arguments))
            reply = method.remote([first.function], is_pickled, with_output, keep, *arguments)
            reference, *batch.references = reply if keep else [reply]
        self.fleet.report_reply(actor, batch, reference)

    # --- receiving replies --------------------------------------------------------------------

    def _handle_reply(self, reply: Reply) -> Iterator[Outcome]:
        actor, batch, future = reply
        if actor not in self.fleet.actors or actor.batch is not batch:
            return  # we killed the actor meanwhile
        error = future.exception()
        if batch is None:
            if error is None:
                self.fleet.mark_ready(actor)
            else:
                self.fleet.handle_start_failure(actor, error)
            return
        actor.batch, actor.idle_since = None, time.monotonic()
        # After a RayTaskError the server is still usable; after any other error it is not.
        is_usable = error is None or isinstance(error, RayTaskError)
        if actor.servers > 1 or not is_usable:
            self.fleet.kill(actor)
        if error is None:
            yield from self._report_items(batch, future.result())
        elif isinstance(error, RayActorError):
            yield from self._handle_death(actor, batch, error)
        else:
            yield from self._fail(batch, str(error))

    def _report_items(self, batch: Batch, reports: list[ItemReport]) -> Iterator[Outcome]:
        for place, (item, task) in enumerate(batch.tasks.items()):
            if self._batches.pop((batch.job, item), None) is None:
                continue
            report = reports[place]
            if report.output and task.log is not None:
                append_output(task.log, report.output)
            has_reference = bool(batch.references) and report.error is None
            yield Outcome(
                batch.job,
                item,
                report.seconds,
                result=report.result,
                error=report.error,
                details=report.details,
                reference=batch.references[place] if has_reference else None,
            )

    def _handle_death(self, actor: Actor, batch: Batch, error: RayActorError) -> Iterator[Outcome]:
        is_blameless = isinstance(error, ActorUnavailableError) or (
            isinstance(error, ActorDiedError) and error.preempted
        )
        if not self.fleet.cluster.probe(actor.node):
            yield from self._lose_all([batch, *self.fleet.remove_node(actor.node)])
        elif is_blameless or len(batch.tasks) > 1:
            yield from self._lose(batch)
        else:
            description = _describe_death(error)
            self._dead_actors.append(_DeadActor(time.monotonic(), actor.node, batch, description))

    def _judge_dead_actors(self) -> Iterator[Outcome]:
        """Fail the items of dead actors whose node is still alive; the others are lost."""
        now = time.monotonic()
        due = [dead for dead in self._dead_actors if now - dead.time >= _VERDICT_DELAY]
        self._dead_actors = [dead for dead in self._dead_actors if dead not in due]
        for _, node, batch, error in due:
            if "node was terminated" in error or not self.fleet.cluster.probe(node):
                yield from self._lose_all([batch, *self.fleet.remove_node(node)])
            else:
                yield from self._fail(batch, error)

    def _stop_overdue(self) -> Iterator[Outcome]:
        now = time.monotonic()
        for actor in list(self.fleet.actors):
            if actor.batch is not None and actor.batch.deadline <= now:
                self.fleet.kill(actor)
                timeout = actor.batch.compute_time_limit()
                yield from self._fail(actor.batch, *create_timeout_report(timeout))

    def _return_too_wide(self) -> Iterator[Outcome]:
        """Return waiting commands that no longer fit on any node; they restart on fewer servers."""
        widest = max(self.fleet.widest, 1)
        for batch in [batch for batch in self._queue if batch.servers > widest]:
            self._queue.remove(batch)
            yield from self._lose(batch, was_started=False)

    # --- outcomes of whole batches ------------------------------------------------------------

    def _fail(
        self, batch: Batch, error: str, details: ErrorDetails = NO_DETAILS
    ) -> Iterator[Outcome]:
        """Fail an item. In a larger batch the culprit is unknown, so all items run again alone."""
        if len(batch.tasks) > 1:
            return self._lose(batch)
        return self._end(batch, error=error, details=details)

    def _lose_all(self, batches: Iterable[Batch]) -> list[Outcome]:
        return [outcome for batch in batches for outcome in self._lose(batch)]

    def _lose(self, batch: Batch, was_started: bool = True) -> Iterator[Outcome]:
        return self._end(batch, is_lost=True, was_started=was_started)

    def _end(self, batch: Batch, **details: Any) -> Iterator[Outcome]:
        for item in self._list_pending_items(batch):
            del self._batches[batch.job, item]
            yield Outcome(batch.job, item, 0.0, **details)

    def _list_pending_items(self, batch: Batch) -> list[int]:
        """Return the items of a batch that have no outcome yet and were not stopped."""
        return [item for item in batch.tasks if self._batches.get((batch.job, item)) is batch]


def _describe_death(error: RayActorError) -> str:
    """Return why an actor died, without Ray's advice."""
    last_line = str(error).strip().splitlines()[-1]
    detail = last_line.partition("Worker exit detail: ")[2] or last_line
    return f"the process ended abnormally: {detail.partition(' Some common causes')[0]}"
