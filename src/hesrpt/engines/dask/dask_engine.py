"""The engine that runs items on the workers of a Dask cluster.

Dask is given one batch of items for each free server, on a worker that we choose, so its own order
of tasks does not matter. Items run in processes of our agents (see ``agent.py``). If an item
crashes its process, the agent reports that. If a Dask worker dies, its items are lost, which is not
their fault, and run again elsewhere.
"""

from __future__ import annotations

import queue
import time
import uuid
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import CancelledError
from dataclasses import replace
from itertools import count
from math import inf
from pathlib import Path
from typing import Any

from distributed import Client, Future, KilledWorker
from distributed.deploy.cluster import Cluster

from hesrpt.engines.dask.agent import AgentOptions, BatchRequest
from hesrpt.engines.dask.dask_connection import (
    ClusterScaling,
    ClusterSeen,
    DaskConnection,
    DaskFunction,
    Disconnected,
    Event,
    Greeted,
    LostResultError,
    Reported,
    is_adaptive,
)
from hesrpt.engines.dask.slots import Batch, ItemLedger, Worker, WorkerTable
from hesrpt.engines.engine import (
    Engine,
    FinishedItems,
    Outcome,
    PythonTask,
    PythonTasks,
    Task,
    check_server_resources,
    pickle_value,
    take_all,
)
from hesrpt.engines.local.output import append_output
from hesrpt.errors import InputError
from hesrpt.pickling import is_short_and_plain
from hesrpt.validation import check_whole_number

# A batch that takes longer than this, in seconds, is asked for the items that have ended.
_PATIENCE_SECONDS = 0.5
# Items of a dead worker are reported after this many seconds. Until then, its guardian has killed
# them, so that they cannot meet the next attempt.
_BURIAL_SECONDS = 0.5


