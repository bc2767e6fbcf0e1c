"""What is shown of a run at one moment, as plain values and in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from hesrpt.units import format_count, format_duration

# The states in which a job has ended, and all states in the order in which they are counted.
_ENDED = ("done", "failed", "cancelled")
_STATES = ("running", "waiting", "paused", "submitted", *_ENDED)

# How much of an error to show in one line.
_MAX_ERROR = 300
# How many names of jobs to show that a job waits for.
_MAX_NAMES = 3


@dataclass(frozen=True, kw_only=True)
class JobOverview:
    """A job at one moment."""

    name: str
    state: str
    done: int = 0  # how many items are done
    items: int | None = None  # how many there are; None: not known
    failures: int = 0  # how many items have failed
    servers: int = 0  # how many it holds
    planned: int | None = None  # how many the policy gives it; None: not known
    flow_time: float | None = None  # seconds from its arrival to its end, or until now
    eta: float | None = None  # seconds until it will have ended; None: not known
    error: str | None = None
    group: str = ""
    waits_for: Sequence[str] = ()  # the names of jobs that have to end before it starts
    waits_because: str = ""  # of which resources it needs more than are free

    @property
    def has_ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.state in _ENDED

    @property
    def progress(self) -> float | None:
        """The fraction of the items that are done; None if it is not known."""
        if self.state == "done":
            return 1.0
        return self.done / self.items if self.items else None

    def describe_items(self) -> str:
        """Return how many items are done, such as ``12/100``."""
        return f"{self.done:,}/{'?' if self.items is None else format(self.items, ',')}"

    def describe_servers(self) -> str:
        """Return how many servers the job holds and is to have, such as ``2 of 3``."""
        if self.has_ended or self.state == "submitted":
            return ""
        if self.planned is None or self.servers == self.planned == 0:
            return f"{self.servers}"
        return f"{self.servers} of {self.planned}"

    def describe_left(self) -> str:
        """Return how long it will take until the job has ended, no more precisely than is known."""
        if self.eta is None or self.has_ended or self.state == "paused":
            return ""
        return f"{self.eta:.1f} s" if self.eta < 10 else format_duration(self.eta)

    def describe_wait(self) -> str:
        """Return what a job waits for, if that is known."""
        others = len(self.waits_for) - _MAX_NAMES
        names = [*self.waits_for[:_MAX_NAMES], *([f"{others} others"] if others > 0 else [])]
        return self.waits_because if not names else f"waits for {', '.join(names)}"

    def describe(self) -> str:
        """Return the state of the job in words."""
        if self.items is None:
            items = f"{format_count(self.done, 'item')} done"
        else:
            items = f"{self.done:,} of {format_count(self.items, 'item')}"
        words = [self.state, items]
        if self.has_ended:
            words[1] += f" in {format_duration(self.flow_time or 0.0)}"
            if self.state == "failed":
                error = (self.error or "").partition("\n")[0]
                if len(error) > _MAX_ERROR:
                    error = f"{error[: _MAX_ERROR - 1]}…"
                words[1] += f": {error}"
            return ", ".join(words)
        if self.servers:
            words.append(format_count(self.servers, "server"))
        if left := self.describe_left():
            words.append(f"{left} left")
        if wait := self.describe_wait():
            words.append(wait)
        return ", ".join(words)


@dataclass(frozen=True, kw_only=True)
class RunOverview:
    """A run at one moment."""

    servers: int  # how many there are
    policy: str
    jobs: Sequence[JobOverview]
    note: str = ""  # what has become of the scheduler, unless it is running

    @property
    def has_ended(self) -> bool:
        """Whether there were jobs and all have ended, or none can go on."""
        return bool(self.note) or (bool(self.jobs) and all(job.has_ended for job in self.jobs))

    @property
    def mean_flow_time(self) -> float | None:
        """The mean flow time of jobs that are done or will be; None if it is unknown.

        It is predicted for jobs that have not ended. Others have failed or were cancelled.
        """
        total, jobs = 0.0, [job for job in self.jobs if job.state not in ("failed", "cancelled")]
        for job in jobs:
            left = 0.0 if job.has_ended else job.eta
            if left is None or job.flow_time is None:
                return None
            total += job.flow_time + left
        return total / len(jobs) if jobs else None

    def describe(self) -> str:
        """Return what the run has and does in one line, such as ``4 servers, policy equi``."""
        words = [
            format_count(self.servers, "server"),
            f"policy {self.policy}",
            count_states(self.jobs),
        ]
        return ", ".join(word for word in (self.note, *words) if word)

    def select(self, most: int) -> tuple[list[JobOverview], str]:
        """Return the jobs to show if there is room for ``most``, and how many others there are.

        Those that have ended are left out first, beginning with the first, and those that run last.
        """
        if len(self.jobs) <= most:
            return list(self.jobs), ""
        last = len(self.jobs)
        places = sorted(
            range(last),
            key=lambda place: (
                self.jobs[place].has_ended,
                self.jobs[place].state != "running",
                -place if self.jobs[place].has_ended else place,
            ),
        )
        shown = sorted(places[:most])
        others = [self.jobs[place] for place in places[most:]]
        return [self.jobs[place] for place in shown], f"and {count_states(others)}"


def count_states(jobs: Sequence[JobOverview]) -> str:
    """Return how many jobs are in each state, such as ``2 running, 1 done``."""
    counts = Counter(job.state for job in jobs)
    return ", ".join(f"{counts[state]} {state}" for state in _STATES if counts[state]) or "no jobs"
