"""The pool: servers that several jobs share. Add jobs, and wait for their results."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from inspect import signature
from operator import attrgetter
from pathlib import Path
from typing import Any, Self, TypeVar, get_args, overload

from hesrpt.decisions.core import Core
from hesrpt.decisions.learning import KindMemory, LearnedRun
from hesrpt.display.overview import RunOverview, render_run
from hesrpt.display.progress import Progress, choose_screen
from hesrpt.engines.engine import Engine
from hesrpt.engines.registry import create_engine
from hesrpt.errors import InputError, JobError
from hesrpt.jobs.failures import ItemFailure, OnError
from hesrpt.jobs.fingerprints import fingerprint_function
from hesrpt.jobs.job_end import JobEnd
from hesrpt.jobs.job_spec import AfterFailure, Group, JobSpec, give_weight
from hesrpt.jobs.schema import FUNCTION_FIELDS, GROUP, read_job
from hesrpt.policies import Policy, PolicyLike, get_malleable_policy
from hesrpt.pool.executor import PoolExecutor
from hesrpt.pool.job_handle import Job, JobHandles
from hesrpt.reports.counterfactuals import (
    MAX_JOBS,
    RunComparison,
    compare_policies,
    describe_history,
)
from hesrpt.reports.inspection import read_learned_runs
from hesrpt.reports.job_views import view_run
from hesrpt.reports.run_schedule import build_schedule
from hesrpt.schedule import Schedule
from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.calls import Caller
from hesrpt.scheduler.driver import Driver, Lease, Snapshot
from hesrpt.scheduler.job_registry import OnChange
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.pruning import Retention
from hesrpt.scheduler.python_source import PythonSource
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Changes, JobRecord
from hesrpt.storage.state_directory import require_posix
from hesrpt.validation import check_positive, check_whole_number
from hesrpt.workload import SpeedupLike

__all__ = ["ItemFailure", "Job", "JobError", "Pool", "Snapshot"]

_has_ended = attrgetter("has_ended")

# How long to wait for the answer to a last request, in seconds.
_PAUSE_SECONDS = 0.02

A = TypeVar("A")
T = TypeVar("T")


class Pool:
    """Servers that several jobs share, so that jobs end as early as possible on average.

    Leaving the ``with`` block of a pool waits until all jobs have ended. If the block raises an
    error, the jobs that still run are stopped instead. Without a ``with`` block, call :meth:`wait`
    and then :meth:`close`. A pool is also closed at interpreter exit, and once nobody refers to it,
    its jobs or its executors; calls that were submitted to an executor end first.

    Parameters
    ----------
    servers
        How many items may run at a time. Default: the cores that this process may use or, on a
        cluster, all servers that are free.
    policy
        How jobs share the servers: the name of a policy, a policy object or a callable. The default
        is heSRPT for jobs that are there together, and learns when further jobs keep arriving.
    state
        A directory in which every outcome is recorded as it happens.
    resume
        Continue the run in ``state``. A job with the same name as an earlier one keeps the results
        of the items that it still has, wherever they are, and does only the others.
    on_change
        What to do, when a run is resumed, with the results of a job whose function has changed:
        "error" raises an InputError, "redo" does all items again, and "keep" keeps the results.
    learned
        The state directory of another run. Jobs are planned with what its jobs of the same kind
        have taught, unless ``state`` holds a run that has learned something itself.
    retention
        Remove jobs that have ended from ``state``, with their results and their output, once they
        are old or too many. The results of a job that was removed cannot be read any more.
    engine
        Where items run: "local" for this machine, "ray" or "dask" for a cluster, the name of an
        engine that another package adds, or an engine object such as
        ``RayEngine(address="auto")`` of :mod:`hesrpt.engines`. The pool closes the engine.
    **engine_options
        The options of an engine that is given by name, such as ``address="auto"``.
    """

    def __init__(
        self,
        servers: int | None = None,
        policy: PolicyLike = "adaptive",
        *,
        state: str | Path | None = None,
        resume: bool = False,
        on_change: OnChange = "error",
        learned: str | Path | None = None,
        retention: Retention | None = None,
        engine: str | Engine = "local",
        **engine_options: Any,
    ) -> None:
        require_posix()
        # Invalid ones are refused before anything is created.
        servers, policy = check_settings(servers, policy, on_change)
        if resume and state is None:
            raise InputError("resume=True needs state=, the directory of the run to continue")
        if retention is not None and state is None:
            raise InputError("retention= needs state=, the directory to remove jobs from")
        runs = [] if learned is None else read_learned_runs(Path(learned))
        journal = None
        with ExitStack() as on_error:
            if state is not None and resume:
                journal = Journal.resume(state)
                on_error.callback(journal.close)
                if engine == "local":
                    servers = recall_machine(journal, servers, engine_options)
            running = create_engine(engine, servers, engine_options)
            on_error.callback(running.close)
            resources = running.resource_totals()
            core = Core(
                running.capacity(), policy, running.batch_seconds, resources, running.max_batch
            )
            if journal is not None:
                _record_resume(journal, core)
            elif state is not None:
                journal = Journal.create(state, core.servers, policy.name)
                on_error.callback(journal.close)
            if journal is not None:
                journal.write(Changes(values={"resources": json.dumps(dict(resources))}))
                running.claim(journal.directory)
                runs = _choose_learned_runs(journal, runs)
            memory = KindMemory(runs)
            self._driver = Driver(core, running, journal, memory, on_change, retention)
            self._handles = JobHandles(Lease(self._driver))
            self._driver.start()  # from now on, it adds jobs that other processes submit
            on_error.pop_all()

    # --- adding jobs --------------------------------------------------------------------------

    def map(
        self,
        function: Callable[[A], T],
        items: Iterable[A],
        *,
        name: str | None = None,
        kind: str | None = None,
        size: float | str | None = None,
        speedup: SpeedupLike | float | None = None,
        weight: float = 1.0,
        servers: int | None = None,
        min_servers: int | None = None,
        max_servers: int | None = None,
        after: str | Job[Any] | Iterable[str | Job[Any]] = (),
        after_failure: AfterFailure = "cancel",
        group: str = "",
        resources: Mapping[str, float | str] | None = None,
        on_end: str | Sequence[str] = (),
        retries: int = 1,
        on_error: OnError = "raise",
        timeout: float | str | None = None,
        keep: bool = False,
    ) -> Job[T]:
        """Add a job that calls a function with each item; return at once.

        Parameters
        ----------
        function
            Any callable with one argument; lambdas and closures are allowed.
        items
            Read while the job runs, so a generator of millions of items is fine.
        name
            The name of the job, by which a resumed run recognises it. Default: the name of the
            function.
        kind
            Jobs of one kind learn from each other, also from earlier runs in the same state
            directory. Default: the name of the job.
        size
            Seconds of work on one server, or a duration such as "2h". Default: learned while the
            job runs.
        speedup
            How the job speeds up with servers, or the p of k^p. Default: learned.
        weight
            What a second of the job's flow time costs, for policies that use weights.
        servers
            How many items should run at a time. Sets both of the following limits.
        min_servers
            The job gets at least this many servers while it has items. Default: the policy decides.
        max_servers
            The most servers that the job gets. Default: no limit.
        after
            Jobs, or their names. The job starts when all of them have ended well.
        after_failure
            If one of them fails or is cancelled: "cancel" cancels this job too, and "release" lets
            it start when all of them have ended.
        group
            The name of a group of jobs: see :meth:`set_group_weight` and :meth:`pause_group`.
        resources
            What each item needs besides a server, such as {"gpu": 1, "memory": "4GB"}. It starts
            when that is free of what the pool was given as ``resources``.
        on_end
            A command that runs when the job has ended, an address to which that is posted, or a
            list of these. They may run twice if the scheduler is killed.
        retries
            How often an item that failed runs again before it counts as failed.
        on_error
            What happens then: "raise" stops the job, which fails, and "keep" lets the other items
            go on. The job has failed at its end, and :attr:`Job.failures` lists the failed items.
        timeout
            Seconds, or a duration, after which an item is stopped and counts as failed.
        keep
            Leave results in the cluster; :meth:`Job.refs` returns references to them.
        """
        engine, has_journal = self._driver.engine, self._driver.journal is not None
        self._driver.check_open()
        if keep and has_journal:
            raise InputError(
                "keep=True cannot be combined with state=, which stores all results on disk"
            )
        if not callable(function):
            raise InputError(f"must be callable, got {function!r}", argument="function")
        if not isinstance(items, Iterable):
            raise InputError(f"must be iterable, got {items!r}", argument="items")
        if keep and not engine.can_keep_results:
            raise InputError("keep=True needs a cluster, where the results can stay")
        values = _read_arguments(
            name=str(getattr(function, "__name__", "job")) if name is None else name,
            kind=kind,
            size=size,
            speedup=speedup,
            weight=weight,
            servers=servers,
            min_servers=min_servers,
            max_servers=max_servers,
            after=_list_names(after),
            after_failure=after_failure,
            group=group,
            resources=resources,
            on_end=on_end,
            retries=retries,
            on_error=on_error,
            timeout=timeout,
        )
        source = PythonSource(
            engine.pack_function(function),
            items,
            pack_argument=engine.pack_argument,
            read_ahead=self._driver.get_read_ahead,
            timeout=values.pop("timeout", None),
            keep_results=keep,
            has_journal=has_journal,
        )
        count = len(items) if isinstance(items, Sized) else None
        spec = JobSpec(**values, items=count, is_streamed=True)
        fingerprint = fingerprint_function(function) if has_journal else b""
        job = LiveJob(spec=spec, source=source, items=spec.items, fingerprint=fingerprint)
        return self.add_jobs([job])[0]

    def executor(
        self,
        name: str = "executor",
        *,
        kind: str | None = None,
        size: float | str | None = None,
        speedup: SpeedupLike | float | None = None,
        weight: float = 1.0,
        servers: int | None = None,
        min_servers: int | None = None,
        max_servers: int | None = None,
        group: str = "",
        resources: Mapping[str, float | str] | None = None,
        timeout: float | str | None = None,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_tasks_per_child: int | None = None,
    ) -> PoolExecutor:
        """Add a job to which calls are submitted, as a standard ``concurrent.futures.Executor``.

        The job gets servers for the calls submitted so far. It ends when the executor is shut down,
        at the latest when the pool is closed. A call that raises an error or crashes its process
        affects only its own future.

        Parameters
        ----------
        name, kind, size, speedup, weight, servers, min_servers, max_servers, group, resources
            As for :meth:`map`.
        timeout
            Seconds, or a duration, after which a call is stopped and counts as failed.
        initializer
            A callable that runs in each worker before the first call of this executor there. If it
            raises an error, the executor is broken: calls that have not ended fail with a
            ``BrokenProcessPool`` error, and so do later ones. Other jobs continue.
        initargs
            The arguments of the initializer.
        max_tasks_per_child
            A worker that has run this many calls of the executor is replaced. Not on a cluster.
        """
        self._driver.check_open()
        engine = self._driver.engine
        if initializer is not None and not callable(initializer):
            raise InputError(f"must be callable, got {initializer!r}", argument="initializer")
        if not isinstance(initargs, Iterable):
            raise InputError(f"must be a tuple, got {initargs!r}", argument="initargs")
        if max_tasks_per_child is not None:
            argument = "max_tasks_per_child"
            max_tasks_per_child = check_whole_number(argument, max_tasks_per_child, minimum=1)
            if not engine.can_replace_workers:
                raise InputError(
                    "needs the local engine: a cluster keeps its servers", argument=argument
                )
        values = _read_arguments(
            name=name,
            kind=kind,
            size=size,
            speedup=speedup,
            weight=weight,
            servers=servers,
            min_servers=min_servers,
            max_servers=max_servers,
            group=group,
            resources=resources,
            timeout=timeout,
        )
        caller = Caller(initializer, tuple(initargs), max_tasks_per_child)
        source = CallSource(engine, caller, values.pop("timeout", None))
        spec = JobSpec(**values, retries=0, is_streamed=True, is_executor=True)
        job = LiveJob(spec=spec, source=source, is_new=True)
        return PoolExecutor(self.add_jobs([job])[0], self._driver, source)

    def add_jobs(self, jobs: Sequence[LiveJob]) -> list[Job[Any]]:
        """Add several jobs at once; none starts before all of them are in the journal.

        Commands that are done already are left out.
        """
        handles = dict(zip(jobs, map(self._handles.add, jobs), strict=True))  # before one can end
        added: list[LiveJob] = []
        try:
            added = self._driver.add(jobs)
        finally:
            for job in set(jobs).difference(added):
                self._handles.release(job)
        return list(map(handles.__getitem__, added))

    @property
    def earlier_jobs(self) -> list[JobRecord]:
        """The jobs of earlier schedulers on the state directory that were not added again."""
        return self._driver.registry.list_records()

    def end_earlier_jobs(self, records: Sequence[JobRecord], end: JobEnd) -> None:
        """Let jobs of earlier schedulers fail that nobody can continue."""
        self._driver.end_earlier_jobs(records, end)

    # --- groups of jobs -----------------------------------------------------------------------

    def set_group_weight(self, group: str, weight: float) -> None:
        """Multiply the weights of all jobs of a group by ``weight``, also of those that come later.

        With ``state=``, this holds until it is changed, also when the run is resumed.
        """
        weight = check_positive("weight", weight)
        self._change_group(group, lambda before: replace(before, weight=weight))

    def give_group_weights(self, weights: Mapping[str, float]) -> None:
        """Give groups the weights in a jobs file, unless they were changed since it last did."""
        for name, weight in weights.items():
            self._change_group(name, partial(give_weight, weight=weight))

    def pause_group(self, group: str) -> None:
        """Pause all jobs of a group, also those that come later: see :meth:`Job.pause`."""
        self._change_group(group, lambda before: replace(before, is_paused=True))

    def resume_group(self, group: str) -> None:
        """Let a group go on. Jobs of it that were paused themselves stay paused."""
        self._change_group(group, lambda before: replace(before, is_paused=False))

    def _change_group(self, group: str, change: Callable[[Group], Group]) -> None:
        if not GROUP.read(group):
            raise InputError("must not be empty", argument="group")
        self._driver.change_group(group, change)

    # --- what the pool shows of its run -------------------------------------------------------

    def __repr__(self) -> str:
        return f"<Pool: {self.overview().describe_with_jobs()}>"

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
        return self._driver.peak_servers

    @property
    def resources(self) -> dict[str, tuple[float, float]]:
        """Of each kind of resource besides servers, how much there is, and how much is free."""
        return self._driver.core.stock.describe()

    @property
    def groups(self) -> dict[str, Group]:
        """The groups that jobs belong to, or that have settings, by their names."""
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
        return self._handles.iterate_completed(jobs, timeout)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all jobs have ended, for at most ``timeout`` seconds.

        Returns whether they have ended.
        """
        have_ended = self._driver.wait_for_jobs(self._driver.jobs.values, timeout)
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
        jobs = self._driver.jobs
        # The display must not refer to the pool, which ends when nobody else does. Executors are
        # not waited for: they go on until they are shut down.
        self._handles.progress = Progress(
            partial(view_run, self._driver),
            partial(
                self._driver.wait_for_jobs,
                lambda: (job for job in jobs.values() if not job.spec.is_executor),
            ),
            choose_screen(),
        )
        return self._handles.progress

    def overview(self) -> RunOverview:
        """Return what the pool and its jobs are doing, as :meth:`progress` shows it."""
        return view_run(self._driver)

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
            return build_schedule(self.records, self._driver.holdings, self.servers)

    @property
    def records(self) -> list[JobRecord]:
        """The jobs that have ended, with their measured sizes and speedups."""
        with self._driver.condition:
            return [job.to_record() for job in self._driver.jobs.values() if job.has_ended]

    @property
    def first_start(self) -> float:
        """When the first item started, in seconds since the run began."""
        return self._driver.first_start or 0.0

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

    # --- closing ------------------------------------------------------------------------------

    def stop_taking_requests(self) -> bool:
        """Ignore further requests of other processes; return False if one is not answered yet."""
        return self._driver.stop_taking_requests()

    def close(self) -> None:
        """Stop the jobs that are still running, which cancels them, and end all worker processes.

        Call :meth:`wait` first to let them end.
        """
        self._driver.close()
        if self._handles.progress is not None:
            self._handles.progress.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if self._driver.was_forked:
            return  # the pool belongs to the parent process
        try:
            if kind is None:
                self._shut_down_and_wait()
                while not self._driver.stop_taking_requests():
                    time.sleep(_PAUSE_SECONDS)
                    self._shut_down_and_wait()
        finally:
            self.close()

    def _shut_down_and_wait(self) -> None:
        """Shut down the executors; wait for all jobs, their callbacks and the jobs these add."""
        driver = self._driver
        while True:
            jobs = list(driver.jobs.values())
            for job in jobs:
                if isinstance(job.source, CallSource):
                    job.source.shutdown()
            # Not for all jobs: a callback may have added an executor that nobody has shut down.
            driver.wait_for_jobs(partial(iter, jobs))
            driver.callbacks.wait_until_idle()
            if len(jobs) == len(driver.jobs) and all(map(_has_ended, jobs)):
                return


