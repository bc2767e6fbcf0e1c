"""The engine that runs items in processes of this machine.

One loop, in the thread of the driver, waits for everything: for replies of workers, each of which
has a connection of its own, and for reports of the supervisor, which starts all processes and says
when they and their descendants are gone. Scripts need no ``if __name__ == "__main__"``, because a
worker is a new program that imports nothing of the script.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import signal
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from hesrpt.runtime.engines.attempts import Attempt
from hesrpt.runtime.engines.channel import Channel
from hesrpt.runtime.engines.command_process import CommandProcess, CommandStartError
from hesrpt.runtime.engines.cores import choose_cores
from hesrpt.runtime.engines.engine import (
    CommandTask,
    Outcome,
    PackedFunction,
    Task,
    pickle_value,
    read_steady_clock,
)
from hesrpt.runtime.engines.processes import (
    create_mark,
    derive_mark,
    kill_leftovers,
    pin_to_cores,
)
from hesrpt.runtime.engines.supervision import Supervision
from hesrpt.runtime.engines.supervisor import GoneReport
from hesrpt.runtime.engines.waker import Waker
from hesrpt.runtime.engines.worker_process import Reply, WorkerProcess
from hesrpt.runtime.storage.logs import LOG_CHECK_SECONDS

# How often to look whether guardian and supervisor are gone, after one of them has died.
_POLL_SECONDS = 0.01
# So many workers in a row may end before they are ready. Then their items fail.
_MAX_START_FAILURES = 3


class _Batch(NamedTuple):
    """Attempts that wait for a server. They run one after another."""

    attempts: list[Attempt]
    servers: int


class LocalEngine:
    """Runs items on this machine."""

    batch_seconds = 0.02
    can_resize = True
    can_keep_results = False

    def __init__(self, servers: int) -> None:
        self.servers = servers
        self.mark = create_mark()
        #: Workers and commands by number, until they and their descendants are gone.
        self.processes: dict[int, WorkerProcess | CommandProcess] = {}
        self.supervision: Supervision | None = None  # started with the first item
        self._process_count = 0
        self._attempts: dict[tuple[str, int], Attempt] = {}  # of items started and not reported
        self._waiting: deque[_Batch] = deque()
        self._outcomes: list[Outcome] = []  # to be returned by wait_for_outcomes
        self._start_failures = self._supervision_failures = 0
        self._directory: str | None = None  # in which workers run
        with contextlib.suppress(FileNotFoundError):  # somebody has removed it
            self._directory = os.getcwd()
        self._selector = selectors.DefaultSelector()
        self._waker = Waker()
        self._selector.register(self._waker, selectors.EVENT_READ, self._waker.clear)
        self._next_log_check = 0.0
        self._released_functions: deque[int] = deque()  # that workers may forget

    def now(self) -> float:
        return read_steady_clock()

    def capacity(self) -> int:
        return self.servers

    def widest_command(self) -> int:
        return self.servers

    def request_servers(self, servers: int) -> None:
        """Do nothing: a machine cannot grow."""

    def pack_function(self, function: Any) -> Any:
        packed = PackedFunction(pickle_value(function))
        weakref.finalize(packed, self._released_functions.append, packed.number).atexit = False
        return packed

    def pack_argument(self, argument: Any) -> Any:
        return pickle_value(argument)

    def fetch(self, reference: Any) -> Any:
        return reference  # results are on this machine already

    # --- which processes there are --------------------------------------------------------------

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that have started."""
        return [worker.pid for worker in self._workers if worker.pid is not None]

    @property
    def command_pids(self) -> list[int]:
        """The process ids of the commands that have started."""
        commands = (each for each in self.processes.values() if isinstance(each, CommandProcess))
        return [command.pid for command in commands if command.pid is not None]

    @property
    def guardian_pids(self) -> list[int]:
        """The process ids of guardian and supervisor, as far as they are known."""
        if self.supervision is None:
            return []
        pids = (self.supervision.guardian_pid, self.supervision.supervisor_pid)
        return [pid for pid in pids if pid is not None]

    @property
    def _workers(self) -> list[WorkerProcess]:
        return [each for each in self.processes.values() if isinstance(each, WorkerProcess)]

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
        if not self._waiting:
            return
        supervision = self._get_supervision()
        if supervision is None:
            return
        busy = [each for each in self.processes.values() if each.attempts or each.is_ending]
        free = self.servers - sum(process.servers for process in busy)
        held_back: list[_Batch] = []
        while self._waiting and (free >= self._waiting[0].servers or not busy):
            batch = self._waiting.popleft()
            if self._is_held_back(batch):
                held_back.append(batch)
                continue
            free -= batch.servers
            try:
                if isinstance(batch.attempts[0].task, CommandTask):
                    self._start_command(batch.attempts[0], batch.servers, supervision)
                else:
                    busy.append(self._give_to_worker(batch.attempts, supervision))
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE) or not self.processes:
                    raise
                # There are too many open files: wait until a process has ended.
                self._waiting.appendleft(batch)
                if (idle := self._find_idle_worker()) is not None:
                    self._kill(idle)
                break
        self._waiting.extendleft(reversed(held_back))
        self._prefetch()

    def _prefetch(self) -> None:
        """Give what waits to busy workers, so that they need not wait for the scheduler."""
        if not self._waiting:
            return
        workers = [worker for worker in self._workers if worker.can_prefetch]
        for worker in sorted(workers, key=lambda worker: worker.busy_since):
            if not self._waiting:
                return
            batch = self._waiting[0]
            if isinstance(batch.attempts[0].task, CommandTask) or self._is_held_back(batch):
                return
            self._waiting.popleft()
            worker.give(batch.attempts)
            self._watch_worker(worker)

    def _is_held_back(self, batch: _Batch) -> bool:
        """Return whether a stopped attempt of an item has not ended yet."""
        ending = (each for each in self.processes.values() if each.is_ending)
        keys = {attempt.key for process in ending for attempt in process.attempts}
        return any(attempt.key in keys for attempt in batch.attempts)

    def _get_supervision(self) -> Supervision | None:
        """Return what starts processes; None while it is being replaced."""
        if self.supervision is None:
            self.supervision = Supervision(self.mark)
            self._watch(self.supervision.channel, self._read_reports)
            if (end := self.supervision.guardian_end) is not None:
                self._selector.register(end, selectors.EVENT_READ, self._read_reports)
        return None if self.supervision.is_broken else self.supervision

    def _give_to_worker(self, attempts: list[Attempt], supervision: Supervision) -> WorkerProcess:
        worker = self._find_idle_worker()
        if worker is None:
            worker = WorkerProcess(self._next_number(), supervision, self._directory)
            self.processes[worker.number] = worker
        worker.give(attempts)
        self._watch_worker(worker)
        return worker

    def _find_idle_worker(self) -> WorkerProcess | None:
        return next((worker for worker in self._workers if worker.is_idle), None)

    def _watch_worker(self, worker: WorkerProcess) -> None:
        self._watch(worker.channel, partial(self._read_replies, worker))

    def _start_command(self, attempt: Attempt, servers: int, supervision: Supervision) -> None:
        task = attempt.task
        assert isinstance(task, CommandTask)
        cores = self._choose_cores(servers) if task.pin_cores else []
        number = self._next_number()
        try:
            command = CommandProcess(number, attempt, supervision, servers=servers, cores=cores)
        except CommandStartError as error:
            self._report(attempt, error=str(error))
        else:
            self.processes[number] = command

    def _next_number(self) -> int:
        self._process_count += 1
        return self._process_count

    # --- resizing -----------------------------------------------------------------------------

    def _choose_cores(self, servers: int, command: CommandProcess | None = None) -> list[int]:
        """Choose cores for a command that no other command has."""
        others = [
            each
            for each in self.processes.values()
            if isinstance(each, CommandProcess) and each is not command
        ]
        return choose_cores(servers, {core for other in others for core in other.cores})

    def resize(self, job: str, item: int, servers: int) -> None:
        attempt = self._attempts.get((job, item))
        for place, batch in enumerate(self._waiting):
            if attempt in batch.attempts:
                self._waiting[place] = batch._replace(servers=servers)
        for command in self.processes.values():
            if isinstance(command, CommandProcess) and attempt in command.attempts:
                command.servers = servers
                command.cores = self._choose_cores(servers, command)
                if command.pid is not None and command.cores:
                    pin_to_cores(command.pid, command.cores)

    # --- stopping -----------------------------------------------------------------------------

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
        for process in self.processes.values():
            if attempt not in process.attempts:
                continue
            if isinstance(process, WorkerProcess):
                self._withdraw(process)
            if attempt in process.attempts:
                self._kill(process)
            return

    def _withdraw(self, worker: WorkerProcess) -> None:
        """Take back what a worker has not started; all but stopped attempts wait again."""
        attempts = [each for each in worker.withdraw() if not each.is_stopped]
        if attempts:
            self._waiting.appendleft(_Batch(attempts, 1))

    def _kill(self, process: WorkerProcess | CommandProcess) -> None:
        process.is_ending = True
        if self.supervision is not None and not self.supervision.is_broken:
            self.supervision.kill(process.number)

    def _kill_overdue(self) -> None:
        now = time.monotonic()
        for worker in self._workers:
            if worker.patience_end <= now:
                self._withdraw(worker)
        for process in self.processes.values():
            if process.deadline <= now:
                process.expire()
                self._kill(process)

    # --- waiting ------------------------------------------------------------------------------

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        end = time.monotonic() + timeout
        while True:
            self._launch()
            self._waker.is_waiting = True
            patience = 0.0 if self._outcomes or self._waker.is_woken else self._find_next_time(end)
            for key, _ in self._selector.select(patience):
                key.data()
            self._waker.is_waiting = False
            self._kill_overdue()
            self._limit_logs()
            self._replace_supervision()
            self._forget_functions()
            if self._outcomes or self._waker.is_woken or time.monotonic() >= end:
                self._waker.is_woken = False
                self._launch()
                outcomes, self._outcomes = self._outcomes, []
                return outcomes

    def _limit_logs(self) -> None:
        """Cut the logs of running items that have become too large."""
        now = time.monotonic()
        if now >= self._next_log_check:
            self._next_log_check = now + LOG_CHECK_SECONDS
            for process in self.processes.values():
                process.limit_output()

    def _find_next_time(self, end: float) -> float:
        """Return for how many seconds there is nothing to do unless something happens."""
        now = time.monotonic()
        deadlines = [process.deadline for process in self.processes.values()]
        deadlines += [worker.patience_end for worker in self._workers]
        if self.supervision is not None and self.supervision.is_broken:
            deadlines.append(now + _POLL_SECONDS)
        return max(min([end, *deadlines]) - now, 0.0)

    def wake(self) -> None:
        self._waker.wake()

    def _watch(self, channel: Channel, callback: Callable[[], None]) -> None:
        """Call a function when a channel has messages, and when it has room for pending ones."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_outgoing else 0)
        if channel.fileno() not in self._selector.get_map():
            self._selector.register(channel, events, callback)
        elif self._selector.get_key(channel).events != events:
            self._selector.modify(channel, events, callback)

    def _forget_functions(self) -> None:
        """Let workers release the functions of jobs that have ended."""
        while self._released_functions:
            function = self._released_functions.popleft()
            for worker in self._workers:
                worker.forget(function)

    # --- ends -----------------------------------------------------------------------------------

    def _read_replies(self, worker: WorkerProcess) -> None:
        if worker.number not in self.processes:
            return  # it has just gone
        worker.channel.flush()
        self._report_replies(worker.receive())
        if worker.is_ready:
            self._start_failures = 0
        if worker.channel.is_closed:
            self._selector.unregister(worker.channel)
            return
        self._watch_worker(worker)
        if worker.error is not None and not worker.is_ending:
            self._kill(worker)

    def _read_reports(self) -> None:
        supervision = self.supervision
        if supervision is None or supervision.is_broken:
            return
        for report in supervision.receive():
            if (process := self.processes.get(report.number)) is None:
                continue
            if isinstance(report, GoneReport):
                self._end_process(process, report)
                continue
            process.pid = report.pid
            if isinstance(process, CommandProcess) and process.cores:
                pin_to_cores(report.pid, process.cores)  # it may have been resized meanwhile
        if supervision.is_broken:
            self._selector.unregister(supervision.channel)
            if (end := supervision.guardian_end) is not None:
                self._selector.unregister(end)
        else:
            self._watch(supervision.channel, self._read_reports)

    def _replace_supervision(self) -> None:
        """If guardian or supervisor died, wait until all is gone; what was running is lost."""
        supervision = self.supervision
        if supervision is None or not supervision.is_broken or not supervision.check_end():
            return
        self.supervision = None
        if supervision.has_failed:
            self._supervision_failures += 1
            if self._supervision_failures >= _MAX_START_FAILURES:
                raise RuntimeError("the process that starts workers and commands cannot be started")
        else:
            self._supervision_failures = 0
        for process in list(self.processes.values()):
            self._end_process(process, None)

    def _end_process(
        self, process: WorkerProcess | CommandProcess, report: GoneReport | None
    ) -> None:
        """Report the attempts of a process that is gone; without a report, they are lost."""
        process.limit_output()
        if isinstance(process, WorkerProcess):
            self._end_worker(process, report)
        elif report is None:
            self._lose(process.attempts[0])
        else:
            error, seconds = process.describe_failure(report), process.measure_seconds(report)
            self._report(process.attempts[0], seconds, error=error)
        process.close()
        del self.processes[process.number]

    def _end_worker(self, worker: WorkerProcess, report: GoneReport | None) -> None:
        if not worker.channel.is_closed:
            self._selector.unregister(worker.channel)
        if worker.error is None:
            self._report_replies(worker.receive(is_gone=True))
        error = None if report is None else worker.describe_failure(report)
        if not worker.is_ready and report is not None:
            self._start_failures += worker.is_late or not _was_killed(report)
        cannot_start = self._start_failures >= _MAX_START_FAILURES
        unstarted = worker.withdraw()
        for attempt in worker.attempts:  # it was running, so there is at most one
            if error is None:
                self._lose(attempt)
            else:
                self._report(attempt, error=error)
        for attempt in unstarted:
            if error is not None and cannot_start:
                self._report(attempt, error=error)
            else:
                self._lose(attempt, was_started=False)

    def _report_replies(self, replies: list[Reply]) -> None:
        for attempt, seconds, error, result in replies:
            self._report(attempt, seconds, error=error, result=result)

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
        if self.supervision is not None:
            self.supervision.dismiss()
        for process in self.processes.values():
            process.close()
        self._close_own_files()

    def close_after_fork(self) -> None:
        if self.supervision is not None:
            self.supervision.close_after_fork()
        for process in self.processes.values():
            process.close_files()
        self._close_own_files()

    def _close_own_files(self) -> None:
        self.supervision = None
        self.processes.clear()
        self._selector.close()
        self._waker.close()


def _was_killed(report: GoneReport) -> bool:
    """Return whether somebody killed a process, rather than that it ended for its own reasons."""
    if report.status is None:
        return True
    return -os.waitstatus_to_exitcode(report.status) in (signal.SIGKILL, signal.SIGTERM)
