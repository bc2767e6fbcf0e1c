"""The entries of the journal as plain values: jobs, items, servers held, requests."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Literal, NamedTuple, TypeAlias

from hesrpt.decisions.learning import LearnedRun
from hesrpt.jobs.failures import ItemFailure
from hesrpt.jobs.job_end import JobEnd, JobState, get_job_state
from hesrpt.jobs.job_spec import HookCall, JobSpec
from hesrpt.speedups import Speedup


@dataclass(frozen=True, kw_only=True)
class JobRecord:
    """A job as the journal keeps it. Times are in seconds since the run began."""

    spec: JobSpec
    number: int  # in order of arrival; identifies the job, and is never used again
    fingerprint: bytes = b""  # of its function or command
    arrived: float
    ended: float | None = None  # when
    end: JobEnd | None = None  # how
    items: int | None = None  # None: not known yet
    done: int = 0  # how many items are done
    failures: int = 0  # how many attempts of items have failed
    failed_items: Sequence[ItemFailure] = ()  # unless only the row of the job was read
    item_seconds: float = 0.0  # total duration of the items that are done
    size: float | None = None  # seconds of work on one server; measured, once the job has ended
    speedup: Speedup | None = None  # measured, once the job has ended

    @property
    def name(self) -> str:
        """The job's name."""
        return self.spec.name

    @property
    def given_name(self) -> str:
        """The name that was asked for."""
        return self.spec.given_name or self.spec.name

    @property
    def has_ended(self) -> bool:
        """Whether the job is done, failed or cancelled."""
        return self.ended is not None

    @property
    def state(self) -> JobState:
        """What became of the job; "waiting" until it has ended, since a record holds no servers."""
        return get_job_state(self.end, is_paused=self.spec.is_paused)

    @property
    def error(self) -> str | None:
        """Why it failed or was cancelled."""
        return None if self.end is None else self.end.error

    @property
    def flow_time(self) -> float | None:
        """The time from the job's arrival to its end; None if it has not ended."""
        return None if self.ended is None else self.ended - self.arrived

    def reopen(self) -> JobRecord:
        """Return the record of a job that goes on after its end."""
        spec = replace(self.spec, was_reopened=True)
        return replace(self, spec=spec, ended=None, end=None)


class JobEndEntry(NamedTuple):
    """When a job has ended, and for which jobs it waits."""

    number: int
    name: str
    ended: float | None  # None: it has not
    after: Sequence[str]


class FinishedItem(NamedTuple):
    """An item that is done."""

    job: int  # the number of its job
    key: bytes  # what identifies the item within its job, wherever it is in the job's items
    position: int  # its index in the job's items
    seconds: float
    ended: float
    result: bytes


#: The position of a finished item that is no longer one of its job's items.
NO_POSITION = -1


class MovedItem(NamedTuple):
    """A finished item that is now elsewhere in its job's items, or not among them any more."""

    job: int
    key: bytes
    position: int


class FailedAttempt(NamedTuple):
    """A failed attempt of an item."""

    job: int
    time: float
    round: int  # of the job, as its spec says
    is_last: bool  # whether the item has failed, and is not tried again in this round
    failure: ItemFailure


#: The number that stands for the pool as a whole: how many servers there are.
WHOLE_POOL = 0


class Holding(NamedTuple):
    """A job holds ``servers`` servers from ``time`` on."""

    time: float
    job: int
    servers: int


#: What another process can ask of a run.
RequestKind: TypeAlias = Literal["submit", "cancel", "pause", "resume", "retry", "weight"]


