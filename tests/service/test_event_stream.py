"""Server-sent events: what changes is told once, to all who watch."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any
from unittest import mock

from support.served_queue import ServedQueue

from hesrpt.service import event_stream
from hesrpt.service.event_stream import EventStream, JobChanges


def parse(message: bytes) -> Any:
    first, second, third, *rest = message.decode().split("\n")
    assert first.startswith("id: ")
    assert second == "event: change"
    assert rest == ["", ""]
    return json.loads(third.removeprefix("data: "))


async def read_until_done(events: AsyncIterator[bytes], name: str) -> list[Any]:
    """Return what was told until a job is done."""
    found = []
    async for message in events:
        found.append(parse(message))
        if any(job["name"] == name and job["state"] == "done" for job in found[-1]["jobs"]):
            return found
    raise AssertionError("the stream has ended")


def test_all_who_watch_are_told_the_same_and_it_is_encoded_once(served: ServedQueue) -> None:
    async def watch() -> None:
        stream = EventStream(served.queue)
        with mock.patch.object(stream, "_encode", wraps=stream._encode) as encode:
            watchers = [stream.watch("owner") for _ in range(20)]
            firsts = [parse(await anext(each)) for each in watchers]
            assert firsts[0]["jobs"] == []
            assert firsts[0]["servers"]["access"] == "owner"
            assert stream.watchers == 20
            name = await asyncio.to_thread(served.add, "sleep 0.2", name="watched")
            told = await asyncio.gather(*(read_until_done(each, name) for each in watchers))
            assert all(each == told[0] for each in told)
            assert told[0][-1]["counts"]["done"] == firsts[0]["counts"]["done"] + 1
            assert encode.call_count <= 20 + len(told[0])
        stream.close()
        assert [message async for message in watchers[0]] == []
        await asyncio.gather(*(each.aclose() for each in watchers))  # type: ignore[attr-defined]
        assert stream.watchers == 0

    with mock.patch.object(event_stream, "POLL_SECONDS", 0.05):
        asyncio.run(asyncio.wait_for(watch(), 60))


def test_a_reader_is_told_what_a_reader_may_do(served: ServedQueue) -> None:
    async def watch() -> None:
        stream = EventStream(served.queue)
        reader = stream.watch("read")
        assert parse(await anext(reader))["servers"]["access"] == "read"
        await reader.aclose()  # type: ignore[attr-defined]

    asyncio.run(watch())


def test_only_what_has_changed_is_told(served: ServedQueue) -> None:
    changes = JobChanges(served.queue)
    first, _ = changes.find()
    assert len(first) == len(served.queue.driver.jobs)
    name = served.add("true", name="news")
    served.client.wait(name, timeout=60)
    (changed,), removed = changes.find()
    assert (changed.name, removed) == (name, [])
    assert changes.find() == ([], [])


def test_a_slow_client_is_disconnected(served: ServedQueue) -> None:
    async def watch() -> None:
        stream = EventStream(served.queue)
        slow = stream.watch("owner")
        await anext(slow)
        for _ in range(100):
            stream._send(lambda access: b"x")
        assert len([message async for message in slow]) < 100

    asyncio.run(asyncio.wait_for(watch(), 60))
