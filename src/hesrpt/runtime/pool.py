"""The pool: jobs in, results out; who gets how many servers is decided all the time."""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from hesrpt.errors import InputError
from hesrpt.policies import PolicyLike, get_policy
from hesrpt.runtime.allocation import Allocator
from hesrpt.runtime.core import MAX_BATCH, Core
from hesrpt.runtime.driver import Driver, LiveJob, measured
from hesrpt.runtime.engines.engine import Engine
from hesrpt.runtime.engines.registry import EngineOptions, create_engine
from hesrpt.runtime.executor import CallSource, PoolExecutor
from hesrpt.runtime.history import Ended, schedule_of
from hesrpt.runtime.job_handle import Job, JobError
from hesrpt.runtime.jobs import JobSpec
from hesrpt.runtime.journal import Journal
from hesrpt.runtime.sources import PythonSource, ReadAhead, Source
from hesrpt.schedule import Schedule
from hesrpt.speedups import PowerLaw, Speedup, as_speedup
from hesrpt.validation import check_positive, check_whole_number
from hesrpt.workload import SpeedupLike

__all__ = ["Job", "JobError", "Pool", "Request"]


@dataclass(frozen=True)
class Request:
    """A job that is to be added."""

    name: str
    spec: JobSpec
    source: Source
    description: str = ""
    submission: int | None = None  # its number, if it was submitted to the state directory
    is_new: bool = False  # whether it is none of those that are remembered


