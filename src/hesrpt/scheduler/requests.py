"""What other processes ask of a run in a state directory: to add jobs, and to change them.

Requests are in the journal until a scheduler obeys them. If none is running, the next one does.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from hesrpt.errors import InputError
from hesrpt.jobs.job_end import describe_end
from hesrpt.jobs.job_spec import JobSpec, explain_useless_retry, read_groups, sort_by_order
from hesrpt.storage.job_names import describe_names, name_submitted
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Answer, JobRecord, Request, RequestKind

# How long to wait for the answers of a running scheduler, and how often to look, in seconds.
_ANSWER_SECONDS = 5.0
_POLL_SECONDS = 0.02

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
    is_answered: bool = True  # False: the next scheduler will obey it
    request: int | None = None  # its number; None if there was nothing to ask for


class ImpossibleJobError(InputError):
    """A job that was submitted can never start, so nothing was added."""

    exit_code = 1


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
        targets = _find_targets(journal, kind, names, group)
        asked = [each for each in targets if each.refusal is None]
        requests = [
            Request(
                kind=kind,
                job=each.number,
                submission=each.submission,
                weight=weight,
                group=each.group,
            )
            for each in asked
        ]
        numbers, is_open = journal.requests.add(requests) if requests else ([], False)
        is_running = is_open and journal.is_running
        answers = _wait_for_answers(journal, numbers, timeout) if is_running else {}
        given = dict(zip((each.name for each in asked), numbers, strict=True))
    results = []
    for target in targets:
        number = given.get(target.name)
        answer = answers.get(number or 0)
        if target.refusal is not None:
            result = RequestResult(job=target.name, text=target.refusal, is_refused=True)
        elif answer is not None:
            result = RequestResult(
                job=target.name, text=answer.text, is_refused=answer.is_refused, request=number
            )
        else:
            promise = _PROMISES[kind].format(weight=weight or 0.0)
            when = "; the scheduler has not answered yet" if is_running else " when the run goes on"
            result = RequestResult(
                job=target.name, text=promise + when, is_answered=False, request=number
            )
        results.append(result)
    return results


@dataclass(frozen=True, kw_only=True)
class _Target:
    """A job that a request is about."""

    name: str
    number: int | None = None
    submission: int | None = None  # of a job that the run has not added yet
    group: str | None = None  # if it is a group
    refusal: str | None = None  # why the request makes no sense


def _find_targets(
    journal: Journal, kind: RequestKind, names: Sequence[str], group: str | None
) -> list[_Target]:
    # In this order: a submission may become a job between the two reads.
    requests = journal.requests.read()
    records = journal.read_records()
    named = name_submitted(requests, records)
    submitted = [each for each in named if each.spec is not None]
    specs = [record.spec for record in records]
    specs += [request.spec for request in submitted if request.spec is not None]
    if group is not None:
        groups = {spec.group: None for spec in specs if spec.group}
        groups |= dict.fromkeys(journal.get_value("groups", {}, parse=read_groups))
        if group not in groups:
            listed = ", ".join(groups) or "none"
            raise InputError(
                f"there is no group {group!r} in {journal.directory}; groups are: {listed}"
            )
        if kind in ("pause", "resume", "weight"):
            return [_Target(name=f"group {group}", group=group)]
    targets = {
        request.spec.name: _Target(name=request.spec.name, submission=request.number)
        for request in reversed(submitted)
        if request.spec is not None and group in (None, request.spec.group)
    }
    for record in records:
        if group in (None, record.spec.group):
            refusal = _explain_refusal(kind, record)
            targets[record.name] = _Target(name=record.name, number=record.number, refusal=refusal)
    chosen = list(dict.fromkeys(names))
    if not names:
        chosen = [name for name, target in targets.items() if target.refusal is None]
    unknown = [name for name in chosen if name not in targets]
    if unknown:
        known = describe_names(targets, unknown[0])
        raise InputError(f"there is no job {unknown[0]!r} in {journal.directory}; {known}")
    if kind == "retry":
        targets |= _refuse_useless_retries(chosen, records)
        after = {record.name: record.spec.after for record in records}
        chosen = sort_by_order({name: after.get(name, ()) for name in chosen})
    return [targets[name] for name in chosen]


def _refuse_useless_retries(
    names: Collection[str], records: Sequence[JobRecord]
) -> dict[str, _Target]:
    """Return the jobs that would be cancelled again at once: one that they wait for has failed."""
    states = {record.name: record.state for record in records}
    refused = {}
    for record in records:
        if record.name in names and record.state == "cancelled":
            for other in record.spec.after if record.spec.after_failure == "cancel" else ():
                if other not in names and states.get(other) in ("failed", "cancelled"):
                    refusal = explain_useless_retry(other, states[other])
                    refused[record.name] = _Target(name=record.name, refusal=refusal)
    return refused


def _explain_refusal(kind: RequestKind, record: JobRecord) -> str | None:
    if kind == "retry":
        can_retry = record.state in ("failed", "cancelled") or (
            record.state != "done" and record.failures > 0
        )
        return None if can_retry else "has no failed items"
    return describe_end(record.state) if record.has_ended else None


def _wait_for_answers(
    journal: Journal, numbers: Sequence[int], timeout: float
) -> dict[int, Answer]:
    deadline = time.monotonic() + timeout
    while True:
        answers = journal.requests.read_answers(numbers)
        if len(answers) == len(numbers) or time.monotonic() > deadline or not journal.is_running:
            return answers
        time.sleep(_POLL_SECONDS)
