"""A job as the service describes it, and what its items print."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any, NamedTuple

_ENDED = ("done", "failed", "cancelled")


@dataclass(frozen=True, kw_only=True)
class JobInfo:
    """A job at one moment. Times are in seconds since the queue was created."""

    name: str
    number: int  # in order of arrival
    state: str  # running, waiting, paused, submitted, done, failed or cancelled
    group: str = ""
    after: tuple[str, ...] = ()  # the jobs that must have ended well before it starts
    waits_for: tuple[str, ...] = ()  # those of them that have not ended
    waits_because: str = ""  # what else it waits for
    done: int = 0  # how many items are done
    items: int | None = None  # how many there are; None: not known yet
    failed: int = 0  # how many items have failed
    servers: int = 0  # how many it holds
    planned: int | None = None  # how many the policy gives it
    min_servers: int = 0
    max_servers: int | None = None  # None: no limit
    weight: float = 1.0
    resources: Mapping[str, float] = field(default_factory=dict)
    command: str | None = None  # shortened; None if it calls a Python function
    arrived: float | None = None
    ended: float | None = None
    flow_time: float | None = None  # seconds from its arrival to its end
    eta: float | None = None  # seconds until it will have ended
    progress: float | None = None  # the fraction of the items that are done
    error: str | None = None

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> JobInfo:
        """Return the job that JSON values describe; keys of later versions are ignored."""
        known = {each.name: values[each.name] for each in fields(cls) if each.name in values}
        for key in ("after", "waits_for"):
            known[key] = tuple(known.get(key, ()))
        return cls(**known)

    @property
    def has_ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.state in _ENDED


class ItemText(NamedTuple):
    """Something that an item of a job has printed."""

    item: int
    title: str  # the number of the item; for a command also the item
    text: str
