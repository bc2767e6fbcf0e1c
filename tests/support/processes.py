"""Looking at processes, and killing them."""

from __future__ import annotations

import contextlib
import os
import signal

import psutil


def is_running(pid: int) -> bool:
    """Return whether a process exists and has not ended."""
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def kill(*pids: int) -> None:
    """Kill processes at the same instant: none can react to the end of another."""
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)
