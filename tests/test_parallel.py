"""Tasks on all cores: in processes and in threads, failing and interrupted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial

import pytest
from support.waiting import wait_until

from hesrpt import InputError
from hesrpt.parallel import Stopped, run_tasks, stop_if_requested


def test_results_are_in_the_order_of_the_tasks() -> None:
    done: list[str] = []
    predecessors = {"last": "second", "first": None, "second": "first"}

    def follow(predecessor: str | None) -> str | None:
        wait_until(lambda: predecessor is None or predecessor in done)
        return predecessor

    tasks = {name: partial(follow, other) for name, other in predecessors.items()}
    results = run_tasks(tasks, in_threads=predecessors, cores=3, on_done=done.append)
    assert list(results.items()) == list(predecessors.items())
    assert done == ["first", "second", "last"]


def test_tasks_run_in_processes_or_in_threads() -> None:
    tasks = {"process": os.getpid, "other process": os.getpid, "thread": os.getpid}
    results = run_tasks(tasks, in_threads=["thread"], cores=2)
    assert results["thread"] == os.getpid()
    assert os.getpid() not in (results["process"], results["other process"])


def test_one_core_needs_no_processes() -> None:
    assert run_tasks({1: os.getpid, 2: os.getpid}, cores=1) == {1: os.getpid(), 2: os.getpid()}


def test_running_no_tasks_gives_no_results() -> None:
    assert run_tasks({}) == {}


def test_invalid_number_of_cores_is_refused() -> None:
    with pytest.raises(InputError, match="cores must be a whole number of at least 1, got 0"):
        run_tasks({}, cores=0)


def test_a_failure_stops_the_other_threads() -> None:
    stopped = []

    def run_until_stopped() -> None:
        try:
            while True:
                stop_if_requested()
                time.sleep(0.001)
        except Stopped:
            stopped.append(True)
            raise

    def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        run_tasks({1: run_until_stopped, 2: fail}, in_threads=[1, 2], cores=2)
    assert stopped == [True]


# A script without a main guard.
SCRIPT = """
import time
from hesrpt import PowerLaw, Workload, simulate
from hesrpt.parallel import run_tasks

def announce_and_simulate():
    print("started", flush=True)
    while True:
        simulate(Workload.poisson(1, 10**6, speedup=PowerLaw(0.5)), 8)

simulate(Workload.poisson(1, 100, speedup=PowerLaw(0.5)), 8)
tasks = {"thread": announce_and_simulate, "process": lambda: time.sleep(600)}
run_tasks({**tasks, "process 2": lambda: time.sleep(600)}, in_threads=["thread"], cores=2)
"""


def test_ctrl_c_ends_threads_and_processes() -> None:
    script = subprocess.Popen(
        [sys.executable, "-c", SCRIPT],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # If the tests run in the background, child processes ignore Ctrl-C by default.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    try:
        assert script.stdout is not None
        assert script.stdout.readline() == "started\n"
        script.send_signal(signal.SIGINT)
        _, errors = script.communicate(timeout=60)  # its tasks would take longer
        assert "KeyboardInterrupt" in errors
    finally:
        script.kill()
