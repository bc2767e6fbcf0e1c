"""Runs the jobs of a jobs file, and jobs submitted meanwhile, until all have ended."""

from __future__ import annotations

import shlex
import signal
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from pathlib import Path
from types import FrameType
from typing import Any

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import JobArrived
from hesrpt.decisions.forecast import collect_remaining_work, predict_ends
from hesrpt.decisions.learning import KindMemory
from hesrpt.engines.local.processes import count_cores
from hesrpt.engines.registry import create_engine, load_engine
from hesrpt.errors import InputError
from hesrpt.jobs.job_end import REMOVED, JobState
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.pool.pool import Pool, check_settings, recall_machine
from hesrpt.reports.inspection import read_learned_runs
from hesrpt.scheduler.job_registry import ChangedJobsError, JobRegistry, OnChange
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.pruning import Retention
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Changes, JobRecord
from hesrpt.storage.state_directory import StateExistsError, holds_run

# How often to update the display, in seconds.
_POLL_SECONDS = 0.25
# How long to wait for the answer to a last request, in seconds.
_PAUSE_SECONDS = 0.02


@dataclass(frozen=True, kw_only=True)
class RunOptions:
    """The options of ``hesrpt run``. If ``state`` holds an earlier run, that is continued."""

    servers: int | None = None
    policy: str = "adaptive"
    state: Path | None = None
    keep_going: bool = False  # let the other items of a job go on if one fails
    on_change: OnChange = "error"
    learned: Path | None = None
    engine: str = "local"
    engine_options: Mapping[str, Any] = field(default_factory=dict)
    retention: Retention | None = None  # None: all jobs are kept
    group_weights: Mapping[str, float] = field(default_factory=dict)  # by the names of groups


def run_jobs(
    specs: Sequence[JobSpec],
    options: RunOptions,
    display: Callable[[Pool], None] = lambda pool: None,
    notify: Callable[[str], None] = lambda line: None,
) -> Pool:
    """Run jobs until all have ended; return the closed pool.

    With a state directory, this includes the unfinished jobs of a resumed run and the jobs that
    other processes submit meanwhile. ``display`` is called a few times a second, and ``notify``
    with what the user should know.
    """
    pool = create_pool(options)
    try:
        with _stop_on_sigterm():
            pool.give_group_weights(options.group_weights)
            if options.state is None:
                pool.add_jobs(create_jobs(specs, (), options))
            else:
                with closing(Journal.read(options.state)) as journal:
                    _add_jobs(pool, journal, specs, options, notify)
            _follow(pool, display)
    finally:
        pool.close()
    return pool


def create_pool(options: RunOptions) -> Pool:
    """Create the pool of a new run, or of the one in the state directory."""
    create = partial(
        Pool,
        options.servers,
        options.policy,
        state=options.state,
        on_change=options.on_change,
        learned=options.learned,
        engine=options.engine,
        retention=options.retention,
        **options.engine_options,
    )
    if options.state is None or not holds_run(options.state):
        with suppress(StateExistsError):  # another scheduler has just created it
            return create()
    return create(resume=True)


def create_jobs(
    specs: Sequence[JobSpec], earlier: Sequence[JobRecord], options: RunOptions
) -> list[LiveJob]:
    """Create the jobs of the jobs file, and the unfinished earlier jobs that no file can change.

    Without a jobs file, these are all unfinished jobs. Otherwise, they are those that other
    processes have submitted. Jobs that call Python functions are left to the script that added
    them.
    """
    jobs = [
        LiveJob.from_record(record)
        for record in _list_unfinished(earlier)
        if not specs or record.spec.is_submitted
    ]
    jobs += [LiveJob.from_command(spec) for spec in specs]
    jobs = leave_out_blocked(jobs, earlier)
    if options.keep_going:
        for job in jobs:
            job.spec = replace(job.spec, on_error="keep")
    return jobs


def leave_out_blocked(jobs: list[LiveJob], earlier: Sequence[JobRecord]) -> list[LiveJob]:
    """Leave out earlier jobs that wait for one which is left to its script."""
    blocking = {record.name for record in earlier if not record.has_ended}
    blocking -= {job.name for job in jobs}
    while blocked := [job for job in jobs if job.number and blocking & {*job.spec.after}]:
        jobs = [job for job in jobs if job not in blocked]
        blocking |= {job.name for job in blocked}
    return jobs


def _list_unfinished(records: Sequence[JobRecord]) -> list[JobRecord]:
    return [
        record
        for record in records
        if record.spec.command is not None and record.state != "done" and record.end != REMOVED
    ]


@contextmanager
def explain_changed_jobs(directory: Path | None) -> Iterator[None]:
    """Let an error about changed commands name the options of the command line."""
    try:
        yield
    except ChangedJobsError as error:
        subject = ", ".join(map(repr, error.names))
        raise InputError(
            f"{directory}: the commands of these jobs have changed since results were "
            f"recorded: {subject}; --on-change redo does all their items again, and --on-change "
            "keep keeps the results of items that are done"
        ) from None


def _add_jobs(
    pool: Pool,
    journal: Journal,
    specs: Sequence[JobSpec],
    options: RunOptions,
    notify: Callable[[str], None],
) -> None:
    """Add jobs to a run that may have been started before.

    Jobs that are no longer in the jobs file are cancelled.
    """
    records = pool.earlier_jobs
    _refuse_empty_run(journal, specs, [*records, *pool.jobs])
    with explain_changed_jobs(journal.directory):
        pool.add_jobs(create_jobs(specs, records, options))
    if specs:
        names = {spec.name for spec in specs}
        removed = [
            replace(record, ended=pool.snapshot().time, end=REMOVED)
            for record in _list_unfinished(records)
            if not record.spec.is_submitted and record.given_name not in names
        ]
        journal.write(Changes(jobs=removed))
        for record in removed:
            notify(f"{record.name}: is no longer in the jobs file, and is not run any more")


