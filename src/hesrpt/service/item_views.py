"""The items of a job as JSON values, and what they have printed."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import Any

import anyio
from anyio import CapacityLimiter, to_thread

from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.text import describe_value
from hesrpt.reports.inspection import ItemLog, list_logs
from hesrpt.reports.log_following import LogFollower, Output
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.service.answers import encode
from hesrpt.service.event_stream import ALIVE, ALIVE_SECONDS
from hesrpt.service.job_queue import JobQueue, KnownJob
from hesrpt.service.views import get_spec, list_failures

#: The most output in one answer, in bytes.
MAX_TAIL = 10_000_000
# How often to look for new output, in seconds.
_FOLLOW_SECONDS = 0.5
# How many threads look for it.
_FOLLOWERS = CapacityLimiter(4)


def list_items(queue: JobQueue, job: KnownJob, offset: int, limit: int) -> dict[str, Any]:
    """Return some of the items of a job, and what became of each."""
    spec = get_spec(job)
    total = (spec.items if isinstance(job, JobSpec) else job.items) or 0
    positions = range(offset, min(offset + limit, total))
    seconds: dict[int, float] = {}
    running: set[int] = set()
    attempts: dict[int, int] = {}
    if not isinstance(job, JobSpec):
        seconds = {
            item: took for item, took, _ in queue.journal.read_timings(job.number, positions)
        }
    if isinstance(job, LiveJob):
        running, attempts = find_running_items(queue, job), dict(job.attempts)
    failures = {failure.item: failure for failure in list_failures(queue, job)}
    values = spec.command.items if spec.command is not None else None
    # What a job leaves behind when it is cancelled or fails may have been stopped while it ran.
    left = "waiting" if isinstance(job, JobSpec) or not job.has_ended else "not done"
    items = []
    for item in positions:
        state, tries = left, attempts.get(item, 0)
        if item in seconds:
            state, tries = "done", tries + 1
        elif item in failures:
            state, tries = "failed", failures[item].attempts
        elif item in running:
            state, tries = "running", tries + 1
        value = describe_value(values[item]) if values else ""
        if item in failures:
            value = failures[item].value or value
        items.append(
            {
                "item": item,
                "value": value,
                "state": state,
                "seconds": seconds.get(item),
                "attempts": tries,
            }
        )
    return {"items": items, "total": total}


def find_running_items(queue: JobQueue, job: LiveJob) -> set[int]:
    """Return the items of a job that run now."""
    with queue.driver.condition:
        active = queue.driver.core.jobs.get(job.name)
        if active is None:
            return set()
        return {item for item, batch in active.in_flight.items() if batch.servers > 0}


# --- output -------------------------------------------------------------------------------------


def read_logs(queue: JobQueue, name: str, item: int | None, tail: int) -> list[Output]:
    """Return the end of what the items of a job have printed, in the order of the items."""
    queue.find_job(name)
    return _read_ends(list_logs(queue.directory, name, item), tail)


def read_text(queue: JobQueue, name: str, item: int | None, tail: int) -> bytes:
    """Return the same with headings, if several items have printed something."""
    queue.find_job(name)
    logs = list_logs(queue.directory, name, item)
    parts: list[bytes] = []
    for log, content in _read_ends(logs, tail):
        parts += [f"--- {name}, {log.title}\n".encode() if len(logs) > 1 else b"", content]
    return b"".join(parts)


def _read_ends(logs: Sequence[ItemLog], tail: int) -> list[Output]:
    """Return the last ``tail`` bytes of several logs."""
    outputs: list[Output] = []
    left = tail
    for log in reversed(logs):
        if left <= 0:
            break
        content = _read_end(log, left)
        outputs.append(Output(log, content))
        left -= len(content)
    return outputs[::-1]


def describe_output(log: ItemLog, content: bytes) -> dict[str, Any]:
    """Return something that an item has printed as JSON values."""
    return {"item": log.item, "title": log.title, "text": content.decode("utf-8", "replace")}


def _read_end(log: ItemLog, most: int) -> bytes:
    try:
        with open(log.path, "rb") as file:
            file.seek(max(os.fstat(file.fileno()).st_size - most, 0))
            return file.read(most)
    except FileNotFoundError:
        return b""  # an empty log is removed when its item ends


async def follow_logs(queue: JobQueue, name: str, item: int | None) -> AsyncIterator[bytes]:
    """Yield what the items of a job print as server-sent events, until the job has ended."""
    # Many who follow must not keep all threads busy.
    run = partial(to_thread.run_sync, limiter=_FOLLOWERS)
    follower = await run(LogFollower, queue.directory, name, item, queue.journal)
    goes_on, quiet = True, 0.0
    while goes_on and not queue.is_closed:
        outputs, goes_on = await run(follower.read)
        for log, content in outputs:
            yield b"data: " + encode(describe_output(log, content)) + b"\n\n"
        quiet = 0.0 if outputs else quiet + _FOLLOW_SECONDS
        if quiet >= ALIVE_SECONDS:  # a client that is gone is noticed only when it is written to
            quiet = 0.0
            yield ALIVE
        if goes_on:
            await anyio.sleep(_FOLLOW_SECONDS)
    yield b"event: end\ndata: {}\n\n"
