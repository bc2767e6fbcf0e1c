"""Finding, killing and pinning the processes of a run, so that none outlives it.

Every process that a run starts carries the run's mark in its environment, and its children inherit
the mark. A guardian process waits for the scheduler to disappear and then kills every process that
carries the mark, so not even ``kill -9`` of the scheduler leaves any behind. The guardian is this
module run as a script. It has to start quickly, so it imports nothing else of the project.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from uuid import uuid4

import psutil

#: The environment variable that holds the marks of a process, separated by spaces.
MARKS_VARIABLE = "HESRPT_RUN"


def create_mark() -> str:
    """Create a mark that no other run has."""
    return f"{os.getpid()}-{uuid4().hex}"


def build_environment(mark: str) -> dict[str, str]:
    """Return the environment of this process with a mark added.

    A run inside another run keeps the outer mark, so that either can kill its processes.
    """
    outer = os.environ.get(MARKS_VARIABLE)
    return {**os.environ, MARKS_VARIABLE: f"{outer} {mark}" if outer else mark}


def find_marked(mark: str) -> list[psutil.Process]:
    """Return the living processes that carry a mark, except this one."""
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            marks = process.environ().get(MARKS_VARIABLE, "").split()
            if mark in marks and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def kill_marked(mark: str, timeout: float = 5.0) -> None:
    """Kill every process that carries a mark, including those started meanwhile."""
    deadline = time.monotonic() + timeout
    while found := find_marked(mark):
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=0.5)
        if time.monotonic() > deadline:
            break


def kill_orphans(mark: str) -> None:
    """Kill marked processes whose parent, a killed worker, is gone."""
    for process in find_marked(mark):
        with contextlib.suppress(psutil.Error):
            if process.ppid() <= 1:
                kill_tree(process.pid)


def kill_tree(pid: int) -> None:
    """Kill a process and all its descendants."""
    try:
        process = psutil.Process(pid)
        tree = [*process.children(recursive=True), process]
    except psutil.Error:
        return
    for member in tree:
        with contextlib.suppress(psutil.Error):
            member.kill()


def pin_to_cores(pid: int, cores: list[int]) -> None:
    """Restrict a process and its descendants to some cores, on systems that support it."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for member in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, AttributeError, ValueError):
                member.cpu_affinity(cores)


class Guardian:
    """A process that kills every process with a mark once this process is gone.

    A detached guardian is not a child of this process, so it survives when somebody kills this
    process with all its children.
    """

    def __init__(self, mark: str, detached: bool = False) -> None:
        command = [sys.executable, "-P", __file__, mark]
        if detached:
            command = ["sh", "-c", 'exec 3<&0; "$@" <&3 &', "sh", *command]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # so that Ctrl-C in the terminal does not reach it
            env={name: value for name, value in os.environ.items() if name != MARKS_VARIABLE},
        )
        if detached:
            self.process.wait()

    def dismiss(self) -> None:
        """Let the guardian kill the remaining processes, and wait until it has exited."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def run_guardian(mark: str) -> None:
    """Once the scheduler is gone, kill all processes that carry a mark."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.read()  # returns when the scheduler, which holds the other end open, is gone
    kill_marked(mark)


if __name__ == "__main__":
    run_guardian(sys.argv[1])
