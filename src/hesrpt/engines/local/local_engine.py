"""The engine that runs items in processes of this machine.

One loop, in the thread of the driver, waits for everything: for replies of workers, each of which
has a connection of its own, and for reports of the supervisor, which starts all processes and says
when they and their descendants are gone. Scripts need no ``if __name__ == "__main__"``, because a
worker is a new program that imports nothing of the script.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import socket
import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from hesrpt.engines.engine import (
    CommandTask,
    Engine,
    FinishedItems,
    Outcome,
    PackedFunction,
    PythonTasks,
    Task,
)
from hesrpt.engines.local.channel import Channel, close_all, is_about_open_files
from hesrpt.engines.local.item_processes import (
    GRACE_SECONDS,
    Attempt,
    Batch,
    CommandProcess,
    CommandStartError,
    Reply,
    WorkerProcess,
)
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
from hesrpt.engines.local.supervision import Supervision
from hesrpt.engines.local.supervisor import GoneReport
from hesrpt.jobs.item_resources import check_resources
from hesrpt.pickling import is_short_and_plain
from hesrpt.storage.logs import LOG_CHECK_SECONDS


class _WaitingCommand(NamedTuple):
    """A command that waits for servers."""

    attempt: Attempt
    servers: int

    @property
    def holds_resources(self) -> bool:
        return self.attempt.task.holds_resources


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
        self._loop = EventLoop()
        self._table = ProcessTable(self._loop, self._report_replies, self._report_gone)
        self._attempts: dict[tuple[str, int], Attempt] = {}  # of commands that have not ended
        self._waiting: deque[_WaitingCommand | Batch] = deque()
        self._outcomes: list[Outcome | FinishedItems] = []  # to be returned by wait_for_outcomes
        self._released_functions: deque[int] = deque()  # that workers may forget

    def capacity(self) -> int:
        return self.servers

    def resource_totals(self) -> Mapping[str, float]:
        return self.resources

    def pack_function(self, function: Any) -> Any:
        return self.register_function(pack_for_many(function))

    def register_function(self, packed: PackedFunction) -> PackedFunction:
        """Return a packed function that workers will forget when nobody refers to it any more."""
        weakref.finalize(packed, self._released_functions.append, packed.number).atexit = False
        weakref.finalize(packed, close_all, packed.all_fds).atexit = False
        return packed

    def pack_argument(self, argument: Any) -> Any:
        return argument if is_short_and_plain(argument) else pickle_for_one(argument)

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
        if isinstance(tasks, PythonTasks):
            self._waiting.append(Batch(job, tasks))
            tasks = {}
        for item, task in tasks.items():
            if isinstance(task, CommandTask):
                self._attempts[job, item] = attempt = Attempt(job, item, task)
                self._waiting.append(_WaitingCommand(attempt, servers))
            else:
                self._waiting.append(Batch(job, PythonTasks.from_task(item, task)))
        self._launch()

    def _launch(self) -> None:
        """Start what waits, as far as there are servers for it."""
        if not self._waiting or not self._table.prepare(self.mark):
            return
        processes = self._table.processes
        busy = [each for each in processes.values() if each.is_busy]
        free = self.servers - sum(process.servers for process in busy)
        is_idle = not busy
        held_back: list[_WaitingCommand | Batch] = []
        while self._waiting and (free >= self._waiting[0].servers or is_idle):
            batch = self._waiting.popleft()
            if self._is_held_back(batch):
                held_back.append(batch)
                continue
            free -= batch.servers
            try:
                if isinstance(batch, _WaitingCommand):
                    self._start_command(batch)
                else:
                    self._table.give(self._table.get_worker(batch.variables), batch)
                is_idle = False
            except OSError as error:
                if not is_about_open_files(error) or not processes:
                    raise
                # There are too many open files: wait until a process has ended.
                self._waiting.appendleft(batch)
                if (idle := self._table.find_idle_worker()) is not None:
                    self._table.kill(idle)
                break
        self._waiting.extendleft(reversed(held_back))
        self._prefetch()

    def _start_command(self, waiting: _WaitingCommand) -> None:
        attempt = waiting.attempt
        assert isinstance(attempt.task, CommandTask)
        max_servers = min(attempt.task.max_servers or self.servers, self.servers)
        try:
            self._table.start_command(attempt, waiting.servers, max_servers)
        except CommandStartError as error:
            self._report(attempt, error=str(error))

    def _prefetch(self) -> None:
        """Give what waits to busy workers, so that they need not wait for the scheduler."""
        if not self._waiting:
            return
        workers = [worker for worker in self.workers if worker.can_prefetch]
        for worker in sorted(workers, key=lambda worker: worker.busy_since):
            batch = self._waiting[0] if self._waiting else None
            if not isinstance(batch, Batch) or self._is_held_back(batch):
                return
            if worker.variables != batch.variables:
                continue
            try:
                self._table.give(worker, batch)
            except OSError as error:
                if not is_about_open_files(error):
                    raise
                return  # wait until a worker has nothing else to do
            self._waiting.popleft()

    def _is_held_back(self, batch: _WaitingCommand | Batch) -> bool:
        """Return whether it is suspended, or has to wait until what was stopped is gone.

        That is an earlier attempt, or anything that still holds resources.
        """
        if batch.holds_resources and any(
            process.is_ending and process.holds_resources
            for process in self._table.processes.values()
        ):
            return True
        if isinstance(batch, _WaitingCommand):
            attempt = batch.attempt
            ending = (command for command in self._table.commands if command.is_ending)
            return attempt.is_suspended or any(each.attempt.key == attempt.key for each in ending)
        given = (each for worker in self.workers for each in worker.batches)
        return any(
            each.job == batch.job and not each.stopped.isdisjoint(batch.tasks.numbers)
            for each in given
            if each.stopped
        )

    # --- resizing and stopping ------------------------------------------------------------------

    def suspend(self, job: str, item: int) -> None:
        attempt = self._attempts.get((job, item))
        if attempt is None:
            return  # it has just ended
        attempt.is_suspended = True
        self._set_waiting_servers(attempt, 0)
        for command in self._table.commands:
            if attempt is command.attempt:
                self._table.suspend(command)

    def resume(self, job: str, item: int, servers: int) -> None:
        attempt = self._attempts.get((job, item))
        if attempt is None:
            return
        attempt.is_suspended = False
        self._set_waiting_servers(attempt, servers)
        for command in self._table.commands:
            if attempt is command.attempt:
                self._table.go_on(command, servers)

    def _set_waiting_servers(self, attempt: Attempt, servers: int) -> None:
        """Change how many servers an attempt will get, if it waits for them."""
        for place, batch in enumerate(self._waiting):
            if isinstance(batch, _WaitingCommand) and batch.attempt is attempt:
                self._waiting[place] = batch._replace(servers=servers)

    def resize(self, job: str, item: int, servers: int) -> None:
        if (attempt := self._attempts.get((job, item))) is None:
            return
        self._set_waiting_servers(attempt, servers)
        for command in self._table.commands:
            if attempt is command.attempt:
                self._table.resize(command, servers)

    def stop(self, job: str, item: int) -> None:
        if (attempt := self._attempts.pop((job, item), None)) is not None:
            self._stop_command(attempt)
        else:
            self._stop_calls(job, (item,))

    def stop_items(self, job: str, items: Sequence[int]) -> None:
        if len(items) == 1:
            self.stop(job, items[0])
        else:
            self._stop_calls(job, items)

    def _stop_calls(self, job: str, items: Sequence[int]) -> None:
        """Stop items of a batch, wherever they are."""
        self._stop_waiting_items(job, items)
        self._stop_given_items(job, items)

    def _stop_command(self, attempt: Attempt) -> None:
        attempt.is_stopped = True
        for batch in self._waiting:
            if isinstance(batch, _WaitingCommand) and batch.attempt is attempt:
                self._waiting.remove(batch)
                return
        for command in self._table.commands:
            if command.attempt is attempt:
                self._table.kill(command)

    def _stop_waiting_items(self, job: str, items: Sequence[int]) -> bool:
        """Stop items that wait for a server; return whether there were any."""
        was_found = False
        for place, batch in reversed(list(enumerate(self._waiting))):
            if isinstance(batch, Batch) and batch.job == job:
                rest = batch.remove(items)
                was_found = was_found or rest is not batch
                if rest is None:
                    del self._waiting[place]
                else:
                    self._waiting[place] = rest
        return was_found

    def _stop_given_items(self, job: str, items: Sequence[int]) -> None:
        """Stop items that were given to workers; those that run one of them are killed."""
        for worker in self.workers:
            stopped = [batch for batch in worker.batches if batch.job == job and batch.stop(items)]
            if not stopped or worker.is_ending:
                continue
            self._withdraw(worker)
            if not worker.runs_stopped_item:
                continue
            if worker.may_have_results:
                worker.stop_soon()
            else:
                self._table.kill(worker)

    def is_stopping(self, job: str) -> bool:
        return (
            any(outcome.job == job for outcome in self._outcomes)
            or any(job in worker.stopped_jobs for worker in self.workers)
            or any(job == each.stopped_job for each in self._table.commands)
        )

    def _withdraw(self, worker: WorkerProcess) -> None:
        """Take back what a worker has not started; all but stopped items wait again."""
        self._waiting.extendleft(reversed(worker.withdraw()))

    # --- waiting ------------------------------------------------------------------------------

    def wait_for_outcomes(self, timeout: float) -> list[Outcome | FinishedItems]:
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
                worker.lose_patience()

    def wake(self) -> None:
        self._loop.wake()

    # --- outcomes -------------------------------------------------------------------------------

    def _report_gone(self, process: Process, report: GoneReport | None) -> None:
        """Report the attempts of a process that is gone; without a report, they are lost."""
        if isinstance(process, WorkerProcess):
            self._report_gone_worker(process, report)
            self._loop.is_woken |= bool(process.stopped_jobs)
        elif report is None:
            self._report(process.attempt, is_lost=True)
        else:
            error, seconds = process.describe_failure(report), process.measure_seconds(report)
            self._report(process.attempt, seconds, error=error, details=process.details)

    def _report_gone_worker(self, worker: WorkerProcess, report: GoneReport | None) -> None:
        """Report what a worker has not answered for: the item that it has started last is blamed.

        Others that it has started are done, but their results are lost with the worker.
        """
        error = None if report is None else worker.describe_failure(report)
        started = [(batch, item) for batch in worker.batches for item in batch.unanswered]
        for batch, item in started[:-1]:
            self._report_item(batch, item, is_lost=True)
        for batch, item in started[-1:]:
            if error is None:
                self._report_item(batch, item, is_lost=True)
            else:
                self._report_item(batch, item, error=error, details=worker.details)
        for batch in worker.unstarted:
            for item in batch.unanswered:
                if error is None or started or self._table.can_start_workers:
                    self._report_item(batch, item, is_lost=True, was_started=False)
                else:
                    self._report_item(batch, item, error=error)

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

    def _report(self, attempt: Attempt, seconds: float = 0.0, **details: Any) -> None:
        """Report a command; if it was stopped, only if it is done, and was not started again."""
        outcome = Outcome(attempt.job, attempt.item, seconds, **details)
        if not attempt.is_stopped:
            del self._attempts[attempt.key]
            self._outcomes.append(outcome)
        elif outcome.is_done and attempt.key not in self._attempts:
            self._outcomes.append(outcome)
        else:
            self._loop.is_woken = True  # somebody may wait until it is gone

    # --- closing ------------------------------------------------------------------------------

    def close(self) -> list[Outcome | FinishedItems]:
        self._waiting.clear()
        self._receive_last_results()
        self._table.close()
        self._loop.close()
        outcomes, self._outcomes = self._outcomes, []
        return [each for each in outcomes if isinstance(each, FinishedItems) or each.is_done]

    def _receive_last_results(self) -> None:
        """Let workers that run short items answer for those that are done."""
        busy = [worker for worker in self.workers if worker.may_have_results]
        for worker in busy:
            worker.withdraw()
        deadline = time.monotonic() + GRACE_SECONDS
        while any(worker.batches for worker in busy) and time.monotonic() < deadline:
            self._loop.wait(max(deadline - time.monotonic(), 0.0))
            self._loop.is_woken = False

    def close_after_fork(self) -> None:
        self._table.close_after_fork()
        self._loop.close()


# This many workers in a row may end before they are ready. Then their items fail. It is also how
# often guardian and supervisor may fail to start.
_MAX_START_FAILURES = 3

Process: TypeAlias = WorkerProcess | CommandProcess


class ProcessTable:
    """Workers and commands, until they and their descendants are gone.

    ``on_replies`` gets the replies of workers as they arrive. ``on_gone`` gets every process that
    is gone, with the supervisor's report; without one if guardian or supervisor has died.
    """

    def __init__(
        self,
        loop: EventLoop,
        on_replies: Callable[[list[Reply]], None],
        on_gone: Callable[[Process, GoneReport | None], None],
    ) -> None:
        self.processes: dict[int, Process] = {}  # by number
        self.supervision: Supervision | None = None  # started with the first process
        self._loop, self._on_replies, self._on_gone = loop, on_replies, on_gone
        self._process_count = 0
        self._start_failures = self._supervision_failures = 0
        self._next_log_check = 0.0
        self._directory: str | None = None  # in which workers run
        with contextlib.suppress(FileNotFoundError):  # somebody has removed it
            self._directory = os.getcwd()

    @property
    def workers(self) -> list[WorkerProcess]:
        return [each for each in self.processes.values() if isinstance(each, WorkerProcess)]

    @property
    def commands(self) -> list[CommandProcess]:
        return [each for each in self.processes.values() if isinstance(each, CommandProcess)]

    @property
    def can_start_workers(self) -> bool:
        """Whether the last workers have started, or there is hope that the next one will."""
        return self._start_failures < _MAX_START_FAILURES

    # --- starting and killing -------------------------------------------------------------------

    def prepare(self, mark: str) -> bool:
        """Return whether processes can start now: not while the supervisor is being replaced."""
        if self.supervision is None:
            self.supervision = Supervision(mark)
            self._watch_supervision()
            if (end := self.supervision.guardian_end) is not None:
                self._loop.watch_file(end, self._read_reports)
        return not self.supervision.is_broken

    def find_idle_worker(self, variables: Mapping[str, str] | None = None) -> WorkerProcess | None:
        """Return a worker that has nothing to do, if there is one; with these variables if given.

        A process that has used a GPU cannot be told to use another one.
        """
        idle = (worker for worker in self.workers if not worker.is_busy)
        return next((each for each in idle if variables in (None, each.variables)), None)

    def get_worker(self, variables: Mapping[str, str]) -> WorkerProcess:
        """Return a worker that has nothing to do and has these variables in its environment."""
        if (worker := self.find_idle_worker(variables)) is not None:
            return worker
        if (other := self.find_idle_worker()) is not None:
            self.kill(other)  # in its place
        return self._start_worker(variables)

    def _start_worker(self, variables: Mapping[str, str]) -> WorkerProcess:
        assert self.supervision is not None
        worker = WorkerProcess(self._next_number(), self.supervision, self._directory, variables)
        self.processes[worker.number] = worker
        self._watch_supervision()
        return worker

    def give(self, worker: WorkerProcess, batch: Batch) -> None:
        """Give a batch to a worker."""
        worker.give(batch)
        self._watch_worker(worker)

    def start_command(self, attempt: Attempt, servers: int, max_servers: int) -> None:
        """Start a command, which may later have up to ``max_servers`` servers.

        Raises CommandStartError if that is impossible.
        """
        assert self.supervision is not None
        assert isinstance(attempt.task, CommandTask)
        is_pinned = attempt.task.pin_cores
        cores = self._choose_cores(servers) if is_pinned else []
        number = self._next_number()
        self.processes[number] = CommandProcess(
            number,
            attempt,
            self.supervision,
            servers=servers,
            # A running program cannot be told to use more threads.
            threads=max_servers if is_pinned else servers,
            cores=cores,
        )
        self._watch_supervision()

    def _watch_supervision(self) -> None:
        """Wait for reports of the supervisor, and for room if there was none for a request."""
        if self.supervision is not None and not self.supervision.is_broken:
            self._loop.watch(self.supervision.channel, self._read_reports)

    def _next_number(self) -> int:
        self._process_count += 1
        return self._process_count

    def resize(self, command: CommandProcess, servers: int) -> None:
        """Give a command another number of servers."""
        command.servers = servers
        command.cores = self._choose_cores(servers, command)
        if command.pid is not None and command.cores:
            pin_to_cores(command.pid, command.cores)

    def suspend(self, command: CommandProcess) -> None:
        """Suspend a command, which then has no servers."""
        command.suspend()
        if self.supervision is not None and not self.supervision.is_broken:
            self.supervision.suspend(command.number)

    def go_on(self, command: CommandProcess, servers: int) -> None:
        """Let a suspended command go on."""
        command.go_on(servers)
        if command.task.pin_cores:
            self.resize(command, servers)
        if self.supervision is not None and not self.supervision.is_broken:
            self.supervision.resume(command.number)

    def _choose_cores(self, servers: int, command: CommandProcess | None = None) -> list[int]:
        """Choose cores for a command that no other command has."""
        others = (other for other in self.commands if other is not command)
        return choose_cores(servers, {core for other in others for core in other.cores})

    def kill(self, process: Process) -> None:
        """Kill a process and its descendants; it stays in the table until they are gone."""
        process.is_ending = True
        if self.supervision is not None and not self.supervision.is_broken:
            self.supervision.kill(process.number)
            self._watch_supervision()

    def forget_function(self, number: int) -> None:
        """Let workers release a function."""
        for worker in self.workers:
            worker.forget(number)

    # --- while they run -------------------------------------------------------------------------

    def find_deadline(self) -> float:
        """Return when there will be something to do even if nothing happens."""
        deadlines = [process.deadline for process in self.processes.values()]
        deadlines += [worker.patience_end for worker in self.workers]
        if self.supervision is not None and self.supervision.is_broken:
            deadlines.append(time.monotonic() + POLL_SECONDS)
        return min(deadlines, default=inf)

    def kill_overdue(self) -> None:
        """Kill the processes that have exceeded their time limits."""
        now = time.monotonic()
        for process in self.processes.values():
            if process.deadline <= now:
                process.expire()
                self.kill(process)

    def limit_logs(self) -> None:
        """Cut the logs of running items that have become too large."""
        now = time.monotonic()
        if now >= self._next_log_check:
            self._next_log_check = now + LOG_CHECK_SECONDS
            for process in self.processes.values():
                process.limit_output()

    def _watch_worker(self, worker: WorkerProcess) -> None:
        self._loop.watch(worker.channel, partial(self._read_replies, worker))

    def _read_replies(self, worker: WorkerProcess) -> None:
        if worker.number not in self.processes:
            return  # it has just gone
        worker.channel.flush()
        self._on_replies(worker.receive())
        if worker.is_ready:
            self._start_failures = 0
        if worker.channel.is_closed:
            self._loop.unwatch(worker.channel)
            return
        self._watch_worker(worker)
        if worker.has_to_end and not worker.is_ending:
            self.kill(worker)

    # --- when they are gone ---------------------------------------------------------------------

    def _read_reports(self) -> None:
        supervision = self.supervision
        if supervision is None or supervision.is_broken:
            return
        for report in supervision.receive():
            if (process := self.processes.get(report.number)) is None:
                continue
            if isinstance(report, GoneReport):
                self._remove(process, report)
                continue
            process.pid = report.pid
            if isinstance(process, CommandProcess) and process.cores:
                pin_to_cores(report.pid, process.cores)  # it may have been resized meanwhile
        if supervision.is_broken:
            self._loop.unwatch(supervision.channel)
            if (end := supervision.guardian_end) is not None:
                self._loop.unwatch(end)
        else:
            self._watch_supervision()

    def replace_supervision(self) -> None:
        """If guardian or supervisor died and everything is gone, let the next start replace them.

        Nobody knows how the processes ended that were running.
        """
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
            self._remove(process, None)

    def _remove(self, process: Process, report: GoneReport | None) -> None:
        process.limit_output()
        if isinstance(process, WorkerProcess):
            if not process.channel.is_closed:
                self._loop.unwatch(process.channel)
            self._on_replies(process.receive(is_gone=True))
            if not process.is_ready and report is not None:
                self._start_failures += process.is_late or not _was_killed(report)
        self._on_gone(process, report)
        process.close()
        del self.processes[process.number]

    # --- closing --------------------------------------------------------------------------------

    def close(self) -> None:
        """Kill all processes, wait until they are gone, and read what workers have left."""
        if self.supervision is not None:
            self.supervision.dismiss()
        for process in self.processes.values():
            if isinstance(process, WorkerProcess):
                self._on_replies(process.receive(is_gone=True))
            process.close()
        self._clear()

    def close_after_fork(self) -> None:
        """Close the files of all processes, and do nothing else."""
        if self.supervision is not None:
            self.supervision.close_after_fork()
        for process in self.processes.values():
            process.close_files()
        self._clear()

    def _clear(self) -> None:
        self.supervision = None
        self.processes.clear()


def _was_killed(report: GoneReport) -> bool:
    """Return whether somebody killed a process, rather than that it ended for its own reasons."""
    if report.status is None:
        return True
    return -os.waitstatus_to_exitcode(report.status) in (signal.SIGKILL, signal.SIGTERM)


class EventLoop:
    """Waits for files, and calls a function for each that is ready."""

    def __init__(self) -> None:
        self.is_woken = False  # until whoever runs the loop has seen it, and resets it
        self._is_waiting = False
        self._selector = selectors.DefaultSelector()
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._receiver.setblocking(False)
        self.watch_file(self._receiver.fileno(), self._drain)

    def watch_file(self, fd: int, callback: Callable[[], None]) -> None:
        """Call a function whenever a file is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def watch(self, channel: Channel, callback: Callable[[], None]) -> None:
        """Call a function when a channel has messages, and when it has room for pending ones."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_outgoing else 0)
        if channel.fileno() not in self._selector.get_map():
            self._selector.register(channel, events, callback)
        elif self._selector.get_key(channel).events != events:
            self._selector.modify(channel, events, callback)

    def unwatch(self, source: Channel | int) -> None:
        """Stop watching a channel or a file."""
        self._selector.unregister(source)

    def wait(self, timeout: float) -> None:
        """Wait until something is ready, or somebody wakes the loop, and call the functions."""
        # In this order, a thread that wakes the loop need not write to the socket while it is busy.
        self._is_waiting = True
        for key, _ in self._selector.select(0.0 if self.is_woken else timeout):
            key.data()
        self._is_waiting = False

    def wake(self) -> None:
        """Wake the loop, now or when it is about to wait. Any thread may call this."""
        self.is_woken = True
        if self._is_waiting:
            with contextlib.suppress(OSError):  # enough bytes are in the socket already
                self._sender.send(b"\0")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(4096)

    def close(self) -> None:
        """Close the files of the loop itself."""
        self._selector.close()
        self._sender.close()
        self._receiver.close()
