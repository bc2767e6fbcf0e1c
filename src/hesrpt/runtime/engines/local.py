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
import tempfile
import threading
import time
from concurrent.futures import CancelledError, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO, Any

from loky.backend import get_context
from loky.backend.process import LokyProcess
from pebble import ProcessExpired, ProcessFuture, ProcessPool

from hesrpt.runtime.engines import worker
from hesrpt.runtime.engines.base import CommandTask, Outcome, PythonTask, Task
from hesrpt.runtime.engines.processes import (
    Guardian,
    end_marked,
    end_tree,
    marked_environment,
    new_mark,
    set_cores,
)

Key = tuple[str, int]


def cores_here() -> int:
    """Return how many cores this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


class LocalEngine:
    """Runs items on this machine."""

    def __init__(self, servers: int) -> None:
        self.servers = servers
        self.mark = new_mark()
        self.guardian = Guardian(self.mark)
        self.events: queue.SimpleQueue[Outcome | None] = queue.SimpleQueue()
        self.futures: dict[Key, ProcessFuture[Any]] = {}
        self.commands: dict[Key, subprocess.Popen[bytes]] = {}
        self.cores_of: dict[Key, list[int]] = {}
        self.stopped: set[tuple[Key, int]] = set()
        self.starts: dict[Key, int] = {}
        self.lock = threading.Lock()
        self._pool: ProcessPool | None = None
        self._threads: ThreadPoolExecutor | None = None

    @property
    def pool(self) -> ProcessPool:
        """The workers; there are none before the first item needs one."""
        if self._pool is None:
            self._pool = ProcessPool(
                max_workers=self.servers, context=_Context(marked_environment(self.mark))
            )
        return self._pool

    @property
    def threads(self) -> ThreadPoolExecutor:
        if self._threads is None:
            self._threads = ThreadPoolExecutor(self.servers, thread_name_prefix="hesrpt-command")
        return self._threads

    def now(self) -> float:
        return time.time()

    def capacity(self) -> int:
        return self.servers

    def start(self, job: str, item: int, task: Task, servers: int) -> None:
        key = (job, item)
        turn = self.starts[key] = self.starts.get(key, 0) + 1
        if isinstance(task, PythonTask):
            future = self.pool.schedule(
                worker.call, (task.function, task.argument, task.log), timeout=task.timeout
            )
            self.futures[key] = future
            future.add_done_callback(partial(self._python_done, key, turn, time.monotonic()))
        else:
            self.cores_of[key] = self._free_cores(servers)
            self.threads.submit(self._run_command, key, turn, task)

    def _python_done(self, key: Key, turn: int, began: float, future: ProcessFuture[Any]) -> None:
        seconds, result, error = time.monotonic() - began, b"", None
        try:
            seconds, result, error = future.result()
        except CancelledError:
            return
        except ProcessExpired as expired:
            error = f"the process ended abnormally (exit code {expired.exitcode})"
        except TimeoutError:
            error = f"took longer than its time limit ({seconds:.1f} s)"
        except Exception as problem:  # what cannot be pickled, for one
            error = f"{type(problem).__name__}: {problem}"
        self._tell(key, turn, Outcome(*key, seconds, result, error))

    def _tell(self, key: Key, turn: int, outcome: Outcome) -> None:
        with self.lock:
            if (key, turn) in self.stopped:
                self.stopped.discard((key, turn))
                return
        self.events.put(outcome)

    # --- commands -----------------------------------------------------------------------------

    def _run_command(self, key: Key, turn: int, task: CommandTask) -> None:
        began = time.monotonic()
        with _output(task.log) as output:
            error = self._watch_command(key, turn, task, output)
            if error is not None and (said := _last_lines(output)):
                error += f"\n{said}"
        with self.lock:
            self.commands.pop(key, None)
            self.cores_of.pop(key, None)
        if task.log is not None:
            worker.forget_if_empty(task.log)
        self._tell(key, turn, Outcome(*key, time.monotonic() - began, error=error))

    def _watch_command(
        self, key: Key, turn: int, task: CommandTask, output: IO[bytes]
    ) -> str | None:
        """Return what went wrong with a command, when it has ended."""
        try:
            process = subprocess.Popen(
                task.command, shell=isinstance(task.command, str), cwd=task.directory,
                stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                env=marked_environment(self.mark), start_new_session=True,
            )  # fmt: skip
        except OSError as problem:
            return f"cannot be started: {problem.strerror or problem}"
        with self.lock:
            self.commands[key] = process
            stopped = (key, turn) in self.stopped
            cores = self.cores_of.get(key)
        if stopped:
            end_tree(process.pid)
        elif cores:
            set_cores(process.pid, cores)
        try:
            code = process.wait(task.timeout)
        except subprocess.TimeoutExpired:
            end_tree(process.pid)
            process.wait()
            return f"took longer than its time limit ({task.timeout:g} s)"
        if code == 0:
            return None
        return f"exit code {code}" if code > 0 else f"ended by signal {-code}"

    def _free_cores(self, servers: int) -> list[int]:
        """Return cores for a command that no other one has, if there are so many."""
        if not hasattr(os, "sched_getaffinity"):
            return []
        taken = {core for cores in self.cores_of.values() for core in cores}
        free = [core for core in sorted(os.sched_getaffinity(0)) if core not in taken]
        return free[:servers] if len(free) >= servers else []

    def resize(self, job: str, item: int, servers: int) -> None:
        key = (job, item)
        self.cores_of.pop(key, None)
        cores = self._free_cores(servers)
        self.cores_of[key] = cores
        process = self.commands.get(key)
        if process is not None:
            set_cores(process.pid, cores or sorted(os.sched_getaffinity(0)))

    # --- ends ---------------------------------------------------------------------------------

    def stop(self, job: str, item: int) -> None:
        key = (job, item)
        with self.lock:
            self.stopped.add((key, self.starts.get(key, 0)))
            process = self.commands.get(key)
        if process is not None:
            end_tree(process.pid)
        elif (future := self.futures.pop(key, None)) is not None and future.cancel():  # type: ignore[no-untyped-call]
            with self.lock:
                self.stopped.discard((key, self.starts.get(key, 0)))

    def outcomes(self, timeout: float) -> list[Outcome]:
        found = []
        try:
            first = self.events.get(timeout=timeout)
            if first is not None:
                found.append(first)
            while True:
                another = self.events.get_nowait()
                if another is not None:
                    found.append(another)
        except queue.Empty:
            pass
        for outcome in found:
            self.futures.pop((outcome.job, outcome.item), None)
        return found

    def wake(self) -> None:
        self.events.put(None)

    def close(self) -> None:
        for job, item in [*self.futures, *self.commands]:
            self.stop(job, item)
        if self._pool is not None:
            self._pool.stop()  # type: ignore[no-untyped-call]
            self._pool.join()
        end_marked(self.mark)
        if self._threads is not None:
            self._threads.shutdown(cancel_futures=True)
        self.guardian.dismiss()


def _output(log: Path | None) -> IO[bytes]:
    """Return where a command's output goes: its log, or a file that nobody else sees."""
    return tempfile.TemporaryFile() if log is None else open(log, "a+b")


def _last_lines(output: IO[bytes], lines: int = 10) -> str:
    """Return the last lines of a file."""
    size = output.seek(0, os.SEEK_END)
    output.seek(max(size - 4096, 0))
    return "\n".join(output.read().decode("utf-8", "replace").splitlines()[-lines:])


class _Context:
    """loky's way to start processes, with an environment of our own."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._loky, self._environment = get_context("loky"), environment

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loky, name)

    def Process(self, *args: Any, **options: Any) -> LokyProcess:  # noqa: N802 (its name)
        return LokyProcess(*args, env=self._environment, **options)
