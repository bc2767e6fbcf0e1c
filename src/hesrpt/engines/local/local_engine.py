"""The engine that runs items in processes of this machine.

One loop, in the thread of the driver, waits for everything: for replies of workers, each of which
has a connection of its own, and for reports of the supervisor, which starts all processes and says
when they and their descendants are gone. Scripts need no ``if __name__ == "__main__"``, because a
worker is a new program that imports nothing of the script.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
import weakref
from collections import deque
from collections.abc import Mapping, Sequence
from itertools import count
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

from hesrpt.engines.engine import (
    CommandTask,
    Engine,
    FinishedItems,
    Outcome,
    PackedFunction,
    PythonTasks,
    Task,
)
from hesrpt.engines.local.channel import close_all, is_about_open_files, wait_for
from hesrpt.engines.local.processes import (
    POLL_SECONDS,
    choose_cores,
    count_cores,
    create_mark,
    derive_mark,
    kill_leftovers,
    pin_to_cores,
)
from hesrpt.engines.local.shared_objects import pack_for_many, pickle_for_one
from hesrpt.engines.local.supervisor import GoneReport
from hesrpt.engines.local.supervisor_client import Supervision
from hesrpt.engines.local.workers_and_commands import (
    GRACE_SECONDS,
    Batch,
    CommandProcess,
    CommandStartError,
    Reply,
    WorkerProcess,
)
from hesrpt.jobs.item_resources import check_resources
from hesrpt.pickling import is_short_and_plain
from hesrpt.storage.logs import LOG_CHECK_SECONDS

# This many workers in a row may end before they are ready. Then their items fail. It is also how
# often guardian and supervisor may fail to start.
_MAX_START_FAILURES = 3

Process: TypeAlias = WorkerProcess | CommandProcess


class LocalEngine(Engine):
    """Runs items on this machine.

    Parameters
    ----------
    servers
        How many items may run at a time; by default, as many as this process may use cores.
    resources
        How much of each other resource this machine has, such as ``{"gpu": 2}``.
    """

    batch_seconds = 0.02
    can_resize = True
    can_suspend = True
    can_replace_workers = True

    def __init__(
        self, servers: int | None = None, *, resources: Mapping[str, float] | None = None
    ) -> None:
        self.servers = servers or count_cores()
        self.resources = {} if resources is None else check_resources(resources)
        self.mark = create_mark()
        #: The workers and commands that have started, until they and their descendants are gone.
        self.workers: list[WorkerProcess] = []
        self.commands: list[CommandProcess] = []
        self.supervision: Supervision | None = None  # started with the first process
        self._sender, self._receiver = socket.socketpair()  # by which other threads wake this one
        for end in (self._sender, self._receiver):
            end.setblocking(False)
        self._is_woken = False  # until wait_for_outcomes returns
        self._is_waiting = False
        self._numbers = count(1)  # of processes
        self._start_failures = self._supervision_failures = 0
        self._next_log_check = 0.0
        self._attempts: dict[tuple[str, int], CommandProcess] = {}  # commands that have not ended
        self._waiting: deque[CommandProcess | Batch] = deque()
        self._outcomes: list[Outcome | FinishedItems] = []  # to be returned by wait_for_outcomes
        self._released_functions: deque[int] = deque()  # that workers may forget
        self._directory: str | None = None  # in which workers run
        with contextlib.suppress(FileNotFoundError):  # somebody has removed it
            self._directory = os.getcwd()

    def capacity(self) -> int:
        return self.servers

    def resource_totals(self) -> Mapping[str, float]:
        return self.resources

    def pack_function(self, function: Any) -> Any:
        return self.register_function(pack_for_many(function))

    def register_function(self, packed: PackedFunction) -> PackedFunction:
        """Return a packed function that workers will forget when nobody refers to it any more."""
        weakref.finalize(packed, self._released_functions.append, packed.number).atexit = False
        weakref.finalize(packed, close_all, packed.fds).atexit = False
        return packed

    def pack_argument(self, argument: Any) -> Any:
        return argument if is_short_and_plain(argument) else pickle_for_one(argument)

    # --- which processes there are --------------------------------------------------------------

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that have started."""
        return [worker.pid for worker in self.workers if worker.pid is not None]

    @property
    def command_pids(self) -> list[int]:
        """The process ids of the commands that have started."""
        return [command.pid for command in self.commands if command.pid is not None]

    @property
    def guardian_pids(self) -> list[int]:
        """The process ids of guardian and supervisor, as far as they are known."""
        if self.supervision is None:
            return []
        pids = (self.supervision.guardian_pid, self.supervision.supervisor_pid)
        return [pid for pid in pids if pid is not None]

    @property
    def _processes(self) -> list[Process]:
        return [*self.workers, *self.commands]

    # --- starting -----------------------------------------------------------------------------

    def claim(self, directory: Path) -> None:
        self.mark = derive_mark(directory)
        kill_leftovers(self.mark)

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        if isinstance(tasks, PythonTasks):
            self._waiting.append(Batch(job, tasks))
            tasks = {}
        for item, task in tasks.items():
            if isinstance(task, CommandTask):
                command = self._attempts[job, item] = CommandProcess(job, item, task, servers)
                self._waiting.append(command)
            else:
                self._waiting.append(Batch(job, PythonTasks.from_task(item, task)))
        self._launch()

    def _launch(self) -> None:
        """Start what waits, as far as there are servers for it."""
        if not self._waiting:
            return
        if self.supervision is None:
            self.supervision = Supervision(self.mark)
        if self.supervision.is_broken:
            return  # until it is replaced
        free, is_idle = self.servers, True
        for process in self._processes:
            if process.is_busy:
                free, is_idle = free - process.servers, False
        held_back: list[CommandProcess | Batch] = []
        while self._waiting and (free >= self._waiting[0].servers or is_idle):
            next_up = self._waiting.popleft()
            if self._is_held_back(next_up):
                held_back.append(next_up)
                continue
            free -= next_up.servers
            try:
                if isinstance(next_up, CommandProcess):
                    self._start_command(next_up, self.supervision)
                else:
                    self._get_worker(next_up.variables, self.supervision).give(next_up)
                is_idle = False
            except OSError as error:
                if not is_about_open_files(error) or not (self.workers or self.commands):
                    raise
                # There are too many open files: wait until a process has ended.
                self._waiting.appendleft(next_up)
                if (idle := self._find_idle_worker()) is not None:
                    self._kill(idle)
                break
        self._waiting.extendleft(reversed(held_back))
        if self._waiting:
            self._prefetch()

    def _prefetch(self) -> None:
        """Give what waits to busy workers, so that they need not wait for the scheduler."""
        workers = [worker for worker in self.workers if worker.can_prefetch]
        for worker in sorted(workers, key=lambda worker: worker.busy_since):
            batch = self._waiting[0] if self._waiting else None
            if not isinstance(batch, Batch) or self._is_held_back(batch):
                return
            if worker.variables != batch.variables:
                continue
            try:
                worker.give(batch)
            except OSError as error:
                if not is_about_open_files(error):
                    raise
                return  # wait until a worker has nothing else to do
            self._waiting.popleft()

    def _is_held_back(self, batch: CommandProcess | Batch) -> bool:
        """Return whether it is suspended, or has to wait until what was stopped is gone.

        That is an earlier attempt, or anything that still holds resources.
        """
        if batch.holds_resources and any(
            process.is_ending and process.holds_resources for process in self._processes
        ):
            return True
        if isinstance(batch, CommandProcess):
            ending = (command.key for command in self.commands if command.is_ending)
            return batch.is_suspended or batch.key in ending
        for worker in self.workers:
            for given in worker.batches:
                is_same_job = given.stopped and given.job == batch.job
                if is_same_job and not given.stopped.isdisjoint(batch.tasks.numbers):
                    return True
        return False

    def _get_worker(self, variables: Mapping[str, str], supervision: Supervision) -> WorkerProcess:
        """Return a worker that has nothing to do and has these variables in its environment.

        A process that has used a GPU cannot be told to use another one.
        """
        if (worker := self._find_idle_worker(variables)) is not None:
            return worker
        if (other := self._find_idle_worker()) is not None:
            self._kill(other)  # in its place
        worker = WorkerProcess(next(self._numbers), supervision, self._directory, variables)
        self.workers.append(worker)
        return worker

    def _find_idle_worker(self, variables: Mapping[str, str] | None = None) -> WorkerProcess | None:
        """Return a worker without work, if there is one, with these variables if given."""
        for worker in self.workers:
            if not worker.is_busy and variables in (None, worker.variables):
                return worker
        return None

    def _start_command(self, command: CommandProcess, supervision: Supervision) -> None:
        threads, cores = command.servers, []
        if command.task.pin_cores:
            # A running program cannot be told to use more threads.
            threads = min(command.task.max_servers or self.servers, self.servers)
            cores = self._choose_cores(command)
        try:
            command.start(next(self._numbers), supervision, threads=threads, cores=cores)
        except CommandStartError as error:
            self._report_command(command, error=str(error))
            return
        self.commands.append(command)

    def _choose_cores(self, command: CommandProcess) -> list[int]:
        """Choose cores for a command that no other command has."""
        others = (other for other in self.commands if other is not command)
        return choose_cores(command.servers, {core for other in others for core in other.cores})

    # --- resizing and stopping ------------------------------------------------------------------

    def suspend(self, job: str, item: int) -> None:
        if (command := self._attempts.get((job, item))) is not None:  # or it has just ended
            command.suspend()
            self._request("suspend", command)

    def resume(self, job: str, item: int, servers: int) -> None:
        if (command := self._attempts.get((job, item))) is not None:
            command.go_on(servers)
            if command.task.pin_cores:
                self._pin(command)
            self._request("resume", command)

    def resize(self, job: str, item: int, servers: int) -> None:
        if (command := self._attempts.get((job, item))) is not None:
            command.servers = servers
            self._pin(command)

    def _pin(self, command: CommandProcess) -> None:
        """Choose the cores of a command again, if it has started."""
        if command in self.commands:
            command.cores = self._choose_cores(command)
            if command.pid is not None and command.cores:
                pin_to_cores(command.pid, command.cores)

    def _request(self, kind: str, process: Process) -> None:
        """Let the supervisor kill, suspend or resume a process that has started."""
        if process.number and self.supervision is not None and not self.supervision.is_broken:
            self.supervision.request(kind, process.number)

    def _kill(self, process: Process) -> None:
        """Kill a process and its descendants; it is listed until they are gone."""
        process.is_ending = True
        self._request("kill", process)

    def stop(self, job: str, item: int) -> None:
        self.stop_items(job, (item,))

    def stop_items(self, job: str, items: Sequence[int]) -> None:
        for item in items:
            if (command := self._attempts.pop((job, item), None)) is not None:
                command.is_stopped = True
                if command in self._waiting:
                    self._waiting.remove(command)
                else:
                    self._kill(command)
        self._stop_waiting_items(job, items)
        for worker in self.workers:
            stopped = [batch for batch in worker.batches if batch.job == job and batch.stop(items)]
            if not stopped or worker.is_ending:
                continue
            self._withdraw(worker)
            last = worker.batches[-1] if worker.batches else None
            if last is None or last.tasks.numbers[-1] not in last.stopped:
                continue  # of what is left, it runs the last item
            if worker.may_have_results:
                worker.stop_by = time.monotonic() + GRACE_SECONDS
            else:
                self._kill(worker)

    def _stop_waiting_items(self, job: str, items: Sequence[int]) -> None:
        """Stop items of a batch that wait for a server."""
        for place, batch in reversed(list(enumerate(self._waiting))):
            if isinstance(batch, Batch) and batch.job == job:
                if (rest := batch.remove(items)) is None:
                    del self._waiting[place]
                else:
                    self._waiting[place] = rest

    def is_stopping(self, job: str) -> bool:
        batches = (batch for worker in self.workers for batch in worker.batches)
        return (
            any(outcome.job == job for outcome in self._outcomes)
            or any(batch.is_stopping and batch.job == job for batch in batches)
            or any(command.is_stopped and command.job == job for command in self.commands)
        )

    def _withdraw(self, worker: WorkerProcess) -> None:
        """Take back what a worker has not started; all but stopped items wait again."""
        self._waiting.extendleft(reversed(worker.withdraw()))

    # --- waiting ------------------------------------------------------------------------------

    def wait_for_outcomes(self, timeout: float) -> list[Outcome | FinishedItems]:
        end = time.monotonic() + timeout
        while True:
            self._launch()
            until = min(end, self._find_deadline())
            self._wait(0.0 if self._outcomes else max(until - time.monotonic(), 0.0))
            self._look_after_processes()
            if self.supervision is not None and self.supervision.is_broken:
                self._replace_supervision(self.supervision)
            while self._released_functions:
                function = self._released_functions.popleft()
                for worker in self.workers:
                    worker.forget(function)
            if self._outcomes or self._is_woken or time.monotonic() >= end:
                self._is_woken = False
                self._launch()
                outcomes, self._outcomes = self._outcomes, []
                return outcomes

    def _find_deadline(self) -> float:
        """Return when there will be something to do even if nothing happens."""
        deadline = inf
        if self.supervision is not None and self.supervision.is_broken:
            deadline = time.monotonic() + POLL_SECONDS
        for worker in self.workers:
            deadline = min(deadline, worker.deadline, worker.patience_end)
        for command in self.commands:
            deadline = min(deadline, command.deadline)
        return deadline

    def _look_after_processes(self) -> None:
        """Act on processes that take too long or print too much."""
        now = time.monotonic()
        for worker in self.workers:
            if worker.patience_end <= now:  # let what waits behind a long item run elsewhere
                self._withdraw(worker)
                worker.is_slow = True
        has_to_check_logs = now >= self._next_log_check
        if has_to_check_logs:
            self._next_log_check = now + LOG_CHECK_SECONDS
        for process in self._processes:
            if process.deadline <= now:
                process.expire()
                self._kill(process)
            if has_to_check_logs:
                process.limit_output()

    def wake(self) -> None:
        self._is_woken = True
        if self._is_waiting:
            with contextlib.suppress(OSError):  # enough bytes are in the socket already
                self._sender.send(b"\0")

    def _wait(self, timeout: float) -> None:
        """Wait until something arrives, or somebody wakes this thread, and read what has come."""
        sources: list[int | None] = [self._receiver.fileno()]
        channels = [worker.channel for worker in self.workers if not worker.channel.is_closed]
        supervision = self.supervision
        if supervision is not None and not supervision.is_broken:
            sources.append(supervision.guardian_end)
            channels.append(supervision.channel)
        # In this order, a thread that wakes this one need not use the socket while it is busy.
        self._is_waiting = True
        ready = wait_for(sources, 0.0 if self._is_woken else timeout, channels)
        self._is_waiting = False
        if self._receiver.fileno() in ready:
            with contextlib.suppress(BlockingIOError):
                self._receiver.recv(4096)
        for worker in self.workers:
            if worker.channel.connection.fileno() in ready:
                self._read_replies(worker)
        if supervision is not None and not ready.isdisjoint(
            (supervision.channel.connection.fileno(), supervision.guardian_end)
        ):
            self._read_reports(supervision)

    def _read_replies(self, worker: WorkerProcess) -> None:
        worker.channel.flush()
        self._report_replies(worker.receive())
        if worker.is_ready:
            self._start_failures = 0
        if worker.has_to_end and not worker.is_ending:
            self._kill(worker)

    def _read_reports(self, supervision: Supervision) -> None:
        numbers = {process.number: process for process in self._processes}
        for report in supervision.receive():
            process = numbers.get(report.number)
            if process is None:
                continue
            if isinstance(report, GoneReport):
                self._remove(process, report)
                continue
            process.pid = report.pid
            if isinstance(process, CommandProcess) and process.cores:
                pin_to_cores(report.pid, process.cores)  # it may have been resized meanwhile

    def _replace_supervision(self, supervision: Supervision) -> None:
        """After guardian or supervisor died, let the next start replace them if all are gone.

        Nobody knows how the processes ended that were running.
        """
        if not supervision.check_end():
            return
        self.supervision = None
        self._supervision_failures = self._supervision_failures + 1 if supervision.has_failed else 0
        if self._supervision_failures >= _MAX_START_FAILURES:
            raise RuntimeError("the process that starts workers and commands cannot be started")
        for process in self._processes:
            self._remove(process, None)

    # --- outcomes -------------------------------------------------------------------------------

    def _remove(self, process: Process, report: GoneReport | None) -> None:
        """Report the items of a process that is gone; without a report, they are lost."""
        process.limit_output()
        if isinstance(process, WorkerProcess):
            self._report_replies(process.receive(is_gone=True))
            if not process.is_ready and report is not None:
                was_killed = -report.exit_code in (signal.SIGKILL, signal.SIGTERM)
                self._start_failures += process.is_late or not was_killed
            self._report_gone_worker(process, report)
            self._is_woken |= process.is_stopping
            self.workers.remove(process)
        else:
            if report is None:
                self._report_command(process, is_lost=True)
            else:
                error, seconds = process.describe_failure(report), process.measure_seconds(report)
                self._report_command(process, seconds, error=error, details=process.details)
            self.commands.remove(process)
        process.close()

    def _report_gone_worker(self, worker: WorkerProcess, report: GoneReport | None) -> None:
        """Report what a worker has not answered for: the item that it has started last is blamed.

        Others that it has started are done, but their results are lost with the worker.
        """
        error = None if report is None else worker.describe_failure(report)
        started = [(batch, item) for batch in worker.batches for item in batch.unanswered]
        for place, (batch, item) in enumerate(started, start=1):
            if error is None or place < len(started):
                self._report_item(batch, item, is_lost=True)
            else:
                self._report_item(batch, item, error=error, details=worker.details)
        # Items fail that never started only if workers cannot start.
        is_hopeless = not started and self._start_failures >= _MAX_START_FAILURES
        for batch in worker.unstarted:
            for item in batch.unanswered:
                if error is not None and is_hopeless:
                    self._report_item(batch, item, error=error)
                else:
                    self._report_item(batch, item, is_lost=True, was_started=False)

    def _report_replies(self, replies: list[Reply]) -> None:
        for batch, items, seconds, results, error, details in replies:
            if error is not None:
                self._report_item(batch, items[0], seconds[0], error=error, details=details)
                continue
            # Items that were stopped and started again, but turn out to be done, need not run.
            if again := batch.stopped.intersection(items):
                self._stop_waiting_items(batch.job, list(again))
            self._outcomes.append(FinishedItems(batch.job, items, seconds, results))

    def _report_item(self, batch: Batch, item: int, seconds: float = 0.0, **details: Any) -> None:
        """Report an item that is not done, unless it was stopped."""
        if item not in batch.stopped:
            self._outcomes.append(Outcome(batch.job, item, seconds, **details))

    def _report_command(
        self, command: CommandProcess, seconds: float = 0.0, **details: Any
    ) -> None:
        """Report a command; if it was stopped, only if it is done, and was not started again."""
        outcome = Outcome(command.job, command.item, seconds, **details)
        if not command.is_stopped:
            del self._attempts[command.key]
            self._outcomes.append(outcome)
        elif outcome.is_done and command.key not in self._attempts:
            self._outcomes.append(outcome)
        else:
            self._is_woken = True  # somebody may wait until it is gone

    # --- closing ------------------------------------------------------------------------------

    def close(self) -> list[Outcome | FinishedItems]:
        self._waiting.clear()
        # Let workers that run short items answer for those that are done.
        busy = [worker for worker in self.workers if worker.may_have_results]
        for worker in busy:
            worker.withdraw()
        deadline = time.monotonic() + GRACE_SECONDS
        while any(worker.batches for worker in busy) and time.monotonic() < deadline:
            self._wait(max(deadline - time.monotonic(), 0.0))
            self._is_woken = False
        if self.supervision is not None:
            self.supervision.dismiss()
        for worker in self.workers:
            self._report_replies(worker.receive(is_gone=True))
        for process in self._processes:
            process.close()
        self._forget_processes()
        outcomes, self._outcomes = self._outcomes, []
        return [each for each in outcomes if isinstance(each, FinishedItems) or each.is_done]

    def close_after_fork(self) -> None:
        if self.supervision is not None:
            self.supervision.close_after_fork()
        for process in self._processes:
            process.close_files()
        self._forget_processes()

    def _forget_processes(self) -> None:
        self.supervision = None
        self.workers.clear()
        self.commands.clear()
        self._sender.close()
        self._receiver.close()
