"""The engine that runs items in processes of this machine.

One loop, in the thread of the driver, waits for everything: for replies of workers, each of which
has a connection of its own, and for reports of the supervisor, which starts all processes and says
when they and their descendants are gone. Scripts need no ``if __name__ == "__main__"``, because a
worker is a new program that imports nothing of the script.
"""

from __future__ import annotations

import errno
import time
import weakref
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from hesrpt.runtime.engines.attempts import Attempt
from hesrpt.runtime.engines.channel import close_all
from hesrpt.runtime.engines.command_process import CommandStartError
from hesrpt.runtime.engines.engine import (
    CommandTask,
    Outcome,
    PackedFunction,
    Task,
    read_steady_clock,
)
from hesrpt.runtime.engines.event_loop import EventLoop
from hesrpt.runtime.engines.process_table import Process, ProcessTable
from hesrpt.runtime.engines.processes import create_mark, derive_mark, kill_leftovers
from hesrpt.runtime.engines.shared_objects import pickle_for_many, pickle_for_one
from hesrpt.runtime.engines.supervisor import GoneReport
from hesrpt.runtime.engines.worker_process import Reply, WorkerProcess


class _Batch(NamedTuple):
    """Attempts that wait for a server. They run one after another."""

    attempts: list[Attempt]
    servers: int

    @property
    def is_command(self) -> bool:
        return isinstance(self.attempts[0].task, CommandTask)


