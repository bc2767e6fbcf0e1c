"""How much work remains of each job, and how much was done on it, in seconds on one server.

The size of a job is what it says, or follows from its items: from those that are done, from earlier
jobs of its kind, or from those of all bags. Of a command of unknown size, what is expected to
remain follows from how long other commands took (:mod:`hesrpt.policies.lifetimes`).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.decisions.active_job import ActiveJob
from hesrpt.decisions.learning import ItemDurations, SharedEvidence
from hesrpt.policies.lifetimes import expect_remaining, record_lives

# The assumed duration of an item, in seconds, before any item has finished.
_DEFAULT_ITEM_SECONDS = 1.0
# At least this fraction of an item in flight is assumed to remain.
_MIN_REMAINING = 0.05
# The assumed size of a command, in seconds on one server, before that of any command is known.
_DEFAULT_COMMAND_SECONDS = 600.0


class WorkEstimator:
    """Estimates the remaining work of jobs, and learns from those that end."""

    def __init__(self) -> None:
        self.evidence = SharedEvidence()  # about p, from all jobs
        self.bag_durations = ItemDurations()  # of all bags, for those without a finished item
        self.lifetimes: FloatArray = np.zeros(0)  # of commands that have ended

    def record_command(self, size: float) -> None:
        """Learn that a command has this size."""
        sizes, has_ended = np.array([size]), np.ones(1, dtype=np.bool_)
        self.lifetimes = record_lives(self.lifetimes, np.zeros(1), sizes, has_ended)

    def record_end(self, job: ActiveJob) -> float | None:
        """Learn the size of a job that is done, and return it; None if it did nothing."""
        item_seconds = job.durations.measure_item_seconds(job.speedup.closest_exponent)
        if item_seconds is None:
            return None
        if not job.is_bag and job.spec.size is None:
            self.record_command(item_seconds)
        return job.done_count * item_seconds

    def estimate_remaining(self, job: ActiveJob, time: float) -> float:
        """Estimate the remaining work of a job."""
        if not job.is_bag:
            return self._estimate_command(job, time)
        item_seconds = self._estimate_item_seconds(job)
        items = float(job.remaining_items)
        for batch in job.batches:
            if batch.servers > 0:
                width = job.measure_width(batch, time)
                rate = float(job.speedup(width)) / width
                finished = (time - batch.started) * rate / item_seconds
                items -= min(finished, 1 - _MIN_REMAINING)
        remaining = items * item_seconds
        if job.spec.size is not None and job.items is None:
            return max(job.spec.size - job.done_count * item_seconds, remaining)
        return remaining

    def _estimate_command(self, job: ActiveJob, time: float) -> float:
        work_done = job.measure_work_done(time)
        size = job.spec.size or job.spec.prior.item_seconds
        if size is None:
            return _expect_remaining(self.lifetimes.tobytes(), work_done)
        # The same if it is past its size.
        return max(size - work_done, _MIN_REMAINING * size, work_done - size)

    def _estimate_item_seconds(self, job: ActiveJob) -> float:
        if job.spec.size is not None and job.items is not None:
            return job.spec.size / max(job.items, 1)
        item_seconds = None
        if job.is_size_known:  # of most jobs that wait, nothing is
            item_seconds = job.durations.estimate_item_seconds(job.speedup.closest_exponent)
        if item_seconds is None:
            item_seconds = self.bag_durations.measure_item_seconds(job.durations.p)
        return item_seconds or _DEFAULT_ITEM_SECONDS

    def measure_done(self, jobs: Sequence[ActiveJob], time: float) -> FloatArray:
        """Return the work that was done on each job: of a bag, on the items that are done."""
        done = [
            job.done_count and job.done_count * self._estimate_item_seconds(job)
            if job.is_bag
            else job.measure_work_done(time)
            for job in jobs
        ]
        return np.array(done, dtype=np.float64)


def has_estimate(job: ActiveJob) -> bool:
    """Return whether anything is known of a job's size: of a bag, at least its items are."""
    return job.is_bag or job.is_size_known


@lru_cache(1024)  # most commands wait, and have done nothing
def _expect_remaining(lifetimes: bytes, work_done: float) -> float:
    """Return the work that is expected to remain of a command of which nothing is known."""
    done = np.array([work_done])
    known = add_running(np.frombuffer(lifetimes).reshape(2, -1), done)
    return float(expect_remaining(known, done, _DEFAULT_COMMAND_SECONDS)[0])


def add_running(lifetimes: FloatArray, attained: FloatArray) -> FloatArray:
    """Return the lifetimes with those of jobs that still run, and have attained so much."""
    return record_lives(lifetimes, 0 * attained, attained, np.zeros(len(attained), dtype=np.bool_))
