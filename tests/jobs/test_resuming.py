"""Resumed jobs: results belong to items and functions, not to positions and names."""

from __future__ import annotations

import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.inline_engine import InlineEngine
from support.waiting import wait_until

from hesrpt import InputError, Pool
from hesrpt.engines.engine import Outcome
from hesrpt.reports.inspection import read_status


class Laboratory:
    """Runs jobs in one state directory, and records which items they do."""

    def __init__(self, directory: Path) -> None:
        self.state, self.calls = directory / "state", directory / "calls"

    @contextmanager
    def open(self, **options: Any) -> Iterator[Pool]:
        with Pool(
            servers=2,
            state=self.state,
            resume=self.state.exists(),
            engine=InlineEngine(2),
            **options,
        ) as pool:
            yield pool

    def record(self, function: Callable[[Any], Any]) -> Callable[[Any], Any]:
        calls = str(self.calls)

        def recorded(item: Any) -> Any:
            with open(calls, "a") as file:
                file.write(f"{item}\n")
            return function(item)

        return recorded

    def map(self, function: Callable[[Any], Any], items: Iterable[Any], **options: Any) -> Any:
        """Run a job; return its results, and the items that it did."""
        self.calls.write_text("")
        with self.open(**options) as pool:
            job = pool.map(self.record(function), items, name="job")
            results = job.results(timeout=60)
            assert (job.done, job.items, job.state) == (len(results), len(results), "done")
        (record,) = read_status(self.state).jobs
        assert (record.done, record.items) == (len(results), len(results))
        return results, sorted(self.calls.read_text().split())


class PausedEngine(InlineEngine):
    """Starts with a clock that is stopped until ``go`` is set."""

    def __init__(self, servers: int) -> None:
        super().__init__(servers)
        self.go = threading.Event()

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        return super().wait_for_outcomes(timeout) if self.go.wait(0.01) else []


@pytest.fixture
def lab(tmp_path: Path) -> Laboratory:
    return Laboratory(tmp_path)


def upper(text: str) -> str:
    return text.upper()


def repeat(text: str) -> str:
    return text * 2


@pytest.mark.parametrize(
    ("before", "after", "done"),
    [
        ("bc", "abc", "a"),
        ("abc", "cab", ""),
        ("abc", "ac", ""),
        ("abc", "", ""),
        ("", "ab", "ab"),
        ("aab", "aaab", "a"),
        ("aaab", "ab", ""),
        ("abab", "bbaa", ""),
        ("abcd", "xbxd", "xx"),
    ],
)
@pytest.mark.parametrize("read", [list, iter])
def test_results_follow_their_items(
    lab: Laboratory, read: Callable[[str], Iterable[str]], before: str, after: str, done: str
) -> None:
    assert lab.map(upper, list(before)) == ([*before.upper()], sorted(before))
    assert lab.map(upper, read(after)) == ([*after.upper()], sorted(done))
    # Results of items that had gone are still there.
    assert lab.map(upper, read(before)) == ([*before.upper()], [])


def test_items_of_random_edits_are_done_once(lab: Laboratory) -> None:
    rng = random.Random(5)
    known: list[str] = []
    for _ in range(6):
        items = [rng.choice("abcdefgh") * rng.randint(1, 2) for _ in range(rng.randint(0, 12))]
        results, done = lab.map(upper, items)
        assert results == [item.upper() for item in items]
        missing = list(items)
        for item in known:
            if item in missing:
                missing.remove(item)
        assert done == sorted(missing)
        known += missing


def test_changed_function_is_refused_and_the_journal_stays_as_it_is(lab: Laboratory) -> None:
    lab.map(upper, "ab")
    before = read_status(lab.state)
    with lab.open() as pool:
        with pytest.raises(InputError) as caught:
            pool.map(lab.record(repeat), "abc", name="job")
        assert "job 'job': its function has changed since results were recorded" in str(
            caught.value
        )
        assert 'on_change="redo"' in str(caught.value)
        assert 'on_change="keep"' in str(caught.value)
        assert pool.jobs == []
        # The job can still be continued with its own function.
        assert pool.map(lab.record(upper), "abc", name="job").results() == ["A", "B", "C"]
    assert before.jobs[0].fingerprint == read_status(lab.state).jobs[0].fingerprint


def test_changed_function_redoes_all_items_or_keeps_their_results(lab: Laboratory) -> None:
    lab.map(upper, "ab")
    assert lab.map(repeat, "abc", on_change="keep") == (["A", "B", "cc"], ["c"])
    assert lab.map(repeat, "abc") == (["A", "B", "cc"], [])  # the function is the same now
    assert lab.map(upper, "abcd", on_change="redo") == (["A", "B", "C", "D"], [*"abcd"])
    assert lab.map(upper, "abcd") == (["A", "B", "C", "D"], [])


def test_function_may_change_before_there_are_results(lab: Laboratory) -> None:
    assert lab.map(upper, "") == ([], [])
    assert lab.map(repeat, "a") == (["aa"], ["a"])


def test_results_of_another_function_do_not_come_back_with_their_items(lab: Laboratory) -> None:
    lab.map(upper, "ab")
    lab.map(upper, "")
    assert lab.map(repeat, "ab") == (["aa", "bb"], ["a", "b"])


def test_unknown_choice_is_refused() -> None:
    with pytest.raises(InputError, match="on_change must be one of 'error', 'redo', 'keep', got"):
        Pool(servers=1, on_change="ignore")  # type: ignore[arg-type]


