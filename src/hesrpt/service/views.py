"""What the API shows: jobs and lists of them, items, groups, servers, and metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

from hesrpt._version import __version__
from hesrpt.jobs.command_template import write_braces_once
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_spec import PRIOR_P, HookCall, JobSpec, list_failed_hooks
from hesrpt.jobs.job_view import STATES, JobView
from hesrpt.jobs.text import describe_value
from hesrpt.reports.job_views import create_viewer, write_command
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.service.answers import (
    Amount,
    ItemPage,
    ItemState,
    JobDetails,
    JobHook,
    ShownCalibration,
    ShownGroup,
    ShownItem,
    ShownServers,
)
from hesrpt.service.auth import Access
from hesrpt.service.job_queue import JobQueue, KnownJob
from hesrpt.speedups import PowerLaw
from hesrpt.storage.journal_entries import JobRecord

# --- jobs -----------------------------------------------------------------------------------------

#: The most jobs or items in one answer.
MAX_PAGE = 1000


def get_state(job: KnownJob) -> str:
    """Return the state of a job."""
    return "submitted" if isinstance(job, JobSpec) else job.state


def get_spec(job: KnownJob) -> JobSpec:
    """Return a job as it was asked for."""
    return job if isinstance(job, JobSpec) else job.spec


def view_jobs(
    queue: JobQueue, jobs: Iterable[KnownJob], *, lists_failures: bool = False
) -> list[JobView]:
    """Return what is shown of jobs at the same moment, if need be with their failed items."""
    viewer, ends = create_viewer(queue.driver), queue.driver.recall_ends()
    views = []
    for job in jobs:
        if isinstance(job, JobSpec):
            views.append(viewer.view_submitted(job))
        elif isinstance(job, LiveJob):
            end = ends.get(job.name)
            views.append(viewer.view_live(job, end, lists_failures=lists_failures))
        else:
            failures = queue.journal.read_failures(job) if job.failures else ()
            view = viewer.view_record(job, failures)
            views.append(view if lists_failures else replace(view, failed_items=None))
    return views


def view_fully(queue: JobQueue, job: KnownJob, access: Access) -> JobDetails:
    """Return all that is shown of a single job to those who have this access."""
    spec, view = get_spec(job), view_jobs(queue, [job], lists_failures=True)[0]
    cwd = None
    if (template := spec.command) is not None and (template.directory or template.cwd):
        cwd = str(Path(template.directory or "", write_braces_once(template.cwd)))
    speedup = spec.speedup or (job.speedup if isinstance(job, JobRecord) else None)
    p = speedup.p if isinstance(speedup, PowerLaw) else None
    if isinstance(job, LiveJob) and p is None and len(job.durations.counts) > 1:
        p = job.durations.p  # items of one width say nothing
    if spec.speedup is None and p == PRIOR_P:
        p = None  # assumed, and nothing was learned that has changed it
    hooks = [] if view.number == 0 else queue.journal.hooks.read()
    return JobDetails(
        **vars(view),
        failures=view.failed_items or (),
        hooks=[_show_hook(call, access) for call in hooks if call.job == view.number],
        command_full=view.command,
        cwd=cwd,
        timeout=None if template is None else template.timeout,
        retries=spec.retries,
        kind=spec.kind,
        size=job.size if isinstance(job, JobRecord) else spec.size,
        p=p,
    )


def _show_hook(call: HookCall, access: Access) -> JobHook:
    """Return what is shown of a hook; readers learn that it has failed, but not what it calls."""
    error, is_owner = call.error, access == "owner"
    return JobHook(
        target=call.target if is_owner else None,
        attempts=call.attempts,
        error=None if error is None else error.text if is_owner else error.summary,
        pending=call.is_pending,
    )


# --- lists ----------------------------------------------------------------------------------------

Sorting = Literal["arrived", "name", "state", "eta"]


# Places in a list that is sorted by state: failed jobs come before others that have ended.
_RANKS = {state: rank for rank, state in enumerate(STATES)} | {"failed": 3.5, "cancelled": 4.0}


def count_states(jobs: Sequence[KnownJob]) -> dict[str, int]:
    """Return how many jobs are in each state."""
    counts = Counter(map(get_state, jobs))
    return {state: counts[state] for state in STATES}


def is_wanted(job: KnownJob, states: Collection[str], group: str | None, search: str) -> bool:
    """Return whether a job is in a state and group, and has a text in its name or command."""
    spec, text = get_spec(job), search.lower()
    if (states and get_state(job) not in states) or (group is not None and spec.group != group):
        return False
    return text in spec.name.lower() or text in (write_command(spec) or "").lower()


def sort_jobs(
    jobs: list[KnownJob], sort: Sorting, ends: Mapping[str, float], *, descending: bool
) -> None:
    """Sort jobs, which are in order of arrival; equal ones stay in that order."""
    match sort:
        case "name":
            jobs.sort(key=lambda job: get_spec(job).name, reverse=descending)
        case "state":
            # Of the jobs that have ended, the latest come first: those are looked at.
            jobs.sort(key=lambda job: -(getattr(job, "ended", None) or 0.0))
            jobs.sort(key=lambda job: _RANKS[get_state(job)], reverse=descending)
        case "eta":
            never = float("-inf" if descending else "inf")
            jobs.sort(key=lambda job: ends.get(get_spec(job).name, never), reverse=descending)
        case _:
            if descending:
                jobs.reverse()


# --- items ----------------------------------------------------------------------------------------


def list_items(queue: JobQueue, job: KnownJob, offset: int, limit: int) -> ItemPage:
    """Return some of the items of a job, and what became of each."""
    spec = get_spec(job)
    total = (spec.items if isinstance(job, JobSpec) else job.items) or 0
    positions = range(offset, min(offset + limit, total))
    seconds: dict[int, float] = {}
    running: set[int] = set()
    attempts: dict[int, int] = {}
    failed: Iterable[ItemFailure] = ()
    if not isinstance(job, JobSpec):
        timings = queue.journal.read_timings(job.number, positions)
        seconds = {item: took for item, took, _ in timings}
    if isinstance(job, LiveJob):
        running, attempts = _find_running_items(queue, job), dict(job.attempts)
        failed = job.failures.copy().values()
    elif isinstance(job, JobRecord) and job.failures:
        failed = queue.journal.read_failures(job)
    failures = {failure.item: failure for failure in failed}
    values = spec.command.items if spec.command is not None else None
    # What a job leaves behind when it is cancelled or fails may have been stopped while it ran.
    left: Literal["waiting", "not done"] = "waiting"
    if not isinstance(job, JobSpec) and job.has_ended:
        left = "not done"
    items = []
    for item in positions:
        state: ItemState = left
        tries = attempts.get(item, 0)
        if item in seconds:
            state, tries = "done", tries + 1
        elif item in failures:
            state, tries = "failed", failures[item].attempts
        elif item in running:
            state, tries = "running", tries + 1
        value = describe_value(values[item]) if values else ""
        if item in failures:
            value = failures[item].value or value
        items.append(
            ShownItem(
                item=item, value=value, state=state, seconds=seconds.get(item), attempts=tries
            )
        )
    return ItemPage(items=items, total=total)


def _find_running_items(queue: JobQueue, job: LiveJob) -> set[int]:
    """Return the items of a job that run now."""
    with queue.driver.condition:
        active = queue.driver.core.jobs.get(job.name)
        if active is None:
            return set()
        # The items of a batch run one after another: the first that is left runs, the others wait.
        first: dict[int, int] = {}
        for item, batch in active.in_flight.items():
            if batch.servers > 0:
                first.setdefault(id(batch), item)
        return set(first.values())


# --- groups, and the run as a whole ---------------------------------------------------------------


def list_groups(queue: JobQueue) -> list[ShownGroup]:
    """Return the groups of jobs."""
    members: dict[str, list[LiveJob | JobRecord]] = {}
    for job in queue.list_jobs():
        members.setdefault(job.spec.group, []).append(job)
    return [
        ShownGroup(
            name=name,
            weight=group.weight,
            paused=group.is_paused,
            jobs=len(jobs := members.get(name, [])),
            active=sum(not job.has_ended for job in jobs),
            servers=sum(job.servers for job in jobs if isinstance(job, LiveJob)),
        )
        for name, group in queue.list_groups().items()
    ]


def show_servers(queue: JobQueue, access: Access) -> ShownServers:
    """Return the servers, who holds them by which policy, and the time of the run's clock."""
    driver = queue.driver
    resources = driver.core.stock.describe()
    learned = driver.core.allocator.calibration
    calibration = None
    if learned is not None:
        calibration = ShownCalibration(
            focus=learned.focus, is_stream=learned.is_stream, jobs_seen=learned.jobs_seen
        )
    return ShownServers(
        servers=driver.core.servers,
        held=driver.core.tally.observed,
        peak=driver.peak_servers,
        engine=queue.options.engine,
        policy=driver.core.allocator.policy.name,
        resources={
            kind: Amount(total=total, free=free) for kind, (total, free) in resources.items()
        },
        calibration=calibration,
        version=__version__,
        time=driver.now,
        stopping=queue.is_stopping,
        failed_hooks=list_failed_hooks(queue.journal.hooks.read(), is_owner=access == "owner"),
        access=access,
    )


