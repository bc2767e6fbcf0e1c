"""The scheduler's side of guardian and supervisor: starting and killing processes through them."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path

from hesrpt.engines.local.channel import Channel, close_all, duplicate_all, wait_for
from hesrpt.engines.local.processes import (
    GUARDED_VARIABLE,
    MARKS_VARIABLE,
    POLL_SECONDS,
    build_environment,
    create_mark,
    find_marked,
    kill_all,
    kill_marked,
    list_children,
    open_process,
)
from hesrpt.engines.local.supervisor import GoneReport, StartedReport, StartRequest

# If guardian or supervisor has died, how long the other one may take to kill all processes.
_CLEANING_SECONDS = 10.0


class Supervision:
    """A guardian and a supervisor, which start processes and let none of them escape.

    A detached guardian is not a child of this process, so it survives when somebody kills this
    process with all its children.
    """

    def __init__(self, mark: str, *, is_detached: bool = False) -> None:
        self.mark = mark
        self.guardian_pid: int | None = None
        #: A file descriptor that is readable when the guardian has ended, where there is one.
        self.guardian_end: int | None = None
        self.supervisor_pid: int | None = None  # not known before it has said hello
        self.is_broken = False  # whether one of the two has died
        self._ends: dict[int, int | None] = {}  # readable when these processes have ended
        self._kill_at = inf
        self._started: dict[int, int] = {}  # the process ids of what is running, by number
        ours, theirs = socket.socketpair()
        with theirs:
            script = _SCRIPT.format(
                packages=_PACKAGES, module="supervisor", function="run_guardian"
            )
            # It needs the standard library only.
            command = [sys.executable, "-I", "-S", "-c", script]
            command += map(str, (mark, os.getpid(), theirs.fileno(), is_detached))
            environment = {**os.environ, GUARDED_VARIABLE: mark}
            environment.pop(MARKS_VARIABLE, None)
            if is_detached:
                command = ["sh", "-c", '"$@" &', "sh", *command]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
                pass_fds=[theirs.fileno()],
                env=environment,
            )
        if is_detached:
            self._process.wait()
        else:
            self.guardian_pid = self._process.pid
            self.guardian_end = self._watch(self.guardian_pid)
        ours.setblocking(False)
        self.channel = Channel(ours)

    def _watch(self, pid: int) -> int | None:
        """Return a file descriptor that is readable when a process has ended, or None."""
        with contextlib.suppress(ProcessLookupError):
            self._ends[pid] = open_process(pid)
        return self._ends.get(pid)

    # --- processes ----------------------------------------------------------------------------

    def start(
        self,
        number: int,
        arguments: Sequence[str],
        *,
        fds: Sequence[int],
        directory: Path | str | None = None,
        has_input: bool = False,
        input_file: str | None = None,
        variables: Mapping[str, str] | None = None,
        cores: Sequence[int] = (),
        threads: int = 1,
    ) -> None:
        """Start a process; ``fds`` become its file descriptors 1, 2, 3 and so on.

        Its standard input is the last one if it ``has_input``, or ``input_file``, or empty.
        ``variables`` are added to its environment, and others that let libraries start ``threads``
        threads, unless these are set. The file descriptors are closed here. Raises ValueError for
        impossible arguments.
        """
        environment = {**build_environment(self.mark), **(variables or {})}
        environment |= choose_threads(threads, environment)
        try:
            request = StartRequest(
                number,
                tuple(map(os.fsencode, arguments)),
                {os.fsencode(name): os.fsencode(value) for name, value in environment.items()},
                None if directory is None else os.fsencode(directory),
                tuple(cores),
                has_input,
                None if input_file is None else os.fsencode(input_file),
            )
        except ValueError:
            close_all(fds)
            raise
        self.channel.send(("start", *request), fds=fds)

    def request(self, kind: str, number: int) -> None:
        """Kill, suspend or resume a process and all its descendants.

        A report says when those that are killed are gone.
        """
        self.channel.send((kind, number))

    def receive(self) -> list[StartedReport | GoneReport]:
        """Return what the supervisor has reported since the last call."""
        reports: list[StartedReport | GoneReport] = []
        self.channel.flush()
        for (kind, *values), _, _ in self.channel.receive(everything=True):
            if kind == "gone":
                gone = GoneReport._make(values)
                self._started.pop(gone.number, None)
                reports.append(gone)
            elif kind == "started":
                started = StartedReport._make(values)
                self._started[started.number] = started.pid
                reports.append(started)
            else:
                guardian, self.supervisor_pid = values
                if self.guardian_pid is None:
                    self.guardian_pid = guardian
                    self.guardian_end = self._watch(guardian)
                self._watch(self.supervisor_pid)
        if self.channel.is_closed or not all(map(self._is_alive, self._ends)):
            self.is_broken = True
        return reports

    # --- the end ------------------------------------------------------------------------------

    def _is_alive(self, pid: int) -> bool:
        if pid == self._process.pid:
            return self._process.poll() is None
        if (end := self._ends[pid]) is not None:
            return end not in wait_for([end], 0)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, 0)
            return True
        return False

    @property
    def has_failed(self) -> bool:
        """Whether the two have ended by themselves, without having started: nobody killed them."""
        return self.supervisor_pid is None and (self._process.returncode or 0) > 0

    def check_end(self) -> bool:
        """Return whether guardian, supervisor and all processes are gone, after one has died."""
        alive = list(filter(self._is_alive, self._ends))
        # Keepers stay until all that they have started is gone.
        alive = alive or find_marked(self.mark, GUARDED_VARIABLE)
        if alive:
            if self._process.returncode is None:
                self._process.send_signal(signal.SIGCONT)  # somebody may have stopped it
            now = time.monotonic()
            self._kill_at = min(self._kill_at, now + _CLEANING_SECONDS)
            if now >= self._kill_at:
                kill_all(alive)
            return False
        kill_marked(self.mark)
        if os.getpid() == 1:
            self._reap_adopted()
        self.close_files()
        return True

    def _reap_adopted(self) -> None:
        """As process 1, reap what became our child when guardian and supervisor died."""
        deadline = time.monotonic() + _CLEANING_SECONDS
        while time.monotonic() < deadline:
            adopted = [
                pid
                for pid in list_children(1)
                if pid in self._started.values() or os.getsid(pid) == self.guardian_pid
            ]
            if not adopted:
                return
            for pid in adopted:
                os.waitpid(pid, os.WNOHANG)
            time.sleep(POLL_SECONDS)

    def dismiss(self) -> None:
        """Let guardian and supervisor kill all processes, and wait until they have ended."""
        self.channel.connection.shutdown(socket.SHUT_RDWR)
        while not self.check_end():
            time.sleep(POLL_SECONDS)

    def close_files(self) -> None:
        """Close the connection."""
        self.channel.close()
        for end in self._ends.values():
            if end is not None:
                os.close(end)
        self._ends, self.guardian_end = {}, None

    def close_after_fork(self) -> None:
        """Close the connection in a fork of this process, which has no guardian of its own."""
        self._process.returncode = 0
        self.close_files()


# Its number: the supervisor has no other process.
_NUMBER = 1
# How often to look for the death of the guardian where the system does not report it, in seconds.
_LOOK_SECONDS = 0.5


class KeptProcess:
    """A process that starts at once, without input. One thread waits for it; any may kill it.

    ``output`` and ``errors`` are the file descriptors of its standard output and standard error,
    which stay open here. ``variables`` are added to its environment.
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
        fds = duplicate_all((output, errors))
        try:
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
                        if report.error is not None:
                            raise OSError(report.error)
                        return report.exit_code
                    deadline = time.monotonic() + timeout
        finally:
            self._supervision.dismiss()
        return -signal.SIGKILL  # somebody has killed it, or its guardian

    def kill(self) -> None:
        """Kill it and its descendants; :meth:`wait` returns when they are gone."""
        with contextlib.suppress(OSError):  # it has gone
            self._supervision.channel.connection.shutdown(socket.SHUT_RDWR)


