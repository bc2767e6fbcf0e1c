"""Server-sent events: what changes, and what jobs print. There may be many streams, up to a limit.

Changes are found and encoded once for all who watch. While nobody watches, nothing is compared.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import anyio
from anyio import CapacityLimiter, to_thread
from starlette.exceptions import HTTPException
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from hesrpt.reports.inspection import ItemOutput, LogFollower
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.service.answers import ItemText, RunChange, encode
from hesrpt.service.auth import Access
from hesrpt.service.job_queue import JobQueue
from hesrpt.service.views import count_states, show_servers, view_jobs

#: How often to look for changes, and to say that the connection is alive, in seconds.
POLL_SECONDS, ALIVE_SECONDS = 0.5, 15.0
#: If more clients than these watch, they are told only half as often.
MANY_WATCHERS = 50
# Tell of a new prediction if it differs by more than this fraction of the time left.
_ETA_CHANGE = 0.1
# How many messages a slow client may be behind; then it is disconnected, and fetches all again.
_MAX_BEHIND = 60

#: A comment, which clients ignore.
ALIVE = b": the connection is alive\n\n"


@dataclass
class JobChanges:
    """Finds the jobs that have changed since the last time."""

    queue: JobQueue
    _seen: dict[str, tuple[Any, ...]] = field(default_factory=dict)  # what was told of each job

    def find(self) -> tuple[list[LiveJob], list[str]]:
        """Return the jobs that have changed, and the names of those that are gone."""
        jobs, seen = self.queue.driver.jobs, self._seen
        ends = self.queue.driver.recall_ends()
        changed = []
        for name, job in list(jobs.items()):
            before = seen.get(name)
            if before is not None and before[1] is not None and before[1] is job.ended:
                continue  # it had ended, and still has
            after = _summarise(job, ends.get(name), before, self.queue.driver.now)
            if after != before:
                changed.append(job)
                seen[name] = after
        removed = [name for name in seen if name not in jobs] if len(seen) > len(jobs) else []
        for name in removed:
            del seen[name]
        return changed, removed


def _summarise(
    job: LiveJob, end: float | None, before: tuple[Any, ...] | None, now: float
) -> tuple[Any, ...]:
    """Return what makes a difference to those who watch; the state and the end come first."""
    told = None if before is None else before[-1]
    if told is not None and end is not None and abs(end - told) <= _ETA_CHANGE * max(end - now, 5):
        end = told
    return (
        job.state,
        job.ended,
        job.servers,
        job.planned,
        job.reported_done,
        job.items,
        len(job.failures),
        job.spec.weight,
        end,
    )


class EventStream:
    """Tells all who watch what has changed, at most twice a second; once a second if many do."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue, self._changes = queue, JobChanges(queue)
        self._watchers: dict[asyncio.Queue[bytes | None], Access] = {}
        self._number = 0
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None  # in which clients watch

    @property
    def watchers(self) -> int:
        """How many clients watch now."""
        return len(self._watchers)

    async def watch(self, access: Access) -> AsyncIterator[bytes]:
        """Yield events as they are sent, until the service stops."""
        messages: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        if not self._watchers:
            self._changes.find()  # what has changed meanwhile, clients have fetched or will fetch
        self._watchers[messages] = access
        if self._task is None or self._task.done():
            self._task = asyncio.create_task(self._poll())
        try:
            yield self._encode([], [], access)
            while not self._is_closed:
                message = await messages.get()
                if message is None:
                    return
                yield message
        finally:
            self._watchers.pop(messages, None)

    async def _poll(self) -> None:
        """Tell of changes while somebody watches."""
        quiet = 0.0  # seconds since the last message
        told_servers: Any = None
        while self._watchers and not self._is_closed:
            pause = POLL_SECONDS * (2 if len(self._watchers) > MANY_WATCHERS else 1)
            await asyncio.sleep(pause)
            changed, removed = self._changes.find()
            servers = show_servers(self._queue, "owner") | {"time": 0.0}
            if changed or removed or servers != told_servers:
                quiet, told_servers = 0.0, servers
                self._number += 1
                self._send(lambda access: self._encode(changed, removed, access))  # noqa: B023
            elif quiet >= ALIVE_SECONDS:
                quiet = 0.0
                self._send(lambda access: ALIVE)
            else:
                quiet += pause

    def _send(self, encode: Callable[[Access], bytes]) -> None:
        """Send a message to all who watch; it is encoded once for each kind of access."""
        encoded: dict[Access, bytes] = {}
        for messages, access in self._watchers.items():
            if access not in encoded:
                encoded[access] = encode(access)
            messages.put_nowait(None if messages.qsize() > _MAX_BEHIND else encoded[access])

    def _encode(self, changed: list[LiveJob], removed: list[str], access: Access) -> bytes:
        change = RunChange(
            jobs=view_jobs(self._queue, changed),
            removed=removed,
            counts=count_states(self._queue.list_jobs()),
            servers=show_servers(self._queue, access),
        )
        return b"id: %d\nevent: change\ndata: %b\n\n" % (self._number, encode(change))

    def close_soon(self) -> None:
        """End all streams; any thread may call this."""
        self._is_closed = True
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self.close)

    def close(self) -> None:
        """End all streams."""
        self._is_closed = True
        for messages in self._watchers:
            messages.put_nowait(None)


