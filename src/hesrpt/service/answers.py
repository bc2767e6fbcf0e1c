"""The answers of the API: their types, from which its description follows, and how they are sent.

Each is a dictionary with the keys of a JSON object.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any, Literal

from starlette.responses import Response
from typing_extensions import TypedDict  # pydantic takes that of Python from 3.12 on

from hesrpt.jobs.failures import FailedItem
from hesrpt.jobs.job_spec import FailedHook
from hesrpt.jobs.job_view import JobView
from hesrpt.reports.counterfactuals import SimulatedPolicy
from hesrpt.service.auth import Access

# --- jobs -----------------------------------------------------------------------------------------


class JobPage(TypedDict):
    """Some of the jobs of a list, how many it has, and how many jobs there are in each state."""

    jobs: Sequence[JobView]
    total: int
    counts: Mapping[str, int]


class AddedJobs(TypedDict):
    """The jobs that a request has added."""

    jobs: Sequence[JobView]


class ChangedJob(TypedDict):
    """A job, and what was done about it."""

    job: JobView
    text: str


class ChangedJobs(TypedDict):
    """The names of the jobs that were changed."""

    jobs: Sequence[str]


class ChangeResult(TypedDict):
    """What was done about a job or a group, or why it was refused."""

    job: str
    text: str
    refused: bool


class ChangeResults(TypedDict):
    """What was done about each job."""

    results: Sequence[ChangeResult]


class JobHook(TypedDict):
    """A hook of a job that is to be called, or has failed."""

    target: str | None  # null for readers: it may contain secrets
    attempts: int
    error: str | None
    pending: bool


@dataclass(frozen=True, kw_only=True)
class JobDetails(JobView):
    """All that is shown of a single job."""

    failures: Sequence[FailedItem]  # the same as failed_items
    hooks: Sequence[JobHook]
    command_full: str | None  # the same as command
    cwd: str | None
    timeout: float | None
    retries: int
    kind: str
    size: float | None
    p: float | None


ItemState = Literal["waiting", "running", "done", "failed", "not done"]


class ShownItem(TypedDict):
    """An item of a job."""

    item: int
    value: str
    state: ItemState
    seconds: float | None
    attempts: int


class ItemPage(TypedDict):
    """Some of the items of a job, and how many it has."""

    items: Sequence[ShownItem]
    total: int


class ItemText(TypedDict):
    """Something that an item of a job has printed."""

    item: int
    title: str  # the number of the item; for a command also the item
    text: str


class JobLogs(TypedDict):
    """What the items of a job have printed."""

    items: Sequence[ItemText]


# --- groups ---------------------------------------------------------------------------------------


class ShownGroup(TypedDict):
    """A group of jobs."""

    name: str
    weight: float
    paused: bool
    jobs: int
    active: int
    servers: int


class GroupList(TypedDict):
    """The groups of jobs."""

    groups: Sequence[ShownGroup]


class ChangedGroup(TypedDict):
    """A group, and what was done about it."""

    group: ShownGroup
    text: str


class CancelledGroup(TypedDict):
    """The names of the jobs of a group that were cancelled."""

    jobs: Sequence[str]
    text: str


# --- the run --------------------------------------------------------------------------------------


class Amount(TypedDict):
    """How much there is of a resource, and how much of it is free."""

    total: float
    free: float


class ShownCalibration(TypedDict):
    """What the policy has learned from arrivals and ends."""

    focus: float
    is_stream: bool
    jobs_seen: int


class ShownServers(TypedDict):
    """The servers, who holds them by which policy, and the time of the run's clock."""

    servers: int
    held: int
    peak: int
    engine: str
    policy: str
    resources: Mapping[str, Amount]
    calibration: ShownCalibration | None
    version: str
    time: float
    stopping: bool
    failed_hooks: Sequence[FailedHook]
    access: Access


class JobSeries(TypedDict):
    """The servers that a job held over time."""

    name: str
    servers: Sequence[float]


class ShownComparison(TypedDict):
    """What was measured of the latest jobs, and simulated of them under each policy."""

    measured: float
    jobs: int
    policy: str
    simulated: Sequence[SimulatedPolicy]
    reason: str | None  # why nothing was simulated


class ShownBound(TypedDict):
    """A mean flow time that no schedule of the latest jobs could have beaten."""

    mean_flow_time: float | None
    ratio: float | None
    jobs: int
    reason: str | None  # why there is none


class Analysis(TypedDict):
    """How the latest jobs would have fared otherwise; null until that was worked out."""

    comparison: ShownComparison | None
    bound: ShownBound | None


class ShownSchedule(Analysis):
    """Who held how many servers when, and what that has led to."""

    times: Sequence[float]
    series: Sequence[JobSeries]
    others: Sequence[float]
    capacity: Sequence[float]
    mean_flow_time: float | None
    ended: int


class RunChange(TypedDict):
    """What has changed since the event before."""

    jobs: Sequence[JobView]
    removed: Sequence[str]
    counts: Mapping[str, int]
    servers: ShownServers


class Health(TypedDict):
    """Whether the scheduler runs."""

    status: str


Reason = Literal["unknown", "no_such_path", "refused", "removed", "unavailable", "invalid"]


class Problem(TypedDict):
    """Why a request was refused."""

    detail: str
    reason: Reason
    text: str | None  # the same without the name of the job that it is about


# --- sending them ---------------------------------------------------------------------------------


def answer(value: Any, status: int = 200) -> Response:
    """Return a value as an answer."""
    return Response(encode(value), status_code=status, media_type="application/json")


def encode(value: Any) -> bytes:
    """Return a value as JSON, in which numbers that are not finite are null."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False, default=_get_values)
    except ValueError:
        plain = json.loads(json.dumps(value, default=_get_values))
        text = json.dumps(_replace_infinite(plain), ensure_ascii=False)
    return text.encode("utf-8", "backslashreplace")


def _get_values(value: Any) -> dict[str, Any]:
    """Return the fields of a dataclass."""
    if isinstance(value, FailedItem):  # it may also have what the item has raised
        return value.to_json_value()
    if not is_dataclass(value):
        raise TypeError(f"cannot be sent as JSON: {value!r}")
    return vars(value)


def _replace_infinite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _replace_infinite(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_replace_infinite(each) for each in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
