"""A Dask cluster of separate processes, which tests can kill."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from support.waiting import wait_until


class DaskProcesses:
    """A scheduler and workers, each with a nanny that restarts it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._log = (directory / "log").open("ab")
        self._nannies: list[subprocess.Popen[bytes]] = []
        address = directory / "scheduler.json"
        self._scheduler = self._start(
            "scheduler", "--no-dashboard", "--port", "0", "--scheduler-file", str(address)
        )
        wait_until(lambda: address.exists() and "address" in address.read_text())
        self.address: str = json.loads(address.read_text())["address"]

    def _start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "dask", *arguments, "--host", "127.0.0.1"]
        return subprocess.Popen(
            command, stdout=self._log, stderr=self._log, cwd=self.directory, env=_ENVIRONMENT
        )

    def add_worker(self, *options: str, threads: int = 1) -> None:
        """Start another worker with its nanny."""
        self._nannies.append(
            self._start(
                "worker", self.address, "--nthreads", str(threads), "--no-dashboard", *options
            )
        )

    @property
    def nanny_pids(self) -> list[int]:
        return [nanny.pid for nanny in self._nannies if nanny.poll() is None]

    @property
    def worker_pids(self) -> list[int]:
        """The process ids of the workers that there are now."""
        return [pid for nanny in self.nanny_pids for pid in _list_spawned(nanny)]

    def kill_worker(self, rng: random.Random) -> bool:
        """Kill a worker, if there is one; its nanny starts another one."""
        pids = self.worker_pids
        if pids:
            _kill(rng.choice(pids))
        return bool(pids)

    def kill_nanny(self, rng: random.Random) -> bool:
        """Kill a nanny, if there is one; its worker dies too."""
        pids = self.nanny_pids
        if pids:
            _kill(rng.choice(pids))
        return bool(pids)

    def kill_scheduler(self) -> None:
        """Kill the scheduler, without which nothing works any more."""
        self._scheduler.kill()

    def close(self) -> None:
        """Kill all processes."""
        for pid in self.worker_pids:
            _kill(pid)
        for process in [*self._nannies, self._scheduler]:
            process.kill()
            process.wait()
        self._log.close()


# Spawned processes of Dask must find the modules of the tests.
_ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}


def _list_spawned(nanny: int) -> list[int]:
    """Return the workers that a nanny has started: they run ``spawn_main`` of multiprocessing."""
    with suppress(psutil.NoSuchProcess):
        children = psutil.Process(nanny).children()
        return [each.pid for each in children if "spawn_main" in " ".join(each.cmdline())]
    return []


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


@contextmanager
def start_dask(workers: int, threads: int = 1) -> Iterator[DaskProcesses]:
    """Start a cluster with some workers."""
    with tempfile.TemporaryDirectory(prefix="dask") as directory:
        cluster = DaskProcesses(Path(directory))
        try:
            for _ in range(workers):
                cluster.add_worker(threads=threads)
            yield cluster
        finally:
            cluster.close()
