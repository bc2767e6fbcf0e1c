"""What a run would do: the commands of its jobs, and when they would end. Nothing is started."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path

from hesrpt.runtime.batch_run import RunOptions
from hesrpt.runtime.decisions.core import Core
from hesrpt.runtime.decisions.events import JobArrived
from hesrpt.runtime.decisions.forecast import estimate_remaining_work, predict_ends
from hesrpt.runtime.decisions.kinds import KindMemory
from hesrpt.runtime.engines.cores import count_cores
from hesrpt.runtime.job_spec import JobSpec
from hesrpt.runtime.reports.inspection import read_learned_runs, read_status
from hesrpt.runtime.storage.journal import Journal
from hesrpt.runtime.storage.journal_entries import JobRecord
from hesrpt.runtime.storage.state_directory import holds_run


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
    done: int  # how many items are done already
    servers: int  # that it would have at first
    end: float | None  # when it would end, in seconds from now; None: not known

    def list_commands(self) -> Iterator[PreviewedCommand]:
        """Yield the commands of all items."""
        template = self.spec.command
        assert template is not None
        for item in range(self.spec.items or 0):
            filled = template.fill_in(item, max(self.servers, 1))
            words = filled.command
            if isinstance(words, str):
                words = (*template.shell, "-c", words)
            variables = sorted(
                f"{name}={shlex.quote(text)}" for name, text in filled.variables.items()
            )
            text = " ".join([*variables, shlex.join(words)])
            if filled.stdin_file is not None:
                text += f" < {shlex.quote(filled.stdin_file)}"
            elif filled.stdin is not None:
                text = f"printf %s {shlex.quote(filled.stdin)} | {text}"
            yield PreviewedCommand(item=item, text=text, directory=filled.directory)


@dataclass(frozen=True, kw_only=True)
class RunPreview:
    """What a run would do."""

    servers: int
    jobs: list[PreviewedJob]


def preview_run(specs: Sequence[JobSpec], options: RunOptions) -> RunPreview:
    """Return what :func:`~hesrpt.runtime.batch_run.run_jobs` would do, as far as one can know.

    Sizes are those that were given, or that earlier jobs of the same kind have taught.
    """
    records: list[JobRecord] = []
    known_servers = None
    learned = [] if options.learned is None else read_learned_runs(options.learned)
    if options.state is not None and holds_run(options.state):
        records = list(read_status(options.state).jobs)
        learned = read_learned_runs(options.state) or learned
        with closing(Journal.read(options.state)) as journal:
            known_servers = journal.get_value("servers")
    known = KindMemory(learned)
    servers = options.servers or known_servers or count_cores()
    core = Core(servers, options.policy)
    specs = specs or [each.spec for each in records if each.spec.command and not each.has_ended]
    done, arrivals = {}, []
    for spec in specs:
        found = [record for record in records if record.given_name == spec.name]
        done[spec.name] = found[0].done if found else 0
        arrival = replace(spec, prior=known.get_prior(spec))
        arrivals.append(JobArrived(0.0, arrival, (range(done[spec.name]),)))
    if arrivals:
        core.handle(*arrivals)
    planned = {name: job.planned for name, job in core.jobs.items()}
    ends = predict_ends(estimate_remaining_work(core, 0.0))
    return RunPreview(
        servers=servers,
        jobs=[
            PreviewedJob(
                spec=spec,
                done=done[spec.name],
                servers=planned.get(spec.name, 0),
                end=ends.get(spec.name),
            )
            for spec in specs
        ],
    )
