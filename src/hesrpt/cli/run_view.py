"""A run as commands show it, wherever it is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from hesrpt.cli.failed_items import ShownJob
from hesrpt.display.overview import RunOverview
from hesrpt.errors import InputError
from hesrpt.jobs.hooks import HookCall
from hesrpt.storage.job_names import describe_names
from hesrpt.units import format_count


@dataclass(frozen=True, kw_only=True)
class FailedHook:
    """A hook that has failed after the end of a job."""

    job: str
    attempts: int
    error: str
    target: str = ""  # the command or the address, if it is known

    def describe(self) -> str:
        """Return which hook has failed, and why."""
        tries, error = format_count(self.attempts, "attempt"), self.error.partition("\n")[0]
        target = f" {self.target!r}" if self.target else ""
        return f"{self.job}: on_end{target} failed, {tries}: {error}"


def list_failed_hooks(calls: Iterable[HookCall]) -> list[FailedHook]:
    """Return the hooks that have failed."""
    return [
        FailedHook(
            job=call.facts["job"], target=call.target, attempts=call.attempts, error=call.error
        )
        for call in calls
        if call.error is not None
    ]


class PendingChange(NamedTuple):
    """What was requested to be done about a job, and has not been done yet."""

    job: str
    what: str


@dataclass(frozen=True, kw_only=True)
class RunView:
    """The jobs of a run at one moment."""

    overview: RunOverview
    content: dict[str, Any]  # for JSON
    #: Returns those of the named jobs that have failed, or have failed items, or were cancelled.
    find_failures: Callable[[Collection[str]], Sequence[ShownJob]]
    failed_hooks: Sequence[FailedHook] = ()
    changes: Sequence[PendingChange] = ()
    continuation: str = ""  # how to continue if no scheduler is running

    def select(self, names: Collection[str]) -> RunView:
        """Return the same with the jobs of these names only; without names, all of it."""
        if not names:
            return self
        known = [job.name for job in self.overview.jobs]
        for name in names:
            if name not in known:
                raise InputError(f"there is no job {name!r}; {describe_names(known, name)}")
        jobs = [job for job in self.overview.jobs if job.name in names]
        rows = [job for job in self.content["jobs"] if job["name"] in names]
        return replace(
            self,
            overview=replace(self.overview, jobs=jobs),
            content=self.content | {"jobs": rows},
            failed_hooks=[hook for hook in self.failed_hooks if hook.job in names],
            changes=[change for change in self.changes if change.job in names],
        )


class AddedJobs(NamedTuple):
    """Jobs that were added to a run."""

    names: Sequence[str]
    note: str = ""  # when they start, if not now


class EndedJob(NamedTuple):
    """A job that was waited for."""

    name: str
    state: str
    error: str | None
