"""A command that runs as a process of this machine."""

from __future__ import annotations

import contextlib
import errno
import os
import tempfile
import time
from collections.abc import Sequence
from math import inf

from hesrpt.engines.engine import CommandTask
from hesrpt.engines.error_details import NO_DETAILS, create_timeout_report
from hesrpt.engines.local.attempts import Attempt, describe_end
from hesrpt.engines.local.channel import close_all
from hesrpt.engines.local.output import add_last_lines, finish_log, open_output
from hesrpt.engines.local.supervision import Supervision
from hesrpt.engines.local.supervisor import GoneReport
from hesrpt.storage.logs import limit_output


class CommandStartError(Exception):
    """A command could not be started."""


class CommandProcess:
    """A command, and the file with its output.

    Raises CommandStartError if the supervisor cannot be asked to start it.
    """

    def __init__(
        self,
        number: int,
        attempt: Attempt,
        supervision: Supervision,
        *,
        servers: int = 1,
        threads: int = 1,
        cores: Sequence[int] = (),
    ) -> None:
        assert isinstance(attempt.task, CommandTask)
        self.number, self.attempt, self.task = number, attempt, attempt.task
        self.servers, self.cores = servers, cores
        self.pid: int | None = None  # not known at first
        self.is_busy = True  # whether it holds its servers
        self.is_ending = False  # whether it is to be killed
        self.error: str | None = None  # why it is to be killed
        self.details = NO_DETAILS  # of this error
        self.started = time.monotonic()  # later by as long as it was suspended
        self.suspended_at: float | None = None  # None: it is not suspended
        task = self.task
        try:
            self.output = open_output(task.log)
        except OSError as error:
            raise _explain(error) from None
        self._earlier = self.output.seek(0, os.SEEK_END)  # the log may hold earlier attempts
        fds: list[int] = []
        try:
            fds.extend(os.dup(self.output.fileno()) for _ in range(2))
            if task.stdin is not None:
                fds.append(_create_input(os.fsencode(task.stdin)))
            command = task.command
            supervision.start(
                number,
                (*task.shell, "-c", command) if isinstance(command, str) else command,
                fds=fds,
                directory=task.directory,
                has_input=task.stdin is not None,
                input_file=task.stdin_file,
                variables=task.variables,
                cores=cores,
                threads=threads,
            )
        except OSError as error:
            close_all(fds)
            self.output.close()
            raise _explain(error) from None
        except ValueError as error:
            self.output.close()
            raise CommandStartError(f"cannot be started: {error}") from None

    @property
    def holds_resources(self) -> bool:
        """Whether it holds resources besides its servers."""
        return self.task.holds_resources

    @property
    def stopped_job(self) -> str | None:
        """Its job, if it was stopped."""
        return self.attempt.job if self.attempt.is_stopped else None

    @property
    def deadline(self) -> float:
        """When the command exceeds its time limit, on the monotonic clock."""
        if self.is_ending or self.task.timeout is None or self.suspended_at is not None:
            return inf
        return self.started + self.task.timeout

    def expire(self) -> None:
        """Record why the command is killed at its deadline."""
        assert self.task.timeout is not None
        self.error, self.details = create_timeout_report(self.task.timeout)

    def describe_failure(self, report: GoneReport) -> str | None:
        """Return why the command failed, with the last lines of its output; None if it did not."""
        if report.error is not None:
            return f"cannot be started: {report.error}"
        if report.status == 0 and self.error is None:
            return None
        error = self.error or describe_end(report.status)
        return add_last_lines(error, self.output, skip=self._earlier)

    def limit_output(self) -> None:
        """Cut its output if that has become too large."""
        with contextlib.suppress(OSError):
            self._earlier = max(self._earlier - limit_output(self.output.fileno()), 0)

    def measure_seconds(self, report: GoneReport) -> float:
        """Return how long the command itself ran, without the time while it was suspended."""
        ended = report.ended or time.monotonic()
        return max(min(ended, self.suspended_at or inf) - self.started, 0.0)

    def suspend(self) -> None:
        """Record that the command is suspended: it needs no servers, and its clock stands still."""
        self.servers, self.cores, self.suspended_at = 0, (), time.monotonic()

    def go_on(self, servers: int) -> None:
        """Record that the command is no longer suspended."""
        assert self.suspended_at is not None
        self.servers = servers
        self.started += time.monotonic() - self.suspended_at
        self.suspended_at = None

    def close(self) -> None:
        """Close its output, and remove its log if that is empty."""
        self.close_files()
        if self.task.log is not None:
            finish_log(self.task.log)

    def close_files(self) -> None:
        """Close its output, and do nothing else."""
        self.output.close()


def _create_input(text: bytes) -> int:
    """Return the descriptor of a file without a name that holds a text."""
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create("stdin")
    else:
        fd, path = tempfile.mkstemp()
        os.unlink(path)
    unwritten = memoryview(text)
    while unwritten:
        unwritten = unwritten[os.write(fd, unwritten) :]
    os.lseek(fd, 0, os.SEEK_SET)
    return fd


def _explain(error: OSError) -> Exception:
    """Return what to raise if the output of a command cannot be opened."""
    if error.errno in (errno.EMFILE, errno.ENFILE):
        return error  # the command can start later
    return CommandStartError(f"its input or output cannot be written: {error}")
