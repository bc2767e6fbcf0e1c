"""The handle of a job, with which the caller follows it and gets its results, and of all jobs."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Generic, Self, TypeVar
from weakref import WeakValueDictionary, ref

from hesrpt.display.console import escape
from hesrpt.display.overview import describe_job, render_job
from hesrpt.display.progress import Progress
from hesrpt.errors import InputError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_end import JobState
from hesrpt.pool.job_results import Errors, ResultStream, wait_async
from hesrpt.reports.job_views import view_job
from hesrpt.scheduler.driver import Lease, Watch
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.requests import check_pausable
from hesrpt.validation import check_positive

T_co = TypeVar("T_co", covariant=True)


class Job(Generic[T_co]):
    """A job of a pool, as :meth:`Pool.map` returns it: wait for it, get its results, or cancel it.

    For type checkers, ``Job[int]`` is a job whose function returns an int for each item.

    Results stay in memory while somebody holds the job. The pool holds it until its results have
    been read or :meth:`Pool.as_completed` has yielded it.
    """

    def __init__(self, lease: Lease, live: LiveJob, handles: JobHandles) -> None:
        self._lease, self._driver, self._live = lease, lease.driver, live
        self._handles = ref(handles)  # not a cycle: dropped pools end at once

    def __del__(self) -> None:
        self._live.free_results()

    def __repr__(self) -> str:
        view = view_job(self._driver, self._live)
        return f"<Job {self.name!r}: {escape(describe_job(view))}>"

    def _repr_html_(self) -> str:
        """Return the state of the job as HTML, which notebooks show."""
        return render_job(view_job(self._driver, self._live))

    @property
    def name(self) -> str:
        """The job's name, unique in its pool."""
        return self._live.name

    @property
    def state(self) -> JobState:
        """One of "waiting", "running", "paused", "done", "failed" and "cancelled".

        A job that holds no server waits; the last three states are those of jobs that have ended.
        """
        return self._live.state

    @property
    def has_ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self._live.has_ended

    @property
    def error(self) -> str | None:
        """Why the job failed or was cancelled; None otherwise."""
        return self._live.error

    @property
    def failures(self) -> list[ItemFailure]:
        """The items that have failed, in the order of the items."""
        with self._driver.condition:
            return [failure for _, failure in sorted(self._live.failures.items())]

    @property
    def done(self) -> int:
        """How many items are done."""
        return self._live.reported_done

    @property
    def items(self) -> int | None:
        """How many items there are; None if that is not known yet."""
        return self._live.items

    @property
    def progress(self) -> float | None:
        """The fraction of its items that are done, from 0 to 1; None if that is not known."""
        return self._live.progress

    @property
    def servers(self) -> int:
        """How many servers the job holds now."""
        return self._live.servers

    @property
    def eta(self) -> float | None:
        """Seconds until the job will have ended, as predicted; 0.0 once it has, None if unknown.

        The prediction simulates the policy on the work that remains of all jobs, so it counts the
        servers that the job gets when others end. It is unknown until the first item is done,
        unless the job has a size, while the number of items is unknown, and while it is paused.
        """
        if self.has_ended:
            return 0.0
        end = self._driver.forecaster.predict().get(self.name)
        return None if end is None else max(end - self._driver.now, 0.0)

    @property
    def flow_time(self) -> float:
        """Seconds from the job's arrival to its end, or until now if it has not ended."""
        if self._live.arrived is None:
            return 0.0
        end = self._driver.now if self._live.ended is None else self._live.ended
        return end - self._live.arrived

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until the job has ended, for at most ``timeout`` seconds; return whether it has."""
        return self._driver.wait(lambda: self._live.has_ended, timeout)

    def results(self, timeout: float | None = None, *, errors: Errors = "raise") -> list[T_co]:
        """Wait for the job, and return its results in the order of its items.

        Parameters
        ----------
        timeout
            Seconds to wait for the job; after that, a TimeoutError is raised.
        errors
            If the job failed or was cancelled, "raise" raises a JobError. "return" returns what is
            done, with an exception in the place of each other item: what the item raised or, if it
            was not done, a JobError. If the job ended before all its items were read, the list ends
            with the last item that did.
        """
        stream = self.iter_results(errors=errors)
        self._wait(timeout)
        if errors == "raise":
            self._check_success()
        return stream.collect()

    def iter_results(
        self, timeout: float | None = None, *, ordered: bool = True, errors: Errors = "raise"
    ) -> ResultStream[T_co]:
        """Yield results while the job runs, to ``for`` or to ``async for``.

        A job never waits for those who read its results. With ``state=``, a result is yielded once
        it is in the journal. Results of earlier runs are yielded too.

        Parameters
        ----------
        timeout
            A TimeoutError is raised if the next result is not there this many seconds after the
            call of ``iter_results``.
        ordered
            True yields results in the order of the items: each as soon as its item and all items
            before it have ended. False yields each as soon as its item has ended.
        errors
            If items have no result, because they failed or the job ended before, "raise" raises a
            JobError: in their order, in the place of the first such item, so that results never
            shift; otherwise after all results. "return" yields an exception for each such item.
        """
        return ResultStream(
            self._live, self._driver, self._mark_as_read, timeout, errors=errors, ordered=ordered
        )

    def as_completed(
        self, timeout: float | None = None, *, errors: Errors = "raise"
    ) -> ResultStream[tuple[int, T_co]]:
        """Yield items as they end, each as its index and its result.

        This is ``iter_results(ordered=False)`` for those who want to know which item it was.
        """
        return ResultStream(
            self._live, self._driver, self._mark_as_read, timeout, errors=errors, as_pairs=True
        )

    def __await__(self) -> Generator[Any, None, list[T_co]]:
        """Wait for the job in an event loop of asyncio, and return what :meth:`results` returns.

        If the task that waits is cancelled, the job goes on.
        """
        return self._get_results().__await__()

    async def _get_results(self) -> list[T_co]:
        stream = self.iter_results()
        await wait_async(self._driver, self._live, lambda: self._live.has_ended)
        self._check_success()
        return [result async for result in stream]

    def __aiter__(self) -> AsyncIterator[T_co]:
        """Yield results in the order of the items while the job runs, in an event loop."""
        return self.iter_results()

    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call a function with the job when it has ended; at once if it has.

        The function runs in a thread of the pool, so it may take long, add jobs, and close the
        pool. If it raises an exception, that is logged. Closing the pool waits for it. Until it has
        been called, the job goes on even if nobody else holds it.
        """
        driver, call = self._driver, partial(callback, self)
        if not self._live.has_ended:
            driver.check_process()
            driver.callbacks.start()
        watch = Watch(self._live, lambda: self._live.has_ended, partial(driver.callbacks.put, call))
        if not driver.watch(watch):
            driver.callbacks.call_now(call)

    def refs(self, timeout: float | None = None) -> list[Any]:
        """Wait for the job, and return references to its results, which stay in the cluster.

        These are Ray object references in the order of the items: ``ray.get`` fetches them, and
        ``pool.map`` accepts them as items. The job must have been added with
        ``pool.map(..., keep=True)``. A result is lost if the node that holds it dies.
        """
        self._wait(timeout)
        self._check_success()
        if self._live.done and not self._live.references:
            raise InputError(
                f"job {self.name!r}: its results were not kept in the cluster; use "
                "map(…, keep=True)"
            )
        references = [reference for _, reference in sorted(self._live.references.items())]
        self._mark_as_read()
        return references

    def _mark_as_read(self) -> None:
        """Let the pool forget the job: if nobody else holds it, its results are freed."""
        if (handles := self._handles()) is not None:
            handles.release(self._live)

    def _wait(self, timeout: float | None) -> None:
        if not self.wait(timeout):
            raise TimeoutError(f"job {self.name!r} has not ended after {timeout:g} s")

    def _check_success(self) -> None:
        """Raise an error if the job failed or was cancelled."""
        if self._live.error is not None:
            self._mark_as_read()
            raise self._live.create_error()

    def cancel(self) -> None:
        """Stop the job's running items and end it.

        This returns at once; :meth:`wait` returns when the job has ended.
        """
        self._driver.cancel(self._live)

    def retry(self) -> None:
        """Let the items that have failed run again, alone; the job then has not ended.

        They get as many attempts as at first. A job that was stopped by a failure continues, with
        the items that never ran; so does a command that was cancelled. Raises InputError if nothing
        can run again.
        """
        self._driver.retry(self._live)
        if (handles := self._handles()) is not None:
            handles.hold(self)  # until what it does now has been read

    @property
    def weight(self) -> float:
        """What a second of the job's flow time costs."""
        return self._live.spec.weight

    def set_weight(self, weight: float) -> None:
        """Change what a second of the job's flow time costs, and so its share of the servers."""
        weight = check_positive("weight", weight)
        self._driver.steer(self._live, lambda job: job.set_weight(weight))

    def pause(self) -> None:
        """Give the job's servers to others until it is resumed; nothing if it has ended.

        A job with items lets those end that are running, and starts no others. A single command is
        suspended with all its processes; if it resizes by restarting, it is stopped instead. With
        ``state=``, the job is still paused when the run is resumed.
        """
        check_pausable(self._live, self._driver.engine)
        self._driver.steer(self._live, lambda job: job.set_paused(True))

    def resume(self) -> None:
        """Let a paused job go on."""
        self._driver.steer(self._live, lambda job: job.set_paused(False))