# --- what Prometheus scrapes ----------------------------------------------------------------------

#: The type of the text that it gets.
METRICS_TYPE = "text/plain; version=0.0.4; charset=utf-8"

_Samples = Mapping[str, float]  # values by their labels, which may be empty


def write_metrics(queue: JobQueue, watchers: int) -> str:
    """Return all metrics.

    Counters start at zero when the service starts.
    """
    core, live = queue.driver.core, list(queue.driver.jobs.values())
    flow_times, stock = queue.list_flow_times(), core.stock.describe()
    states = {f'{{state="{state}"}}': n for state, n in count_states(queue.list_jobs()).items()}
    kinds = {f'{{kind="{_escape(kind)}"}}': amounts for kind, amounts in stock.items()}
    totals = {label: total for label, (total, _) in kinds.items()}
    free = {label: free for label, (_, free) in kinds.items()}
    done, failed = sum(job.done_now for job in live), sum(job.failed_attempts for job in live)
    metrics: list[tuple[str, str, str, _Samples]] = [
        ("jobs", "gauge", "Jobs in each state.", states),
        ("servers", "gauge", "Servers that there are.", {"": core.servers}),
        ("servers_held", "gauge", "Servers that jobs hold.", {"": core.tally.observed}),
        ("items_done_total", "counter", "Items done since the start.", {"": done}),
        ("attempts_failed_total", "counter", "Failed attempts of items.", {"": failed}),
        ("flow_time_seconds_sum", "counter", "Of jobs that are done.", {"": sum(flow_times)}),
        ("flow_time_seconds_count", "counter", "Done jobs.", {"": len(flow_times)}),
        ("watchers", "gauge", "Clients that watch.", {"": watchers}),
        ("resource_total", "gauge", "What there is of each kind.", totals),
        ("resource_free", "gauge", "What is free of each kind.", free),
    ]
    return "".join(_write(*metric) for metric in metrics)


def _write(name: str, kind: str, text: str, samples: _Samples) -> str:
    lines = [f"# HELP hesrpt_{name} {text}", f"# TYPE hesrpt_{name} {kind}"]
    lines += [f"hesrpt_{name}{labels} {value:.12g}" for labels, value in samples.items()]
    return "\n".join(lines) + "\n"


def _escape(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
