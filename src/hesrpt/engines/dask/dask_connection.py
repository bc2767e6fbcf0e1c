"""The connection to a Dask cluster: what we ask it to do, and what it reports.

Everything that waits for Dask is a coroutine in the event loop of the Dask client. Each puts what
it learns into the queue of the engine, whose thread never waits for Dask.

A cluster object can grow and shrink with the jobs. Dask's own adaptive scaling looks at the tasks
that wait in its scheduler. Ours wait here, so we tell Dask how many workers the jobs could use, and
which it may close.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import logging
import pickle
import uuid
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import cache
from math import inf
from typing import Any, NamedTuple, TypeAlias

from distributed import Adaptive, Client, Future, LocalCluster
from distributed.deploy.cluster import Cluster

from hesrpt.engines.dask import agent
from hesrpt.engines.dask.agent import BatchReport, BatchRequest, load_result, strip_results
from hesrpt.engines.dask.slots import Batch, Demand, Worker, WorkerInfo
from hesrpt.engines.engine import Outcome
from hesrpt.engines.local.processes import count_cores
from hesrpt.errors import InputError

_LOG = logging.getLogger("hesrpt")

# Seconds between two looks at the cluster; with many workers, the looks are rarer.
_LOOK_SECONDS, _WORKERS_PER_SECOND = 0.3, 400
# Seconds to wait for the scheduler's answer, and for agents to end.
_ANSWER_SECONDS, _CLOSE_SECONDS = 10.0, 10.0
# Seconds to wait for the last reports when everything is closed.
_LAST_SECONDS = 1.0
# How often to look whether a kept result is still there, in seconds.
_LOSS_SECONDS = 2.0
# Requests and functions up to this size, in bytes, go through Dask's scheduler. Larger ones go to
# a worker, and from there to the others.
_SMALL = 2**16


@cache  # once for each cluster, however many pools use it
def warn_of_unprotected_cluster(address: str) -> None:
    """Say who can run code in a cluster without TLS, and what to do about it."""
    _LOG.warning(
        "hesrpt: the Dask cluster at %s is not protected: everybody who can connect to it can run "
        "code as the user who runs it; use TLS (tls://…), or let only people whom you trust reach "
        "it",
        address,
    )


class ClusterSeen(NamedTuple):
    """The workers that Dask has now."""

    workers: dict[str, WorkerInfo]


class Greeted(NamedTuple):
    """The answer of a worker to our first task."""

    worker: Worker
    process: str | None
    error: Exception | None


class Reported(NamedTuple):
    """A report of a batch, or why there is none."""

    batch: Batch
    report: BatchReport | None
    error: Exception | None = None
    references: Mapping[int, Future] | None = None  # to results that stay in the cluster


class Disconnected(NamedTuple):
    """The connection is closed for good."""


Event: TypeAlias = ClusterSeen | Greeted | Reported | Disconnected


class LostResultError(Exception):
    """A result that was kept in the cluster is gone with the worker that had it."""


class DaskFunction:
    """A function that is packed for Dask; large ones are scattered once."""

    def __init__(self, number: int, pickled: bytes) -> None:
        self.number, self.pickled = number, pickled
        self.scattered: Future | None = None
        self.lock: asyncio.Lock | None = None


class DaskConnection:
    """A client of a Dask cluster, and what it does for one engine."""

    def __init__(
        self, cluster: Any, engine: str, servers: int | None, on_event: Callable[[Event], None]
    ) -> None:
        self.engine, self._on_event = engine, on_event
        self.own_cluster: Cluster | None = None
        self.client, self._is_ours = self._open_client(cluster, servers)
        self._tasks: dict[object, asyncio.Task[None]] = {}
        self._addresses: set[str] = set()  # of the workers, as last seen
        self._kept: dict[str, str] = {}  # the keys of kept results, and the workers that had them
        self._is_closed = False

    def _open_client(self, cluster: Any, servers: int | None) -> tuple[Client, bool]:
        if isinstance(cluster, Client):
            if cluster._asynchronous:
                raise InputError("must not be an asynchronous client: give its address instead")
            return cluster, False
        if cluster is None:
            cluster = self.own_cluster = _start_own_cluster(servers or count_cores())
        elif not isinstance(cluster, str | Cluster):
            raise InputError(
                f"must be the address of a Dask scheduler, a Client or a Cluster, got {cluster!r}",
                argument="cluster",
            )
        try:
            client = Client(cluster, set_as_default=False, timeout=_ANSWER_SECONDS)
        except (OSError, ValueError, TimeoutError) as error:
            raise InputError(
                f"{cluster!r} is not a Dask scheduler: {error}", argument="cluster"
            ) from None
        except TypeError as error:
            if not str(cluster).startswith("tls://"):
                raise
            raise InputError(
                f"{cluster!r} needs certificates: set distributed.comm.tls.ca-file, client.cert "
                "and client.key in the configuration of Dask",
                argument="cluster",
            ) from error
        if isinstance(cluster, str) and not cluster.startswith("tls://"):
            warn_of_unprotected_cluster(cluster)
        return client, True

    # --- called by the engine's thread ----------------------------------------------------------

    def look(self) -> dict[str, WorkerInfo]:
        """Return the workers that there are now, and report them from now on."""
        seen: dict[str, WorkerInfo] = self._run(self._ask_for_workers())
        self.start_task("look", self._look_again_and_again())
        return seen

    def abandon(self, batch: Batch) -> None:
        """Expect nothing of a batch any more, and let Dask forget it."""

        def cancel() -> None:
            if (task := self._tasks.get(batch)) is not None:
                task.cancel()

        self._loop.call_soon_threadsafe(cancel)

    def fetch(self, reference: Future) -> Any:
        """Return a result that was left in the cluster. Any thread may call this."""
        return self._run(self._wait(reference, [reference]))

    def close(self) -> dict[int, BatchReport]:
        """End our agents, and the connection if it is ours; return the last reports of batches."""
        if self._is_closed:
            return {}
        self._is_closed = True
        reports: dict[int, BatchReport] = {}
        with contextlib.suppress(Exception):  # the cluster may be gone
            reports = self._run(self._end_agents(), _CLOSE_SECONDS)
        if self._is_ours:
            self.client.close()
        if self.own_cluster is not None:
            self.own_cluster.close()
        return reports

    @property
    def _loop(self) -> asyncio.AbstractEventLoop:
        return self.client.loop.asyncio_loop  # type: ignore[no-any-return]

    def _run(self, work: Coroutine[Any, Any, Any], timeout: float | None = None) -> Any:
        """Run a coroutine in the event loop, and wait for its result."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def start_task(self, name: object, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine in the event loop, without waiting for it."""

        def start() -> None:
            if self._is_closed:
                work.close()
                return
            task = self._tasks[name] = self._loop.create_task(work)
            task.add_done_callback(lambda _: self._tasks.pop(name, None))

        self._loop.call_soon_threadsafe(start)

    # --- coroutines in the event loop -------------------------------------------------------------

    async def _look_again_and_again(self) -> None:
        workers = 0
        while True:
            await asyncio.sleep(max(_LOOK_SECONDS, workers / _WORKERS_PER_SECOND))
            if self.client.status in ("closing", "closed"):
                self._on_event(Disconnected())
                return
            with contextlib.suppress(OSError, TimeoutError):  # it may be busy, or reconnecting
                seen = await asyncio.wait_for(self._ask_for_workers(), _ANSWER_SECONDS)
                workers = len(seen)
                self._on_event(ClusterSeen(seen))

    async def _ask_for_workers(self) -> dict[str, WorkerInfo]:
        identity = await self.client.scheduler.identity(n_workers=-1)
        self._addresses = set(identity["workers"])
        return {
            address: WorkerInfo(
                info["name"], info["nthreads"], info["resources"], info["status"] == "running"
            )
            for address, info in identity["workers"].items()
        }

    async def greet(self, worker: Worker) -> None:
        """Ask a new worker whether hesrpt is installed there, and which process it is."""
        try:
            key = f"hesrpt-hello-{uuid.uuid4().hex}"
            process = await self._submit(worker, agent.greet, key=key).result()
            self._on_event(Greeted(worker, process, None))
        except Exception as error:
            self._on_event(Greeted(worker, None, error))

    def _submit(
        self,
        worker: Worker,
        function: Any,
        *arguments: Any,
        key: str,
        resources: dict[str, float] | None = None,
    ) -> Future:
        """Submit a task that no other worker may run, not even if this one dies."""
        return self.client.submit(
            function,
            *arguments,
            workers=[worker.address],
            allow_other_workers=False,
            pure=False,
            key=key,
            resources=resources,
        )

    async def run_batch(
        self,
        batch: Batch,
        request: BatchRequest,
        function: DaskFunction | None,
        results: Sequence[Future],
        resources: dict[str, float],
    ) -> None:
        """Let a worker run a batch."""
        future: Future | None = None
        worker = batch.worker
        assert worker is not None
        try:
            packed: Any = pickle.dumps(request, pickle.HIGHEST_PROTOCOL)
            if len(packed) > _SMALL:
                packed = await self.client.scatter(packed, workers=[worker.address], hash=False)
            sent = None if function is None else await self._scatter(function)
            future = self._submit(
                worker,
                agent.run_batch,
                packed,
                sent,
                *results,
                key=request.key,
                resources=resources or None,
            )
            if batch.keeps_results:
                self._on_event(await self._keep_results(batch, request.key, future))
                return
            report = await self._wait(future, results)
            if (question := self._tasks.get((batch, "report"))) is not None:
                await asyncio.wait([question])  # its answer must come first
            self._on_event(Reported(batch, report))
        except asyncio.CancelledError:  # by us
            if future is not None:
                await self.client.cancel([future], force=True)
        except Exception as error:
            self._on_event(Reported(batch, None, error))

    async def _keep_results(self, batch: Batch, key: str, future: Future) -> Reported:
        """Receive only the report of a batch, with references to its results."""
        assert batch.worker is not None
        stripped = self._submit(batch.worker, strip_results, future, key=f"{key}-report")
        report = await stripped.result()
        references = {}
        for outcome in report.outcomes:
            if isinstance(outcome, Outcome):
                items: Sequence[int] = [outcome.item] if outcome.is_done else []
            else:
                items = outcome.items
            for item in items:
                arguments = load_result, future, item
                references[item] = self._submit(batch.worker, *arguments, key=f"{key}-{item}")
        self._kept |= {each.key: batch.worker.address for each in references.values()}
        return Reported(batch, report, references=references)

    async def _wait(self, future: Future, needed: Sequence[Future] = ()) -> Any:
        """Return the result of a task; raise an error if a kept result that it needs is gone.

        Dask would wait forever for the worker that had it.
        """
        waiting = asyncio.ensure_future(future.result())
        try:
            while True:
                done, _ = await asyncio.wait([waiting], timeout=_LOSS_SECONDS if needed else None)
                if done:
                    return waiting.result()
                for kept in needed:
                    if self._kept.get(kept.key, "") in self._addresses | {""}:
                        continue
                    holders = await self.client.scheduler.who_has(keys=[kept.key])
                    if not any(holders.values()):
                        raise LostResultError(
                            "a result that was kept in the cluster is lost: the Dask worker that "
                            "had it is gone"
                        )
        finally:
            waiting.cancel()

    async def _scatter(self, function: DaskFunction) -> bytes | Future:
        """Return a small function as it is, and a large one as it is known to Dask."""
        if len(function.pickled) <= _SMALL:
            return function.pickled
        function.lock = function.lock or asyncio.Lock()
        async with function.lock:
            known = function.scattered
            if known is None or known.status in ("cancelled", "lost", "error"):
                function.scattered = await self.client.scatter(function.pickled, hash=False)
            assert function.scattered is not None
            return function.scattered

    async def stop_items(self, batch: Batch, items: Sequence[int]) -> None:
        """Stop items of a batch that was sent."""
        if False in await self._ask(batch, agent.stop_items, items):
            self._on_event(Reported(batch, BatchReport(was_refused=True)))

    async def take_report(self, batch: Batch) -> None:
        """Ask what has become so far of a batch that takes long."""
        for report in await self._ask(batch, agent.take_report):
            self._on_event(Reported(batch, report))

    async def _ask(self, batch: Batch, question: Callable[..., Any], *arguments: Any) -> list[Any]:
        """Return the answer of the worker that runs a batch; none if it is gone."""
        assert batch.worker is not None
        with contextlib.suppress(Exception):
            workers = [batch.worker.address]
            values = (self.engine, batch.number, *arguments)
            return list((await self.client.run(question, *values, workers=workers)).values())
        return []

    async def _end_agents(self) -> dict[int, BatchReport]:
        answers = await self.client.run(agent.close_agent, self.engine, on_error="ignore")
        # What has ended just before is still to be received.
        batches = [task for name, task in self._tasks.items() if isinstance(name, Batch)]
        if batches:
            await asyncio.wait(batches, timeout=_LAST_SECONDS)
        for task in list(self._tasks.values()):
            task.cancel()
        return {number: report for each in answers.values() for number, report in each.items()}


