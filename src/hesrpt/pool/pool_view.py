"""What a pool shows of its run: the jobs, how they get on, and what became of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from typing import Any, TypeVar, overload

from hesrpt.display.notebook_html import render_run
from hesrpt.display.overview import RunOverview
from hesrpt.display.progress import Progress, choose_screen
from hesrpt.errors import InputError
from hesrpt.jobs.groups import Group
from hesrpt.pool.completed_jobs import iterate_completed
from hesrpt.pool.job_handle import Job
from hesrpt.pool.job_handles import JobHandles
from hesrpt.pool.waiting import wait_except_for_executors, wait_for_all_jobs
from hesrpt.reports.counterfactuals import MAX_JOBS, RunComparison, compare_policies
from hesrpt.reports.live_history import describe_history
from hesrpt.reports.live_overview import describe_run, write_run
from hesrpt.reports.run_schedule import build_schedule
from hesrpt.schedule import Schedule
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_run import Snapshot
from hesrpt.storage.journal_entries import JobRecord

T = TypeVar("T")


class PoolView:
    """The part of a pool that changes nothing."""

    _driver: Driver
    _handles: JobHandles

    def __repr__(self) -> str:
        return f"<Pool: {write_run(self.overview())}>"

    def _repr_html_(self) -> str:
        """Return the jobs as HTML, which notebooks show."""
        return render_run(self.overview())

    @property
    def driver(self) -> Driver:
        """The scheduler, for those who build on it: a service shows its jobs without handles."""
        return self._driver

    @property
    def servers(self) -> int:
        """The number of servers; on a cluster that changes, the highest number so far."""
        return self._driver.recorder.peak_servers

    @property
    def resources(self) -> dict[str, tuple[float, float]]:
        """Of each kind of resource besides servers, how much there is, and how much is free."""
        return self._driver.core.stock.describe()

    @property
    def groups(self) -> dict[str, Group]:
        """The groups that jobs belong to, or of which something was said, by their names."""
        return self._driver.list_groups()

    # --- following jobs -----------------------------------------------------------------------

    @property
    def jobs(self) -> list[Job[Any]]:
        """All jobs, in the order in which they were added.

        A pool that runs for long forgets jobs whose results were freed: it keeps the last 10,000.
        """
        return [self._handles.get(job) for job in list(self._driver.jobs.values())]

    @overload
    def as_completed(
        self, jobs: None = None, timeout: float | None = None
    ) -> Iterator[Job[Any]]: ...

    @overload
    def as_completed(
        self, jobs: Iterable[Job[T]], timeout: float | None = None
    ) -> Iterator[Job[T]]: ...

    def as_completed(
        self, jobs: Iterable[Job[Any]] | None = None, timeout: float | None = None
    ) -> Iterator[Job[Any]]:
        """Yield jobs as they end.

        Parameters
        ----------
        jobs
            The jobs to wait for, each of which is yielded once. Default: all jobs that no other
            call without ``jobs`` has yielded, including those that are added or retried meanwhile.
        timeout
            A TimeoutError is raised if the next job has not ended this many seconds after the call
            of ``as_completed``.
        """
        return iterate_completed(self._driver, self._handles, jobs, timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all jobs have ended, for at most ``timeout`` seconds.

        Returns whether they have ended.
        """
        have_ended = wait_for_all_jobs(self._driver, timeout)
        if self._handles.progress is not None:
            self._handles.progress.close_if_ended()
        return have_ended

    def progress(self) -> Progress:
        """Show the jobs and their progress until all have ended.

        This returns at once. The display goes on in the background: in a terminal a table, in a
        notebook HTML below the cell, and otherwise a line for each job that ends. Several ways to
        use it::

            pool.progress()        # from now on, until all jobs have ended
            with pool.progress():  # also jobs that are added in the block; its end waits for them

        """
        self._driver.check_process()
        if self._handles.progress is not None:
            self._handles.progress.close()
        self._handles.progress = Progress(
            partial(describe_run, self._driver),
            partial(wait_except_for_executors, self._driver),
            choose_screen(),
        )
        return self._handles.progress

    def overview(self) -> RunOverview:
        """Return what the pool and its jobs are doing, as :meth:`progress` shows it."""
        return describe_run(self._driver)

    def snapshot(self) -> Snapshot:
        """Return how many servers each job has now."""
        return self._driver.take_snapshot()

    def predict_ends(self) -> dict[str, float]:
        """Predict when jobs will end, in seconds since the run began.

        This simulates the policy on the work that remains, as far as it is known: jobs without a
        size are left out until their first item is done. See :attr:`Job.eta`.
        """
        self._driver.check_process()
        return dict(self._driver.forecaster.predict())

    # --- results of the run -------------------------------------------------------------------

    @property
    def schedule(self) -> Schedule:
        """How many servers each job held when, for the jobs that have ended."""
        with self._driver.condition:
            return build_schedule(self.records, self._driver.recorder.holdings, self.servers)

    @property
    def records(self) -> list[JobRecord]:
        """The jobs that have ended, with their measured sizes and speedups."""
        with self._driver.condition:
            return [job.to_record() for job in self._driver.jobs.values() if job.has_ended]

    @property
    def first_start(self) -> float:
        """When the first item started, in seconds since the run began."""
        return self._driver.recorder.first_start or 0.0

    def compare_policies(self, *, max_jobs: int = MAX_JOBS) -> RunComparison:
        """Compare the run with what FIFO and equal shares would have made of it.

        All jobs must have ended. The run is replayed in simulated time with the durations of its
        items, under its own policy and the others. If the model does not fit, or if there are
        more than ``max_jobs`` jobs, which would take long, the comparison has a reason instead of
        simulations.
        """
        active = [job.name for job in self.jobs if not job.has_ended]
        if active:
            raise InputError(f"job {active[0]!r} has not ended yet")
        if not self.jobs and self._driver.journal is None:
            raise InputError("there are no jobs to compare policies for")
        return compare_policies(describe_history(self._driver), max_jobs)
