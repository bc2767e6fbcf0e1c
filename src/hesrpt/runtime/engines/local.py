"""The servers are processes of this machine.

Python items run in a process pool by Pebble, the one in which a worker that dies, or is ended for
taking too long, costs its own item only. Processes are started the way of loky, so that a script
needs no ``if __name__ == "__main__"``, and functions are pickled by cloudpickle, by value, so that
lambdas and closures will do. Commands run as they are, each watched by a thread.
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
    steady_time,
)
from hesrpt.runtime.engines.processes import (
    Guardian,
    end_marked,
    end_orphans,
    end_tree,
    marked_environment,
    new_mark,
    set_cores,
)


class Attempt(NamedTuple):
    """One start of an item: it may be stopped and started again."""

    job: str
    item: int
    turn: int


def count_cores() -> int:
    """Return how many cores this process may use."""
    return len(_cores()) or os.cpu_count() or 1


def _cores() -> list[int]:
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []


class LocalEngine:
    """Runs items on this machine."""

    batch_seconds = 0.0
    can_resize = True
    can_keep_results = False

    def __init__(self, servers: int) -> None:
        self.servers = servers
        self.mark = new_mark()
        self.guardian = Guardian(self.mark)
        self.turns = 0
        #: The attempts whose outcome is awaited, by job and item.
        self.awaited: dict[tuple[str, int], Attempt] = {}
        self.futures: dict[Attempt, ProcessFuture[Any]] = {}
        self.commands: dict[Attempt, subprocess.Popen[bytes]] = {}
        self.cores_of: dict[Attempt, list[int]] = {}
        self.lock = threading.Lock()  # of these, which threads that watch commands share
        self.events: queue.SimpleQueue[tuple[Attempt, Outcome] | None] = queue.SimpleQueue()
        self._pool: ProcessPool | None = None
        self._threads: ThreadPoolExecutor | None = None

    def now(self) -> float:
        return steady_time()

    def capacity(self) -> int:
        return self.servers

    def widest_command(self) -> int:
        return self.servers

    def request_servers(self, servers: int) -> None:
        """Nothing to do: a machine does not grow."""

    def pack_function(self, function: Any) -> Any:
        return pickle_value(function)

    def pack_argument(self, argument: Any) -> Any:
        return pickle_value(argument)

    def fetch(self, reference: Any) -> Any:
        return reference  # what is here needs no fetching

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        ((item, task),) = tasks.items()
        self.turns += 1
        attempt = self.awaited[job, item] = Attempt(job, item, self.turns)
        if isinstance(task, PythonTask):
            future = self._schedule(task)
            self.futures[attempt] = future
            future.add_done_callback(partial(self._python_done, attempt, time.monotonic()))
            return
        if task.pin_cores:
            self._give_cores(attempt, servers)
        if self._threads is None:
            self._threads = ThreadPoolExecutor(
                max(self.servers, 1) * 2, thread_name_prefix="hesrpt-command"
            )
        self._threads.submit(self._run_command, attempt, task)

    # --- Python -------------------------------------------------------------------------------

    def _schedule(self, task: PythonTask) -> ProcessFuture[Any]:
        call = (task.function, task.argument, task.log)
        if self._pool is not None:
            try:
                return self._pool.schedule(worker.call, call, timeout=task.timeout)
            except RuntimeError:
                pass  # the pool is broken; there must be another
        self._pool = ProcessPool(
            max_workers=self.servers, context=_Context(marked_environment(self.mark))
        )
        return self._pool.schedule(worker.call, call, timeout=task.timeout)

    def _python_done(self, attempt: Attempt, began: float, future: ProcessFuture[Any]) -> None:
        seconds, result, error = time.monotonic() - began, b"", None
        try:
            seconds, result, error = future.result()
        except CancelledError:
            end_orphans(self.mark)
            return
        except ProcessExpired as expired:
            error = f"the process ended abnormally (exit code {expired.exitcode})"
            end_orphans(self.mark)
        except TimeoutError:
            error = f"took longer than its time limit ({seconds:.1f} s)"
            end_orphans(self.mark)
        except BaseException as problem:  # nothing may be left without an outcome
            error = f"{type(problem).__name__}: {problem}"
        self._tell(attempt, seconds, result, error)

    def _tell(self, attempt: Attempt, seconds: float, result: bytes, error: str | None) -> None:
        outcome = Outcome(attempt.job, attempt.item, seconds, result=result, error=error)
        self.events.put((attempt, outcome))

    # --- commands -----------------------------------------------------------------------------

    def _run_command(self, attempt: Attempt, task: CommandTask) -> None:
        began = time.monotonic()
        error: str | None = None
        try:
            with commands.output_to(task.log) as output:
                error = self._watch_command(attempt, task, output)
                if error is not None:
                    error = commands.add_last_lines(error, output)
            if task.log is not None:
                worker.remove_if_empty(task.log)
        except commands.CannotStartError as problem:
            error = str(problem)
        except BaseException as problem:  # nothing may be left without an outcome
            error = f"cannot be run: {problem}"
        finally:
            with self.lock:
                self.commands.pop(attempt, None)
                self.cores_of.pop(attempt, None)
            self._tell(attempt, time.monotonic() - began, b"", error)

    def _watch_command(self, attempt: Attempt, task: CommandTask, output: IO[bytes]) -> str | None:
        """Return what went wrong with a command, when it has ended."""
        with self.lock:
            if self.awaited.get(attempt[:2]) != attempt:
                return None  # it was stopped before it began
            process = commands.begin(task, output, marked_environment(self.mark))
            self.commands[attempt] = process
            cores = self.cores_of.get(attempt)
        if cores:
            set_cores(process.pid, cores)
        return commands.wait(process, task.timeout)

    def _give_cores(self, attempt: Attempt, servers: int) -> list[int]:
        """Choose cores for a command that no other one has; all, if there are not so many."""
        with self.lock:
            self.cores_of.pop(attempt, None)
            taken = {core for cores in self.cores_of.values() for core in cores}
            free = [core for core in _cores() if core not in taken]
            cores = free[:servers] if len(free) >= servers else _cores()
            self.cores_of[attempt] = cores
        return cores

    def resize(self, job: str, item: int, servers: int) -> None:
        attempt = self.awaited.get((job, item))
        if attempt is None:
            return
        cores = self._give_cores(attempt, servers)
        with self.lock:
            process = self.commands.get(attempt)
        if process is not None and cores:
            set_cores(process.pid, cores)

    # --- ends ---------------------------------------------------------------------------------

    def stop(self, job: str, item: int) -> None:
        with self.lock:
            attempt = self.awaited.pop((job, item), None)
            process = None if attempt is None else self.commands.get(attempt)
        if attempt is None:
            return
        if process is not None:
            end_tree(process.pid)
        elif (future := self.futures.pop(attempt, None)) is not None:
            future.cancel()  # type: ignore[no-untyped-call]

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        found = []
        try:
            told = self.events.get(timeout=timeout)
            while True:
                # Of what was stopped, nothing is heard, even if it had ended just before.
                if told is not None and self.awaited.get(told[0][:2]) == told[0]:
                    found.append(told[1])
                    del self.awaited[told[0][:2]]
                    self.futures.pop(told[0], None)
                told = self.events.get_nowait()
        except queue.Empty:
            return found

    def wake(self) -> None:
        self.events.put(None)

    def close(self) -> None:
        for job, item in list(self.awaited):
            self.stop(job, item)
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
        end_marked(self.mark)
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self.guardian.dismiss()


class _Context:
    """loky's way to start processes, with an environment of our own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._loky, self._environment = get_context("loky"), environment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loky, name)

    def Process(self, *args: Any, **options: Any) -> LokyProcess:  # noqa: N802 (its name)
        return LokyProcess(*args, env=self._environment, **options)
