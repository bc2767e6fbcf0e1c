"""Doing what users ask of a job while it runs: pausing it, resuming it, changing its weight."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from hesrpt.engines.engine import Engine
from hesrpt.errors import InputError
from hesrpt.jobs.job_end import ENDED, JobState, describe_end
from hesrpt.jobs.job_spec import Group
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.storage.journal_entries import Request

# How many names of jobs an answer lists.
_MAX_NAMES = 3


class RequestReceived(NamedTuple):
    """Another process has asked for something to be done about a job, or a group of jobs."""

    job: LiveJob | None  # None: a group
    request: Request


def check_pausable(job: LiveJob, engine: Engine) -> None:
    """Raise an error if the job can neither be suspended nor stopped and started again."""
    if job.spec.resize in (None, "restart") or engine.can_suspend:
        return
    raise InputError(
        f"job {job.name!r}: cannot be paused, because this engine cannot suspend a command; "
        'a command with resize = "restart" can be paused, and any job can be cancelled'
    )


def apply_group_request(group: Group, request: Request) -> tuple[Group, str]:
    """Return a group as another process wants it, and what was done."""
    match request.kind:
        case "pause":
            text = "is paused already" if group.is_paused else "paused, with jobs that come later"
            return replace(group, is_paused=True), text
        case "resume":
            return replace(
                group, is_paused=False
            ), "resumed" if group.is_paused else "was not paused"
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
    if state not in ENDED and (
        job.spec.retried or job.spec.was_reopened
    ):  # with a job that it waited for, for example
        unfinished = related.unfinished
        return f"waits for {_list(unfinished)} again" if unfinished else "runs again already"
    if state not in ENDED or state == "done":
        raise InputError("has no failed items")
    return "will run again when the run is started again"


def _list(names: Sequence[str]) -> str:
    """Return a few names of jobs, and how many others there are."""
    others = len(names) - _MAX_NAMES
    return ", ".join([*names[:_MAX_NAMES], *([f"{others:,} others"] if others > 0 else [])])


def _describe_pause(job: LiveJob) -> str:
    if job.servers == 0:
        return "paused"
    if not job.spec.is_bag:
        return "paused: its processes are " + (
            "stopped" if job.spec.resize == "restart" else "suspended"
        )
    return "paused; items that are running end first"