def check_settings(
    servers: int | None, policy: PolicyLike, on_change: OnChange
) -> tuple[int | None, Policy]:
    """Return the servers and the policy of a run, or raise an error if one cannot be used."""
    if on_change not in get_args(OnChange):
        choices = ", ".join(map(repr, get_args(OnChange)))
        raise InputError(f"must be one of {choices}, got {on_change!r}", argument="on_change")
    if servers is not None:
        servers = check_whole_number("servers", servers, minimum=1)
    return servers, get_malleable_policy(policy)


def recall_machine(journal: Journal, servers: int | None, options: dict[str, Any]) -> int:
    """Return the servers of a run that goes on on this machine; set its resources too.

    They are those of before, unless others are given.
    """
    if options.get("resources") is None:
        options["resources"] = journal.get_value("resources", {}, parse=json.loads)
    return int(journal.get_value("servers")) if servers is None else servers


# The defaults of arguments are those of JobSpec, and need not be read.
_DEFAULTS = {each.name: each.default for each in signature(Pool.map).parameters.values()}


def _read_arguments(**arguments: object) -> dict[str, Any]:
    """Return what arguments of ``map`` and ``executor`` mean; None stands for a default."""
    given = {
        key: value
        for key, value in arguments.items()
        if key == "name" or (value is not None and value is not _DEFAULTS[key])
    }
    return read_job(given, FUNCTION_FIELDS, lambda _, error: error)


def _list_names(after: object) -> object:
    """Return the names of jobs that another waits for, as far as they are given as jobs."""
    if isinstance(after, Job):
        return after.name
    if isinstance(after, Iterable) and not isinstance(after, str):
        return list(map(_list_names, after)) or ()
    return after


def _record_resume(journal: Journal, core: Core) -> None:
    """Record the servers and the policy with which a run goes on."""
    policy = core.allocator.policy.name
    values: dict[str, float | str] = {"servers": core.servers, "policy": policy}
    if journal.get_value("policy", policy) != policy:
        values["policy_changed"] = 1
    journal.write(Changes(values=values))


def _choose_learned_runs(journal: Journal, others: list[LearnedRun]) -> list[LearnedRun]:
    """Return what the journal's own runs have taught; if that is nothing, record the others."""
    if own := journal.read_learned_runs():
        return own
    journal.write(Changes(learned_runs=others))
    return others