# --- what jobs print ------------------------------------------------------------------------------

# How often to look for new output, in seconds.
_FOLLOW_SECONDS = 0.5
# How many threads look for it.
_FOLLOWERS = CapacityLimiter(4)


def show_output(output: ItemOutput) -> ItemText:
    """Return something that an item has printed."""
    text = output.content.decode("utf-8", "replace")
    return ItemText(item=output.item, title=output.title, text=text)


async def follow_logs(queue: JobQueue, name: str, item: int | None) -> AsyncIterator[bytes]:
    """Yield what the items of a job print as server-sent events, until the job has ended."""
    # Many who follow must not keep all threads busy.
    run = partial(to_thread.run_sync, limiter=_FOLLOWERS)
    follower = await run(LogFollower, queue.directory, name, item, queue.journal)
    goes_on, quiet = True, 0.0
    while goes_on and not queue.is_closed:
        outputs, goes_on = await run(follower.read)
        for output in outputs:
            yield b"data: " + encode(show_output(output)) + b"\n\n"
        quiet = 0.0 if outputs else quiet + _FOLLOW_SECONDS
        if quiet >= ALIVE_SECONDS:  # a client that is gone is noticed only when it is written to
            quiet = 0.0
            yield ALIVE
        if goes_on:
            await anyio.sleep(_FOLLOW_SECONDS)
    yield b"event: end\ndata: {}\n\n"


# --- the limit ------------------------------------------------------------------------------------


class StreamLimit:
    """The streams of events and logs that are open; readers may have half of them."""

    def __init__(self, most: int = 500) -> None:
        self._most = {"owner": most, "read": most // 2}
        self._open: Counter[Access] = Counter()

    def stream(self, content: AsyncIterator[bytes], access: Access) -> Response:
        """Return an answer that sends events; raise an error if there are too many streams."""
        if self._open.total() >= self._most["owner"] or self._open[access] >= self._most[access]:
            raise HTTPException(429, "too many streams are open; close some pages")
        self._open[access] += 1

        def release() -> None:
            self._open[access] -= 1

        return _Stream(content, release)


class _Stream(StreamingResponse):
    """Server-sent events, until the client goes away."""

    def __init__(self, content: AsyncIterator[bytes], release: Callable[[], None]) -> None:
        super().__init__(
            content, media_type="text/event-stream", headers={"X-Accel-Buffering": "no"}
        )
        self._release = release

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._release()