@dataclass(eq=False)
class JobHandles:
    """The handles of a pool's jobs. It holds those that nobody has read, so their results stay."""

    _lease: Lease
    progress: Progress | None = None  # shows the jobs
    _unread: dict[LiveJob, Job[Any]] = field(default_factory=dict)
    _handles: WeakValueDictionary[LiveJob, Job[Any]] = field(default_factory=WeakValueDictionary)

    def add(self, job: LiveJob) -> Job[Any]:
        """Return the handle of a new job."""
        handle = self.get(job)
        if not job.spec.is_executor:  # the results of calls are in their futures
            self._unread[job] = handle
        return handle

    def get(self, job: LiveJob) -> Job[Any]:
        """Return the handle of a job; another one if the first was read and forgotten."""
        handle = self._handles.get(job)
        if handle is None:
            handle = self._handles[job] = Job(self._lease, job, self)
        return handle

    def hold(self, handle: Job[Any]) -> None:
        """Hold a job that is retried, even if it was read before."""
        self._unread[handle._live] = handle

    def release(self, job: LiveJob) -> None:
        """Forget a job: its results are freed once nobody else holds it."""
        self._unread.pop(job, None)
        if self.progress is not None and not self._lease.driver.core.jobs:
            self.progress.close_if_ended()

    def iterate_completed(
        self, jobs: Iterable[Job[Any]] | None, timeout: float | None
    ) -> Iterator[Job[Any]]:
        """Yield these jobs as they end; if ``jobs`` is None, all that no iterator has yielded yet.

        The time for ``timeout`` starts to run now, not when the first job is asked for.
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        given = None
        if jobs is not None:
            if not isinstance(jobs, Iterable):
                raise InputError(f"must be several jobs, got {jobs!r}", argument="jobs")
            given = {self._get_live_job(job): job for job in jobs}
        return self._iterate(given, timeout, deadline)

    def _iterate(
        self,
        given: dict[LiveJob, Job[Any]] | None,
        timeout: float | None,
        deadline: float | None,
    ) -> Iterator[Job[Any]]:
        driver, ended = self._lease.driver, deque[LiveJob]()
        left = [] if given is None else list(given)  # may have been yielded since
        with driver.condition:
            driver.followers.add(ended.append)
            ended.extend(driver.jobs.values() if given is None else given)
        try:
            while left or (given is None and (left := self._list_unyielded())):
                remaining = None if deadline is None else max(deadline - time.monotonic(), 0.0)
                if not driver.wait(lambda: bool(ended), remaining):
                    raise TimeoutError(f"{_count_active(left)} not ended after {timeout:g} s")
                jobs = {ended.popleft(): None for _ in range(len(ended))}
                for job in sorted(jobs, key=lambda job: job.ended or 0.0):
                    if not job.has_ended:
                        continue  # or it was retried
                    if given is not None and job in given:
                        yield given.pop(job)
                    elif given is None and not job.is_yielded:  # or yielded elsewhere
                        job.is_yielded = True
                        yield self._take(job)  # which is not held here after that
                while left and (left[-1].is_yielded if given is None else left[-1] not in given):
                    left.pop()
        finally:
            driver.followers.discard(ended.append)

    def _list_unyielded(self) -> list[LiveJob]:
        return [job for job in list(self._lease.driver.jobs.values()) if not job.is_yielded]

    def _take(self, job: LiveJob) -> Job[Any]:
        """Return the handle of a job, and forget it."""
        handle = self.get(job)
        self.release(job)
        return handle

    def _get_live_job(self, handle: Job[Any]) -> LiveJob:
        """Return the job of a handle, which must be one of this pool."""
        if not isinstance(handle, Job) or handle._lease is not self._lease:
            raise InputError(f"must be jobs of this pool, got {handle!r}", argument="jobs")
        return handle._live


def _count_active(jobs: Iterable[LiveJob]) -> str:
    count = sum(not job.has_ended for job in jobs)
    return "1 job has" if count == 1 else f"{count} jobs have"
