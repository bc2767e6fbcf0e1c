"""What a worker is given: batches of items, and functions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from support.local_engine import (
    collect_outcomes,
    open_engine,
    python_task,
    run_item,
    run_until,
    split_outcomes,
)

from hesrpt.engines.engine import FinishedItems, Outcome, PythonTask, PythonTasks
from hesrpt.engines.local.channel import LARGE_BYTES
from hesrpt.engines.local.local_engine import LocalEngine
from hesrpt.engines.local.worker import GATHER_SECONDS
from hesrpt.storage.logs import LogPaths


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with open_engine() as engine:
        yield engine


# --- batches ----------------------------------------------------------------------------------


def test_in_a_batch_each_item_has_its_own_time_limit(engine: LocalEngine) -> None:
    seconds = [0.7, 0.7, 0.7, 1000.0, 0.0]  # the first three take longer than that together
    tasks = {n: python_task(engine, time.sleep, s, timeout=2.0) for n, s in enumerate(seconds)}
    engine.start("a", tasks, 1)
    outcomes = collect_outcomes(engine, 5)
    assert [outcomes["a", n].error is None for n in range(5)] == [True, True, True, False, True]
    assert not any(outcome.is_lost for outcome in outcomes.values())


def test_items_behind_a_long_one_go_to_other_workers(engine: LocalEngine, tmp_path: Path) -> None:
    def wait_for_others(number: int) -> int:
        (tmp_path / str(number)).touch()
        while number == 2 and len(list(tmp_path.iterdir())) < 10:
            time.sleep(0.01)
        return number

    engine.start("a", {n: python_task(engine, wait_for_others, n) for n in range(10)}, 1)
    outcomes = collect_outcomes(engine, 10)
    assert [cloudpickle.loads(outcomes["a", n].result) for n in range(10)] == list(range(10))


def test_item_that_waits_behind_another_is_stopped_without_it(engine: LocalEngine) -> None:
    engine.start("a", {n: python_task(engine, time.sleep, 0.3) for n in range(2)}, 1)
    engine.start("b", {0: python_task(engine, time.sleep, 0.3)}, 1)
    engine.stop("a", 1)
    outcomes = collect_outcomes(engine, 2)
    assert set(outcomes) == {("a", 0), ("b", 0)}
    assert all(outcome.error is None for outcome in outcomes.values())
    assert engine.wait_for_outcomes(0.5) == []


def test_item_that_fails_in_a_batch_does_not_stop_the_next_one(engine: LocalEngine) -> None:
    engine.start("a", {x: python_task(engine, lambda x: 1 / x, x) for x in range(3)}, 1)
    outcomes = collect_outcomes(engine, 3)
    assert [outcomes["a", x].error is None for x in range(3)] == [False, True, True]


def batch(
    engine: LocalEngine, function: Callable[[int], object], count: int, **options: Any
) -> PythonTasks:
    """Pack a function and this many numbers as one batch."""
    arguments = [engine.pack_argument(number) for number in range(count)]
    packed = engine.pack_function(function)
    return PythonTasks(range(count), arguments, function=packed, **options)


def test_items_that_end_together_are_reported_together(engine: LocalEngine) -> None:
    engine.start("a", batch(engine, lambda x: 2 * x, 1000), 1)
    reports: list[Outcome | FinishedItems] = []
    run_until_reported(engine, reports, 1000)
    assert len(reports) < 100
    outcomes = list(split_outcomes(reports))
    assert [outcome.item for outcome in outcomes] == list(range(1000))
    assert [cloudpickle.loads(outcome.result) for outcome in outcomes] == list(range(0, 2000, 2))
    assert all(outcome.seconds > 0 for outcome in outcomes)


def test_items_behind_a_long_one_of_their_batch_run_elsewhere(
    engine: LocalEngine, tmp_path: Path
) -> None:
    def wait(number: int) -> int:
        while number == 57 and not (tmp_path / "go").exists():
            time.sleep(0.01)
        return number

    engine.start("a", batch(engine, wait, 1000), 1)
    reports: list[Outcome | FinishedItems] = []
    run_until_reported(engine, reports, 942)  # those after it
    assert {each.item for each in split_outcomes(reports)} >= set(range(58, 1000))
    (tmp_path / "go").touch()
    run_until_reported(engine, reports, 1000)
    assert sorted(each.item for each in split_outcomes(reports)) == list(range(1000))


def test_long_item_of_a_batch_is_reported_as_it_ends(engine: LocalEngine, tmp_path: Path) -> None:
    def wait(number: int) -> int:
        if number == 1:
            time.sleep(2 * GATHER_SECONDS)
        while number == 2 and not (tmp_path / "go").exists():
            time.sleep(0.01)
        return number

    engine.start("a", batch(engine, wait, 3), 1)
    reports: list[Outcome | FinishedItems] = []
    run_until_reported(engine, reports, 2)
    assert [each.item for each in split_outcomes(reports)] == [0, 1]
    (tmp_path / "go").touch()
    run_until_reported(engine, reports, 3)


def test_only_the_item_that_ran_is_blamed_for_the_end_of_its_worker(engine: LocalEngine) -> None:
    def work(number: int) -> int:
        if number == 57:
            os.kill(os.getpid(), 9)
        return number

    engine.start("a", batch(engine, work, 1000), 1)
    outcomes = collect_outcomes(engine, 1000)
    assert [x for x in range(1000) if outcomes["a", x].error is not None] == [57]
    assert all(outcomes["a", x].is_lost for x in range(58, 1000))
    assert not any(outcomes["a", x].was_started for x in range(58, 1000))
    # Those before it are done, or their results were lost with the worker.
    assert all(outcomes["a", x].was_started for x in range(57))


def test_each_of_many_items_has_its_own_time_limit(engine: LocalEngine) -> None:
    def work(number: int) -> None:
        time.sleep(1000 if number == 57 else 0)

    engine.start("a", batch(engine, work, 100, timeout=2.0), 1)
    outcomes = collect_outcomes(engine, 100)
    assert [x for x in range(100) if outcomes["a", x].error is not None] == [57]
    assert "exceeded its time limit" in str(outcomes["a", 57].error)


def test_each_item_of_a_batch_has_its_own_log(engine: LocalEngine, tmp_path: Path) -> None:
    def work(number: int) -> None:
        if number % 10 == 3:
            print("number", number)
        if number == 57:
            os.write(1, b"last words")
            os._exit(1)

    engine.start("a", batch(engine, work, 60, logs=LogPaths(f"{tmp_path}/", ".log")), 1)
    collect_outcomes(engine, 60)
    contents = {int(path.stem): path.read_text() for path in tmp_path.iterdir()}
    printed = {number: f"number {number}\n" for number in (3, 13, 23, 33, 43, 53)}
    assert contents == printed | {57: "last words"}


def run_until_reported(
    engine: LocalEngine, reports: list[Outcome | FinishedItems], count: int
) -> None:
    """Wait until so many items have been reported."""
    deadline = time.monotonic() + 90
    while sum(1 for _ in split_outcomes(reports)) < count:
        assert time.monotonic() < deadline
        reports += engine.wait_for_outcomes(0.02)


def test_function_that_carries_much_is_written_once(engine: LocalEngine) -> None:
    data = os.urandom(2 * LARGE_BYTES)
    packed = engine.pack_function(lambda place: data[place])
    assert packed.pickled == b""
    assert os.fstat(packed.fds[-1]).st_size > len(data)
    for item in range(2):  # on two workers
        argument = engine.pack_argument(item)
        engine.start("a", {item: PythonTask(function=packed, argument=argument)}, 1)
    outcomes = collect_outcomes(engine, 2)
    assert [cloudpickle.loads(outcomes["a", x].result) for x in range(2)] == list(data[:2])


def test_large_results_are_mapped_not_copied(engine: LocalEngine) -> None:
    outcome = run_item(engine, lambda size: np.arange(size), LARGE_BYTES)
    assert isinstance(outcome.result, memoryview)
    array = cloudpickle.loads(outcome.result)
    assert array[-1] == LARGE_BYTES - 1
    array[0] = 7  # the array is a copy of its own
    assert cloudpickle.loads(outcome.result)[0] == 0


# --- functions --------------------------------------------------------------------------------


def test_functions_are_forgotten_when_their_job_has_ended(
    engine: LocalEngine, tmp_path: Path
) -> None:
    class Witness:
        def __call__(self, path: str) -> None:
            self.path = path

        def __del__(self) -> None:
            if hasattr(self, "path"):
                Path(self.path).touch()

    path = tmp_path / "released"
    run_item(engine, Witness(), str(path))
    run_until(engine, path.exists)
    assert path.exists()


SCRIPT = """
import os, sys
from hesrpt import Pool

class Point:
    def __init__(self, x): self.x = x

def double(point):
    return Point(2 * point.x), os.getcwd()

with Pool(servers=2) as pool:
    results = pool.map(double, [Point(1), Point(2)]).results()
    print([p.x for p, _ in results], all(isinstance(p, Point) for p, _ in results))
    print(results[0][1] == os.getcwd())
    os.makedirs("later", exist_ok=True)
    with open("later/found_later.py", "w") as file:
        file.write("def triple(x): return 3 * x")
    sys.path.append(os.path.abspath("later"))
    import found_later
    print(pool.map(found_later.triple, [1, 2]).results())
"""


@pytest.mark.parametrize(
    "how",
    ["file", *(pytest.param(other, marks=pytest.mark.slow) for other in ("command", "input"))],
)
def test_scripts_need_no_main_guard(tmp_path: Path, how: str) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    arguments = {"file": ["script.py"], "command": ["-c", SCRIPT], "input": ["-"]}[how]
    done = subprocess.run(
        [sys.executable, *arguments],
        input=SCRIPT if how == "input" else "",
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        timeout=100,
    )
    assert done.stdout == "[2, 4] True\nTrue\n[3, 6]\n", done.stderr