def test_jobs_of_the_same_name_keep_their_own_results(lab: Laboratory) -> None:
    def run(*functions: Callable[[str], str]) -> list[tuple[str, list[str]]]:
        lab.calls.write_text("")
        with lab.open() as pool:
            jobs = [pool.map(lab.record(function), "ab", name="job") for function in functions]
            return [(job.name, job.results(timeout=60)) for job in jobs]

    first, second = ("job", ["A", "B"]), ("job (2)", ["aa", "bb"])
    assert run(upper, repeat) == [first, second]
    assert run(upper, repeat) == [first, second]
    assert lab.calls.read_text() == ""
    assert run(repeat, upper) == [second, first]
    assert lab.calls.read_text() == ""
    assert run(upper, repeat, upper) == [first, second, ("job (3)", ["A", "B"])]
    assert sorted(lab.calls.read_text().split()) == ["a", "b"]


def test_two_equal_jobs_are_matched_in_order(lab: Laboratory) -> None:
    for expected in (["a", "b", "c"], [], []):
        lab.calls.write_text("")
        with lab.open() as pool:
            first = pool.map(lab.record(upper), "ab", name="job")
            second = pool.map(lab.record(upper), "bc"[1:], name="job")
            assert (first.results(), second.results()) == (["A", "B"], ["C"])
        assert sorted(lab.calls.read_text().split()) == expected


def test_executors_are_always_new(lab: Laboratory) -> None:
    names = []
    for _ in range(2):
        with lab.open() as pool, pool.executor("calls") as executor:
            assert executor.submit(upper, "a").result() == "A"
            names.append(pool.jobs[0].name)
    assert names == ["calls", "calls (2)"]


def test_options_of_a_resumed_job_are_the_new_ones(lab: Laboratory) -> None:
    def fail(text: str) -> str:
        raise ValueError(text)

    for retries, failures in ((0, 1), (2, 1 + 3)):
        with lab.open() as pool:
            pool.map(fail, "a", name="job", retries=retries, weight=3 + retries).wait()
        (record,) = read_status(lab.state).jobs
        assert (record.failures, record.spec.weight) == (failures, 3 + retries)


def test_finished_job_keeps_its_flow_time_and_size(lab: Laboratory) -> None:
    lab.map(upper, "abc")
    (before,) = read_status(lab.state).jobs
    lab.map(upper, "ca")
    (after,) = read_status(lab.state).jobs
    assert (after.flow_time, after.speedup) == (before.flow_time, before.speedup)
    assert (after.done, after.items, before.items) == (2, 2, 3)


def test_progress_of_a_list_is_right_at_once(lab: Laboratory) -> None:
    lab.map(upper, list("abcdef"))
    engine = PausedEngine(2)
    with Pool(servers=2, state=lab.state, resume=True, engine=engine) as pool:
        items = list("fxbad")
        job = pool.map(lab.record(upper), items, name="job")
        items.clear()  # too late to matter
        wait_until(lambda: read_status(lab.state).jobs[0].items == 5)
        assert (job.items, job.done) == (5, 4)
        wait_until(lambda: job.state == "running")
        assert read_status(lab.state).jobs[0].done == 4
        engine.go.set()
        assert job.results() == ["F", "X", "B", "A", "D"]


def test_progress_is_right_while_items_are_read_again(lab: Laboratory) -> None:
    lab.map(upper, "abcdef")
    may_go_on = threading.Event()

    def read() -> Iterator[str]:
        yield from "abc"
        assert may_go_on.wait(60)
        yield from "xd"

    with lab.open() as pool:
        job = pool.map(lab.record(upper), read(), name="job")
        wait_until(lambda: job.done == 3)
        assert (job.items, job.state) == (None, "waiting")
        may_go_on.set()
        assert job.results() == ["A", "B", "C", "X", "D"]
        assert (job.items, job.done) == (5, 5)


def test_all_items_are_done_even_if_there_are_more_than_expected(lab: Laboratory) -> None:
    class Letters(list[str]):
        def __len__(self) -> int:
            return 1

    for _ in range(2):
        assert lab.map(upper, Letters("abcdefghijklmnop"))[0] == [*"ABCDEFGHIJKLMNOP"]


SCRIPT = """
from pathlib import Path
from hesrpt import Pool

def double(x):
    return 2 * x

def work(x):
    print("working")
    return double(x)

with Pool(servers=1, state="s", resume=Path("s", "state.db").exists()) as pool:
    print(pool.map(work, [1, 2, 3]).results())
"""


def test_edited_script_is_resumed_if_its_function_does_the_same(tmp_path: Path) -> None:
    def run(script: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "script.py").write_text(script)
        return subprocess.run(
            [sys.executable, "script.py"],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )

    assert run(SCRIPT).stdout == "[2, 4, 6]\n"
    logs = {path: path.stat().st_mtime_ns for path in (tmp_path / "s" / "logs").iterdir()}
    assert len(logs) == 3
    edited = SCRIPT.replace("def work", "# This does the work.\n\ndef work")
    assert run(edited.replace("[1, 2, 3]", "range(3, 0, -1)")).stdout == "[6, 4, 2]\n"
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "s" / "logs").iterdir()} == logs
    refused = run(SCRIPT.replace("2 * x", "5 * x"))
    assert refused.returncode == 1
    assert "job 'work': its function has changed since results were recorded" in refused.stderr
