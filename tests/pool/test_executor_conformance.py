"""Executors of a pool pass CPython's own tests of ``ProcessPoolExecutor``.

The tests are those of an installed CPython. They are loaded when they run, and adapted only to
construct ``pool.executor()``. Of the 59 tests in Python 3.11, ``ProcessPoolExecutor`` itself passes
57 and skips 2. Executors of a pool pass 57 too, among them one that it skips because it would hang.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from support.cpython_tests import create_test_package, explain_absence, find_tests
from support.paths import ROOT

#: The tests that executors of a pool do not pass, and why.
DIFFERENCES = {
    "ProcessPoolExecutorTest.test_killed_child": (
        "expects that a killed process breaks the executor; here it fails only its own call"
    ),
}
#: The tests that do not apply to this system.
SKIPPED = {"ProcessPoolExecutorTest.test_max_workers_too_large"}

#: The tests that take more than a second, or more than half a second of CPU time.
SLOW = {
    "AsCompletedTest.test_duplicate_futures",
    "AsCompletedTest.test_zero_timeout",
    "ProcessPoolExecutorTest.test_free_reference",
    "ProcessPoolExecutorTest.test_killed_child",
    "ProcessPoolExecutorTest.test_map_chunksize",
    "ProcessPoolExecutorTest.test_map_timeout",
    "ProcessPoolExecutorTest.test_max_tasks_early_shutdown",
    "ProcessPoolExecutorTest.test_saturation",
    "ProcessPoolExecutorTest.test_shutdown_race_issue12456",
    "ProcessPoolShutdownTest.test_del_shutdown",
    "ProcessPoolShutdownTest.test_hang_gh83386",
    "ProcessPoolShutdownTest.test_hang_issue12364",
    "ProcessPoolShutdownTest.test_interpreter_shutdown",
    "ProcessPoolShutdownTest.test_shutdown_no_wait",
    "ProcessPoolShutdownTest.test_submit_after_interpreter_shutdown",
    "WaitTest.test_20369",
    "WaitTest.test_first_completed",
    "WaitTest.test_first_completed_some_already_completed",
    "WaitTest.test_first_exception",
    "WaitTest.test_first_exception_one_already_failed",
    "WaitTest.test_first_exception_some_already_complete",
    "WaitTest.test_timeout",
}
_SHARDS = 2  # run at the same time, since many tests mostly wait


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Return an environment in which Python can import its own tests."""
    if sys.version_info[:2] != (3, 11):
        pytest.skip("the lists in this module are for the tests of Python 3.11; others have more")
    tests = find_tests()
    if tests is None:
        pytest.skip(explain_absence())
    create_test_package(tmp_path, tests)
    path = [str(tmp_path), str(ROOT / "src"), str(ROOT / "tests")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def run_tests(names: list[str], environment: dict[str, str], directory: Path) -> dict[str, str]:
    """Return how the tests of these names ended."""
    reports = [directory / f"{shard}.json" for shard in range(_SHARDS)]
    command = [sys.executable, "-m", "support.cpython_executor_tests", "pool"]
    shards = [
        subprocess.Popen([*command, str(report), *names[shard::_SHARDS]], env=environment)
        for shard, report in enumerate(reports)
    ]
    assert [shard.wait(timeout=280) for shard in shards] == [0] * _SHARDS
    return {
        name: outcome
        for report in reports
        for name, outcome in json.loads(report.read_text()).items()
    }


def list_tests(environment: dict[str, str]) -> list[str]:
    script = "from support.cpython_executor_tests import collect_tests; print(*collect_tests())"
    command = [sys.executable, "-c", script]
    return subprocess.check_output(command, env=environment, text=True).split()


@pytest.mark.parametrize("is_slow", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_executor_passes_the_tests_of_the_standard_library(
    is_slow: bool, environment: dict[str, str], tmp_path: Path
) -> None:
    names = list_tests(environment)
    assert len(names) > 50
    assert DIFFERENCES.keys() | SKIPPED | SLOW <= set(names)
    chosen = [name for name in names if (name in SLOW) == is_slow]
    outcomes = run_tests(chosen, environment, tmp_path)
    assert outcomes.keys() == set(chosen)
    failures = {name: text for name, text in outcomes.items() if text.startswith("failed")}
    unexpected = [text for name, text in failures.items() if name not in DIFFERENCES]
    assert unexpected == [], "\n".join(unexpected)
    assert failures.keys() == DIFFERENCES.keys() & set(chosen)
    skipped = {name for name, text in outcomes.items() if text.startswith("skipped")}
    assert skipped == SKIPPED & set(chosen)
