"""Batches of quick items on real workers: whatever interrupts them, each ends exactly once."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from support.waiting import wait_until

from hesrpt import JobError, Pool

COUNT = 6_000
SECONDS = 60  # to wait for results


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state"


MIXED: dict[str, Callable[[int], Any]] = {
    "integers": lambda x: -x,
    "floats": lambda x: x / 7,
    "truth values": lambda x: x % 3 == 0,
    "nothing": lambda x: None,
    "text": lambda x: f"item {x}",
    "very large integers": lambda x: 2**63 - COUNT // 2 + x,
    "several kinds": lambda x: (x, float(x), str(x), None, x**20)[x % 5],
    "one of another kind": lambda x: [x] if x == 4_321 else x,
}


@pytest.mark.parametrize("has_state", [False, True], ids=["in memory", "with state"])
def test_results_are_what_the_function_returned(state: Path, has_state: bool) -> None:
    with Pool(servers=2, state=state if has_state else None) as pool:
        for kind, function in MIXED.items():
            results = pool.map(function, range(COUNT), name=kind).results(timeout=SECONDS)
            expected = [function(item) for item in range(COUNT)]
            assert results == expected, kind
            assert list(map(type, results)) == list(map(type, expected)), kind


def test_crash_in_the_middle_of_a_batch_blames_its_item_alone(state: Path, tmp_path: Path) -> None:
    (tmp_path / "ran").mkdir()

    def crash(item: int) -> int:
        if item % 2000 == 1000:
            (tmp_path / "ran" / f"{item} {time.monotonic_ns()}").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return item

    with Pool(servers=2, state=state) as pool:
        job = pool.map(crash, range(COUNT), retries=1, on_error="keep")
        results = job.results(errors="return", timeout=SECONDS)
    bad = list(range(1000, COUNT, 2000))
    assert [failure.item for failure in job.failures] == bad
    assert all(failure.attempts == 2 for failure in job.failures)
    assert [item for item in range(COUNT) if results[item] != item] == bad
    assert len(list((tmp_path / "ran").iterdir())) == 2 * len(bad)


def test_after_a_crash_only_results_that_were_not_sent_are_computed_again(
    state: Path, tmp_path: Path
) -> None:
    """Each item counts how often it has run."""
    counts = tmp_path / "counts"
    counts.write_bytes(bytes(COUNT))

    def count(item: int) -> int:
        with open(counts, "r+b", buffering=0) as file:
            file.seek(item)
            before = file.read(1)[0]
            file.seek(item)
            file.write(bytes((before + 1,)))
        if item == 3333 and before == 0:
            os._exit(1)
        return item

    with Pool(servers=1, state=state) as pool:
        results = pool.map(count, range(5000), retries=1).results(timeout=SECONDS)
        assert results == list(range(5000))
    ran = counts.read_bytes()[:5000]
    assert ran[3333] == 2
    assert set(ran) == {1, 2}
    again = [item for item in range(5000) if ran[item] == 2]
    assert again == list(range(again[0], 3334))  # those just before it
    assert len(again) < 2500


@pytest.mark.slow
def test_timeout_in_the_middle_of_a_batch(state: Path) -> None:
    def hang(item: int) -> int:
        if item == 3777:
            time.sleep(1000)
        return item

    with Pool(servers=2, state=state) as pool:
        job = pool.map(hang, range(COUNT), retries=0, timeout=5.0, on_error="keep")
        assert job.wait(SECONDS)
        assert [failure.item for failure in job.failures] == [3777]
        assert job.done == COUNT - 1


def test_cancelled_job_keeps_what_was_done_and_resumes(tmp_path: Path) -> None:
    state = tmp_path / "state"

    def work(item: int) -> int:
        return sum(range(item % 100))

    with Pool(servers=2, state=state) as pool:
        job = pool.map(work, range(60_000), name="a")
        wait_until(lambda: job.done > 5_000)
        job.cancel()
        assert job.wait(SECONDS)
        done = job.done
        results = job.results(errors="return")
        assert sum(not isinstance(each, JobError) for each in results) == done
        assert all(each == work(item) for item, each in enumerate(results) if type(each) is int)
    with Pool(servers=2, state=state, resume=True) as pool:
        job = pool.map(work, range(60_000), name="a")
        assert job.results(timeout=SECONDS) == [work(item) for item in range(60_000)]


def test_output_of_each_item_is_in_its_own_log(tmp_path: Path) -> None:
    def write(item: int) -> int:
        if item % 1000 == 1:
            print("line", item)
        if item % 1000 == 2:
            print("part", item, end="")
        if item % 1000 == 3:
            os.write(2, b"bytes %d" % item)
        if item % 1000 == 4:
            import sys

            sys.stdout.buffer.write(b"buffer %d" % item)
        return item

    with Pool(servers=2, state=tmp_path / "s") as pool:
        assert pool.map(write, range(5000)).results(timeout=SECONDS) == list(range(5000))
    found = {
        int(path.stem.split("-")[1]): path.read_text()
        for path in (tmp_path / "s" / "logs").iterdir()
    }
    expected = {}
    for start in range(0, 5000, 1000):
        expected[start + 1] = f"line {start + 1}\n"
        expected[start + 2] = f"part {start + 2}"
        expected[start + 3] = f"bytes {start + 3}"
        expected[start + 4] = f"buffer {start + 4}"
    assert found == expected


def test_durations_are_those_of_each_item() -> None:
    def wait(item: int) -> int:
        if item % 1000 == 500:
            time.sleep(0.01)
        return item

    began = time.monotonic()
    with Pool(servers=1) as pool:
        job = pool.map(wait, range(4000))
        assert job.wait(SECONDS)
        timings = {timing.position: timing.seconds for timing in job._live.timings}
    slow = [item for item, seconds in timings.items() if seconds >= 0.01]
    assert set(range(500, 4000, 1000)) <= set(slow)
    assert sum(timings.values()) < time.monotonic() - began  # they ran one after another
