"""A helper of the scheduler, such as a hook: a process that ends with the scheduler at the latest.

It has a guardian, a supervisor and a keeper of its own, as items do. So it and all its descendants
are gone soon after the scheduler is killed, however they have detached themselves.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from math import inf
from pathlib import Path

from hesrpt.engines.local.channel import close_all
from hesrpt.engines.local.processes import create_mark
from hesrpt.engines.local.supervision import Supervision
from hesrpt.engines.local.supervisor import GoneReport, wait_for

# Its number: the supervisor has no other process.
_NUMBER = 1
# How often to look for the death of the guardian where the system does not report it, in seconds.
_LOOK_SECONDS = 0.5


class KeptProcess:
    """A process that starts at once, without input. One thread waits for it; any may kill it.

    Parameters
    ----------
    arguments
        The program and its arguments.
    output, errors
        The file descriptors of its standard output and standard error, which stay open here.
    directory
        Where it runs. Default: in the current directory.
    variables
        What to add to its environment.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        *,
        output: int,
        errors: int,
        directory: Path | str | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        fds: list[int] = []
        try:
            fds += [os.dup(output), os.dup(errors)]
            self._supervision = Supervision(create_mark())
        except OSError:
            close_all(fds)
            raise
        try:
            self._supervision.start(
                _NUMBER, arguments, fds=fds, directory=directory, variables=variables
            )
        except ValueError:
            self._supervision.dismiss()
            raise

    def wait(self, timeout: float) -> int:
        """Return the exit code, or -N after signal N, when it and its descendants are gone.

        What it leaves running is killed half a second after its end. Raises a TimeoutError when it
        was killed ``timeout`` seconds after its start, and an OSError if it could not be started.
        """
        deadline = inf  # until it has started
        try:
            while not self._supervision.is_broken:
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                end, channel = self._supervision.guardian_end, self._supervision.channel
                wait_for([end], min(left, _LOOK_SECONDS), [channel])
                for report in self._supervision.receive():
                    if isinstance(report, GoneReport):
                        return _get_exit_code(report)
                    deadline = time.monotonic() + timeout
        finally:
            self._supervision.dismiss()
        return -signal.SIGKILL  # somebody has killed it, or its guardian

    def kill(self) -> None:
        """Kill it and its descendants; whoever waits for it is told when they are gone."""
        with suppress(OSError):  # it has gone
            self._supervision.channel.connection.shutdown(socket.SHUT_RDWR)


def _get_exit_code(report: GoneReport) -> int:
    if report.error is not None:
        raise OSError(report.error)
    return -signal.SIGKILL if report.status is None else os.waitstatus_to_exitcode(report.status)
