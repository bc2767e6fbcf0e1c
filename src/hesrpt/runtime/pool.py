"""The pool: jobs in, results out; who gets how many servers is decided all the time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence, Sized
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import cloudpickle

from hesrpt.errors import InputError, number, positive
from hesrpt.policies import PolicyLike, named
from hesrpt.runtime.core import MOST_IN_BATCH, Core
from hesrpt.runtime.driver import Driver, LiveJob, measured
from hesrpt.runtime.engines.base import Engine
from hesrpt.runtime.engines.local import LocalEngine, cores_here
from hesrpt.runtime.events import JobCancelled, JobSpec
from hesrpt.runtime.journal import Journal
from hesrpt.runtime.record import Ended, schedule_of
from hesrpt.runtime.sources import PythonSource, Source
from hesrpt.schedule import Schedule
from hesrpt.speedup import PowerLaw, Speedup, as_speedup
from hesrpt.workload import SpeedupLike


class JobError(RuntimeError):
    """A job has failed, or was cancelled."""


@dataclass(frozen=True)
class Request:
    """A job that is to be added."""

    name: str
    spec: JobSpec
    source: Source
    description: str = ""
    submission: int | None = None  # its number, if it was submitted to the state directory


class Job:
    """A job in a pool."""

    def __init__(self, pool: Pool, live: LiveJob) -> None:
        self._pool, self._live = pool, live

    def __repr__(self) -> str:
        total = "?" if self._live.items is None else self._live.items
        return f"<Job {self.name!r}: {self.state}, {self._live.done} of {total} items>"

    @property
    def name(self) -> str:
        """What the job is called."""
        return self._live.name

    @property
    def state(self) -> str:
        """One of "running", "done", "failed" and "cancelled"."""
        if self._live.ended is None:
            return "running"
        if self._live.error is None:
            return "done"
        return "cancelled" if self._live.error == "cancelled" else "failed"

    @property
    def error(self) -> str | None:
        """Why it failed."""
        return self._live.error

    @property
    def done(self) -> int:
        """How many items are done."""
        return self._live.done

    @property
    def items(self) -> int | None:
        """How many items there are, if that is known."""
        return self._live.items

    @property
    def flow_time(self) -> float:
        """How long it took, from its arrival to its end; so far, if it has not ended."""
        end = self._pool._driver.now if self._live.ended is None else self._live.ended
        return end - self._live.arrived

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended; return whether it has."""
        return self._pool._wait(lambda: self._live.ended is not None, timeout)

    def results(self, timeout: float | None = None) -> list[Any]:
        """Wait for the job, and return what its items returned, in their order.

        Raises JobError if it failed.
        """
        return list(self.iter_results(timeout))

    def iter_results(self, timeout: float | None = None) -> Iterator[Any]:
        """Wait for the job, and yield what its items returned, one after the other."""
        if not self.wait(timeout):
            raise TimeoutError(f"job {self.name!r} has not ended after {timeout:g} s")
        if self._live.error is not None:
            raise JobError(f"job {self.name!r} {self.state}: {self._live.error}")
        for _, result in self._pool._results(self._live):
            yield cloudpickle.loads(result)

    def cancel(self) -> None:
        """End the job; what is running of it is stopped."""
        self._pool._driver.tell(JobCancelled(self._pool._driver.now, self.name))


