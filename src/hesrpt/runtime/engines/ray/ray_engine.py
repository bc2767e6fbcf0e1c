"""Items run on the servers of a Ray cluster.

When a connection breaks, an item has crashed, or its node has died. Ray takes long to say which;
the node is asked instead. Where it does not answer, its items are lost, and done again elsewhere.
"""

from __future__ import annotations

import contextlib
import queue
import time
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future
from math import inf
from typing import Any

import ray
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayActorError, RayTaskError

from hesrpt.errors import InputError
from hesrpt.runtime.engines.engine import CommandTask, Outcome, Task, pickle_value, steady_time
from hesrpt.runtime.engines.ray.connection import checked, connect, disconnect, is_connected
from hesrpt.runtime.engines.ray.fleet import Actor, Batch, Fleet
from hesrpt.runtime.engines.ray.server import Report

# By so many seconds a batch may exceed the time limit of one of its items.
_SLACK = 1.0
# A process that has died is judged after so many seconds: its node may be about to go.
_VERDICT = 1.0


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
    can_resize = False  # Ray cannot change what a running actor holds
    can_keep_results = True

    def __init__(
        self,
        servers: int | None = None,
        *,
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
    ) -> None:
        bundle = checked({"CPU": 1} if resources is None else resources)
        if runtime_env is not None and not isinstance(runtime_env, Mapping):
            raise InputError(f"runtime_env must be a dictionary, got {runtime_env!r}")
        self.session = connect(address)
        self.events: queue.SimpleQueue[tuple[Actor, Batch | None, Future[Any]] | None]
        self.events = queue.SimpleQueue()
        self.queue: list[Batch] = []
        self.awaited: dict[tuple[str, int], Batch] = {}
        self.suspects: list[tuple[float, str, Batch, str]] = []  # when, where, what, and why
        self.wanted = 0
        most = inf if servers is None else servers
        self.fleet = Fleet(self.session, bundle, most, runtime_env, self._hear)
        self.fleet.look(0)
        if not self.fleet.cluster.could_ever_fit():
            told = f"no node of the cluster has {bundle}: {self.fleet.cluster.described()}"
            self.close()
            raise InputError(told)

    def now(self) -> float:
        return steady_time()

    def capacity(self) -> int:
        return self.fleet.capacity

    def widest_command(self) -> int:
        return self.fleet.widest

    def request_servers(self, servers: int) -> None:
        self.wanted = servers

    def pack_function(self, function: Any) -> Any:
        return ray.put(pickle_value(function))

    def pack_argument(self, argument: Any) -> Any:
        # A reference stands for what it refers to, as in a call of Ray's own.
        return argument if isinstance(argument, ray.ObjectRef) else pickle_value(argument)

    def fetch(self, reference: Any) -> Any:
        return ray.get(reference)

    # --- items --------------------------------------------------------------------------------

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        batch = Batch(job, dict(tasks), servers)
        self.awaited |= {(job, item): batch for item in tasks}
        self.queue.append(batch)
        with self._connection():
            self._place()

    def stop(self, job: str, item: int) -> None:
        batch = self.awaited.pop((job, item), None)
        if batch is None or self._awaits(batch):
            return
        if batch in self.queue:
            self.queue.remove(batch)
        for actor in list(self.fleet.actors):
            if batch in (actor.batch, actor.meant_for):
                self.fleet.end(actor)

    def resize(self, job: str, item: int, servers: int) -> None:
        """Nothing to do: the scheduler does not ask for it."""

    def wake(self) -> None:
        self.events.put(None)

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        with self._connection():
            return self._outcomes(timeout)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[None]:
        """Tell if the connection is closed: Ray itself would connect again, or fail strangely."""
        closed = InputError("the connection to Ray was closed while the pool was open")
        if not is_connected(self.session):
            raise closed
        try:
            yield
        except Exception as error:
            if isinstance(error, InputError) or is_connected(self.session):
                raise
            raise closed from None

    def _outcomes(self, timeout: float) -> list[Outcome]:
        found = self._all_lost(self.fleet.look(self.wanted))
        self._place()
        patience = 0.0 if found else max(min(timeout, self._next() - time.monotonic()), 0.0)
        with contextlib.suppress(queue.Empty):
            event = self.events.get(timeout=patience)
            while True:
                if event is not None:
                    found += self._heard(*event)
                event = self.events.get_nowait()
        found += [*self._overdue(), *self._judged(), *self._too_wide()]
        self._place()
        return found

    def close(self) -> None:
        self.queue.clear()
        self.awaited.clear()
        self.fleet.close()
        disconnect(self.session)

    def _next(self) -> float:
        """Return when something is to be done at the latest."""
        deadlines = [a.batch.deadline for a in self.fleet.actors if a.batch is not None]
        return min([*deadlines, *(at + _VERDICT for at, *_ in self.suspects)], default=inf)

    def _place(self) -> None:
        for actor, batch in self.fleet.place(self.queue):
            self._give(actor, batch)

    def _give(self, actor: Actor, batch: Batch) -> None:
        self.queue.remove(batch)
        actor.batch = batch
        batch.deadline = time.monotonic() + batch.limit(_SLACK)
        tasks = list(batch.tasks.values())
        first, logged = tasks[0], tasks[0].log is not None
        if isinstance(first, CommandTask):
            reference = actor.handle.commands.remote(tasks, logged)
        else:
            arguments = [task.argument for task in tasks if not isinstance(task, CommandTask)]
            packed = [isinstance(argument, bytes) for argument in arguments]
            call = actor.handle.python
            if first.keep_result:
                call = call.options(num_returns=1 + len(arguments))
            told = call.remote([first.function], packed, logged, first.keep_result, *arguments)
            reference, *batch.references = told if first.keep_result else [told]
        self.fleet.listen(actor, batch, reference)

    # --- what is heard ------------------------------------------------------------------------

    def _hear(self, actor: Actor, batch: Batch | None, future: Future[Any]) -> None:
        self.events.put((actor, batch, future))

    def _heard(self, actor: Actor, batch: Batch | None, future: Future[Any]) -> Iterator[Outcome]:
        if actor not in self.fleet.actors or actor.batch is not batch:
            return  # it was ended
        error = future.exception()
        if batch is None:
            if error is None:
                self.fleet.started(actor)
            else:
                self.fleet.not_started(actor, error)
            return
        actor.batch, actor.idle_since = None, time.monotonic()
        # Only an error of the call itself leaves the server as it was.
        if actor.servers > 1 or not (error is None or isinstance(error, RayTaskError)):
            self.fleet.end(actor)
        if error is None:
            yield from self._told(batch, future.result())
        elif isinstance(error, RayActorError):
            yield from self._died(actor, batch, error)
        else:
            yield from self._failed(batch, str(error))

    def _told(self, batch: Batch, reports: list[Report]) -> Iterator[Outcome]:
        for place, (item, task) in enumerate(batch.tasks.items()):
            if self.awaited.pop((batch.job, item), None) is None:
                continue
            report = reports[place]
            if report.said and task.log is not None:
                with task.log.open("ab") as log:
                    log.write(report.said)
            kept = batch.references[place] if batch.references and report.error is None else None
            yield Outcome(
                batch.job,
                item,
                report.seconds,
                result=report.result,
                error=report.error,
                reference=kept,
            )

    def _died(self, actor: Actor, batch: Batch, error: RayActorError) -> Iterator[Outcome]:
        if self.fleet.cluster.has_died(actor.node):
            yield from self._all_lost([batch, *self.fleet.node_died(actor.node)])
        elif (
            len(batch.tasks) > 1
            or isinstance(error, ActorUnavailableError)
            or (isinstance(error, ActorDiedError) and error.preempted)
        ):
            yield from self._lost(batch)
        else:
            self.suspects.append((time.monotonic(), actor.node, batch, _death(error)))

    def _judged(self) -> Iterator[Outcome]:
        """Tell of processes that died: of their own doing, if their node is still there."""
        now = time.monotonic()
        due = [one for one in self.suspects if now - one[0] >= _VERDICT]
        self.suspects = [one for one in self.suspects if one not in due]
        for _, node, batch, told in due:
            if "node was terminated" in told or self.fleet.cluster.has_died(node):
                yield from self._all_lost([batch, *self.fleet.node_died(node)])
            else:
                yield from self._failed(batch, told)

    def _overdue(self) -> Iterator[Outcome]:
        now = time.monotonic()
        for actor in list(self.fleet.actors):
            if actor.batch is not None and actor.batch.deadline <= now:
                self.fleet.end(actor)
                told = f"took longer than its time limit ({actor.batch.limit(0.0):g} s)"
                yield from self._failed(actor.batch, told)

    def _too_wide(self) -> Iterator[Outcome]:
        """Give back commands for which there is no node any more."""
        for batch in [
            batch for batch in self.queue if batch.servers > max(self.widest_command(), 1)
        ]:
            self.queue.remove(batch)
            yield from self._lost(batch, was_started=False)

    def _failed(self, batch: Batch, error: str) -> Iterator[Outcome]:
        """Tell of a batch that came to nothing: whose fault it was, if it was only one."""
        if len(batch.tasks) > 1:
            yield from self._lost(batch)
        for item in self._awaits(batch):
            del self.awaited[batch.job, item]
            yield Outcome(batch.job, item, 0.0, error=error)

    def _all_lost(self, batches: Iterable[Batch]) -> list[Outcome]:
        return [outcome for batch in batches for outcome in self._lost(batch)]

    def _lost(self, batch: Batch, was_started: bool = True) -> Iterator[Outcome]:
        for item in self._awaits(batch):
            del self.awaited[batch.job, item]
            yield Outcome(batch.job, item, 0.0, is_lost=True, was_started=was_started)

    def _awaits(self, batch: Batch) -> list[int]:
        return [item for item in batch.tasks if self.awaited.get((batch.job, item)) is batch]


def _death(error: RayActorError) -> str:
    """Return why an actor died, without Ray's advice."""
    told = str(error).strip().splitlines()[-1]
    detail = told.partition("Worker exit detail: ")[2] or told
    return f"the process ended abnormally: {detail.partition(' Some common causes')[0]}"
