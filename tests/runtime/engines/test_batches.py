"""What a worker is given: batches of items, and functions."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import cloudpickle
import pytest
from support.local_engine import collect_outcomes, open_engine, python_task, run_item, run_until

from hesrpt.runtime.engines.local import LocalEngine


@pytest.fixture
def engine() -> Iterator[LocalEngine]:
    with open_engine() as engine:
        yield engine


# --- batches ----------------------------------------------------------------------------------


def test_in_a_batch_only_the_item_that_ran_fails(engine: LocalEngine) -> None:
    def work(x: int) -> int:
        if x == 2:
            os._exit(1)
        return x

    engine.start("a", {x: python_task(engine, work, x) for x in range(5)}, 1)
    outcomes = collect_outcomes(engine, 5)
    assert [outcomes["a", x].error is None for x in range(5)] == [True, True, False, True, True]
    assert [outcomes["a", x].is_lost for x in range(5)] == [False, False, False, True, True]
    assert not any(outcomes["a", x].was_started for x in (3, 4))


def test_in_a_batch_each_item_has_its_own_time_limit(engine: LocalEngine) -> None:
    seconds = [0.3, 0.3, 0.3, 1000.0, 0.0]
    tasks = {n: python_task(engine, time.sleep, s, timeout=1.5) for n, s in enumerate(seconds)}
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


@pytest.mark.parametrize("how", ["file", "command", "input"])
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