# --- how processes are started --------------------------------------------------------------------

_LOCAL = Path(__file__).parent
_PACKAGES = {
    "hesrpt": str(_LOCAL.parent.parent),
    "hesrpt.engines": str(_LOCAL.parent),
    "hesrpt.engines.local": str(_LOCAL),
}
_SCRIPT = """\
import sys, types
for name, path in {packages}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from hesrpt.engines.local.{module} import {function} as run
for name in [name for name in sys.modules if name.partition(".")[0] == "hesrpt"]:
    del sys.modules[name]
run(*sys.argv[1:])
"""


def build_python_command(module: str, function: str) -> list[str]:
    """Return a command that calls a function of a module with this process's ``sys.path``."""
    script = f"import sys\nsys.path[:] = sys.argv.pop().split({_SEPARATOR!r})\n" + _SCRIPT
    script = script.format(packages=_PACKAGES, module=module, function=function)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    path = _SEPARATOR.join(sys.path)
    return [sys.executable, *flags, "-P", "-c", script, path]


# It cannot be part of a path in practice, and no argument can contain the character 0.
_SEPARATOR = "\x1f"

#: The variables that libraries read. The others follow the first one, if only that is set.
THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "BLIS_NUM_THREADS",
    "VECLIB_MAXIMUM_THREADS",
    "NUMBA_NUM_THREADS",
)
#: The number that a scheduler has set, which a scheduler inside an item may change.
OURS_VARIABLE = "HESRPT_THREADS"


def choose_threads(servers: int, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of a process with this many servers; those that a user has set stay.

    >>> choose_threads(2, {"MKL_NUM_THREADS": "8"})["MKL_NUM_THREADS"]
    '8'
    >>> choose_threads(2, {"MKL_NUM_THREADS": "8"})["OMP_NUM_THREADS"]
    '2'
    >>> choose_threads(2, {"OMP_NUM_THREADS": "3"})["NUMBA_NUM_THREADS"]
    '3'
    """
    ours = environment.get(OURS_VARIABLE)
    theirs = {
        name: environment[name] for name in THREAD_VARIABLES if environment.get(name, ours) != ours
    }
    first, _, _ = theirs.get(THREAD_VARIABLES[0], "").partition(",")  # such as 4,2
    number = first if first.isdigit() else str(servers)
    return {**dict.fromkeys(THREAD_VARIABLES, number), **theirs, OURS_VARIABLE: number}
