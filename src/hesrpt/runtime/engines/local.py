"""The engine that runs items in processes of this machine.

Python items run in Pebble's process pool, where a worker that dies or exceeds its time limit costs
only its own item. loky starts the processes, so scripts need no ``if __name__ == "__main__"``.
cloudpickle pickles functions by value, so lambdas and closures work. Commands run as plain child
processes, each watched by a thread.
"""

from __future__ import annotations

import os
import queue
import subprocess
import threading
import time
from collections.abc import Mapping
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from typing import IO, Any, NamedTuple

from loky.backend import get_context
from loky.backend.process import LokyProcess
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from hesrpt.runtime.engines import commands, worker
from hesrpt.runtime.engines.engine import (
    CommandTask,
    Outcome,
    PythonTask,
    Task,
    pickle_value,
    read_steady_clock,
)
from hesrpt.runtime.engines.processes import (
    Guardian,
    build_environment,
    create_mark,
    kill_marked,
    kill_orphans,
    kill_tree,
    pin_to_cores,
)


class Attempt(NamedTuple):
    """One start of an item, which may be stopped and started again."""

    job: str
    item: int
    number: int


class AttemptEnded(NamedTuple):
    """A message from a worker or a command's thread to the driver's thread."""

    attempt: Attempt
    outcome: Outcome


def count_cores() -> int:
    """Return the number of cores that this process may use."""
    return len(_list_usable_cores()) or os.cpu_count() or 1


def _list_usable_cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


