"""Runs CPython's own tests of process pools on executors of a pool.

    python -m support.cpython_executor_tests pool report.json [test …]

writes how each test ended into a file. It is a process of its own, because these tests count
threads and child processes. With `process` in place of `pool`, it runs them unchanged, on
``ProcessPoolExecutor``. The package ``test`` must contain them: see :mod:`support.cpython_tests`.
"""

from __future__ import annotations

import concurrent.futures
import importlib
import json
import multiprocessing
import os
import pkgutil
import sys
import threading
import unittest
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import psutil

from hesrpt import InputError, Pool
from support.waiting import wait_until

T = TypeVar("T")

_TESTS = "test.test_concurrent_futures"
# What a script of the tests needs, so that `from concurrent.futures import AdaptedExecutor` works.
_PRELUDE = """
import concurrent.futures, multiprocessing
from support.cpython_executor_tests import AdaptedExecutor
concurrent.futures.AdaptedExecutor = AdaptedExecutor
"""

# --- adapting them ------------------------------------------------------------------------------


class WorkerProcess:
    """A worker with the methods of ``multiprocessing.Process`` that the tests call."""

    def __init__(self, process: psutil.Process) -> None:
        self.join, self.terminate = process.wait, process.terminate


class AdaptedExecutor(concurrent.futures.Executor):
    """A pool and its only executor, constructed like a ``ProcessPoolExecutor``.

    The private attributes are those that the tests read.
    """

    def __init__(
        self, max_workers: int | None = None, mp_context: object = None, **options: Any
    ) -> None:
        try:
            self._pool = Pool(max_workers)
        except InputError as error:
            raise ValueError(f"max_workers must be greater than 0: {error}") from error
        self._max_workers = self._pool.servers
        self._executor = self._pool.executor(**options)
        self._mp_context = multiprocessing.get_context("spawn")  # workers are new programs
        self._executor_manager_thread = self._pool._driver._thread
        self._call_queue = SimpleNamespace(join_thread=lambda: None)

    def submit(self, fn: Callable[..., T], /, *args: Any, **kwargs: Any) -> Future[T]:
        return self._executor.submit(fn, *args, **kwargs)

    def map(self, fn: Callable[..., T], *iterables: Iterable[Any], **options: Any) -> Iterator[T]:
        return self._executor.map(fn, *iterables, **options)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._executor.shutdown(wait, cancel_futures=cancel_futures)
        # The pool ends with its executor.
        closer = threading.Thread(target=self._pool.__exit__, args=(None, None, None))
        closer.start()
        if wait:
            closer.join()

    @property
    def _broken(self) -> str | None:
        return self._executor._source.broken

    @property
    def _processes(self) -> dict[int, WorkerProcess]:
        # Processes do not start at once, but a moment after their calls were submitted.
        wait_until(lambda: len(_find_workers()) >= self._count_busy_servers())
        return {process.pid: WorkerProcess(process) for process in _find_workers()}

    def _count_busy_servers(self) -> int:
        source = self._executor._source
        return min(len(source.waiting) + len(source.running), self._max_workers)


def _find_workers() -> list[psutil.Process]:
    children = psutil.Process().children(recursive=True)
    return [process for process in children if process.name() == "hesrpt-worker"]


def load_modules() -> list[ModuleType]:
    """Return the modules of the tests: since Python 3.12, there are several."""
    package = importlib.import_module(_TESTS)
    names = [info.name for info in pkgutil.iter_modules(getattr(package, "__path__", []))]
    return [package, *(importlib.import_module(f"{_TESTS}.{name}") for name in names)]


def collect_tests() -> dict[str, unittest.TestCase]:
    """Return the tests of process pools whose processes start with the method "spawn"."""
    return {
        f"{kind.__name__.removeprefix('ProcessPoolSpawn')}.{test.id().rpartition('.')[2]}": test
        for module in load_modules()
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, unittest.TestCase)
        if kind.__name__.startswith("ProcessPoolSpawn")
        for test in unittest.defaultTestLoader.loadTestsFromTestCase(kind)
        if isinstance(test, unittest.TestCase)
    }


def adapt(tests: Iterable[unittest.TestCase]) -> None:
    """Let tests construct executors of a pool."""
    helper: Any = importlib.import_module("test.support.script_helper")

    def assert_python_ok(flag: str, script: str) -> Any:
        path = os.environ["PYTHONPATH"]  # given explicitly, because otherwise it is ignored
        return helper.assert_python_ok(flag, _PRELUDE + script, PYTHONPATH=path)

    for test in tests:
        type(test).executor_type = AdaptedExecutor  # type: ignore[attr-defined]
    for module in load_modules():
        if hasattr(module, "assert_python_ok"):
            vars(module)["assert_python_ok"] = assert_python_ok
    # Not the same class as executor_type, for which the tests skip what ProcessPoolExecutor cannot.
    vars(concurrent.futures)["ProcessPoolExecutor"] = type("Other", (AdaptedExecutor,), {})


# --- running them -------------------------------------------------------------------------------


def run_test(test: unittest.TestCase) -> str:
    """Return "passed", or why a test was skipped or failed."""
    result = unittest.TestResult()
    test(result)
    if problems := [*result.errors, *result.failures]:
        return f"failed: {problems[0][1]}"
    return f"skipped: {result.skipped[0][1]}" if result.skipped else "passed"


def main(executor: str, report: str, *names: str) -> None:
    """Run the tests of these names, or all."""
    tests = collect_tests()
    if executor == "pool":
        adapt(tests.values())
    outcomes = {name: run_test(tests[name]) for name in names or tests}
    Path(report).write_text(json.dumps(outcomes))


if __name__ == "__main__":
    main(*sys.argv[1:])
