"""Finding the processes of a trial through /proc, by a mark in their environment or by number."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from chaos.items import get_processes_path, read_start_time

#: The environment variable with the name of the trial.
VARIABLE = "HESRPT_CHAOS"
#: How the forks of the user's script are recorded.
FORK_OF_SCRIPT = "fork of the script"
#: The names of the processes that watch over a run, as ``ps`` shows them.
ROLES = {
    "hesrpt-guardian": "guardian",
    "hesrpt-superv": "supervisor",
    "hesrpt-keeper": "keeper",
}


class Process(NamedTuple):
    """A living process."""

    pid: int
    start_time: str
    role: str  # one of ROLES, or "worker"
    command: str

    def send(self, number: int) -> bool:
        """Send a signal, unless the process is gone; return whether it was sent."""
        if not is_alive(self.pid, self.start_time):
            return False
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False

    def kill(self) -> bool:
        return self.send(signal.SIGKILL)


def is_alive(pid: int, start_time: str) -> bool:
    """Return whether a process still runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    fields = stat.rpartition(")")[2].split()
    return fields[0] not in "ZX" and fields[19] == start_time


def find_marked(mark: str) -> list[Process]:
    """Return the living processes whose environment names a trial."""
    found = []
    wanted = f"{VARIABLE}={mark}".encode()
    for entry in os.listdir("/proc"):
        if not entry.isdecimal():
            continue
        with suppress(OSError):
            if wanted in Path(f"/proc/{entry}/environ").read_bytes().split(b"\0"):
                found.append(_describe(int(entry)))
    return [process for process in found if is_alive(process.pid, process.start_time)]


def find_recorded(directory: Path) -> list[Process]:
    """Return the living processes that items have recorded, with or without an environment."""
    return [each for each in _read_recorded(directory) if each.command != FORK_OF_SCRIPT]


def find_forks_of_script(directory: Path) -> set[int]:
    """Return the processes that the user's script itself has forked, which may live on."""
    return {each.pid for each in _read_recorded(directory) if each.command == FORK_OF_SCRIPT}


def _read_recorded(directory: Path) -> list[Process]:
    try:
        lines = get_processes_path(directory).read_text().splitlines()
    except FileNotFoundError:
        return []
    recorded = [line.split(maxsplit=2) for line in lines]
    return [
        Process(int(pid), start_time, "worker", what)
        for pid, start_time, what in recorded
        if is_alive(int(pid), start_time)
    ]


def _describe(pid: int) -> Process:
    words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace").split("\0")
    command = " ".join(words).strip()
    name = Path(f"/proc/{pid}/comm").read_text().strip()
    role = ROLES.get(name, "worker")
    return Process(pid, read_start_time(pid), role, f"{name}: {command[:150]}")
