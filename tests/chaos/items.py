"""What an item of the campaign does: it leaves evidence that it ran, and may misbehave.

This file is also a program, the command of an item, so it imports only the standard library.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

# How long processes live that an item leaves behind, in seconds: longer than any campaign's trial.
_LEFT_BEHIND_SECONDS = "900"


#: The kind of items that fail until the trial lets them pass.
BARRED = "barred"


class Item(NamedTuple):
    """An item of a job. Keys are unique within a trial, except those of repeated items."""

    directory: str  # where to leave evidence
    key: str
    kind: str = "plain"
    seconds: float = 0.05
    size: int = 0  # bytes of its result


def run_item(item: Item) -> tuple[str, bytes]:
    """Run an item; its result names it, so that it cannot be taken for another one's."""
    with _leave_evidence(item) as attempt:
        if attempt == 1 and item.kind in MISBEHAVIOURS:
            MISBEHAVIOURS[item.kind](item)
        if item.kind == BARRED and not get_permit_path(item.directory).exists():
            raise PermissionError(f"{item.key} may not pass yet")
        time.sleep(item.seconds)
    return item.key, create_payload(item)


def create_payload(item: Item) -> bytes:
    """Return the bytes that an item has to return."""
    seed = hashlib.sha256(item.key.encode()).digest()
    return (seed * (item.size // len(seed) + 1))[: item.size]


# --- evidence ----------------------------------------------------------------------------------


def append_line(path: Path, *words: object) -> None:
    """Append a line to a file in one piece, whoever else writes to it."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
    try:
        os.write(handle, (" ".join(map(str, words)) + "\n").encode())
    finally:
        os.close(handle)


def get_permit_path(directory: str | Path) -> Path:
    """Return the file that lets barred items pass, once it exists."""
    return Path(directory) / "permit"


def get_events_path(directory: str | Path) -> Path:
    """Return the file with the starts and ends of items."""
    return Path(directory) / "events.log"


def get_processes_path(directory: str | Path) -> Path:
    """Return the file with all processes that items were."""
    return Path(directory) / "processes.log"


def read_start_time(pid: int) -> str:
    """Return when a process started, which tells it from later ones with the same number."""
    stat = Path(f"/proc/{pid}/stat").read_text()
    return stat.rpartition(")")[2].split()[19]


def record_process(directory: str, what: str, pid: int | None = None) -> None:
    """Record a process, so that it can be found whatever becomes of its environment."""
    pid = os.getpid() if pid is None else pid
    append_line(get_processes_path(directory), pid, read_start_time(pid), what)


@contextmanager
def _leave_evidence(item: Item) -> Iterator[int]:
    """Record the start and the end of an item; hold its lock, which its children inherit."""
    events = get_events_path(item.directory)
    record_process(item.directory, item.key)
    lock = os.open(Path(item.directory) / "locks" / item.key, os.O_RDWR | os.O_CREAT, 0o600)
    os.set_inheritable(lock, True)
    try:
        if item.kind != "repeated":
            _take_lock(lock, item)
        append_line(events, "start", item.key, os.getpid(), time.monotonic())
        lines = events.read_text().splitlines()
        yield sum(line.startswith(f"start {item.key} ") for line in lines)
        append_line(events, "end", item.key, os.getpid(), time.monotonic())
    finally:
        os.close(lock)


def _take_lock(lock: int, item: Item) -> None:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        holder = os.pread(lock, 100, 0).decode() or "somebody"
        append_line(
            get_events_path(item.directory), "second", item.key, os.getpid(), "beside", holder
        )
        return
    os.pwrite(lock, f"{os.getpid():<20}".encode(), 0)


# --- misbehaviour: only the first attempt of an item does it ------------------------------------


def _exit_with_success(item: Item) -> None:
    os._exit(0)


def _become_another_program(item: Item) -> None:
    os.execv("/bin/true", ["true"])


def _leave_child(item: Item) -> None:
    child = os.spawnlp(os.P_NOWAIT, "sleep", "sleep", _LEFT_BEHIND_SECONDS)
    record_process(item.directory, f"child of {item.key}", child)


def _leave_child_and_die(item: Item) -> None:
    _leave_child(item)
    os.kill(os.getpid(), signal.SIGKILL)


def _leave_child_and_hang(item: Item) -> None:
    _leave_child(item)
    time.sleep(600)


def _leave_fork(item: Item) -> None:
    if os.fork() == 0:
        record_process(item.directory, f"fork of {item.key}")
        os.execvp("sleep", ["sleep", _LEFT_BEHIND_SECONDS])


def _leave_daemon(item: Item) -> None:
    _start_daemon(item, dict(os.environ))


def _leave_daemon_without_environment(item: Item) -> None:
    _start_daemon(item, {})


def _start_daemon(item: Item, environment: dict[str, str]) -> None:
    pid = os.fork()
    if pid == 0:
        os.setsid()
        program = ["sleep", _LEFT_BEHIND_SECONDS]
        daemon = os.spawnve(os.P_NOWAIT, "/bin/sleep", program, environment)
        record_process(item.directory, f"daemon of {item.key}", daemon)
        os._exit(0)
    os.waitpid(pid, 0)


def _raise_odd_error(item: Item) -> None:
    raise ValueError("not UTF-8: \udcff, and a line\nbreak")


def _print_much(item: Item) -> None:
    os.write(1, b"\xff not UTF-8 \x1b[31m\n" * 2000)


MISBEHAVIOURS: dict[str, Callable[[Item], None]] = {
    "exit": _exit_with_success,
    "exec": _become_another_program,
    "child": _leave_child,
    "crash": _leave_child_and_die,
    "hang": _leave_child_and_hang,
    "fork": _leave_fork,
    "daemon": _leave_daemon,
    "bare daemon": _leave_daemon_without_environment,
    "error": _raise_odd_error,
    "noise": _print_much,
}

if __name__ == "__main__":
    _key, _kind, _seconds = sys.argv[2].split("/")
    run_item(Item(sys.argv[1], _key, _kind, float(_seconds)))
