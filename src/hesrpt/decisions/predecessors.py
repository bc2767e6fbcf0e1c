"""Jobs that wait for others to end, and what becomes of them then.

Plans leave them out until the last of their predecessors has ended, so thousands of them cost
nothing. No clock, no process, no file: this is a part of the core's decisions.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from hesrpt.decisions.events import (
    Admit,
    Command,
    JobArrived,
    JobCancelled,
    JobEvent,
    JobSteered,
    finish,
    steer,
)
from hesrpt.jobs.job_end import EndReason, EndState, JobEnd


@dataclass
class WaitingJob:
    """A job that waits for others, or was cancelled while it did."""

    arrival: JobArrived
    unfinished: set[str] = field(default_factory=set)  # the names that it waits for
    is_cancelled_by_other: bool = False  # because one of them has failed


@dataclass
class Predecessors:
    """The jobs that wait for others, and how the others have ended."""

    waiting: dict[str, WaitingJob] = field(default_factory=dict)
    cancelled: dict[str, WaitingJob] = field(default_factory=dict)  # while they waited; can go on
    _successors: dict[str, dict[str, None]] = field(default_factory=dict)  # of those not ended
    _outcomes: dict[str, EndState] = field(default_factory=dict)  # of jobs that have ended
    _ended: deque[str] = field(default_factory=deque)  # whose successors have not been told yet

    def add(self, arrival: JobArrived, commands: list[Command]) -> JobArrived | None:
        """Let a job wait for those that have not ended; return it if it need not."""
        spec = arrival.spec
        failed = [name for name in spec.after if self._outcomes.get(name, "done") != "done"]
        waiting = WaitingJob(arrival, {name for name in spec.after if name not in self._outcomes})
        if failed and spec.after_failure == "cancel":
            self._cancel(waiting, failed[0], commands)
            return None
        if not waiting.unfinished:
            commands.append(Admit(spec.name))
            return arrival
        self.waiting[spec.name] = waiting
        for name in waiting.unfinished:
            self._successors.setdefault(name, {})[spec.name] = None
        return None

    def apply(self, event: JobEvent, commands: list[Command]) -> None:
        """Change a job that waits."""
        waiting = self.waiting[event.job]
        spec = waiting.arrival.spec
        match event:
            case JobSteered():
                spec = steer(spec, event)
            case JobCancelled():
                self._remove(spec.name)
                commands += finish(spec, event.end)
                self.end(spec.name, event.end.state)
                if spec.command is not None:  # a function and its items are let go
                    self.cancelled[spec.name] = waiting
        waiting.arrival = replace(waiting.arrival, spec=spec)

    def end(self, job: str, outcome: EndState) -> None:
        """Record how a job has ended; :meth:`release` tells those that wait for it."""
        self._outcomes[job] = outcome
        if job in self._successors:
            self._ended.append(job)

    def learn(self, job: str, outcome: EndState) -> None:
        """Record how a job has ended in an earlier run, unless that is known."""
        if job not in self._outcomes:
            self.end(job, outcome)

    def release(self, commands: list[Command]) -> Iterable[JobArrived]:
        """Yield the jobs that need not wait any more; cancel those that a failed job cancels."""
        while self._ended:
            ended = self._ended.popleft()
            if (outcome := self._outcomes.get(ended)) is None:
                continue  # it goes on
            for name in self._successors.pop(ended, {}):
                waiting = self.waiting[name]
                waiting.unfinished.discard(ended)
                if outcome != "done" and waiting.arrival.spec.after_failure == "cancel":
                    self._remove(name)
                    self._cancel(waiting, ended, commands)
                elif not waiting.unfinished:
                    self._remove(name)
                    commands.append(Admit(name))
                    yield waiting.arrival

    def list_cancelled_by(self, job: str) -> list[str]:
        """Return the jobs that were cancelled because of a job, and because of these in turn."""
        successors: dict[str, list[str]] = {}
        for name, waiting in self.cancelled.items():
            for other in waiting.arrival.spec.after if waiting.is_cancelled_by_other else ():
                successors.setdefault(other, []).append(name)
        names, to_visit = {job: None}, deque([job])
        while to_visit:
            found = [each for each in successors.get(to_visit.popleft(), ()) if each not in names]
            names |= dict.fromkeys(found)
            to_visit += found
        return list(names)[1:]

    def take_back(self, job: str) -> list[JobArrived]:
        """Forget the end of a job that goes on, and of those that were cancelled because of it.

        Return those of them that have to wait again.
        """
        names = [job, *self.list_cancelled_by(job)]
        for name in names:
            self._outcomes.pop(name, None)
        return [self.cancelled.pop(name).arrival for name in names if name in self.cancelled]

    def forget(self, job: str) -> None:
        """Forget how a job has ended, for which nobody will wait any more."""
        self._outcomes.pop(job, None)
        self.cancelled.pop(job, None)

    def _cancel(self, waiting: WaitingJob, cause: str, commands: list[Command]) -> None:
        name = waiting.arrival.spec.name
        waiting.is_cancelled_by_other = True
        self.cancelled[name] = waiting
        has_failed = self._outcomes[cause] == "failed"
        reason: EndReason = "predecessor_failed" if has_failed else "predecessor_cancelled"
        commands += finish(waiting.arrival.spec, JobEnd(reason, cause))
        self.end(name, "cancelled")

    def _remove(self, name: str) -> None:
        for other in self.waiting.pop(name).unfinished:
            if (successors := self._successors.get(other)) is not None:
                successors.pop(name, None)
