"""Pilots as a cluster of dask-jobqueue: submitting and ending them, and what Slurm says of them."""

from __future__ import annotations

import contextlib
import math
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import uuid
from collections.abc import Callable, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.security import Security

from hesrpt.engines.slurm.pilot_options import PilotOptions
from hesrpt.engines.slurm.pilots import PilotChanges, SlurmState
from hesrpt.errors import InputError
from hesrpt.units import parse_duration

# --- what Slurm's commands say: whether it takes a script, what became of jobs ------------------

# Seconds that a command may take: a busy controller can be slow.
_COMMAND_SECONDS = 60.0
_WAITING = {"PENDING", "CONFIGURING", "REQUEUED", "REQUEUE_HOLD", "RESV_DEL_HOLD", "SPECIAL_EXIT"}
_RUNNING = {"RUNNING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"}


def check_commands() -> None:
    """Raise an error if Slurm's commands are not there."""
    missing = [name for name in ("sbatch", "squeue", "scancel") if shutil.which(name) is None]
    if missing:
        raise InputError(
            f"engine 'slurm' needs Slurm's commands, but {missing[0]} is not on the PATH: run "
            "hesrpt where you submit jobs to Slurm, for instance on a login node"
        )


def check_script(script: Path) -> None:
    """Raise an error if Slurm would not take a job script; nothing is submitted."""
    done = _run("sbatch", "--test-only", str(script))
    if done.returncode != 0:
        lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
        raise InputError(f"Slurm refuses the pilots: {'; '.join(lines) or 'it says nothing'}")


def list_jobs(name: str) -> dict[str, tuple[SlurmState, float]] | None:
    """Return the jobs of this name that have not ended, with the seconds left of their walltimes.

    None if Slurm does not answer.
    """
    try:
        done = _run("squeue", "--noheader", f"--name={name}", "--format=%i|%T|%L")
    except (OSError, subprocess.SubprocessError):
        return None
    if done.returncode != 0:
        return None
    return dict(parse_queue(done.stdout))


def parse_queue(text: str) -> list[tuple[str, tuple[SlurmState, float]]]:
    """Return the jobs in the output of squeue that wait or run; others are ending.

    >>> parse_queue("7|RUNNING|1:30:00")
    [('7', (<SlurmState.RUNNING: 'running'>, 5400.0))]
    """
    jobs = []
    for line in text.splitlines():
        job, state, left = line.strip().split("|")
        if state in _WAITING:
            jobs.append((job, (SlurmState.WAITING, math.inf)))
        elif state in _RUNNING:
            jobs.append((job, (SlurmState.RUNNING, _parse_left(left))))
    return jobs


