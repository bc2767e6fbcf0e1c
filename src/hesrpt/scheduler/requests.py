"""What can be asked of a run: to add jobs, and to cancel, pause, resume, retry or weigh them.

This says which jobs a request is about, why it is refused, and what it does to a job or a group,
whoever asks: another process by the state directory, a client of a service, or Python code.
Requests of other processes are in the journal until a scheduler has done them. If none is running,
the next one does.
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from hesrpt.engines.engine import Engine
from hesrpt.errors import InputError
from hesrpt.jobs.job_end import ENDED, JobState, describe_end
from hesrpt.jobs.job_spec import Group, JobSpec, explain_useless_retry, read_groups, sort_by_order
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.job_names import describe_names, name_submitted
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Answer, JobRecord, Request, RequestKind

# How long to wait for the answers of a running scheduler, and how often to look, in seconds.
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.02
# How many names of jobs an answer lists.
_MAX_NAMES = 3

#: Why a client cannot change a job that another process has submitted.
NOT_ARRIVED = "has not arrived yet; try again in a moment"
#: Why a client cannot let a job run again that Python code has added.
NEEDS_SCRIPT = "calls a Python function; run its script again to retry it"

#: What a request will do to a job that no scheduler runs now.
_PROMISES = {
    "cancel": "will be cancelled",
    "pause": "will be paused",
    "resume": "will go on",
    "retry": "will run again",
    "weight": "will have weight {weight:g}",
}


@dataclass(frozen=True, kw_only=True)
class RequestResult:
    """What became of a request about a job."""

    job: str
    text: str  # what was done or will be done, or why it was refused
    is_refused: bool = False
    is_answered: bool = True  # False: the next scheduler will carry it out
    request: int | None = None  # its number; None if there was nothing to ask for


class ImpossibleJobError(InputError):
    """A job that was submitted can never start, so nothing was added."""

    exit_code = 1


class RemovedError(InputError):
    """The jobs that a request has added were removed since."""


class BusyError(InputError):
    """The scheduler has not taken a request in time, so nothing was done."""


class UnknownTargetError(InputError):
    """There is no job or group of this name."""


# --- asking, by the state directory -------------------------------------------------------------


class Submission(NamedTuple):
    """Jobs that were submitted to a run."""

    specs: Sequence[JobSpec]
    numbers: Sequence[int]  # of the requests to add them
    starts_now: bool  # False: when the run is resumed


def submit_jobs(
    directory: Path, specs: Sequence[JobSpec], group_weights: Mapping[str, float] | None = None
) -> Submission:
    """Submit jobs to the run in a state directory."""
    weights = (group_weights or {}).items()
    requests = [Request(kind="weight", group=name, weight=weight) for name, weight in weights]
    requests += [Request(kind="submit", spec=spec) for spec in specs]
    with closing(Journal.read(directory)) as journal:
        numbers, is_open = journal.requests.add(requests)
        return Submission(specs, numbers[len(weights) :], is_open and journal.is_running)


def find_names(
    directory: Path, submission: Submission, timeout: float = _ANSWER_SECONDS
) -> list[str]:
    """Return the names of jobs that were submitted: other jobs may have those asked for.

    Wait for at most ``timeout`` seconds until a scheduler that is running has named them. If none
    is running, the next one will name them so. Raises an ImpossibleJobError if they were refused,
    because one could never start.
    """
    wanted = set(submission.numbers)
    deadline = time.monotonic() + timeout
    with closing(Journal.read(directory)) as journal:
        while True:
            requests = journal.requests.read()
            is_waiting = any(request.number in wanted for request in requests)
            is_late = time.monotonic() > deadline or not journal.is_running
            if not submission.starts_now or not is_waiting or is_late:
                break
            time.sleep(_POLL_SECONDS)
        records = journal.read_records()
        answers = journal.requests.read_answers(wanted)
    names: dict[int | None, str] = {record.spec.submission: record.name for record in records}
    for request in name_submitted(requests, records):
        if request.spec is not None:
            names.setdefault(request.number, request.spec.name)
    given = zip(submission.numbers, submission.specs, strict=True)
    for answer in answers.values():
        if answer.is_refused:
            others = "; no job was added" if len(submission.specs) > 1 else ""
            raise ImpossibleJobError(f"{answer.text}{others}")
    return [names.get(number, spec.name) for number, spec in given]


def request_change(
    directory: Path,
    kind: RequestKind,
    names: Sequence[str],
    *,
    weight: float | None = None,
    group: str | None = None,
    timeout: float = _ANSWER_SECONDS,
) -> list[RequestResult]:
    """Ask the run in a state directory to change jobs; without names, all that this applies to.

    With a ``group``, change that instead, and so the jobs that come later too. What can only be
    done to jobs is done to those of the group. Wait for at most ``timeout`` seconds for the answers
    of a scheduler that is running.
    """
    with closing(Journal.read(directory)) as journal:
        # In this order: a submission may become a job between the two reads.
        requests = journal.requests.read()
        targets = find_targets(
            kind,
            names,
            group,
            records=(records := journal.read_records()),
            submitted=name_submitted(requests, records),
            groups=journal.get_value("groups", {}, parse=read_groups),
            place=f" in {directory}",
        )
        asked = list_requests(targets, kind, weight)
        numbers, is_open = journal.requests.add(asked) if asked else ([], False)
        is_running = is_open and journal.is_running
        found = _wait_for_answers(journal, numbers, timeout) if is_running else {}
    promise = _PROMISES[kind].format(weight=weight or 0.0)
    when = "; the scheduler has not answered yet" if is_running else " when the run goes on"
    answers = [found.get(number) for number in numbers]
    results = describe_answers(targets, answers, promise + when)
    given = iter(numbers)
    return [
        result if target.refusal is not None else replace(result, request=next(given))
        for target, result in zip(targets, results, strict=True)
    ]


def _wait_for_answers(
    journal: Journal, numbers: Sequence[int], timeout: float
) -> dict[int, Answer]:
    deadline = time.monotonic() + timeout
    while True:
        answers = journal.requests.read_answers(numbers)
        if len(answers) == len(numbers) or time.monotonic() > deadline or not journal.is_running:
            return answers
        time.sleep(_POLL_SECONDS)


# --- which jobs a request is about, in which order, and which are refused at once ---------------


@dataclass(frozen=True, kw_only=True)
class Target:
    """A job, or a group, that a request is about."""

    name: str
    number: int | None = None
    submission: int | None = None  # of a job that the run has not added yet
    group: str | None = None  # if it is a group
    refusal: str | None = None  # why the request makes no sense


def find_targets(
    kind: RequestKind,
    names: Sequence[str],
    group: str | None,
    *,
    records: Sequence[JobRecord],
    submitted: Iterable[Request],
    groups: Iterable[str],
    place: str = "",
) -> list[Target]:
    """Return the jobs that a request is about; without names, all that it applies to.

    These are among the jobs of a run, given by their records, and those that were submitted to it.
    Raises an UnknownTargetError, which says that there is no such job in a ``place``.
    """
    waiting = [(each.number, each.spec) for each in submitted if each.spec is not None]
    if group is not None:
        specs = [record.spec for record in records] + [spec for _, spec in waiting]
        known = {spec.group: None for spec in specs if spec.group} | dict.fromkeys(groups)
        if group not in known:
            listed = ", ".join(known) or "none"
            raise UnknownTargetError(f"there is no group {group!r}{place}; groups are: {listed}")
        if kind in ("pause", "resume", "weight"):
            return [Target(name=f"group {group}", group=group)]
    targets = {
        spec.name: Target(name=spec.name, submission=number)
        for number, spec in reversed(waiting)
        if group in (None, spec.group)
    }
    for record in records:
        if group in (None, record.spec.group):
            refusal = explain_refusal(kind, record)
            targets[record.name] = Target(name=record.name, number=record.number, refusal=refusal)
    chosen = list(dict.fromkeys(names))
    if not names:
        chosen = [name for name, target in targets.items() if target.refusal is None]
    if unknown := [name for name in chosen if name not in targets]:
        listed = describe_names(targets, unknown[0])
        raise UnknownTargetError(f"there is no job {unknown[0]!r}{place}; {listed}")
    if kind == "retry":
        targets |= _refuse_useless_retries(chosen, records)
        after = {record.name: record.spec.after for record in records}
        chosen = sort_by_order({name: after.get(name, ()) for name in chosen})
    return [targets[name] for name in chosen]


def _refuse_useless_retries(
    names: Collection[str], records: Sequence[JobRecord]
) -> dict[str, Target]:
    """Return the jobs that would be cancelled again at once: one that they wait for has failed."""
    states = {record.name: record.state for record in records}
    refused = {}
    for record in records:
        if record.name in names and record.state == "cancelled":
            for other in record.spec.after if record.spec.after_failure == "cancel" else ():
                if other not in names and states.get(other) in ("failed", "cancelled"):
                    refusal = explain_useless_retry(other, states[other])
                    refused[record.name] = Target(name=record.name, refusal=refusal)
    return refused


def explain_refusal(kind: RequestKind, record: JobRecord) -> str | None:
    """Return why a request makes no sense for a job, as far as its record says."""
    if kind == "retry":
        can_retry = record.state in ("failed", "cancelled") or (
            record.state != "done" and record.failures > 0
        )
        return None if can_retry else "has no failed items"
    return describe_end(record.state) if record.has_ended else None


def list_requests(
    targets: Iterable[Target], kind: RequestKind, weight: float | None = None
) -> list[Request]:
    """Return what is asked of the targets that are not refused at once."""
    return [
        Request(
            kind=kind,
            job=each.number,
            submission=each.submission,
            weight=weight,
            group=each.group,
        )
        for each in targets
        if each.refusal is None
    ]


def describe_answers(
    targets: Iterable[Target], answers: Iterable[Answer | None], promise: str
) -> list[RequestResult]:
    """Return what became of requests; those without an answer have a ``promise`` instead."""
    given, results = iter(answers), []
    for target in targets:
        if target.refusal is not None:
            result = RequestResult(job=target.name, text=target.refusal, is_refused=True)
        elif (answer := next(given)) is not None:
            result = RequestResult(job=target.name, text=answer.text, is_refused=answer.is_refused)
        else:
            result = RequestResult(job=target.name, text=promise, is_answered=False)
        results.append(result)
    return results


# --- what a request does to a job or a group ----------------------------------------------------


def check_pausable(job: LiveJob, engine: Engine) -> None:
    """Raise an error if the job can neither be suspended nor stopped and started again."""
    if job.spec.resize in (None, "restart") or engine.can_suspend:
        return
    raise InputError(
        "cannot be paused, because this engine cannot suspend a command; a command with "
        'resize = "restart" can be paused, and any job can be cancelled',
        argument=f"job {job.name!r}",
    )


def apply_group_request(group: Group, request: Request) -> tuple[Group, str]:
    """Return a group as another process wants it, and what was done."""
    match request.kind:
        case "pause":
            text = "is paused already" if group.is_paused else "paused, with jobs that come later"
            return replace(group, is_paused=True), text
        case "resume":
            text = "resumed" if group.is_paused else "was not paused"
            return replace(group, is_paused=False), text
        case _:
            assert request.weight is not None
            return replace(group, weight=request.weight), f"now has weight {request.weight:g}"


class RelatedJobs(NamedTuple):
    """The jobs that matter if a job is to run again."""

    unfinished: Sequence[str] = ()  # which it waits for
    obstacle: str | None = None  # why it would be cancelled again at once
    successors: Sequence[str] = ()  # which were cancelled because of it, and will wait again


def apply_request(
    job: LiveJob, request: Request, state: JobState, engine: Engine, related: RelatedJobs
) -> str:
    """Change a job in a state as another process has asked; return what was done.

    Ending it, or reopening it, is left to the caller. Raises an InputError to refuse the request.
    """
    if request.kind == "retry":
        return _describe_retry(job, state, related)
    if state in ENDED:
        raise InputError(describe_end(state))
    match request.kind:
        case "cancel":
            return "cancelled"
        case "pause":
            check_pausable(job, engine)
            if job.spec.is_paused:
                return "is paused already"
            job.set_paused(True)
            return _describe_pause(job)
        case "resume":
            if not job.spec.is_paused and job.group.is_paused:
                group = shlex.quote(job.spec.group)
                raise InputError(f"is paused with its group; use hesrpt resume --group {group}")
            if not job.spec.is_paused:
                return "was not paused"
            job.set_paused(False)
            return "resumed"
        case _:
            assert request.weight is not None
            job.set_weight(request.weight)
            return f"now has weight {request.weight:g}"


def _describe_retry(job: LiveJob, state: JobState, related: RelatedJobs) -> str:
    if state == "cancelled" and related.obstacle is not None:
        raise InputError(related.obstacle)
    if job.can_retry(state):
        text = "runs its failed items again"
        if state == "cancelled":
            text = f"waits for {_list(related.unfinished)}" if related.unfinished else "runs again"
        others = related.successors
        verb = "waits" if len(others) == 1 else "wait"
        return f"{text}; {_list(others)} {verb} for it again" if others else text
    # It may have been reopened with a job that it waited for, for example.
    if state not in ENDED and (job.spec.retried or job.spec.was_reopened):
        unfinished = related.unfinished
        return f"waits for {_list(unfinished)} again" if unfinished else "runs again already"
    if state not in ENDED or state == "done":
        raise InputError("has no failed items")
    if job.end is not None and job.end.reason == "impossible":
        raise InputError(f"can never start: {job.end.detail}")
    return "will run again when the run is started again"


def _list(names: Sequence[str]) -> str:
    """Return a few names of jobs, and how many others there are."""
    others = len(names) - _MAX_NAMES
    return ", ".join([*names[:_MAX_NAMES], *([f"{others:,} others"] if others > 0 else [])])


def _describe_pause(job: LiveJob) -> str:
    if job.servers == 0:
        return "paused"
    if not job.spec.is_bag:
        what = "stopped" if job.spec.resize == "restart" else "suspended"
        return f"paused: its processes are {what}"
    return "paused; items that are running end first"
