"""The workers and commands of the local engine: starting and killing them, and noticing their ends.

Which item runs where is for the engine to decide.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Mapping
from functools import partial
from math import inf
from typing import TypeAlias

from hesrpt.engines.engine import CommandTask
from hesrpt.engines.local.attempts import Attempt
from hesrpt.engines.local.batches import Batch
from hesrpt.engines.local.command_process import CommandProcess
from hesrpt.engines.local.cores import choose_cores
from hesrpt.engines.local.event_loop import EventLoop
from hesrpt.engines.local.processes import POLL_SECONDS, pin_to_cores
from hesrpt.engines.local.supervision import Supervision
from hesrpt.engines.local.supervisor import GoneReport
from hesrpt.engines.local.worker_process import Reply, WorkerProcess
from hesrpt.storage.logs import LOG_CHECK_SECONDS

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
