"""Items that obey k^p exactly, and what the scheduler makes of them.

An item takes longer the more items of its job are in flight: with k of them each goes on at k^(p−1)
of full speed, so that the job as a whole runs k^p times as fast as one item at a time. Items find
out how many they are from a counter in a file that they share. Try: python examples/synthetic.py
"""

from __future__ import annotations

import fcntl
import os
import struct
import tempfile
import time
from pathlib import Path

from hesrpt import Pool, PowerLaw, Workload, plan, simulate


class Item:
    """Some seconds of work on one server, slowed down by the other items of its job."""

    def __init__(self, counter: Path, seconds: float, p: float) -> None:
        self.counter, self.seconds, self.p = str(counter), seconds, p
        counter.write_bytes(struct.pack("q", 0))

    def __call__(self, number: int) -> int:
        """Work until done."""
        handle = os.open(self.counter, os.O_RDWR)
        try:
            self._add(handle, 1)
            left, before = self.seconds, time.perf_counter()
            while left > 0:
                (in_flight,) = struct.unpack("q", os.pread(handle, 8, 0))
                speed = max(in_flight, 1) ** (self.p - 1)
                time.sleep(min(left / speed, 0.01))
                now = time.perf_counter()
                left -= (now - before) * speed
                before = now
            self._add(handle, -1)
        finally:
            os.close(handle)
        return number

    @staticmethod
    def _add(handle: int, change: int) -> None:
        fcntl.flock(handle, fcntl.LOCK_EX)
        (count,) = struct.unpack("q", os.pread(handle, 8, 0))
        os.pwrite(handle, struct.pack("q", count + change), 0)
        fcntl.flock(handle, fcntl.LOCK_UN)


class Meeting(Item):
    """An item that ends when all servers have one of it."""

    def __init__(self, counter: Path, servers: int) -> None:
        super().__init__(counter, 0.0, 0.5)
        self.servers = servers

    def __call__(self, number: int) -> int:
        """Wait for the others."""
        handle = os.open(self.counter, os.O_RDWR)
        self._add(handle, 1)
        while struct.unpack("q", os.pread(handle, 8, 0))[0] < self.servers:
            time.sleep(0.01)
        os.close(handle)
        return number


def measure(policy: str, sizes: dict[str, int], seconds: float, p: float, servers: int) -> float:
    """Return the mean flow time of jobs with so many items each, all there from the start."""
    with tempfile.TemporaryDirectory() as place, Pool(servers, policy) as pool:
        # Servers that are still starting would count as work: meet all of them first.
        meeting = Meeting(Path(place) / "meeting", servers)
        pool.map(meeting, range(servers), name="meeting").wait()
        jobs = [
            pool.map(
                Item(Path(place) / name, seconds, p), range(items), name=name, speedup=p,
                size=items * seconds,
            )
            for name, items in sizes.items()
        ]  # fmt: skip
        pool.wait()
        return sum(job.flow_time for job in jobs) / len(jobs)


def predict(policy: str, sizes: dict[str, int], seconds: float, p: float, servers: int) -> float:
    """Return the same by simulation; under heSRPT, of the optimal plan in whole servers."""
    workload = Workload([items * seconds for items in sizes.values()], PowerLaw(p))
    if policy == "hesrpt":
        return plan(workload, servers, whole=True).mean_flow_time
    return simulate(workload, servers, policy, whole=True).mean_flow_time


if __name__ == "__main__":
    JOBS = {"large": 160, "medium": 80, "small": 30}
    print(f"{len(JOBS)} jobs of items of 0.1 s on 16 servers, s(k) = k^0.7; mean flow times:")
    for name in ("hesrpt", "equi", "fifo"):
        setting = (JOBS, 0.1, 0.7, 16)
        print(
            f"{name:8} measured {measure(name, *setting):.2f} s, "
            f"predicted {predict(name, *setting):.2f} s"
        )
