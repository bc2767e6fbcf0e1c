"""Compare the live scheduler with its prediction, on items that follow k^p exactly.

While k items of a job run, each of them runs at k^(p−1) of full speed, so the job as a whole runs
k^p times as fast as with one item at a time. A shared file counts the running items of each job.

Run it: python examples/predicted_and_measured.py
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from hesrpt import Pool, PowerLaw, Workload, plan, simulate


class Setting(NamedTuple):
    """The jobs to run, and the servers to run them on."""

    items: dict[str, int]  # the number of items of each job
    seconds: float  # of work in each item, on one server
    p: float
    servers: int


class Item:
    """A fixed amount of work, slowed down by the other running items of its job."""

    def __init__(self, counter: Path, seconds: float, p: float) -> None:
        self.counter, self.seconds, self.p = str(counter), seconds, p
        counter.write_bytes(struct.pack("q", 0))

    def __call__(self, number: int) -> int:
        """Work at the current speed until all work is done."""
        file = os.open(self.counter, os.O_RDWR)
        try:
            _add(file, 1)
            remaining, before = self.seconds, time.perf_counter()
            while remaining > 0:
                speed = max(_read(file), 1) ** (self.p - 1)
                time.sleep(min(remaining / speed, 0.01))
                now = time.perf_counter()
                remaining -= (now - before) * speed
                before = now
            _add(file, -1)
        finally:
            os.close(file)
        return number


class Barrier:
    """An item that waits until such an item runs on every server."""

    def __init__(self, counter: Path, servers: int) -> None:
        self.counter, self.servers = str(counter), servers
        counter.write_bytes(struct.pack("q", 0))

    def __call__(self, number: int) -> int:
        """Wait for the other items."""
        file = os.open(self.counter, os.O_RDWR)
        _add(file, 1)
        while _read(file) < self.servers:
            time.sleep(0.01)
        os.close(file)
        return number


def _add(file: int, change: int) -> None:
    fcntl.flock(file, fcntl.LOCK_EX)
    os.pwrite(file, struct.pack("q", _read(file) + change), 0)
    fcntl.flock(file, fcntl.LOCK_UN)


def _read(file: int) -> int:
    (count,) = struct.unpack("q", os.pread(file, 8, 0))
    return int(count)


def measure(policy: str, setting: Setting) -> float:
    """Run the jobs, all submitted at the start, and return their mean flow time."""
    servers, seconds, p = setting.servers, setting.seconds, setting.p
    with tempfile.TemporaryDirectory() as directory, Pool(servers, policy) as pool:
        # Wait until all workers have started, so that their start does not count as work.
        barrier = Barrier(Path(directory) / "barrier", servers)
        pool.map(barrier, range(servers), name="barrier").wait()
        jobs = [
            pool.map(
                Item(Path(directory) / name, seconds, p),
                range(items),
                name=name,
                speedup=p,
                size=items * seconds,
            )
            for name, items in setting.items.items()
        ]
        pool.wait()
        return sum(job.flow_time for job in jobs) / len(jobs)


def predict(policy: str, setting: Setting) -> float:
    """Return the mean flow time in whole servers: of the optimal plan, or of a simulation."""
    sizes = [items * setting.seconds for items in setting.items.values()]
    workload = Workload(sizes, PowerLaw(setting.p))
    if policy == "hesrpt":
        return plan(workload, setting.servers, whole=True).mean_flow_time
    return simulate(workload, setting.servers, policy, whole=True).mean_flow_time


if __name__ == "__main__":
    setting = Setting({"large": 160, "medium": 80, "small": 30}, seconds=0.1, p=0.7, servers=16)
    print("Three jobs with items of 0.1 s on 16 servers, s(k) = k^0.7. Mean flow times:")
    for policy in ("hesrpt", "equi", "fifo"):
        measured, predicted = measure(policy, setting), predict(policy, setting)
        print(f"{policy:8} measured {measured:.2f} s, predicted {predicted:.2f} s")
