"""Log records of what the scheduler decides and why, for Python's ``logging``.

The logger is ``hesrpt.scheduler``. What happens to jobs, and what is planned because of it, has the
level INFO; plans that change because more has been learned have the level DEBUG. Warnings about
jobs that wait for long go to the logger ``hesrpt``.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    Admit,
    CapacityChanged,
    Command,
    Drop,
    Event,
    Finish,
    GroupChanged,
    ItemFailed,
    ItemLost,
    ItemsExhausted,
    ItemsFinished,
    ItemsRead,
    JobArrived,
    JobSteered,
    Reopen,
    steer,
)
from hesrpt.display.console import escape
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.units import format_count, format_duration

# How many jobs a reason names.
_MAX_NAMES = 3

# How long jobs may wait before a warning, in seconds.
_WARNING_SECONDS = 3.0
# With more jobs than this, how often to look at all of them, in seconds.
_MANY_JOBS, _CHECK_SECONDS = 100, 1.0

#: Where decisions are logged. Nothing is to be logged if nobody reads its records.
DECISIONS = logging.getLogger("hesrpt.scheduler")
_WARNINGS = logging.getLogger("hesrpt")


class _Reason(NamedTuple):
    """Why plans change, as it is said of one job and of several."""

    of_one: str
    of_several: str


_ARRIVED = _Reason("{} arrived", "{} arrived")
_PAUSED = _Reason("{} was paused", "{} were paused")
_RESUMED = _Reason("{} was resumed", "{} were resumed")
_WEIGHED = _Reason("{} has another weight", "{} have other weights")
_READ = _Reason("items of {} were read", "items of {} were read")
_LEARNED = _Reason("the first item of {} is done", "the first items of {} are done")
_RETRIED = _Reason("{} is retried", "{} are retried")
_ENDS = {
    "done": _Reason("{} ended", "{} ended"),
    "failed": _Reason("{} failed", "{} failed"),
    "cancelled": _Reason("{} was cancelled", "{} were cancelled"),
}


class DecisionLog:
    """The records of one step, and its reasons with the jobs that they are about."""

    def __init__(self, core: Core) -> None:
        self._core, self._servers = core, core.servers  # before the step
        self._planned = {name: job.planned for name, job in core.jobs.items()}  # likewise
        self._specs = {name: job.spec for name, job in core.jobs.items()}
        self._reasons: dict[_Reason, list[str]] = {}

    def write(
        self,
        events: Sequence[Event],
        commands: Sequence[Command],
        jobs: Mapping[str, LiveJob],
        now: float,
    ) -> None:
        """Log what events have led to."""
        for event in events:
            self._tell_event(event, commands)
        for command in commands:
            self._tell_command(command, jobs[command.job], now)
        self._tell_plan()

    def _tell_event(self, event: Event, commands: Sequence[Command]) -> None:
        """Log an event, and remember it as a reason for what follows."""
        match event:
            case JobArrived():
                spec = event.spec
                items = "items" if spec.items is None else format_count(spec.items, "item")
                self._tell(spec.name, f"arrived, {items if spec.is_bag else 'one command'}")
                self._add_reason(_ARRIVED, spec.name)
            case CapacityChanged() if event.servers != self._servers:
                text = f"{format_count(event.servers, 'server')} instead of {self._servers}"
                DECISIONS.info("%s", text)
                self._reasons[_Reason(text, text)] = []
            case GroupChanged():
                group = event.group
                text = f"group {event.name}: weight {group.weight:g}"
                text += ", paused" if group.is_paused else ""
                DECISIONS.info("%s", escape(text))
                self._reasons[_Reason(text, text)] = []
            case JobSteered() if (before := self._specs.get(event.job)) is not None:
                spec = steer(before, event)
                if spec.is_paused != before.is_paused:
                    word, reason = ("paused", _PAUSED) if spec.is_paused else ("resumed", _RESUMED)
                    self._tell_once(event.job, word, reason)
                if spec.weight != before.weight:
                    self._tell_once(event.job, f"weight {spec.weight:g}", _WEIGHED)
            case ItemFailed() | ItemLost():
                self._tell_failure(event, commands)
            case ItemsRead() | ItemsExhausted():
                self._add_reason(_READ, event.job)
            case ItemsFinished():
                job = self._core.jobs.get(event.job)
                if job is not None and job.durations.items == len(event.items):
                    self._add_reason(_LEARNED, event.job)

    def _tell_failure(self, event: ItemFailed | ItemLost, commands: Sequence[Command]) -> None:
        if event.job not in self._specs:
            return
        gave_up = any(
            isinstance(each, Drop) and (each.job, each.item) == (event.job, event.item)
            for each in commands
        )
        what = (
            f"item {event.item} lost its server"
            if isinstance(event, ItemLost)
            else _shorten(event.error)
        )
        self._tell(event.job, f"{what}; {'given up' if gave_up else 'it runs again'}")

    def _tell_command(self, command: Command, job: LiveJob, now: float) -> None:
        """Log the end of a job, or that it goes on."""
        if isinstance(command, Admit):
            self._tell(command.job, "waits for no other job any more")
            self._add_reason(_ARRIVED, command.job)
        if isinstance(command, Reopen):
            self._tell(command.job, "its failed items run again")
            self._add_reason(_RETRIED, command.job)
        if not isinstance(command, Finish):
            return
        state = command.end.state
        seconds = format_duration(now - (job.arrived or 0.0))
        error = f": {_shorten(command.end.detail)}" if state == "failed" else ""
        self._tell(
            command.job, f"{state} after {seconds}, {format_count(job.done, 'item')} done{error}"
        )
        self._add_reason(_ENDS[state], command.job)

    def _tell_plan(self) -> None:
        """Log how many servers are planned for jobs, if that has changed."""
        level = logging.INFO if self._reasons else logging.DEBUG
        reasons = [
            (what.of_several if len(names) > 1 else what.of_one).format(_list_names(names))
            for what, names in self._reasons.items()
        ]
        reason = "; ".join(reasons) or "more has been learned"
        for name, job in self._core.jobs.items():
            planned = self._planned.get(name, 0)
            if job.planned != planned:
                text = f"{planned} → {format_count(job.planned, 'server')}"
                self._tell(name, f"{text}, {reason}", level)

    def _tell_once(self, job: str, text: str, reason: _Reason) -> None:
        """Log how a job was steered; several events in one step may say the same."""
        if job not in self._reasons.get(reason, ()):
            self._tell(job, text)
            self._add_reason(reason, job)

    def _add_reason(self, what: _Reason, job: str) -> None:
        names = self._reasons.setdefault(what, [])
        if job not in names:
            names.append(job)

    def _tell(self, job: str, text: str, level: int = logging.INFO) -> None:
        DECISIONS.log(level, "%s: %s", escape(job), escape(text))


def _list_names(names: Sequence[str]) -> str:
    if (others := len(names) - _MAX_NAMES) > 0:
        return f"{', '.join(names[:_MAX_NAMES])} and {format_count(others, 'other')}"
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def _shorten(error: str) -> str:
    return error.partition("\n")[0]


# --- warnings about jobs that wait for somebody or something, since that looks like a hang -------


@dataclass
class WaitingWarner:
    """Warns once about each reason to wait, and again if it returns after it was gone."""

    warns_of_pauses: bool = True  # False: others see them, and can resume jobs
    _since: dict[str, float] = field(default_factory=dict)  # infinity after the warning
    _next_check: float = -inf

    def warn(self, core: Core, now: float) -> None:
        """Warn about what has kept jobs waiting for some time."""
        if len(core.jobs) > _MANY_JOBS:
            if now < self._next_check:
                return
            self._next_check = now + _CHECK_SECONDS
        reasons = self._list_reasons(core)
        for gone in self._since.keys() - reasons:
            del self._since[gone]
        for reason in reasons:
            if now - self._since.setdefault(reason, now) > _WARNING_SECONDS:
                self._since[reason] = inf
                _WARNINGS.warning("hesrpt: %s", reason)

    def _list_reasons(self, core: Core) -> list[str]:
        if core.jobs and core.servers == 0:
            return ["jobs are waiting, because the cluster has no free servers"]
        reasons, are_all_paused = [], bool(core.jobs)
        for job in core.jobs.values():
            are_all_paused = are_all_paused and job.is_paused and not job.observed
            if not job.is_bag and not job.is_paused and job.min_servers > core.max_width:
                servers = format_count(job.min_servers, "server")
                reasons.append(
                    f"job {job.name!r} is waiting, because it needs at least {servers} on one "
                    f"node, and there are at most {core.max_width}"
                )
        if are_all_paused and self.warns_of_pauses:
            return ["all jobs that have not ended are paused; none goes on until it is resumed"]
        return reasons
