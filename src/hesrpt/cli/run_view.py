"""A run as commands show it, wherever it is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hesrpt.display.overview import RunOverview
from hesrpt.runtime.commands.hooks import HookCall
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


@dataclass(frozen=True, kw_only=True)
class RunView:
    """The jobs of a run at one moment."""

    overview: RunOverview
    content: dict[str, Any]  # for JSON
    failed_hooks: Sequence[FailedHook] = ()


class AddedJobs(NamedTuple):
    """Jobs that were added to a run."""

    names: Sequence[str]
    note: str = ""  # when they start, if not now


class EndedJob(NamedTuple):
    """A job that was waited for."""

    name: str
    state: str
    error: str | None
