"""Python jobs of clients: their functions and items are kept in files until the jobs are done.

A file is on the disk before the client gets an answer, so the jobs survive a crash: the next start
adds them again. Its name is made from the key of the request, so that a repeated request finds it.
"""

from __future__ import annotations

import hashlib
import os
import threading
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.runtime.commands.jobs_file import COMMON_KEYS
from hesrpt.runtime.decisions.server_limits import check_server_limits
from hesrpt.runtime.handles.job_handle import Job
from hesrpt.runtime.identity.fingerprints import FINGERPRINT_BYTES
from hesrpt.runtime.job_names import choose_free_name
from hesrpt.runtime.live_job import LiveJob
from hesrpt.runtime.pool import Pool
from hesrpt.runtime.python_jobs import create_map_job, create_python_spec, order_job
from hesrpt.runtime.storage.journal_entries import JobRecord
from hesrpt.runtime.storage.state_directory import (
    create_private_directory,
    open_private,
    sync_directory,
)
from hesrpt.service.call_format import PackedCalls
from hesrpt.service.job_queue import JobQueue, KnownJob, StoppingError
from hesrpt.service.remote_calls import RemoteFunction, RemoteItem

_SUFFIX = ".calls"
# Stands for a request of which the journal has no number.
_SUBMISSION = 0
#: The options of a job that calls a Python function.
OPTIONS = ("name", "kind", *COMMON_KEYS, "timeout")


class CallStore:
    """The Python jobs of a service."""

    def __init__(self, queue: JobQueue) -> None:
        self._queue, self._directory = queue, queue.directory / "calls"
        self._adding = threading.Lock()
        self._handles: dict[str, Job[Any]] = {}  # while they are held, failed items can be retried
        self._paths: dict[str, Path] = {}  # of the files, by the names of the jobs

    def add(self, calls: PackedCalls, key: str) -> KnownJob:
        """Add a job, unless that was done with the same key before; it is durable then."""
        if self._queue.is_stopping:
            raise StoppingError("the service is stopping, and takes no more jobs")
        path = self._directory / f"{hashlib.sha256(key.encode()).hexdigest()}{_SUFFIX}"
        with self._adding:
            if path.exists():
                name = PackedCalls.unpack(path.read_bytes()).options["name"]
                return self._queue.find_job(name)
            self._remove_done()
            asked = str(calls.options.get("name") or "job")
            # The next start must find this job and no other.
            name, _ = choose_free_name(asked, self._queue.__contains__)
            named = PackedCalls(
                calls.options | {"name": name}, calls.function, calls.items, calls.labels
            )
            job = create_live_job(self._queue.pool, named)  # raises an error if it is invalid
            if name != asked:
                job.spec = replace(job.spec, given_name=asked)
            self._write(path, named)
            self._add_job(job, path)
        return job

    def _write(self, path: Path, calls: PackedCalls) -> None:
        create_private_directory(self._directory)
        draft = path.with_suffix(".new")
        with os.fdopen(open_private(draft, os.O_WRONLY | os.O_TRUNC), "wb") as file:
            file.write(calls.pack())
            file.flush()
            os.fsync(file.fileno())
        draft.replace(path)
        sync_directory(self._directory)

    def _add_job(self, job: LiveJob, path: Path) -> None:
        (handle,) = self._queue.pool.add_jobs([job])
        self._handles[job.name], self._paths[job.name] = handle, path

    def _list_files(self) -> list[Path]:
        """Return the files, the oldest first."""
        with suppress(FileNotFoundError):
            return sorted(
                self._directory.glob(f"*{_SUFFIX}"), key=lambda path: path.stat().st_mtime
            )
        return []

    def continue_jobs(self) -> None:
        """Add the jobs of earlier starts again, unless they are done."""
        jobs = []
        for path in self._list_files():
            calls = PackedCalls.unpack(path.read_bytes())
            record = self._queue.earlier.get(calls.options["name"])
            if record is not None and record.state == "done":
                path.unlink()
                continue
            job = create_live_job(self._queue.pool, calls)
            # If it can no longer run, it is cancelled: nobody is there to be told.
            job.spec = replace(job.spec, submission=_SUBMISSION)
            if record is not None:
                job.number = record.number
                job.spec = replace(job.spec, after=record.spec.after)
            self._paths[job.name] = path
            jobs.append(job)
        for handle in self._queue.continue_jobs(jobs):
            if handle.name in self._paths:
                self._handles[handle.name] = handle

    def _remove_done(self) -> None:
        """Remove the files of jobs that are done."""
        for name, handle in list(self._handles.items()):
            if handle.state == "done":
                del self._handles[name]
                self._paths.pop(name).unlink(missing_ok=True)


def create_live_job(pool: Pool, calls: PackedCalls) -> LiveJob:
    """Create the job of a function that a client has sent."""
    options = calls.options
    unknown = [key for key in options if key not in OPTIONS]
    if unknown:
        raise InputError(f"unknown option {unknown[0]!r}; options are: {', '.join(OPTIONS)}")
    given = {key: value for key, value in options.items() if value is not None}
    driver = pool.driver
    limits = check_server_limits(
        *(given.get(name) for name in ("servers", "min_servers", "max_servers"))
    )
    spec = create_python_spec(
        name=given.get("name", "job"),
        kind=given.get("kind"),
        size=given.get("size"),
        speedup=given.get("p"),
        weight=given.get("weight", 1.0),
        limits=limits,
        group=given.get("group", ""),
        resources=given.get("resources"),
    )
    spec = order_job(
        spec,
        after=given.get("after", ()),
        after_failure=given.get("after_failure", "cancel"),
        on_end=given.get("on_end", ()),
    )
    labels = calls.labels or [""] * len(calls.items)
    job = create_map_job(
        spec,
        RemoteFunction(calls.function),
        [RemoteItem(item, label) for item, label in zip(calls.items, labels, strict=True)],
        engine=driver.engine,
        read_ahead=driver.get_read_ahead,
        retries=given.get("retries", 1),
        on_error="keep" if given.get("keep_going") else "raise",
        timeout=given.get("timeout"),
        keep=False,
        has_journal=True,
    )
    # What the next start sends must count as the same function, even by another version of hesrpt.
    job.fingerprint = hashlib.blake2b(calls.function, digest_size=FINGERPRINT_BYTES).digest()
    return job


def get_number(job: KnownJob) -> int:
    """Return the number of a job, under which the journal has its results."""
    return job.number if isinstance(job, LiveJob | JobRecord) else 0