class LocalEngine:
    """Runs items on this machine."""

    batch_seconds = 0.02
    can_resize = True
    can_suspend = True
    can_keep_results = False
    can_replace_workers = True

    def __init__(self, servers: int) -> None:
        self.servers = servers
        self.mark = create_mark()
        self._loop = EventLoop()
        self._table = ProcessTable(self._loop, self._report_replies, self._report_gone)
        self._attempts: dict[tuple[str, int], Attempt] = {}  # of items started and not reported
        self._waiting: deque[_Batch] = deque()
        self._outcomes: list[Outcome] = []  # to be returned by wait_for_outcomes
        self._released_functions: deque[int] = deque()  # that workers may forget

    def now(self) -> float:
        return read_steady_clock()

    def capacity(self) -> int:
        return self.servers

    def max_capacity(self) -> float:
        return self.servers

    def widest_command(self) -> int:
        return self.servers

    def request_servers(self, servers: int) -> None:
        """Do nothing: a machine cannot grow."""

    def pack_function(self, function: Any) -> Any:
        pickled, fds = pickle_for_many(function)
        packed = PackedFunction(pickled, fds=fds)
        weakref.finalize(packed, self._released_functions.append, packed.number).atexit = False
        weakref.finalize(packed, close_all, fds).atexit = False
        return packed

    def pack_argument(self, argument: Any) -> Any:
        return pickle_for_one(argument)

    def fetch(self, reference: Any) -> Any:
        return reference  # results are on this machine already

    # --- which processes there are --------------------------------------------------------------

    @property
    def workers(self) -> list[WorkerProcess]:
        """The workers, until they and their descendants are gone."""
        return self._table.workers

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that have started."""
        return [worker.pid for worker in self.workers if worker.pid is not None]

    @property
    def command_pids(self) -> list[int]:
        """The process ids of the commands that have started."""
        return [command.pid for command in self._table.commands if command.pid is not None]

    @property
    def guardian_pids(self) -> list[int]:
        """The process ids of guardian and supervisor, as far as they are known."""
        if (supervision := self._table.supervision) is None:
            return []
        pids = (supervision.guardian_pid, supervision.supervisor_pid)
        return [pid for pid in pids if pid is not None]

    # --- starting -----------------------------------------------------------------------------

    def claim(self, directory: Path) -> None:
        self.mark = derive_mark(directory)
        kill_leftovers(self.mark)

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        attempts = [Attempt(job, item, task) for item, task in tasks.items()]
        self._attempts |= {attempt.key: attempt for attempt in attempts}
        if isinstance(attempts[0].task, CommandTask):
            self._waiting.extend(_Batch([attempt], servers) for attempt in attempts)
        else:
            self._waiting.append(_Batch(attempts, servers))
        self._launch()

    def _launch(self) -> None:
        """Start what waits, as far as there are servers for it."""
        if not self._waiting or not self._table.prepare(self.mark):
            return
        processes = self._table.processes
        busy = [each for each in processes.values() if each.attempts or each.is_ending]
        free = self.servers - sum(process.servers for process in busy)
        is_idle = not busy
        held_back: list[_Batch] = []
        while self._waiting and (free >= self._waiting[0].servers or is_idle):
            batch = self._waiting.popleft()
            if self._is_held_back(batch):
                held_back.append(batch)
                continue
            free -= batch.servers
            try:
                if batch.is_command:
                    self._start_command(batch)
                else:
                    self._give_to_worker(batch)
                is_idle = False
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not processes:
                    raise
                # There are too many open files: wait until a process has ended.
                self._waiting.appendleft(batch)
                if (idle := self._table.find_idle_worker()) is not None:
                    self._table.kill(idle)
                break
        self._waiting.extendleft(reversed(held_back))
        self._prefetch()

    def _start_command(self, batch: _Batch) -> None:
        (attempt,) = batch.attempts
        assert isinstance(attempt.task, CommandTask)
        max_servers = min(attempt.task.max_servers or self.servers, self.servers)
        try:
            self._table.start_command(attempt, batch.servers, max_servers)
        except CommandStartError as error:
            self._report(attempt, error=str(error))

    def _give_to_worker(self, batch: _Batch) -> None:
        worker = self._table.find_idle_worker() or self._table.start_worker()
        self._table.give(worker, batch.attempts)

    def _prefetch(self) -> None:
        """Give what waits to busy workers, so that they need not wait for the scheduler."""
        if not self._waiting:
            return
        workers = [worker for worker in self.workers if worker.can_prefetch]
        for worker in sorted(workers, key=lambda worker: worker.busy_since):
            if not self._waiting or self._waiting[0].is_command:
                return
            if self._is_held_back(self._waiting[0]):
                return
            self._table.give(worker, self._waiting.popleft().attempts)

    def _is_held_back(self, batch: _Batch) -> bool:
        """Return whether an attempt is suspended, or a stopped one of its item not gone yet."""
        if any(attempt.is_suspended for attempt in batch.attempts):
            return True
        ending = (each for each in self._table.processes.values() if each.is_ending)
        keys = {attempt.key for process in ending for attempt in process.attempts}
        return any(attempt.key in keys for attempt in batch.attempts)

    # --- resizing and stopping ------------------------------------------------------------------

    def suspend(self, job: str, item: int) -> None:
        attempt = self._attempts.get((job, item))
        if attempt is None:
            return  # it has just ended
        attempt.is_suspended = True
        self._set_waiting_servers(attempt, 0)
        for command in self._table.commands:
            if attempt in command.attempts:
                self._table.suspend(command)

    def resume(self, job: str, item: int, servers: int) -> None:
        attempt = self._attempts.get((job, item))
        if attempt is None:
            return
        attempt.is_suspended = False
        self._set_waiting_servers(attempt, servers)
        for command in self._table.commands:
            if attempt in command.attempts:
                self._table.go_on(command, servers)

    def _set_waiting_servers(self, attempt: Attempt, servers: int) -> None:
        """Change how many servers an attempt will get, if it waits for them."""
        for place, batch in enumerate(self._waiting):
            if attempt in batch.attempts:
                self._waiting[place] = batch._replace(servers=servers)

    def resize(self, job: str, item: int, servers: int) -> None:
        if (attempt := self._attempts.get((job, item))) is None:
            return
        self._set_waiting_servers(attempt, servers)
        for command in self._table.commands:
            if attempt in command.attempts:
                self._table.resize(command, servers)

    def stop(self, job: str, item: int) -> None:
        attempt = self._attempts.pop((job, item), None)
        if attempt is None:
            return
        attempt.is_stopped = True
        for batch in self._waiting:
            if attempt in batch.attempts:
                batch.attempts.remove(attempt)
                if not batch.attempts:
                    self._waiting.remove(batch)
                return
        for process in self._table.processes.values():
            if attempt not in process.attempts:
                continue
            if isinstance(process, WorkerProcess):
                self._withdraw(process)
            if attempt in process.attempts:
                self._table.kill(process)
            return

    def _withdraw(self, worker: WorkerProcess) -> None:
        """Take back what a worker has not started; all but stopped attempts wait again."""
        attempts = [each for each in worker.withdraw() if not each.is_stopped]
        if attempts:
            self._waiting.appendleft(_Batch(attempts, 1))

    # --- waiting ------------------------------------------------------------------------------

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        end = time.monotonic() + timeout
        while True:
            self._launch()
            until = min(end, self._table.find_deadline())
            self._loop.wait(0.0 if self._outcomes else max(until - time.monotonic(), 0.0))
            self._withdraw_from_slow_workers()
            self._table.kill_overdue()
            self._table.limit_logs()
            self._table.replace_supervision()
            while self._released_functions:
                self._table.forget_function(self._released_functions.popleft())
            if self._outcomes or self._loop.is_woken or time.monotonic() >= end:
                self._loop.is_woken = False
                self._launch()
                outcomes, self._outcomes = self._outcomes, []
                return outcomes

    def _withdraw_from_slow_workers(self) -> None:
        """Let what waits behind a long item run on another worker."""
        now = time.monotonic()
        for worker in self.workers:
            if worker.patience_end <= now:
                self._withdraw(worker)

    def wake(self) -> None:
        self._loop.wake()

    # --- outcomes -------------------------------------------------------------------------------

    def _report_gone(self, process: Process, report: GoneReport | None) -> None:
        """Report the attempts of a process that is gone; without a report, they are lost."""
        if isinstance(process, WorkerProcess):
            self._report_gone_worker(process, report)
        elif report is None:
            self._lose(process.attempts[0])
        else:
            error, seconds = process.describe_failure(report), process.measure_seconds(report)
            self._report(process.attempts[0], seconds, error=error, details=process.details)

    def _report_gone_worker(self, worker: WorkerProcess, report: GoneReport | None) -> None:
        error = None if report is None else worker.describe_failure(report)
        unstarted = worker.withdraw()
        for attempt in worker.attempts:  # it was running, so there is at most one
            if error is None:
                self._lose(attempt)
            else:
                self._report(attempt, error=error, details=worker.details)
        for attempt in unstarted:
            if error is None or self._table.can_start_workers:
                self._lose(attempt, was_started=False)
            else:
                self._report(attempt, error=error)

    def _report_replies(self, replies: list[Reply]) -> None:
        for attempt, seconds, error, details, result in replies:
            self._report(attempt, seconds, error=error, details=details, result=result)

    def _lose(self, attempt: Attempt, was_started: bool = True) -> None:
        self._report(attempt, is_lost=True, was_started=was_started)

    def _report(self, attempt: Attempt, seconds: float = 0.0, **details: Any) -> None:
        """Report an attempt, unless it was stopped, even if it ended just before that."""
        if not attempt.is_stopped:
            del self._attempts[attempt.key]
            self._outcomes.append(Outcome(attempt.job, attempt.item, seconds, **details))

    # --- closing ------------------------------------------------------------------------------

    def close(self) -> None:
        self._waiting.clear()
        self._table.close()
        self._loop.close()

    def close_after_fork(self) -> None:
        self._table.close_after_fork()
        self._loop.close()
