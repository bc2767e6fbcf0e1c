"""The state directory of a run: private to one user, and locked by one scheduler at a time.

It holds the journal's database, the lock file, and the output of each item.
"""

from __future__ import annotations

import os
import stat
import time
from pathlib import Path

from hesrpt.errors import StateError
from hesrpt.runtime.posix import require_posix

# How long to wait for a lock, in seconds: another process may be checking whether it is free.
_LOCK_TIMEOUT = 1.0


class StateExistsError(StateError):
    """The state directory of a new run holds an earlier run."""


def get_database_path(directory: Path) -> Path:
    """Return the path of the database."""
    return directory / "state.db"


def get_log_path(directory: Path, job_number: int, item: int) -> Path:
    """Return the path of the output of an item."""
    return directory / "logs" / f"{job_number}-{item}.log"


def find_logs(directory: Path, job_number: int) -> list[tuple[int, Path]]:
    """Return the items of a job that have printed something, with the paths of their output."""
    paths = (directory / "logs").glob(f"{job_number}-*.log")
    return sorted((int(path.stem.split("-")[1]), path) for path in paths)


def create_state_directory(directory: Path) -> int:
    """Create and lock the directory of a new run; return the lock."""
    require_posix()
    try:
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError:
        raise StateError(f"{directory}: is not a directory") from None
    except OSError as error:
        raise StateError(f"{directory}: cannot be created: {error.strerror}") from None
    _check_private(directory)
    lock = lock_directory(directory)
    if get_database_path(directory).exists():
        os.close(lock)
        raise StateExistsError(
            f"{directory}: holds an earlier run; continue it with resume=True, or choose another "
            "directory"
        )
    (directory / "logs").mkdir(exist_ok=True)
    return lock


def check_state_directory(directory: Path) -> None:
    """Check that a directory holds a run, and that other users can neither read nor change it."""
    require_posix()
    if directory.exists() and not directory.is_dir():
        raise StateError(f"{directory}: is not a directory")
    if not directory.is_dir():
        raise StateError(f"{directory}: does not exist; a state directory was expected")
    database = get_database_path(directory)
    if not database.exists():
        raise StateError(f"{directory}: is not a state directory: it contains no {database.name}")
    _check_private(directory)


def lock_directory(directory: Path) -> int:
    """Lock a directory; return the file descriptor that holds the lock until it is closed."""
    import fcntl

    try:
        lock = _open_lock(directory)
    except OSError as error:
        raise StateError(f"{directory}: cannot be written to: {error.strerror}") from None
    deadline = time.monotonic() + _LOCK_TIMEOUT
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return lock
        except OSError:
            if time.monotonic() > deadline:
                os.close(lock)
                raise StateError(f"{directory}: another scheduler is running on it") from None
            time.sleep(0.02)


def is_locked(directory: Path) -> bool:
    """Return whether a scheduler is running on a directory."""
    import fcntl

    lock = _open_lock(directory)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(lock)
    return False


def _open_lock(directory: Path) -> int:
    return os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)


def _check_private(directory: Path) -> None:
    """Raise an error if other users can access a directory: the results in it are unpickled."""
    try:
        found = directory.stat()
    except OSError as error:
        raise StateError(f"{directory}: cannot be read: {error.strerror}") from None
    if found.st_uid != os.getuid():
        raise StateError(
            f"{directory}: belongs to another user, so the results in it cannot be trusted"
        )
    if stat.S_IMODE(found.st_mode) & 0o077:
        raise StateError(
            f"{directory}: other users may read or write it; run chmod 700 {directory}"
        )
