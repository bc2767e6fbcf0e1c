"""Processes of this machine: their environment, their ends, and that none is left behind.

Every process that a run starts carries the run's mark in its environment, as do all processes that
these start. A guardian, which does nothing but wait for the scheduler to disappear, ends all that
carry the mark; so not even ``kill -9`` of the scheduler leaves any behind. The guardian is this
module run as a script, which imports nothing else of the project: it must be light.
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

MARK = "HESRPT_RUN"


def new_mark() -> str:
    """Return a mark that no other run has."""
    return f"{os.getpid()}-{uuid4().hex}"


def marked_environment(mark: str) -> dict[str, str]:
    """Return the environment of this process with a mark added."""
    # Within another run, what is started belongs to both.
    marks = [*filter(None, [os.environ.get(MARK)]), mark]
    return {**os.environ, MARK: " ".join(marks)}


def end_marked(mark: str, patience: float = 5.0) -> None:
    """End every process that carries a mark, and those that it starts meanwhile."""
    until = time.monotonic() + patience
    while found := _marked(mark):
        for process in found:
            with contextlib.suppress(psutil.Error):
                process.kill()
        psutil.wait_procs(found, timeout=0.5)
        if time.monotonic() > until:
            break


def _marked(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        if process.pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            marks = process.environ().get(MARK, "").split()
            if mark in marks and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process)
    return found


def end_orphans(mark: str) -> None:
    """End marked processes whose parent has gone: what an ended worker had started."""
    for process in _marked(mark):
        with contextlib.suppress(psutil.Error):
            if process.ppid() <= 1:
                end_tree(process.pid)


def end_tree(pid: int) -> None:
    """End a process and all that it has started."""
    try:
        process = psutil.Process(pid)
        tree = [*process.children(recursive=True), process]
    except psutil.Error:
        return
    for one in tree:
        with contextlib.suppress(psutil.Error):
            one.kill()


def set_cores(pid: int, cores: list[int]) -> None:
    """Let a process and all that it has started run on these cores only (where the system can)."""
    with contextlib.suppress(psutil.Error):
        process = psutil.Process(pid)
        for one in [process, *process.children(recursive=True)]:
            with contextlib.suppress(psutil.Error, AttributeError, ValueError):
                one.cpu_affinity(cores)


class Guardian:
    """A process that ends everything with a mark when this process has gone.

    If it is detached, it is nobody's child, so that it is not ended with the children of this one.
    """

    def __init__(self, mark: str, detached: bool = False) -> None:
        command = [sys.executable, "-P", __file__, mark]
        if detached:
            command = ["sh", "-c", 'exec 3<&0; "$@" <&3 &', "sh", *command]
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            start_new_session=True,  # what ends the scheduler from the terminal spares it
            env={name: value for name, value in os.environ.items() if name != MARK},
        )  # fmt: skip
        if detached:
            self.process.wait()

    def dismiss(self) -> None:
        """Let it go, after a last look."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=30)


def guard(mark: str) -> None:
    """Wait until the scheduler has gone, which holds standard input open, and end what it left."""
    for ignored in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(ignored, signal.SIG_IGN)
    sys.stdin.read()
    end_marked(mark)


if __name__ == "__main__":
    guard(sys.argv[1])