def _refuse_empty_run(journal: Journal, *jobs: Collection[object]) -> None:
    if not any(jobs) and not journal.requests.read():
        raise InputError(f"{journal.directory}: the run has no jobs yet; give a jobs file")


def _follow(pool: Pool, display: Callable[[Pool], None]) -> None:
    """Wait until all jobs have ended, including those that are submitted meanwhile."""
    while True:
        have_ended = pool.wait(timeout=_POLL_SECONDS)
        display(pool)
        if have_ended:
            if pool.stop_taking_requests() and pool.wait(timeout=0):  # no last request added work
                return
            time.sleep(_PAUSE_SECONDS)


@contextmanager
def _stop_on_sigterm() -> Iterator[None]:
    """Let SIGTERM stop the run as Ctrl-C does."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    previous = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, previous)


# --- what a run would do: nothing is started ------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class PreviewedCommand:
    """The command of an item as it would run."""

    item: int
    text: str  # as one can type it into a shell
    directory: Path | None


@dataclass(frozen=True, kw_only=True)
class PreviewedJob:
    """What a run would do about a job."""

    spec: JobSpec
    state: JobState  # before the run: "waiting", unless it is paused or has nothing left to do
    done: int  # how many items are done already
    left: Sequence[int]  # the items that would run
    servers: int  # that it would have at first
    end: float | None  # when it would end, in seconds from now; None: not known

    @property
    def command_servers(self) -> int | None:
        """How many servers each of its commands would have; None if nobody knows yet."""
        if self.spec.is_bag:
            return 1
        if self.spec.min_servers == self.spec.max_servers:
            return self.spec.max_servers
        return self.servers or None

    def list_commands(
        self, quote: Callable[[str], str] = shlex.quote
    ) -> Iterator[PreviewedCommand]:
        """Yield the commands that would run; {servers} stays if the number is not known."""
        template = self.spec.command
        assert template is not None
        for item in self.left:
            filled = template.fill_in(item, self.command_servers or "{servers}")
            words = filled.command
            if isinstance(words, str):
                words = (*template.shell, "-c", words)
            variables = sorted(f"{name}={quote(text)}" for name, text in filled.variables.items())
            text = " ".join([*variables, *map(quote, words)])
            if filled.stdin_file is not None:
                text += f" < {quote(filled.stdin_file)}"
            elif filled.stdin is not None:
                text = f"printf %s {quote(filled.stdin)} | {text}"
            yield PreviewedCommand(item=item, text=text, directory=filled.directory)


@dataclass(frozen=True, kw_only=True)
class RunPreview:
    """What a run would do."""

    servers: int
    jobs: list[PreviewedJob]


def preview_run(specs: Sequence[JobSpec], options: RunOptions) -> RunPreview:
    """Return what :func:`~hesrpt.pool.batch_run.run_jobs` would do, as far as one can know.

    Sizes are those that were given, or that earlier jobs of the same kind have taught.
    """
    servers, policy = check_settings(options.servers, options.policy, options.on_change)
    engine_options = dict(options.engine_options)  # with those of before, if the run goes on
    learned = [] if options.learned is None else read_learned_runs(options.learned)
    with ExitStack() as stack:
        journal = None
        if options.state is not None and holds_run(options.state):
            learned = read_learned_runs(options.state) or learned
            journal = stack.enter_context(closing(Journal.read(options.state)))
            servers = recall_machine(journal, servers, engine_options)
        engine = None
        if options.engine == "local":
            engine = stack.enter_context(closing(create_engine("local", servers, engine_options)))
        else:  # what a cluster has is not known before it is asked
            load_engine(options.engine, options.engine_options)
        registry = JobRegistry(journal, options.on_change)
        records = registry.list_records()
        if journal is not None:
            _refuse_empty_run(journal, specs, records)
        jobs = create_jobs(specs, records, options)
        registry.refuse_impossible(jobs, engine)
        with explain_changed_jobs(options.state):
            registry.register(jobs)
        resources = {} if engine is None else engine.resource_totals()
        core = Core(servers or count_cores(), policy, resources=resources)
    known = KindMemory(learned)
    arrivals = [
        JobArrived(0.0, replace(job.spec, prior=known.get_prior(job.spec)), tuple(job.matches.done))
        for job in jobs
        if not job.has_ended
    ]
    if arrivals:
        core.handle(*arrivals)
    planned = {name: job.planned for name, job in core.jobs.items()}
    ends = predict_ends(collect_remaining_work(core, 0.0))
    return RunPreview(
        servers=core.servers,
        jobs=[
            PreviewedJob(
                spec=job.spec,
                state=job.state,
                done=job.done,
                left=_list_items_left(job),
                servers=planned.get(job.name, 0),
                end=ends.get(job.name),
            )
            for job in jobs
        ],
    )


def _list_items_left(job: LiveJob) -> Sequence[int]:
    if job.has_ended:
        return ()
    items = range(job.spec.items or 0)
    if not job.matches.done:
        return items
    done = set(chain.from_iterable(job.matches.done))
    return [item for item in items if item not in done]
