"""The state directory of a run: private to one user, and locked by one scheduler at a time.

It holds the journal's database and the output of each item. The lock is on the directory itself, so
nobody can remove it without removing the directory.
"""

from __future__ import annotations

import contextlib
import errno
import importlib.util
import os
import stat
import time
from pathlib import Path

from hesrpt.errors import InputError, StateError

# --- the live scheduler relies on POSIX -----------------------------------------------------------


def require_posix() -> None:
    """Raise an error on systems where the live scheduler cannot work."""
    try:
        has_file_locks = importlib.util.find_spec("fcntl") is not None
    except ValueError:  # the module is blocked
        has_file_locks = False
    if not has_file_locks:
        raise InputError(
            "the live scheduler needs Linux or macOS; planning and simulating work on any system"
        )


# How long to wait for a lock, in seconds: another process may be checking whether it is free.
_LOCK_TIMEOUT = 1.0
# File systems such as NFS lock only files that are open for writing, so they cannot lock a
# directory. There, the lock is on a file in it.
_LOCK_FILE = "lock"
_CANNOT_LOCK_DIRECTORIES = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOTSUP)


class StateExistsError(StateError):
    """The state directory of a new run holds an earlier run."""


def get_database_path(directory: Path) -> Path:
    """Return the path of the database."""
    return directory / "state.db"


def holds_run(directory: Path) -> bool:
    """Return whether a directory holds a run."""
    return get_database_path(directory).exists()


def create_state_directory(directory: Path) -> DirectoryLock:
    """Create and lock the directory of a new run; return the lock."""
    require_posix()
    try:
        create_private_directory(directory, parents=True)
    except FileExistsError:
        raise StateError(f"{directory}: is not a directory") from None
    except OSError as error:
        raise StateError(f"{directory}: cannot be created: {error.strerror}") from None
    _check_private(directory)
    lock = lock_directory(directory)
    if holds_run(directory):
        lock.release()
        raise StateExistsError(
            f"{directory}: holds an earlier run; continue it with resume=True, or choose another "
            "directory"
        )
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


# --- private files ------------------------------------------------------------------------------


def create_private_directory(directory: Path, *, parents: bool = False) -> None:
    """Create a directory that only its owner can use, whatever the umask; it may exist already."""
    is_new = not directory.exists()
    directory.mkdir(mode=0o700, parents=parents, exist_ok=True)
    if is_new:
        directory.chmod(0o700)


def open_private(path: Path, flags: int) -> int:
    """Open a file, creating it if necessary; only its owner can use it, whatever the umask."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC, 0o600)
    if stat.S_IMODE(os.fstat(descriptor).st_mode) != 0o600:
        os.fchmod(descriptor, 0o600)
    return descriptor


def sync_directory(directory: Path) -> None:
    """Wait until the names of the files in a directory are on the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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


# --- the lock -----------------------------------------------------------------------------------


# The file descriptors of the locks that this process holds.
_lock_descriptors: set[int] = set()


def _close_in_fork() -> None:
    """Close the locks in a forked process, which would hold them after its parent has gone."""
    for descriptor in _lock_descriptors:
        with contextlib.suppress(OSError):
            os.close(descriptor)
    _lock_descriptors.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_in_fork)


class DirectoryLock:
    """The lock of a running scheduler, which also notices if its files are removed or replaced."""

    def __init__(self, directory: Path, descriptor: int) -> None:
        self.directory = directory
        self.descriptor = descriptor  # holds the lock until it is closed
        _lock_descriptors.add(descriptor)
        is_directory = stat.S_ISDIR(os.fstat(descriptor).st_mode)
        database = get_database_path(directory)
        self._identities: dict[Path, tuple[int, int] | None] = {
            directory if is_directory else directory / _LOCK_FILE: _identify(descriptor),
            # These are created later.
            database: None,
            database.with_name(f"{database.name}-wal"): None,
            database.with_name(f"{database.name}-shm"): None,
        }

    def check(self) -> None:
        """Raise an error if the directory or the database is no longer the one that was opened.

        Otherwise the scheduler would write into deleted files, and lose all results.
        """
        for path, known in self._identities.items():
            found = _identify(path)
            if known is None:
                self._identities[path] = found
            elif found != known:
                problem = "removed" if found is None else "replaced"
                raise StateError(f"{path}: was {problem} while the scheduler was running")

    def release(self) -> None:
        """Release the lock."""
        if self.descriptor in _lock_descriptors:
            os.close(self.descriptor)
            _lock_descriptors.discard(self.descriptor)


def _identify(file: Path | int) -> tuple[int, int] | None:
    """Return what tells a file from all others, or None if it does not exist."""
    try:
        found = os.stat(file)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def lock_directory(directory: Path) -> DirectoryLock:
    """Lock a directory for a scheduler."""
    import fcntl

    deadline = time.monotonic() + _LOCK_TIMEOUT
    while (descriptor := _try_to_lock(directory, fcntl.LOCK_EX)) is None:
        if time.monotonic() > deadline:
            raise StateError(f"{directory}: another scheduler is running on it")
        time.sleep(0.02)
    return DirectoryLock(directory, descriptor)


def is_locked(directory: Path) -> bool:
    """Return whether a scheduler is running on a directory."""
    import fcntl

    descriptor = _try_to_lock(directory, fcntl.LOCK_SH)
    if descriptor is None:
        return True
    os.close(descriptor)
    return False


def _try_to_lock(directory: Path, kind: int) -> int | None:
    """Return a file descriptor that holds the lock, or None if another process has it."""
    import fcntl

    try:
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except OSError as error:
            os.close(descriptor)
            if error.errno not in _CANNOT_LOCK_DIRECTORIES:
                raise
            descriptor = open_private(directory / _LOCK_FILE, os.O_RDWR)
            try:
                fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
            except OSError:
                os.close(descriptor)
                raise
    except BlockingIOError:
        return None
    except OSError as error:
        raise StateError(f"{directory}: cannot be locked: {error.strerror}") from None
    return descriptor
