"""The engine that runs items in Slurm jobs of its own: pilots, which are workers of a Dask cluster.

Slurm decides when and where a pilot starts. hesrpt decides how many pilots it asks for, and which
items run in them, as on any Dask cluster. Pilots are submitted and ended by dask-jobqueue, and
Slurm's commands say what has become of them.
"""

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
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any

from distributed import Client
from distributed.security import Security

from hesrpt.engines.dask.dask_engine import DaskEngine
from hesrpt.engines.dask.slots import Batch, Worker
from hesrpt.engines.engine import FinishedItems, Outcome
from hesrpt.engines.slurm.pilots import (
    MAX_FAILED_STARTS,
    PilotChanges,
    PilotTable,
    SlurmState,
    count_max_servers,
    describe_pilots,
    parse_seconds,
    parse_walltime,
)
from hesrpt.errors import InputError
from hesrpt.units import parse_duration

# Seconds between two decisions about pilots.
_DECIDE_SECONDS = 0.5


class SlurmEngine(DaskEngine):
    """Runs items in pilots: Slurm jobs that are submitted when jobs need them.

    Parameters
    ----------
    servers
        The most servers to use. A server is a core of a pilot.
    max_pilots
        The most pilots at a time, counting those that wait in Slurm's queue. Default: as many as
        ``servers`` needs.
    cores
        The cores of each pilot. A command can use at most this many servers.
    walltime
        How long a pilot may run, such as "2h" or "1-12:00:00". A pilot starts no items that would
        probably not end in time, and is replaced.
    partition, account, qos, memory
        As in sbatch; ``memory`` is that of a pilot, such as "16GB". Default: Slurm's own.
    sbatch
        Further options of sbatch, such as ["--gres=gpu:1", "--constraint=fast"].
    setup
        Lines for the shell before a pilot starts, such as ["module load python"].
    interface
        The network interface on which pilots reach this machine, such as "ib0".
    directory
        Where to keep the keys of the connections, and what pilots print. All nodes must see it.
        Default: ``.hesrpt`` in the home directory.
    idle
        How long a pilot that is not needed stays, such as "1m".
    poll
        How often to look at Slurm's queue, such as "10s".
    """

    def __init__(
        self,
        servers: int | None = None,
        *,
        max_pilots: int | None = None,
        cores: int = 1,
        walltime: str = "1h",
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        memory: str | None = None,
        sbatch: str | Sequence[str] = (),
        setup: str | Sequence[str] = (),
        interface: str | None = None,
        directory: str | Path | None = None,
        idle: str | float = "1m",
        poll: str | float = "10s",
    ) -> None:
        max_servers = count_max_servers(servers, max_pilots, cores)
        seconds = parse_walltime(walltime)
        options = describe_pilots(
            walltime=seconds,
            partition=partition,
            account=account,
            qos=qos,
            memory=memory,
            sbatch=sbatch,
            setup=setup,
            interface=interface,
        )
        self.pilots = PilotTable(
            max_pilots=math.ceil(max_servers / cores),
            cores=cores,
            walltime=seconds,
            idle_seconds=parse_seconds("idle", idle),
        )
        self._ended: set[str] = set()  # pilots that we have ended; Dask may still list them
        self._decided_at = 0.0
        self._longest: dict[str, float] = {}  # item of each job so far, in seconds
        poll_seconds = parse_seconds("poll", poll)
        self.cluster = PilotCluster(options | {"cores": cores}, directory, poll_seconds, self.wake)
        try:
            super().__init__(max_servers, cluster=self.cluster.client)
            self.table.outlasts = self._outlasts
        except BaseException:
            self.cluster.close()
            raise

    def max_command_width(self) -> float:
        return min(self.pilots.cores, self.max_capacity())

    def wait_for_outcomes(self, timeout: float) -> list[Outcome | FinishedItems]:
        outcomes = super().wait_for_outcomes(timeout)
        for each in outcomes:
            if isinstance(each, FinishedItems) or each.is_done:
                longest = max(each.seconds) if isinstance(each, FinishedItems) else each.seconds
                self._longest[each.job] = max(self._longest.get(each.job, 0.0), longest)
        now = time.monotonic()
        if now - self._decided_at >= _DECIDE_SECONDS:
            self._decided_at = now
            self._look_after_pilots(now)
        return outcomes

    def close(self) -> list[Outcome | FinishedItems]:
        try:
            return super().close()
        finally:
            self.cluster.close(keep_logs=self.pilots.failed_starts > 0)

    def _look_after_pilots(self, now: float) -> None:
        busy = {str(worker.name): len(worker.batches) for worker in self.table.workers.values()}
        self.pilots.observe_workers(busy, now)
        gone = self.pilots.observe_jobs(self.cluster.take_states(), now)
        if self.pilots.failed_starts >= MAX_FAILED_STARTS:
            raise InputError(
                f"{MAX_FAILED_STARTS} pilots in a row have ended before they had connected; "
                f"{self.cluster.describe_failure()}"
            )
        waiting = [self._estimate_seconds(batch) for batch in self.ledger.waiting]
        idle = {str(worker.name) for worker in self.table.workers.values() if worker.free > 0}
        draining = self.pilots.drain(waiting, idle, now)
        changes = self.pilots.decide(self._useful_servers, now)
        self._ended = (self._ended & set(busy)) | set(changes.end)
        self.table.drain(draining | self._ended)
        for name in changes.end:
            del self.pilots.pilots[name]
        changes = changes._replace(end=(*changes.end, *gone))
        for name in self.cluster.change(changes):
            self.pilots.add(name, now)

    def _estimate_seconds(self, batch: Batch) -> float:
        """Return how long a batch may take: as if all items were as long as the longest so far."""
        return self._longest.get(batch.job, 0.0) * len(batch.tasks)

    def _outlasts(self, worker: Worker, batch: Batch) -> bool:
        seconds = self._estimate_seconds(batch)
        return self.pilots.outlasts(str(worker.name), seconds, time.monotonic())


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
    return parse_queue(done.stdout)


def parse_queue(text: str) -> dict[str, tuple[SlurmState, float]]:
    """Return the jobs in the output of squeue that wait or run; others are ending.

    >>> parse_queue("7|RUNNING|1:30:00")
    {'7': (<SlurmState.RUNNING: 'running'>, 5400.0)}
    """
    jobs = {}
    for line in text.splitlines():
        job, state, left = line.strip().split("|")
        if state in _WAITING:
            jobs[job] = SlurmState.WAITING, math.inf
        elif state in _RUNNING:
            jobs[job] = SlurmState.RUNNING, _parse_left(left)
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

    def __init__(
        self,
        options: Mapping[str, Any],
        parent: str | Path | None,
        poll_seconds: float,
        on_news: Callable[[], None],
    ) -> None:
        check_commands()
        self.job_name = f"hesrpt-{uuid.uuid4().hex[:8]}"
        self.directory = create_private_directory(parent, self.job_name)
        self._numbers = count(1)
        self._on_news, self._poll_seconds = on_news, poll_seconds
        self._is_closed = threading.Event()
        self._states: dict[str, tuple[SlurmState, float]] | None = None
        try:
            self._cluster = self._create_cluster(options)
            try:
                script = self.directory / "pilot.sh"
                script.write_text(self._cluster.job_script())
                check_script(script)
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

    def _create_cluster(self, options: Mapping[str, Any]) -> Any:
        security = create_security(self.directory)
        create_cluster = import_slurm_cluster()
        try:
            return create_cluster(
                **options,
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
