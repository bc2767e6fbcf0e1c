"""What anybody is shown of a job: in a terminal, a notebook, on the page, by the API, as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypeAlias

from hesrpt.jobs.failures import FailedItem
from hesrpt.jobs.job_end import ENDED, EndReason, JobState

#: A submitted job is on disk, but the scheduler has not taken it yet.
ShownState: TypeAlias = JobState | Literal["submitted"]
#: All states, in the order in which they are listed.
STATES: tuple[ShownState, ...] = ("running", "waiting", "paused", "submitted", *ENDED)


@dataclass(frozen=True, kw_only=True)
class JobView:
    """A job at one moment. Times are in seconds since the run began.

    As JSON, its keys are the names of these fields.
    """

    name: str
    number: int = 0  # in order of arrival; 0: it has not arrived yet
    state: ShownState
    group: str = ""
    after: tuple[str, ...] = ()  # the jobs that must have ended well before it starts
    waits_for: tuple[str, ...] = ()  # those of them that have not ended
    waits_because: str = ""  # of which resources it needs more than are free
    done: int = 0  # how many items are done
    items: int | None = None  # how many there are; None: not known yet
    failed: int = 0  # how many items have failed
    servers: int = 0  # how many it holds
    planned: int | None = None  # how many the policy gives it; None: it has ended, or not known
    min_servers: int = 0
    max_servers: int | None = None  # None: no limit
    weight: float = 1.0
    resources: Mapping[str, float] = field(default_factory=dict)  # besides servers, for each item
    command: str | None = None  # None: it calls a Python function
    arrived: float | None = None
    ended: float | None = None
    flow_time: float | None = None  # seconds from its arrival to its end
    elapsed: float | None = None  # seconds from its arrival to its end, or until now
    eta: float | None = None  # seconds until it will have ended; None: it has, or not known
    progress: float | None = None  # the fraction of the items that are done
    reason: EndReason | None = None  # why it has ended
    error: str | None = None  # what users are told if it failed or was cancelled
    failed_attempts: int = 0  # how many attempts of items have failed
    failed_items: tuple[FailedItem, ...] | None = ()  # None: nobody has asked for them

    @property
    def has_ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.state in ENDED

    def to_json_value(self) -> dict[str, Any]:
        """Return the job as JSON values."""
        values = dict(vars(self))
        if self.failed_items is not None:
            values["failed_items"] = [item.to_json_value() for item in self.failed_items]
        return values

    @classmethod
    def from_json_value(cls, values: Mapping[str, Any]) -> JobView:
        """Return the job that JSON values describe; keys of other versions are ignored."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for key in ("after", "waits_for"):
            known[key] = tuple(known.get(key, ()))
        if (failed := known.get("failed_items")) is not None:
            known["failed_items"] = tuple(FailedItem(**item) for item in failed)
        return cls(**known)