class Pool:
    """Servers that several jobs share, so that jobs end as early as possible on average.

    Parameters
    ----------
    servers
        How many items may run at a time; the cores that this process may use by default, or, on a
        cluster, all that is free.
    policy
        Who gets how many servers: a name, a policy object or any callable that is a policy.
    state
        A directory in which every outcome is recorded as it happens.
    resume
        Go on with the run in ``state``: jobs of the same names do not do again what is done.
    engine
        "local", this machine, or "ray", a Ray cluster.
    address
        Of the Ray cluster, as for ``ray.init``: "auto" is the one that this machine belongs to;
        without an address one is started on this machine if there is none.
    resources
        What a server is, on a Ray cluster: {"CPU": 1}, if not given.
    runtime_env
        What processes on the Ray cluster need, as for ``ray.init``.
    """

    def __init__(
        self,
        servers: int | None = None,
        policy: PolicyLike = "hesrpt",
        *,
        state: str | Path | None = None,
        resume: bool = False,
        engine: str | Engine = "local",
        address: str | None = None,
        resources: Mapping[str, float] | None = None,
        runtime_env: Mapping[str, Any] | None = None,
    ) -> None:
        if servers is not None:
            servers = check_whole_number("servers", servers, minimum=1)
        if resume and state is None:
            raise InputError("to resume a run, its state directory must be given")
        Allocator(policy)  # a mistake is told before anything is made
        self.journal: Journal | None = None
        if state is not None and resume:
            self.journal = Journal.resume(state)
            if servers is None and engine == "local":
                servers = int(self.journal.get("servers"))
        limit = None if servers is None else int(servers)
        running = create_engine(
            engine,
            EngineOptions(
                servers=limit, address=address, resources=resources, runtime_env=runtime_env
            ),
        )
        try:
            if state is not None and not resume:
                self.journal = Journal.create(state, running.capacity(), get_policy(policy).name)
            elif self.journal is not None:
                self.journal.set("servers", running.capacity())
        except BaseException:
            running.close()
            raise
        core = Core(running.capacity(), policy, running.batch_seconds)
        self._before = {} if self.journal is None else {j.name: j for j in self.journal.jobs()}
        self._driver = Driver(core, running, self.journal)
        self._executors: list[PoolExecutor] = []
        self._handles: dict[str, Job] = {}
        self._adding = threading.Lock()
        self._numbers = max((row.number for row in self._before.values()), default=0)
        self._told: set[str] = set()
        self._closed = False
        self._driver.start()
        atexit.register(self.close)  # before Ray's own end, and while threads can be started

    @property
    def servers(self) -> int:
        """How many servers there are; on a cluster that changes, the most that there have been."""
        return self._driver.most_servers

    # --- jobs ---------------------------------------------------------------------------------

    def map(
        self,
        function: Callable[[Any], Any],
        items: Iterable[Any],
        *,
        name: str | None = None,
        size: float | None = None,
        speedup: SpeedupLike | float | None = None,
        weight: float = 1.0,
        retries: int = 1,
        timeout: float | None = None,
        keep: bool = False,
    ) -> Job:
        """Add a job that calls a function with each of some items; return at once.

        Parameters
        ----------
        function
            Any callable of one argument, also a lambda or a closure.
        items
            Read as they are started, so that a generator of millions will do.
        name
            What the job is called; that of the function by default.
        size
            Seconds of work on one server, if known; learned otherwise.
        speedup
            How the job speeds up with the servers, or the p of k^p, if known; learned otherwise.
        weight
            What a second of its flow time is worth, for policies that weigh jobs.
        retries
            How often an item that failed is tried again before the job fails.
        timeout
            Seconds after which an item is ended, and has failed.
        keep
            Leave results in the cluster; :meth:`Job.refs` returns references to them.
        """
        if not callable(function):
            raise InputError(f"a function is expected, got {function!r}")
        if not isinstance(items, Iterable):
            raise InputError(f"must be iterable, got {items!r}", argument="items")
        count = len(items) if isinstance(items, Sized) else None
        limit = None if timeout is None else check_positive("timeout", timeout)
        engine = self._driver.engine
        if keep and not engine.can_keep_results:
            raise InputError("keep=True: results stay in a cluster only; this machine has none")
        if keep and self.journal is not None:
            raise InputError("keep=True: a state directory is to hold the results, for a resume")
        called = name or str(getattr(function, "__name__", "job"))
        spec = _spec(called, count, size, speedup, weight, retries)
        self._check_open()
        shared = engine.pack_function(function)
        source = PythonSource(
            shared,
            items,
            pack_argument=engine.pack_argument,
            read_ahead=self._read_ahead,
            timeout=limit,
            keep_results=keep,
        )
        return self.add(called, spec, source)

    def executor(
        self,
        name: str = "executor",
        *,
        size: float | None = None,
        speedup: SpeedupLike | float | None = None,
        weight: float = 1.0,
        timeout: float | None = None,
    ) -> PoolExecutor:
        """Add a job to which calls are submitted, as a standard ``concurrent.futures.Executor``.

        It takes part in the sharing with what has been submitted to it so far. It ends when it is
        shut down, at the latest with the pool. A call that raises an error, or takes its process
        down, concerns its own future only.

        Parameters
        ----------
        name, size, speedup, weight
            As for :meth:`map`.
        timeout
            Seconds after which a call is ended, and has failed.
        """
        self._check_open()
        limit = None if timeout is None else check_positive("timeout", timeout)
        source = CallSource(self._driver.engine, limit)
        spec = replace(_spec(name, None, size, speedup, weight, retries=0), is_executor=True)
        job = self.add_all([Request(name, spec, source, is_new=True)])[0]
        self._executors.append(PoolExecutor(job, source))
        return self._executors[-1]

    def _read_ahead(self) -> ReadAhead:
        minimum = 2 * self._driver.core.servers + 2
        batch = MAX_BATCH if self._driver.engine.batch_seconds else 1
        return ReadAhead(minimum, minimum * batch)

    def add(self, name: str, spec: JobSpec, source: Source) -> Job:
        """Add a job of any kind."""
        return self.add_all([Request(name, spec, source)])[0]

    def add_all(self, requests: Sequence[Request]) -> list[Job]:
        """Add jobs that come together: none is started before all are written down."""
        with self._adding:
            self._check_open()
            jobs = [self._handle(request) for request in requests]
            self._driver.submit([job._live for job in jobs if not self._has_ended(job)])
        return jobs

    def _handle(self, request: Request) -> Job:
        name, turn = request.name, 1
        new = request.is_new or request.submission is not None
        while name in self._handles or (new and name in self._before):
            turn += 1
            name = f"{request.name} ({turn})"
        spec = replace(request.spec, name=name)
        if spec.resize == "affinity" and not self._driver.engine.can_resize:
            spec = replace(spec, resize="never")
        live = LiveJob(
            name, spec, request.source, request.description, submission=request.submission
        )
        job = self._handles[name] = Job(self._driver, live)
        before = self._before.get(name)
        if before is None or self.journal is None:
            self._numbers += 1
            live.number = self._numbers
            return job
        live.arrived, live.number = before.arrived, before.number
        live.done_before = frozenset(self.journal.done_items(name))
        live.done = len(live.done_before)
        live.seconds_before = self.journal.done_counts().get(name, (0, 0.0))[1]
        items = 1 if request.spec.resize is not None else request.spec.items
        if before.ended is not None and items is not None and items <= live.done:
            live.ended, live.items = before.ended, items  # there is nothing left to do
        return job

    @property
    def jobs(self) -> list[Job]:
        """All jobs, as they were added."""
        return list(self._handles.values())

    def as_completed(self, timeout: float | None = None) -> Iterator[Job]:
        """Yield jobs as they end, also those that are added meanwhile."""
        while True:
            waiting = [job for job in self.jobs if job.name not in self._told]
            if not waiting:
                return
            if not self._driver.wait(partial(self._any_ended, waiting), timeout):
                raise TimeoutError(f"no job has ended after {timeout:g} s")
            ended = [job for job in waiting if self._has_ended(job)]
            for job in sorted(ended, key=lambda job: job._live.ended or 0.0):
                self._told.add(job.name)
                yield job

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all jobs have ended; return whether they have."""
        return self._driver.wait(lambda: all(self._has_ended(job) for job in self.jobs), timeout)

    # --- what came of it ----------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """Who held how many servers when, of the jobs that have ended."""
        with self._driver.condition:
            holdings = list(self._driver.holdings)
            return schedule_of(self.ended, holdings, self.servers)

    @property
    def began(self) -> float:
        """When the first item began, in seconds since the run did."""
        return self._driver.began or 0.0

    @property
    def ended(self) -> list[Ended]:
        """The jobs that have ended, with the work that they turned out to be."""
        found = []
        for job in self.jobs:
            live = job._live
            if live.ended is None:
                continue
            work, p = measured(live)
            speedup = live.spec.speedup or PowerLaw(p or live.durations.p)
            found.append(
                Ended(
                    live.name, live.arrived, live.ended, max(live.done, 1), work, speedup,
                    live.spec.weight, live.spec.resize is None,
                )
            )  # fmt: skip
        return found

    # --- ends ---------------------------------------------------------------------------------

    def close(self) -> None:
        """End everything that is still running."""
        with self._adding:
            closed, self._closed = self._closed, True
        if not closed:
            atexit.unregister(self.close)
            self._driver.close()
            if self.journal is not None:
                self.journal.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                for executor in self._executors:
                    executor.shutdown(wait=False)
                self.wait()
        finally:
            self.close()

    # --- helpers ------------------------------------------------------------------------------

    @staticmethod
    def _has_ended(job: Job) -> bool:
        return job._live.ended is not None

    def _any_ended(self, jobs: list[Job]) -> bool:
        return any(map(self._has_ended, jobs))

    def _check_open(self) -> None:
        if self._closed:
            raise InputError("the pool is closed")
        self._driver.check()


def _spec(
    name: str,
    items: int | None,
    size: float | None,
    speedup: SpeedupLike | float | None,
    weight: float,
    retries: int,
) -> JobSpec:
    retries = check_whole_number("retries", retries, minimum=0)
    given: Speedup | None = None
    if speedup is not None:
        given = PowerLaw(speedup) if isinstance(speedup, int | float) else as_speedup(speedup)
    return JobSpec(
        name=name,
        items=items,
        size=None if size is None else check_positive("size", size),
        speedup=given,
        weight=check_positive("weight", weight),
        retries=int(retries),
        is_streamed=True,
    )
