"""How a job has ended, and where it is until then. Texts are made from these values, never read."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Literal, TypeAlias

#: How a job has ended, in a word.
EndState: TypeAlias = Literal["done", "failed", "cancelled"]
#: A job that waits has arrived and holds no server.
JobState: TypeAlias = Literal["waiting", "running", "paused"] | EndState
ENDED: tuple[EndState, ...] = ("done", "failed", "cancelled")

#: Why a job has ended.
EndReason: TypeAlias = Literal[
    "done",
    "items_failed",
    "unreadable_items",  # the iterable of its items raised an error
    "impossible",  # it could never start
    "lost_function",  # it calls a Python function that no scheduler can get any more
    "stopped",  # by its own script, or with its pool
    "requested",  # another process has cancelled it; only a retry brings it back
    "predecessor_failed",
    "predecessor_cancelled",
    "removed",  # from its jobs file
]

_STATES: dict[EndReason, EndState] = {
    "done": "done",
    "items_failed": "failed",
    "unreadable_items": "failed",
    "impossible": "failed",
    "lost_function": "failed",
    "stopped": "cancelled",
    "requested": "cancelled",
    "predecessor_failed": "cancelled",
    "predecessor_cancelled": "cancelled",
    "removed": "cancelled",
}
# What is said of cancelled jobs, with the names of the jobs that they waited for.
_TEXTS: dict[EndReason, str] = {
    "stopped": "cancelled",
    "requested": "cancelled on request",
    "predecessor_failed": "cancelled: job {!r}, for which it waited, has failed",
    "predecessor_cancelled": "cancelled: job {!r}, for which it waited, was cancelled",
    "removed": "cancelled: it is no longer in the jobs file",
}


@dataclass(frozen=True)
class JobEnd:
    """How a job has ended.

    >>> JobEnd("predecessor_failed", "fetch").error
    "cancelled: job 'fetch', for which it waited, has failed"
    """

    reason: EndReason = "done"
    detail: str = ""  # what went wrong if it failed, or the name of the job that it waited for

    @property
    def state(self) -> EndState:
        """Whether the job is done, has failed or was cancelled."""
        return _STATES[self.reason]

    @property
    def error(self) -> str | None:
        """What users are told of a job that failed or was cancelled."""
        if self.state == "cancelled":
            return _TEXTS[self.reason].format(self.detail)
        return None if self.state == "done" else self.detail

    @property
    def was_caused_by_predecessor(self) -> bool:
        """Whether the job was cancelled because one that it waited for has not ended well."""
        return self.reason in ("predecessor_failed", "predecessor_cancelled")

    def to_json(self) -> str:
        """Return the end as JSON."""
        return json.dumps([self.reason, self.detail])

    @classmethod
    def from_json(cls, text: str) -> JobEnd:
        """Return the end that :meth:`to_json` wrote."""
        reason, detail = json.loads(text)
        if reason not in _STATES:
            raise ValueError(f"unknown reason {reason!r}")
        return cls(reason, detail)


DONE, STOPPED = JobEnd("done"), JobEnd("stopped")
REQUESTED, REMOVED = JobEnd("requested"), JobEnd("removed")


def get_job_state(end: JobEnd | None, *, servers: int = 0, is_paused: bool = False) -> JobState:
    """Return the state of a job that holds servers, and that may be paused, until it has ended."""
    if end is not None:
        return end.state
    if is_paused:
        return "paused"
    return "running" if servers > 0 else "waiting"


def describe_end(state: str) -> str:
    """Say that a job has ended, as the reason for refusing a request."""
    return "has failed already" if state == "failed" else f"is {state} already"
