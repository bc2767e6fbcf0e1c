"""What a run would do: the commands of its jobs, and when they would end. Nothing is started."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import JobArrived
from hesrpt.decisions.forecast import estimate_remaining_work, predict_ends
from hesrpt.decisions.learning import KindMemory
from hesrpt.engines.local.processes import count_cores
from hesrpt.jobs.job_end import JobState
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.pool.batch_run import RunOptions, create_jobs, explain_changed_jobs
from hesrpt.reports.inspection import read_learned_runs
from hesrpt.scheduler.job_registry import JobRegistry
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.journal import Journal
from hesrpt.storage.state_directory import holds_run


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
    learned = [] if options.learned is None else read_learned_runs(options.learned)
    if options.state is None or not holds_run(options.state):
        jobs, known_servers = create_jobs(specs, (), options), None
    else:
        learned = read_learned_runs(options.state) or learned
        with closing(Journal.read(options.state)) as journal:
            known_servers = journal.get_value("servers")
            registry = JobRegistry(journal, options.on_change)
            jobs = create_jobs(specs, registry.list_records(), options)
            with explain_changed_jobs(options.state):
                registry.register(jobs)
    known = KindMemory(learned)
    servers = options.servers or known_servers or count_cores()
    resources = options.engine_options.get("resources") if options.engine == "local" else None
    core = Core(servers, options.policy, resources=resources)
    arrivals = [
        JobArrived(0.0, replace(job.spec, prior=known.get_prior(job.spec)), tuple(job.matches.done))
        for job in jobs
        if not job.has_ended
    ]
    if arrivals:
        core.handle(*arrivals)
    planned = {name: job.planned for name, job in core.jobs.items()}
    ends = predict_ends(estimate_remaining_work(core, 0.0))
    return RunPreview(
        servers=servers,
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
