"""Large values in files that processes share: what happens if these cannot be had."""

from __future__ import annotations

import gc
import os
import resource
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import cloudpickle
import pytest
from support.local_engine import (
    collect_outcomes,
    open_engine,
    python_task,
    run_item,
    run_until,
)

from hesrpt.engines.local import channel
from hesrpt.engines.local.channel import LARGE_BYTES, Channel, read_shared_file, write_shared_file
from hesrpt.engines.local.local_engine import LocalEngine

LARGE = b"x" * (LARGE_BYTES + 1)


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with open_engine(1) as engine:
        yield engine


@contextmanager
def limit(kind: int, most: int) -> Iterator[None]:
    """Lower one of the limits of this process."""
    soft, hard = resource.getrlimit(kind)
    resource.setrlimit(kind, (most, hard))
    try:
        yield
    finally:
        resource.setrlimit(kind, (soft, hard))


def allow_no_further_files() -> AbstractContextManager[None]:
    return limit(resource.RLIMIT_NOFILE, 3)


def count_files() -> int:
    return len(os.listdir("/proc/self/fd"))


def test_value_is_read_as_it_was_written() -> None:
    before = count_files()
    content = read_shared_file(write_shared_file([b"a", memoryview(b"bc")]))
    assert bytes(content) == b"abc"
    assert count_files() == before + 1  # it is mapped
    del content
    assert count_files() == before


def test_only_so_many_files_are_mapped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(channel, "_MAX_MAPPED", 3)
    before = count_files()
    contents = [read_shared_file(write_shared_file([LARGE])) for _ in range(5)]
    assert count_files() <= before + 3
    assert all(content == LARGE for content in contents)


def test_without_files_in_memory_others_are_used(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(name: str) -> int:
        raise OSError("not permitted")

    monkeypatch.setattr(os, "memfd_create", refuse)
    assert bytes(read_shared_file(write_shared_file([b"abc"]))) == b"abc"


def test_value_that_cannot_be_mapped_is_copied() -> None:
    file = write_shared_file([b"abc"])
    with allow_no_further_files():
        assert read_shared_file(file) == b"abc"


def test_files_of_another_message_are_never_taken_for_lost_ones() -> None:
    ours, theirs = socket.socketpair()
    sender, receiver = Channel(ours), Channel(theirs, has_fds=True)
    for name in "ab":
        sender.send((name,), fds=[write_shared_file([name.encode()])])
    with allow_no_further_files():
        first = receiver.receive()
    (second,) = receiver.receive()
    assert [(message.head, message.fds) for message in first] == [(("a",), [])]
    assert receiver.has_lost_files
    assert bytes(read_shared_file(second.fds[0])) == b"b"
    for each in (sender, receiver):
        each.close()


def test_item_whose_result_cannot_be_received_fails(engine: LocalEngine) -> None:
    engine.start("a", {0: python_task(engine, lambda _: LARGE)}, 1)
    (worker,) = engine.workers
    with allow_no_further_files():
        outcomes = collect_outcomes(engine, 1)
    assert "too many open files" in str(outcomes["a", 0].error)
    outcome = run_item(engine, lambda _: LARGE)
    assert cloudpickle.loads(outcome.result) == LARGE
    assert engine.workers == [worker]  # it has done nothing wrong


def test_large_values_go_through_the_connection_if_no_file_can_be_written(
    engine: LocalEngine,
) -> None:
    def create(carried: bytes) -> bytes:
        import resource

        resource.setrlimit(resource.RLIMIT_FSIZE, (2**16, 2**16))
        return carried * 2

    outcome = run_item(engine, create, LARGE)
    assert cloudpickle.loads(outcome.result) == LARGE * 2
    assert isinstance(outcome.result, bytes)


def test_function_goes_through_the_connection_if_no_file_can_be_written(
    engine: LocalEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    carried = os.urandom(2 * LARGE_BYTES)
    with limit(resource.RLIMIT_FSIZE, 2**16):
        packed = engine.pack_function(lambda place: carried[place])
    assert not packed.is_in_file
    monkeypatch.setattr(engine, "pack_function", lambda _: packed)
    assert cloudpickle.loads(run_item(engine, len, 7).result) == carried[7]


def test_worker_without_room_for_another_file_is_replaced(
    engine: LocalEngine, tmp_path: Path
) -> None:
    def open_many(path: Path) -> None:
        import os
        import resource

        resource.setrlimit(resource.RLIMIT_NOFILE, (50, 50))
        kept = []
        try:
            while True:
                kept.append(os.open(path, os.O_RDONLY))
        except OSError:
            pass

    assert run_item(engine, open_many, tmp_path).error is None
    engine.start("b", {0: python_task(engine, lambda x: len(LARGE) + x, 1)}, 1)
    outcome = collect_outcomes(engine, 1)["b", 0]
    assert outcome.is_lost
    assert not outcome.was_started
    engine.start("b", {0: python_task(engine, lambda x: len(LARGE) + x, 1)}, 1)
    assert cloudpickle.loads(collect_outcomes(engine, 1)["b", 0].result) == len(LARGE) + 1


def test_nothing_stays_open_when_large_values_are_gone(engine: LocalEngine) -> None:
    def create(size: int, carried: bytes = LARGE) -> bytes:
        return carried[:1] * size

    assert run_item(engine, create, 2).error is None
    before = count_files()
    for _ in range(3):
        assert run_item(engine, create, 2 * LARGE_BYTES).error is None
    gc.collect()
    run_until(engine, lambda: count_files() <= before)  # it may still be closing a file