class LocalEngine:
    """Runs items on this machine."""

    batch_seconds = 0.0
    can_resize = True
    can_keep_results = False

    def __init__(self, servers: int) -> None:
        self.servers = servers
        self.mark = create_mark()
        self.guardian = Guardian(self.mark)
        #: The commands that are running now.
        self.commands: dict[Attempt, subprocess.Popen[bytes]] = {}
        self._attempts = 0
        self._current: dict[tuple[str, int], Attempt] = {}  # the running attempt of each item
        self._futures: dict[Attempt, ProcessFuture[Any]] = {}
        self._cores: dict[Attempt, list[int]] = {}
        self._lock = threading.Lock()  # guards attributes that commands' threads use as well
        # None only wakes the thread that waits for outcomes.
        self._messages: queue.SimpleQueue[AttemptEnded | None] = queue.SimpleQueue()
        self._pool: ProcessPool | None = None
        self._threads: ThreadPoolExecutor | None = None

    def now(self) -> float:
        return read_steady_clock()

    def capacity(self) -> int:
        return self.servers

    def widest_command(self) -> int:
        return self.servers

    def request_servers(self, servers: int) -> None:
        """Do nothing: a machine cannot grow."""

    def pack_function(self, function: Any) -> Any:
        return pickle_value(function)

    def pack_argument(self, argument: Any) -> Any:
        return pickle_value(argument)

    def fetch(self, reference: Any) -> Any:
        return reference  # results are on this machine already

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        ((item, task),) = tasks.items()  # one item at a time: batch_seconds is 0
        self._attempts += 1
        attempt = self._current[job, item] = Attempt(job, item, self._attempts)
        if isinstance(task, PythonTask):
            future = self._schedule(task)
            self._futures[attempt] = future
            future.add_done_callback(
                partial(self._report_python, attempt, task.timeout, time.monotonic())
            )
            return
        if task.pin_cores:
            self._assign_cores(attempt, servers)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                max(self.servers, 1) * 2, thread_name_prefix="hesrpt-command"
            )
        self._threads.submit(self._run_command, attempt, task)

    # --- Python items -------------------------------------------------------------------------

    def _schedule(self, task: PythonTask) -> ProcessFuture[Any]:
        arguments = (task.function, task.argument, task.log)
        if self._pool is not None:
            try:
                return self._pool.schedule(worker.call_pickled, arguments, timeout=task.timeout)
            except RuntimeError:
                pass  # the pool is broken: replace it
        self._pool = ProcessPool(
            max_workers=self.servers, context=_Context(build_environment(self.mark))
        )
        return self._pool.schedule(worker.call_pickled, arguments, timeout=task.timeout)

    def _report_python(
        self, attempt: Attempt, timeout: float | None, start: float, future: ProcessFuture[Any]
    ) -> None:
        seconds, result, error = time.monotonic() - start, None, None
        try:
            seconds, result, error = future.result()
        except CancelledError:
            kill_orphans(self.mark)
            return
        except ProcessExpired as expired:
            error = f"the process ended abnormally (exit code {expired.exitcode})"
            kill_orphans(self.mark)
        except TimeoutError:
            error = f"took longer than its time limit ({timeout:g} s)"
            kill_orphans(self.mark)
        except BaseException as problem:  # whatever happens, the item needs an outcome
            error = f"{type(problem).__name__}: {problem}"
        self._report(attempt, seconds, result or b"", error)

    def _report(self, attempt: Attempt, seconds: float, result: bytes, error: str | None) -> None:
        outcome = Outcome(attempt.job, attempt.item, seconds, result=result, error=error)
        self._messages.put(AttemptEnded(attempt, outcome))

    # --- commands -----------------------------------------------------------------------------

    def _run_command(self, attempt: Attempt, task: CommandTask) -> None:
        start = time.monotonic()
        error: str | None = None
        try:
            with commands.open_output(task.log) as output:
                earlier = output.seek(0, os.SEEK_END)  # the log may hold earlier attempts
                error = self._watch_command(attempt, task, output)
                if error is not None:
                    error = commands.add_last_lines(error, output, skip=earlier)
            if task.log is not None:
                worker.remove_if_empty(task.log)
        except commands.CommandStartError as problem:
            error = str(problem)
        except BaseException as problem:  # whatever happens, the item needs an outcome
            error = f"cannot be run: {problem}"
        finally:
            with self._lock:
                self.commands.pop(attempt, None)
                self._cores.pop(attempt, None)
            self._report(attempt, time.monotonic() - start, b"", error)

    def _watch_command(self, attempt: Attempt, task: CommandTask, output: IO[bytes]) -> str | None:
        """Run a command to its end; return its error, if any."""
        with self._lock:
            if not self._is_current(attempt):
                return None  # it was stopped before it started
            process = commands.start_command(task, output, build_environment(self.mark))
            self.commands[attempt] = process
            cores = self._cores.get(attempt)
        if cores:
            pin_to_cores(process.pid, cores)
        return commands.wait_for_command(process, task.timeout)

    def _assign_cores(self, attempt: Attempt, servers: int) -> list[int]:
        """Choose cores that no other command has; if there are too few, choose all cores."""
        with self._lock:
            self._cores.pop(attempt, None)
            taken = {core for cores in self._cores.values() for core in cores}
            free = [core for core in _list_usable_cores() if core not in taken]
            cores = free[:servers] if len(free) >= servers else _list_usable_cores()
            self._cores[attempt] = cores
        return cores

    def resize(self, job: str, item: int, servers: int) -> None:
        attempt = self._current.get((job, item))
        if attempt is None:
            return
        cores = self._assign_cores(attempt, servers)
        with self._lock:
            process = self.commands.get(attempt)
        if process is not None and cores:
            pin_to_cores(process.pid, cores)

    # --- stopping and waiting -----------------------------------------------------------------

    def stop(self, job: str, item: int) -> None:
        with self._lock:
            attempt = self._current.pop((job, item), None)
            process = None if attempt is None else self.commands.get(attempt)
        if attempt is None:
            return
        if process is not None:
            kill_tree(process.pid)
        elif (future := self._futures.pop(attempt, None)) is not None:
            future.cancel()  # type: ignore[no-untyped-call]

    def _is_current(self, attempt: Attempt) -> bool:
        """Return whether an attempt was neither stopped nor replaced by another one."""
        return self._current.get((attempt.job, attempt.item)) == attempt

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        outcomes = []
        try:
            message = self._messages.get(timeout=timeout)
            while True:
                # A stopped attempt is not reported, even if it ended just before it was stopped.
                if message is not None and self._is_current(message.attempt):
                    attempt, outcome = message
                    outcomes.append(outcome)
                    del self._current[attempt.job, attempt.item]
                    self._futures.pop(attempt, None)
                message = self._messages.get_nowait()
        except queue.Empty:
            return outcomes

    def wake(self) -> None:
        self._messages.put(None)

    def close(self) -> None:
        for job, item in list(self._current):
            self.stop(job, item)
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
        kill_marked(self.mark)
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self.guardian.dismiss()

    def close_after_fork(self) -> None:
        assert self.guardian.process.stdin is not None
        self.guardian.process.stdin.close()  # the guardian waits until nobody holds it open


class _Context:
    """loky's multiprocessing context, with our environment for the processes it starts."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._loky = get_context("loky")
        self._environment = environment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loky, name)

    def Process(self, *args: Any, **options: Any) -> LokyProcess:  # noqa: N802 (the API's name)
        return LokyProcess(*args, env=self._environment, **options)