class Pool:
    """Servers that several jobs share, so that jobs end as early as possible on average.

    Parameters
    ----------
    servers
        How many items may run at a time; the cores that this process may use by default.
    policy
        Who gets how many servers: a name, a policy object or any callable that is a policy.
    state
        A directory in which every outcome is recorded as it happens.
    resume
        Go on with the run in ``state``: jobs of the same names do not do again what is done.
    """

    def __init__(
        self,
        servers: int | None = None,
        policy: PolicyLike = "hesrpt",
        *,
        state: str | Path | None = None,
        resume: bool = False,
        engine: Engine | None = None,
    ) -> None:
        if servers is not None and positive("servers", servers) != int(servers):
            raise InputError(f"servers must be a whole number, got {servers!r}")
        if resume and state is None:
            raise InputError("to resume a run, its state directory must be given")
        named(policy)  # a mistake is told before anything is made
        self.journal: Journal | None = None
        if state is not None and resume:
            self.journal = Journal.resume(state)
            servers = servers or int(self.journal.get("servers"))
            self.journal.set("servers", int(servers))
        self.servers = int(servers or cores_here())
        if state is not None and not resume:
            self.journal = Journal.create(state, self.servers, named(policy).name)
        engine = engine or LocalEngine(self.servers)
        core = Core(self.servers, policy, engine.batch_seconds)
        self._before = {} if self.journal is None else {j.name: j for j in self.journal.jobs()}
        self._driver = Driver(core, engine, self.journal)
        self._handles: dict[str, Job] = {}
        self._adding = threading.Lock()
        self._numbers = max((row.number for row in self._before.values()), default=0)
        self._told: set[str] = set()
        self._closed = False
        self._driver.start()

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
        """
        if not callable(function):
            raise InputError(f"a function is expected, got {function!r}")
        if not isinstance(items, Iterable):
            raise InputError(f"items must be iterable, got {items!r}")
        count = len(items) if isinstance(items, Sized) else None
        limit = None if timeout is None else positive("timeout", timeout)
        engine = self._driver.engine
        source = PythonSource(engine.shared(function), items, engine.packed, self._ahead, limit)
        spec = _spec(count, size, speedup, weight, retries)
        return self.add(name or str(getattr(function, "__name__", "job")), spec, source)

    def _ahead(self) -> tuple[int, int]:
        """Return how many items of a job to read ahead, and how many where they are small."""
        least = 2 * self._driver.core.servers + 2
        return least, least * (MOST_IN_BATCH if self._driver.engine.batch_seconds else 1)

    def add(self, name: str, spec: JobSpec, source: Source) -> Job:
        """Add a job of any kind."""
        return self.add_all([Request(name, spec, source)])[0]

    def add_all(self, requests: Sequence[Request]) -> list[Job]:
        """Add jobs that come together: none is started before all are written down."""
        self._check_open()
        with self._adding:
            jobs = [self._handle(request) for request in requests]
            self._driver.submit([job._live for job in jobs if not self._has_ended(job)])
        return jobs

    def _handle(self, request: Request) -> Job:
        name, turn, new = request.name, 1, request.submission is not None
        while name in self._handles or (new and name in self._before):
            turn += 1
            name = f"{request.name} ({turn})"
        live = LiveJob(
            name, request.spec, request.source, request.description, submission=request.submission
        )
        job = self._handles[name] = Job(self, live)
        before = self._before.get(name)
        if before is None or self.journal is None:
            self._numbers += 1
            live.number = self._numbers
            return job
        live.arrived, live.number = before.arrived, before.number
        live.done_before = frozenset(self.journal.done_items(name))
        live.done = len(live.done_before)
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
            if not self._wait(partial(self._any_ended, waiting), timeout):
                raise TimeoutError(f"no job has ended after {timeout:g} s")
            ended = [job for job in waiting if self._has_ended(job)]
            for job in sorted(ended, key=lambda job: job._live.ended or 0.0):
                self._told.add(job.name)
                yield job

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all jobs have ended; return whether they have."""
        return self._wait(lambda: all(self._has_ended(job) for job in self.jobs), timeout)

    # --- what came of it ----------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """Who held how many servers when, of the jobs that have ended."""
        with self._driver.condition:
            holdings = list(self._driver.holdings)
            return schedule_of(self.ended, holdings, self.servers)

    @property
    def ended(self) -> list[Ended]:
        """The jobs that have ended, with the work that they turned out to be."""
        found = []
        for job in self.jobs:
            live = job._live
            if live.ended is None:
                continue
            work, p = measured(live)
            speedup = live.spec.speedup or PowerLaw(p or live.learned.p)
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
        if not self._closed:
            self._closed = True
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
        self._check_driver()

    def _check_driver(self) -> None:
        failure = self._driver.failure
        if isinstance(failure, InputError):
            raise failure
        if failure is not None:
            raise RuntimeError(f"the scheduler has failed, which is a bug: {failure}") from failure

    def _wait(self, ready: Callable[[], bool], timeout: float | None) -> bool:
        condition = self._driver.condition
        with condition:
            condition.wait_for(lambda: ready() or self._driver.failure is not None, timeout)
            if not ready():
                self._check_driver()
            return ready()

    def _results(self, live: LiveJob) -> Iterator[tuple[int, bytes]]:
        if self.journal is not None:
            # With a connection of its own: the driver's is busy.
            return _read_results(self.journal.directory, live.name)
        return iter(sorted(live.results.items()))


def _read_results(directory: Path, job: str) -> Iterator[tuple[int, bytes]]:
    reader = Journal.read(directory)
    try:
        yield from reader.results(job)
    finally:
        reader.close()


def _spec(
    items: int | None,
    size: float | None,
    speedup: SpeedupLike | float | None,
    weight: float,
    retries: int,
) -> JobSpec:
    if number("retries", retries) != int(retries) or retries < 0:
        raise InputError(f"retries must be a whole number, at least 0, got {retries!r}")
    given: Speedup | None = None
    if speedup is not None:
        given = PowerLaw(speedup) if isinstance(speedup, int | float) else as_speedup(speedup)
    return JobSpec(
        items=items,
        size=None if size is None else positive("size", size),
        speedup=given,
        weight=positive("weight", weight),
        retries=int(retries),
        fed=True,
    )