def _start_own_cluster(servers: int) -> LocalCluster:
    """Start a Dask cluster inside this process, which nobody else can connect to.

    Whoever connects to Dask runs code as its owner, so no part of this cluster listens. It needs no
    processes of its own: items run in those of the agent.
    """
    cluster = LocalCluster(
        n_workers=1,
        threads_per_worker=servers,
        processes=False,
        protocol="inproc://",
        dashboard_address="127.0.0.1:0",
        scheduler_kwargs={"dashboard": False},
    )

    async def stop_http_servers() -> None:
        # Dask always starts them. They show tasks and call stacks to everybody.
        for node in (cluster.scheduler, *cluster.workers.values()):
            node.http_server.stop()

    cluster.sync(stop_http_servers)
    return cluster


# --- growing and shrinking ------------------------------------------------------------------------

# Seconds between two looks of Dask at the demand.
_INTERVAL = 0.5


class _DemandAdaptive(Adaptive):  # type: ignore[misc]
    """Adaptive scaling by the demand of our jobs."""

    def __init__(self, cluster: Cluster, *, demand: Demand, **options: Any) -> None:
        self.demand = demand
        super().__init__(cluster, **options)

    async def target(self) -> int:
        return self.demand.workers

    async def workers_to_close(self, target: int) -> list[Any]:
        return self.demand.close_drained(self.cluster, max(len(self.plan) - target, 0))