def cancel_jobs(name: str) -> None:
    """Cancel all jobs of this name; those that have ended stay as they are."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        _run("scancel", f"--name={name}")


def _parse_left(text: str) -> float:
    """Return the seconds left of a walltime.

    >>> _parse_left("1-00:00:10"), _parse_left("UNLIMITED")
    (86410.0, inf)
    """
    try:
        return parse_duration(text)
    except ValueError:
        return math.inf


def _run(*command: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=_COMMAND_SECONDS,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "LC_ALL": "C"},
    )


# The last lines of a pilot's output that an error message shows.
_SHOWN_LINES = 5


class PilotCluster:
    """A Dask scheduler in this process, and pilots that are its workers."""

    def __init__(self, options: PilotOptions, on_news: Callable[[], None]) -> None:
        check_commands()
        self.job_name = f"hesrpt-{uuid.uuid4().hex[:8]}"
        self.directory = create_private_directory(options.directory, self.job_name)
        self._numbers = count(1)
        self._on_news, self._poll_seconds = on_news, options.poll_seconds
        self._is_closed = threading.Event()
        self._states: dict[str, tuple[SlurmState, float]] | None = None
        try:
            self._cluster = self._create_cluster(options)
            try:
                self._check_script()
                self.client = Client(
                    self._cluster.scheduler_address,
                    security=self._cluster.security,
                    set_as_default=False,
                )
            except BaseException:
                self._cluster.close()
                raise
        except BaseException:
            shutil.rmtree(self.directory, ignore_errors=True)
            raise
        self._thread = threading.Thread(target=self._poll, name="hesrpt-slurm", daemon=True)
        self._thread.start()

    def _create_cluster(self, options: PilotOptions) -> Any:
        security = create_security(self.directory)
        create_cluster = import_slurm_cluster()
        try:
            return create_cluster(
                **options.describe_cluster(),
                job_name=self.job_name,
                log_directory=str(self.directory),
                local_directory="${TMPDIR:-/tmp}",  # of the node: the shell there expands it
                worker_extra_args=["--no-dashboard"],
                scheduler_options={"dashboard": False, "dashboard_address": "127.0.0.1:0"},
                security=security,
                protocol="tls://",
                silence_logs="critical",
            )
        except ValueError as error:
            raise InputError(f"dask-jobqueue refuses the pilots: {error}") from error

    def _check_script(self) -> None:
        script = self.directory / "pilot.sh"
        script.write_text(self._cluster.job_script())
        check_script(script)

    def change(self, changes: PilotChanges) -> list[str]:
        """Submit and end pilots, without waiting for Slurm; return the names of the new ones."""
        names = [f"{self.job_name}-{next(self._numbers)}" for _ in range(changes.submit)]
        for name in changes.end:
            self._cluster.worker_spec.pop(name, None)
        for name in names:
            self._cluster.worker_spec[name] = self._cluster.new_spec
        if names or changes.end:
            self._cluster.scale(jobs=len(self._cluster.worker_spec))
        return names

    def take_states(self) -> dict[str, tuple[SlurmState, float]]:
        """Return what Slurm has said about the pilots since the last call, by name."""
        states, self._states = self._states, None
        return states or {}

    def describe_failure(self) -> str:
        """Return why pilots end before they have connected, as far as can be seen."""
        try:
            check_script(self.directory / "pilot.sh")
        except InputError as error:
            return str(error)
        logs = sorted(self.directory.glob("*.err"), key=lambda path: path.stat().st_mtime)
        lines = logs[-1].read_text(errors="replace").split("\n")[-_SHOWN_LINES:] if logs else []
        said = "\n".join(line for line in lines if line.strip()) or "nothing"
        return f"the last one said, in {logs[-1] if logs else self.directory}:\n{said}"

    def close(self, *, keep_logs: bool = False) -> None:
        """End all pilots, and the Dask scheduler."""
        self._is_closed.set()
        with contextlib.suppress(Exception):
            self.client.close()
        with contextlib.suppress(Exception):
            self._cluster.close(timeout=20)
        cancel_jobs(self.job_name)
        self._thread.join()
        if keep_logs:
            for secret in self.directory.glob("*.pem"):
                secret.unlink()
        else:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _poll(self) -> None:
        """Look at Slurm's queue again and again, in a thread of its own: Slurm may be slow."""
        while not self._is_closed.wait(self._poll_seconds):
            # Pilots that are submitted while we look may be missing in what we see.
            jobs = {name: job.job_id for name, job in list(self._cluster.workers.items())}
            seen = list_jobs(self.job_name) if jobs else None
            if seen is not None:
                self._states = {
                    name: seen.get(str(job), (SlurmState.GONE, 0.0)) for name, job in jobs.items()
                }
                self._on_news()


def import_slurm_cluster() -> Callable[..., Any]:
    """Return dask-jobqueue's ``SLURMCluster``, but keep our own reaction to Ctrl+C.

    On import, dask-jobqueue replaces it by one that ends the process as if nothing had happened.
    """
    if "dask_jobqueue" not in sys.modules and (
        threading.current_thread() is not threading.main_thread()
    ):
        raise InputError("engine 'slurm' must be created in the main thread of the program")
    reaction = signal.getsignal(signal.SIGINT)
    from dask_jobqueue import SLURMCluster

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, reaction)
    cluster_class: Callable[..., Any] = SLURMCluster
    return cluster_class


def create_private_directory(parent: str | Path | None, name: str) -> Path:
    """Return a new directory that all nodes see and that nobody else can read."""
    home = Path.home() / ".hesrpt" if parent is None else Path(parent).expanduser()
    try:
        home.mkdir(parents=True, exist_ok=True)
        return Path(tempfile.mkdtemp(prefix=f"{name}-", dir=home.resolve()))
    except OSError as error:
        raise InputError(f"cannot be used: {error}", argument="directory") from error


def create_security(directory: Path) -> Security:
    """Return new keys for the connections between scheduler and pilots, kept in files.

    Without them, everybody in the cluster's network could run code as the user.
    """
    temporary: Any = Security.temporary()
    paths = {}
    for name in ("tls_ca_file", "tls_worker_cert", "tls_worker_key"):
        path = paths[name] = directory / f"{name}.pem"
        path.touch(mode=0o600)
        path.write_text(getattr(temporary, name))
    return Security(
        require_encryption=True,
        tls_ca_file=str(paths["tls_ca_file"]),
        **{f"tls_{role}_cert": str(paths["tls_worker_cert"]) for role in _ROLES},
        **{f"tls_{role}_key": str(paths["tls_worker_key"]) for role in _ROLES},
    )


_ROLES: Sequence[str] = ("scheduler", "worker", "client")
