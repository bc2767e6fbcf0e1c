"""Jobs, their hooks, and the run as a whole, as JSON values."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from hesrpt._version import __version__
from hesrpt.errors import InputError
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.hooks import HookCall
from hesrpt.jobs.item_resources import describe_shortage
from hesrpt.jobs.job_spec import PRIOR_P, JobSpec
from hesrpt.jobs.placeholders import write_braces_once
from hesrpt.reports.job_values import create_job_values, write_command
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.service.auth import Access
from hesrpt.service.job_queue import JobQueue, KnownJob
from hesrpt.speedups import PowerLaw
from hesrpt.storage.journal_entries import JobRecord

# --- jobs, and lists of them: filtered, sorted and in pages -------------------------------------

#: The most jobs or items in one answer.
MAX_PAGE = 1000
# How much of a command and of an error is shown in lists.
_MAX_COMMAND, _MAX_ERROR = 120, 300


def get_state(job: KnownJob) -> str:
    """Return the state of a job."""
    return "submitted" if isinstance(job, JobSpec) else job.state


def get_spec(job: KnownJob) -> JobSpec:
    """Return a job as it was asked for."""
    return job if isinstance(job, JobSpec) else job.spec


def _shorten(text: str | None, most: int) -> str | None:
    return text if text is None or len(text) <= most else f"{text[: most - 1]}…"


def _write_in_one_line(text: str | None) -> str | None:
    return None if text is None else " ".join(text.split())


class JobDescriber:
    """Describes jobs as JSON values, at one moment."""

    def __init__(self, queue: JobQueue) -> None:
        driver = queue.driver
        self._jobs, self._now, self._ends = driver.jobs, driver.now, driver.recall_ends()
        self._stock = driver.core.stock

    def describe(self, job: KnownJob) -> dict[str, Any]:
        """Return what lists show of a job."""
        spec = get_spec(job)
        values: dict[str, Any] = {"items": spec.items}
        if isinstance(job, JobRecord):
            values = {"done": job.done, "items": job.items, "failed": len(job.failed_items)}
        elif isinstance(job, LiveJob):
            end = self._ends.get(job.name)
            values = {
                "done": job.reported_done,
                "items": job.items,
                "failed": len(job.failures),
                "servers": job.servers,
                "planned": job.planned,
                "eta": None if end is None else max(end - self._now, 0.0),
            }
        if not isinstance(job, JobSpec):
            values |= {"number": job.number, "arrived": job.arrived, "ended": job.ended}
            values["error"] = _shorten(_write_in_one_line(job.error), _MAX_ERROR)
        described = create_job_values(
            spec,
            state=get_state(job),
            waits_for=self._list_unfinished(spec),
            waits_because=self._describe_shortage(job),
            **values,
        )
        return described | {"command": _shorten(described["command"], _MAX_COMMAND)}

    def _list_unfinished(self, spec: JobSpec) -> list[str]:
        """Return the names of the jobs that a job waits for."""
        found = ((name, self._jobs.get(name)) for name in spec.after)
        return [name for name, job in found if job is not None and not job.has_ended]

    def _describe_shortage(self, job: KnownJob) -> str:
        """Return which resources a job waits for."""
        spec = get_spec(job)
        if not spec.resources or get_state(job) != "waiting" or self._list_unfinished(spec):
            return ""
        free = {kind: amounts[1] for kind, amounts in self._stock.describe().items()}
        return describe_shortage(spec.resources, free, "free")

    def describe_fully(
        self,
        job: KnownJob,
        failures: Sequence[ItemFailure],
        hooks: Sequence[HookCall],
        access: Access,
    ) -> dict[str, Any]:
        """Return all that is shown of a single job to those who have this access."""
        spec = get_spec(job)
        cwd = None
        if (template := spec.command) is not None and (template.directory or template.cwd):
            cwd = str(Path(template.directory or "", write_braces_once(template.cwd)))
        speedup = spec.speedup or (job.speedup if isinstance(job, JobRecord) else None)
        p = speedup.p if isinstance(speedup, PowerLaw) else None
        size = job.size if isinstance(job, JobRecord) else spec.size
        if isinstance(job, LiveJob) and p is None and job.durations.items:
            p = job.durations.p
        if spec.speedup is None and p == PRIOR_P:
            p = None  # assumed, and nothing was learned that has changed it
        error = None if isinstance(job, JobSpec) else job.error
        return self.describe(job) | {
            "failures": [describe_failure(failure) for failure in failures],
            "hooks": [describe_hook(call, access) for call in hooks],
            "command_full": write_command(spec),
            "cwd": cwd,
            "timeout": None if template is None else template.timeout,
            "retries": spec.retries,
            "kind": spec.kind,
            "size": size,
            "p": p,
            "error": error,
        }


def describe_failure(failure: ItemFailure) -> dict[str, Any]:
    """Return what is shown of an item that failed."""
    return {
        "item": failure.item,
        "value": failure.value,
        "attempts": failure.attempts,
        "error": failure.error,
        "traceback": failure.traceback,
    }


def list_failures(queue: JobQueue, job: KnownJob) -> list[ItemFailure]:
    """Return the items of a job that have failed."""
    if isinstance(job, LiveJob):
        return [failure for _, failure in sorted(job.failures.copy().items())]
    if isinstance(job, JobRecord) and job.failures:
        return queue.journal.read_failures(job)
    return []


def list_hooks(queue: JobQueue, job: KnownJob) -> list[HookCall]:
    """Return the hooks of a job that are to be called, or have failed."""
    if isinstance(job, JobSpec):
        return []
    return [call for call in queue.journal.hooks.read() if call.job == job.number]


# --- lists --------------------------------------------------------------------------------------

Sorting = Literal["arrived", "name", "state", "eta"]


@dataclass(frozen=True, kw_only=True)
class JobQuery:
    """Which jobs to list, and in which order."""

    offset: int = 0
    limit: int = 50
    states: tuple[str, ...] = ()  # none: all
    group: str | None = None  # None: all
    search: str = ""  # in names and commands
    sort: Sorting = "arrived"
    descending: bool = True

    def __post_init__(self) -> None:
        unknown = [state for state in self.states if state not in STATES]
        if unknown:
            raise InputError(f"state must be one of {', '.join(STATES)}, got {unknown[0]!r}")


def count_states(jobs: Sequence[KnownJob]) -> dict[str, int]:
    """Return how many jobs are in each state."""
    counts = Counter(map(get_state, jobs))
    return {state: counts[state] for state in STATES}


def list_page(queue: JobQueue, query: JobQuery) -> dict[str, Any]:
    """Return the page of jobs that a query asks for."""
    jobs: list[KnownJob] = [*queue.list_jobs(), *queue.list_submitted()]
    wanted = query.search.lower()
    found = [
        job
        for job in jobs
        if (not query.states or get_state(job) in query.states)
        and (query.group is None or get_spec(job).group == query.group)
        and (not wanted or _mentions(get_spec(job), wanted))
    ]
    _sort(found, query, queue.driver.recall_ends())
    describer = JobDescriber(queue)
    page = found[query.offset : query.offset + query.limit]
    return {
        "jobs": [describer.describe(job) for job in page],
        "total": len(found),
        "counts": count_states(jobs),
    }


def _mentions(spec: JobSpec, text: str) -> bool:
    return text in spec.name.lower() or text in (write_command(spec) or "").lower()


def _get_end(job: KnownJob) -> float:
    """Return when a job has ended; 0 if it has not."""
    return 0.0 if isinstance(job, JobSpec) or job.ended is None else job.ended


def _sort(jobs: list[KnownJob], query: JobQuery, ends: Mapping[str, float]) -> None:
    """Sort jobs, which are in order of arrival; equal ones stay in that order."""
    match query.sort:
        case "name":
            jobs.sort(key=lambda job: get_spec(job).name, reverse=query.descending)
        case "state":
            # Of the jobs that have ended, the latest come first: those are looked at.
            jobs.sort(key=lambda job: -_get_end(job))
            jobs.sort(key=lambda job: _RANKS[get_state(job)], reverse=query.descending)
        case "eta":
            never = float("-inf" if query.descending else "inf")
            jobs.sort(key=lambda job: ends.get(get_spec(job).name, never), reverse=query.descending)
        case _:
            if query.descending:
                jobs.reverse()


# --- hooks: readers learn that one has failed, but nothing of what it calls ---------------------

# How the error of a hook may begin for readers: what follows may quote its command or address.
_HARMLESS = re.compile(
    r"exit code \d+|killed by signal \d+|it was stopped after \d+ s|HTTP \w+ \d+"
)


def describe_hook(call: HookCall, access: Access) -> dict[str, Any]:
    """Return what is shown of a hook with its job."""
    return {
        "target": call.target if access == "owner" else None,
        "attempts": call.attempts,
        "error": _describe_error(call, access),
        "pending": call.is_pending,
    }


def describe_failed_hooks(calls: Iterable[HookCall], access: Access) -> list[dict[str, Any]]:
    """Return the hooks that have failed, without their targets, which may contain secrets."""
    return [
        {
            "job": call.facts["job"],
            "attempts": call.attempts,
            "error": _describe_error(call, access),
        }
        for call in calls
        if call.error is not None
    ]


def _describe_error(call: HookCall, access: Access) -> str | None:
    if call.error is None or access == "owner":
        return call.error
    found = _HARMLESS.match(call.error)
    return "failed" if found is None else found[0]


# --- the run as a whole: its servers, its policy, and what that has learned ---------------------


def describe_servers(queue: JobQueue, access: Access) -> dict[str, Any]:
    """Return the servers, who holds them by which policy, and the time of the run's clock."""
    driver = queue.driver
    return {
        "servers": driver.core.servers,
        "held": driver.core.observed,
        "peak": driver.peak_servers,
        "engine": queue.options.engine,
        "policy": driver.core.allocator.policy.name,
        "resources": {
            kind: {"total": total, "free": free}
            for kind, (total, free) in driver.core.stock.describe().items()
        },
        "calibration": describe_calibration(driver),
        "version": __version__,
        "time": driver.now,
        "stopping": queue.is_stopping,
        "failed_hooks": describe_failed_hooks(queue.journal.hooks.read(), access),
        "access": access,
    }


def describe_calibration(driver: Driver) -> dict[str, Any] | None:
    """Return what the policy has learned from arrivals and ends; None if it learns nothing."""
    calibration = driver.core.allocator.calibrator.calibration
    if calibration is None:
        return None
    return {
        "focus": calibration.focus,
        "is_stream": calibration.is_stream,
        "jobs_seen": calibration.jobs_seen,
    }


#: The states of jobs, in the order in which they are listed.
STATES = ("running", "waiting", "paused", "submitted", "done", "failed", "cancelled")
# Their places in a list that is sorted by state: failed jobs come before others that have ended.
_RANKS = {state: rank for rank, state in enumerate(STATES)} | {"failed": 3.5, "cancelled": 4.0}