class ClusterScaling:
    """Lets a cluster follow the demand until it is closed."""

    def __init__(
        self, cluster: Cluster, minimum: int | None, maximum: int | None, idle_seconds: float
    ) -> None:
        self._cluster = cluster
        self._previous = cluster._adaptive if is_adaptive(cluster) else None
        bounds = {"minimum": minimum, "maximum": maximum}
        for name, value in bounds.items():
            if value is None and self._previous is not None:
                bounds[name] = getattr(self._previous, name)
        self.minimum = bounds["minimum"] or 0
        self.maximum = inf if bounds["maximum"] is None else bounds["maximum"]
        if self.maximum < self.minimum:
            raise InputError(f"must be at least {self.minimum}, got {maximum}", argument="maximum")
        self.demand = Demand(idle_seconds, _count_threads(cluster))
        self._adaptive = cluster.adapt(
            Adaptive=_DemandAdaptive,
            demand=self.demand,
            minimum=self.minimum,
            maximum=self.maximum,
            interval=_INTERVAL,
            wait_count=1,
        )

    def close(self) -> None:
        """Let the cluster do what it did before."""
        self._adaptive.stop()
        with contextlib.suppress(Exception):  # the cluster may be closed
            del self._cluster._adaptive_options["demand"]
            if self._previous is not None:
                self._cluster.adapt(
                    minimum=self.minimum,
                    maximum=self.maximum,
                    interval=self._previous.interval,
                    wait_count=self._previous.wait_count,
                )
            else:
                self._cluster.scale(self.minimum)


def is_adaptive(cluster: Any) -> bool:
    """Return whether a cluster grows and shrinks by itself."""
    return getattr(getattr(cluster, "_adaptive", None), "state", "") == "running"


def _count_threads(cluster: Cluster) -> int:
    """Return how many threads a new worker will have, as far as the cluster knows."""
    count = getattr(cluster, "_threads_per_worker", None)
    if count is not None and not inspect.signature(count).parameters:
        with contextlib.suppress(Exception):
            return max(int(count()), 1)
    return 1