@dataclass(frozen=True, kw_only=True)
class Request:
    """What another process asks of a run: to add a job, or to steer one."""

    kind: RequestKind
    number: int = 0  # never used again; 0 until it is in the journal
    spec: JobSpec | None = None  # of the job to add
    job: int | None = None  # the number of the job to change
    #: The request that added it, if it had no number yet. Of a job to add: the first request that
    #: was made together with this one, because the jobs are added together or not at all.
    submission: int | None = None
    weight: float | None = None  # that the job or the group is to have
    group: str | None = None  # the group to change, instead of a job

    def describe(self) -> str:
        """Return what is asked for, such as ``weight 2``."""
        return self.kind if self.weight is None else f"{self.kind} {self.weight:g}"

    def is_about(self, record: JobRecord) -> bool:
        """Return whether it asks for a change of this job."""
        if self.group is not None:
            return False
        if self.submission is not None:
            return self.submission == record.spec.submission
        return self.job == record.number


class Answer(NamedTuple):
    """What the scheduler did about a request."""

    request: int
    is_refused: bool
    text: str  # empty: nobody waits for it


class SubmissionKey(NamedTuple):
    """The idempotency key with which a client of a service has added jobs."""

    key: str
    digest: str  # of what was asked for
    jobs: Sequence[int]  # their numbers
    time: float  # when, in seconds since 1970


class StoredResult(NamedTuple):
    """The result of an item in the journal."""

    position: int
    key: bytes
    digest: bytes
    pickled: bytes | None  # None: it is large, and has not been read
    is_in_file: bool = False


@dataclass
class Changes:
    """What has happened in a run since the journal was last written.

    Jobs are new ones, and earlier ones whose record has changed. Jobs to redo lose their items.
    """

    jobs: list[JobRecord] = field(default_factory=list)
    jobs_to_redo: list[int] = field(default_factory=list)
    answers: list[Answer] = field(default_factory=list)  # whose effects are among the changes
    moved_items: list[MovedItem] = field(default_factory=list)
    finished_items: list[FinishedItem] = field(default_factory=list)
    failed_attempts: list[FailedAttempt] = field(default_factory=list)
    holdings: list[Holding] = field(default_factory=list)
    learned_runs: list[LearnedRun] = field(default_factory=list)  # new ones, and changed ones
    forgotten_runs: list[int] = field(default_factory=list)
    hooks: list[HookCall] = field(default_factory=list)  # new ones, and changed ones
    keys: list[SubmissionKey] = field(default_factory=list)  # of the jobs of clients
    values: dict[str, float | str] = field(default_factory=dict)  # of the run as a whole
    is_durable: bool = False  # whether somebody is told of them, so that nothing may undo them

    def __bool__(self) -> bool:
        return any(getattr(self, each.name) for each in fields(self))

    @property
    def are_only_finished_items(self) -> bool:
        """Whether they are items that are done, and what comes with these."""
        return bool(self.finished_items) and not (
            self.jobs
            or self.jobs_to_redo
            or self.answers
            or self.moved_items
            or self.failed_attempts
            or self.hooks
        )


# --- what a scheduler plans and predicts, which it tells other processes once a second ------------


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """A run at one moment. Jobs are given by their numbers; those that have ended are left out."""

    time: float = 0.0  # seconds since the run began
    servers: int = 0  # how many there are
    planned: Mapping[int, int] = field(default_factory=dict)  # servers that the policy gives jobs
    ends: Mapping[int, float] = field(default_factory=dict)  # when jobs will end, where known
    #: Of each kind of resource besides servers, how much there is, and how much is free.
    resources: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return these values as text."""
        jobs = [[job, servers, self.ends.get(job)] for job, servers in self.planned.items()]
        return json.dumps([self.time, self.servers, jobs, dict(self.resources)])

    @classmethod
    def from_json(cls, text: str) -> RunProgress:
        """Return the values that :meth:`to_json` wrote."""
        time, servers, jobs, resources = json.loads(text)
        return cls(
            time=time,
            servers=servers,
            planned={job: planned for job, planned, _ in jobs},
            ends={job: end for job, _, end in jobs if end is not None},
            resources={kind: (total, free) for kind, (total, free) in resources.items()},
        )


#: The progress of a run that has not reported any.
NO_PROGRESS = RunProgress()