class DaskEngine(Engine):
    """Runs items on a Dask cluster.

    Parameters
    ----------
    servers
        The most servers to use; by default, all that the cluster has. ``DaskEngine(cluster)`` is
        short for ``DaskEngine(cluster=cluster)``.
    cluster
        The address of a Dask scheduler, a ``distributed.Client``, or a cluster object such as
        ``LocalCluster`` or ``SLURMCluster``. By default, a cluster on this machine is started.
    address
        The address of a Dask scheduler, instead of ``cluster``.
    resources
        The resources of one server, such as ``{"GPU": 1}``, if workers declare some. By default, a
        server is one thread of a worker.
    minimum, maximum
        If one is given, the cluster object grows and shrinks with the jobs between these numbers of
        workers. A cluster that is adaptive already does so within its bounds.
    idle_seconds
        Then, workers that are not needed are closed after this many seconds.
    """

    batch_seconds = 0.1
    can_grow = True
    can_keep_results = True
    can_replace_workers = True

    def __init__(
        self,
        servers: int | str | Client | Cluster | None = None,
        *,
        cluster: Any = None,
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
        minimum: int | None = None,
        maximum: int | None = None,
        idle_seconds: float = 5.0,
    ) -> None:
        if not isinstance(servers, int | None):
            servers, cluster = None, servers if cluster is None else cluster
        if servers is not None:
            servers = check_whole_number("servers", servers, minimum=1)
        if cluster is not None and address is not None:
            raise InputError("cannot be combined with cluster", argument="address")
        self.name = uuid.uuid4().hex[:12]
        self._run_directory = ""
        self._resources = {} if resources is None else check_server_resources(resources)
        # None only wakes the thread that waits for outcomes.
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._numbers, self._function_numbers = count(), count()
        self._released_functions: deque[int] = deque()
        self.ledger = ItemLedger()
        self._dead: list[tuple[float, Batch]] = []  # batches of dead workers, and since when
        self._useful_servers = 0
        self.table = WorkerTable(inf if servers is None else servers, self._resources)
        self.connection = DaskConnection(
            cluster if address is None else address, self.name, servers, self._events.put
        )
        self._scaling: ClusterScaling | None = None
        try:
            self._handle_cluster(ClusterSeen(self.connection.look()))
            has_bounds = minimum is not None or maximum is not None
            if has_bounds and not isinstance(cluster, Cluster):
                raise InputError("needs a cluster object, which can be scaled", argument="maximum")
            if has_bounds or is_adaptive(cluster):
                self._scaling = ClusterScaling(cluster, minimum, maximum, idle_seconds)
        except BaseException:
            self.connection.close()
            raise

    # --- servers ------------------------------------------------------------------------------

    def capacity(self) -> int:
        return self.table.capacity

    def max_capacity(self) -> float:
        return self.table.max_servers

    def widest_command(self) -> int:
        return self.table.widest

    def request_servers(self, servers: int) -> None:
        self._useful_servers = servers

    # --- functions, arguments and results -----------------------------------------------------

    def pack_function(self, function: Any) -> Any:
        packed = DaskFunction(next(self._function_numbers), pickle_value(function))
        release = weakref.finalize(packed, self._released_functions.append, packed.number)
        release.atexit = False
        return packed

    def pack_argument(self, argument: Any) -> Any:
        # A future stands for its result, as in Dask's own calls.
        if _is_future(argument) or is_short_and_plain(argument):
            return argument
        return pickle_value(argument)

    def fetch(self, reference: Any) -> Any:
        return self.connection.fetch(reference)

    # --- starting and stopping ----------------------------------------------------------------

    def claim(self, directory: Path) -> None:
        self._run_directory = str(directory.absolute())

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        batches: list[Mapping[int, Task]] = [tasks]
        if not isinstance(tasks, PythonTasks) or any(map(_is_future, tasks.arguments)):
            # If one of the results that calls need is lost, only one item fails.
            calls = {item: task for item, task in tasks.items() if isinstance(task, PythonTask)}
            batches = [PythonTasks.from_task(*call) for call in calls.items()] or batches
        for batch in batches:
            self.ledger.add(Batch(next(self._numbers), job, batch, servers))
        self._assign_batches()

    def _assign_batches(self) -> None:
        waiting = self.ledger.waiting
        if not waiting:
            return
        for worker, batch in self.table.assign(waiting, self.ledger.is_held_back):
            waiting.remove(batch)
            self._send(worker, batch)

    def _send(self, worker: Worker, batch: Batch) -> None:
        """Send all items of a batch that were not stopped."""
        batch.looked_at = time.monotonic()
        tasks = batch.tasks
        has_log = next(iter(tasks.values())).log is not None  # or else no task of the batch has one
        function: DaskFunction | None = None
        results: dict[int, Future] = {}  # by the places of the arguments
        if isinstance(tasks, PythonTasks):
            function, batch.keeps_results = tasks.function, tasks.keep_results
            tasks = tasks.without(batch.stopped)
            arguments = list(tasks.arguments)
            results = {place: each for place, each in enumerate(arguments) if _is_future(each)}
            for place in results:
                arguments[place] = None
            changes = {"function": tasks.function.number, "keep_results": False}
            tasks = replace(tasks, arguments=arguments, logs=None, **changes)
        else:
            tasks = {item: task for item, task in tasks.items() if item not in batch.stopped}
        assert worker.process is not None
        request = BatchRequest(
            AgentOptions(self.name, worker.usable, self._run_directory),
            worker.process,
            f"hesrpt-{batch.job}-{self.name}{batch.number:08x}",
            batch.number,
            batch.job,
            batch.servers,
            tasks,
            list(results),
            has_log,
            self._take_released(worker),
        )
        resources = {name: each * batch.servers for name, each in self._resources.items()}
        needed = list(results.values())
        sending = self.connection.run_batch(batch, request, function, needed, resources)
        self.connection.start_task(batch, sending)

    def _take_released(self, worker: Worker) -> list[int]:
        """Return the functions that a worker has not been told to forget."""
        while self._released_functions:
            released = self._released_functions.popleft()
            for each in self.table.workers.values():
                each.forgotten.append(released)
        forgotten, worker.forgotten = worker.forgotten, []
        return forgotten

    def stop(self, job: str, item: int) -> None:
        self.ledger.stop(job, item)

    def is_stopping(self, job: str) -> bool:
        return self.ledger.is_stopping(job)

    # --- waiting ------------------------------------------------------------------------------

    def wake(self) -> None:
        self._events.put(None)

    def wait_for_outcomes(self, timeout: float) -> list[Outcome | FinishedItems]:
        end = time.monotonic() + timeout
        outcomes: list[Outcome | FinishedItems] = []
        is_woken = False
        capacity, endings = self.capacity(), len(self.ledger.ending)
        for batch, items in self.ledger.stops.items():
            self.connection.start_task(object(), self.connection.stop_items(batch, items))
        self.ledger.stops.clear()
        while True:
            until = min(end, self._next_deadline())
            for event in take_all(self._events, max(until - time.monotonic(), 0.0)):
                if event is None:
                    is_woken = True
                else:
                    outcomes += self._handle(event)
            outcomes += self._bury_dead()
            outcomes += self._return_too_wide()
            self._look_after_slow_batches()
            if self._scaling is not None:
                self._scaling.demand.update(self.table, self._useful_servers)
            self._assign_batches()
            has_news = self.capacity() != capacity or len(self.ledger.ending) < endings
            if outcomes or is_woken or has_news or time.monotonic() >= end:
                return outcomes

    def close(self) -> list[Outcome | FinishedItems]:
        self.ledger.waiting.clear()
        batches = [batch for worker in self.table.workers.values() for batch in worker.batches]
        numbered = {batch.number: batch for batch in batches}
        reports = self.connection.close()
        events = [event for event in take_all(self._events, 0.0) if isinstance(event, Reported)]
        events += [
            Reported(numbered[number], report)
            for number, report in reports.items()
            if number in numbered
        ]
        outcomes = [outcome for event in events for outcome in self._handle_report(event)]
        if self._scaling is not None:
            self._scaling.close()
        return [each for each in outcomes if isinstance(each, FinishedItems) or each.is_done]

    def _next_deadline(self) -> float:
        """Return when there is something to do even if nothing happens."""
        burials = [since + _BURIAL_SECONDS for since, _ in self._dead]
        looks = [
            batch.looked_at + _PATIENCE_SECONDS
            for worker in self.table.workers.values()
            for batch in worker.batches
            if len(batch.tasks) > 1
        ]
        return min([*burials, *looks], default=inf)

    def _look_after_slow_batches(self) -> None:
        """Ask for the items that have ended in batches that take long."""
        now = time.monotonic()
        for worker in self.table.workers.values():
            for batch in worker.batches:
                if now - batch.looked_at < _PATIENCE_SECONDS:
                    continue
                batch.looked_at = now
                if not batch.keeps_results and len(self.ledger.list_pending(batch)) > 1:
                    work = self.connection.take_report(batch)
                    self.connection.start_task((batch, "report"), work)

    # --- events -------------------------------------------------------------------------------

    def _handle(self, event: Event) -> Iterable[Outcome | FinishedItems]:
        if isinstance(event, Reported):
            return self._handle_report(event)
        if isinstance(event, ClusterSeen):
            self._handle_cluster(event)
        elif isinstance(event, Greeted):
            self._handle_greeting(event)
        elif isinstance(event, Disconnected):
            raise InputError("the connection to Dask was closed while the pool was open")
        return ()

    def _handle_cluster(self, seen: ClusterSeen) -> None:
        new, gone = self.table.update(seen.workers)
        for worker in new:
            self.connection.start_task(worker, self.connection.greet(worker))
        for worker in gone:
            self._bury(worker)

    def _bury(self, worker: Worker) -> None:
        """Expect nothing of a dead worker any more."""
        now = time.monotonic()
        for batch in worker.batches:
            self.connection.abandon(batch)
            self._dead.append((now, batch))
        worker.batches.clear()

    def _handle_greeting(self, greeting: Greeted) -> None:
        worker, process, error = greeting
        if self.table.workers.get(worker.address) is not worker:
            return
        worker.process = process
        if isinstance(error, ImportError):
            raise InputError(
                f"hesrpt cannot be used on the Dask worker {worker.address}: {error}; install it "
                "on all workers"
            )
        if error is not None:
            self.table.remove(worker)  # and greet it again if it is still there

    def _handle_report(self, reported: Reported) -> Iterator[Outcome | FinishedItems]:
        batch, report, error, references = reported
        if batch.worker is None or batch not in batch.worker.batches:
            return  # its worker is dead
        if report is None:
            # Dask has cancelled the task, or it has failed outside of its items.
            if not isinstance(error, CancelledError | KilledWorker | OSError):
                for item in self.ledger.take_rest(batch):
                    yield Outcome(batch.job, item, 0.0, error=_describe(error))
            yield from self._end_batch(batch)
            return
        if report.other_process is not None:
            # The worker was restarted at the same address: it is a new one.
            self._bury(batch.worker)
            self.table.remove(batch.worker)
            return
        for item, output in report.outputs.items():
            if (log := batch.tasks[item].log) is not None:
                append_output(log, output)
        for outcome in report.outcomes:
            yield from self._report(batch, outcome, references or {})
        self.ledger.forget_stopped(batch, report.gone)
        if report.was_refused:
            self.connection.abandon(batch)
        if report.is_last:
            yield from self._end_batch(batch, was_started=not report.was_refused)

    def _report(
        self, batch: Batch, outcome: Outcome | FinishedItems, references: Mapping[int, Future]
    ) -> Iterator[Outcome | FinishedItems]:
        if isinstance(outcome, Outcome):
            if self.ledger.take(batch, outcome):
                reference = references.get(outcome.item)
                yield outcome if reference is None else replace(outcome, reference=reference)
        elif references or not batch.stopped.isdisjoint(outcome.items):
            for item, seconds, result in zip(*outcome[1:], strict=True):
                single = Outcome(batch.job, item, seconds, result=result)
                yield from self._report(batch, single, references)
        else:
            self.ledger.take_items(batch, outcome.items)
            yield outcome

    def _end_batch(self, batch: Batch, *, was_started: bool = True) -> Iterator[Outcome]:
        """Forget a batch of which nothing more will be heard; what has no outcome is lost."""
        worker = batch.worker
        if worker is not None and batch in worker.batches:
            worker.batches.remove(batch)
            worker.idle_since = time.monotonic()
        for item in self.ledger.take_rest(batch):
            yield Outcome(batch.job, item, 0.0, is_lost=True, was_started=was_started)

    def _bury_dead(self) -> Iterator[Outcome]:
        now = time.monotonic()
        while self._dead and now - self._dead[0][0] >= _BURIAL_SECONDS:
            _, batch = self._dead.pop(0)
            yield from self._end_batch(batch)

    def _return_too_wide(self) -> Iterator[Outcome]:
        """Return waiting commands that no longer fit on any worker; they restart on fewer."""
        widest = max(self.table.widest, 1)
        for batch in [batch for batch in self.ledger.waiting if batch.servers > widest]:
            self.ledger.waiting.remove(batch)
            yield from self._end_batch(batch, was_started=False)


def _is_future(argument: Any) -> bool:
    return isinstance(argument, Future)


def _describe(error: Exception | None) -> str:
    return str(error) if isinstance(error, LostResultError) else f"{type(error).__name__}: {error}"
