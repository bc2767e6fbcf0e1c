"""A Monte Carlo run that ends once its estimate is precise enough."""

from __future__ import annotations

import asyncio
import itertools
import math

import numpy as np
import pytest

from hesrpt import Job, JobError, Pool

DARTS = 20_000


def count_hits(seed: int) -> int:
    points = np.random.default_rng(seed).random((DARTS, 2))
    return int(((points**2).sum(axis=1) < 1).sum())


async def estimate_pi(job: Job[int], precision: float) -> tuple[float, float]:
    """Return an estimate and its standard error, and cancel the job as soon as it is precise."""
    total = 0
    results = job.iter_results(ordered=False)
    for batches in itertools.count(1):
        total += await anext(results)
        share = total / (DARTS * batches)
        error = 4 * math.sqrt(share * (1 - share) / (DARTS * batches))
        if error < precision:
            job.cancel()
            return 4 * share, error
    raise AssertionError


def test_run_ends_when_its_estimate_is_precise_and_keeps_what_was_done() -> None:
    with Pool(servers=2) as pool:
        job = pool.map(count_hits, itertools.count(), name="pi")  # it would never end by itself
        estimate, error = asyncio.run(estimate_pi(job, precision=0.004))
        with pytest.raises(JobError, match=r"^job 'pi' was cancelled$"):
            job.results()
    assert abs(estimate - math.pi) < 4 * error
    assert (job.state, job.items, job.progress) == ("cancelled", None, None)
    for seed, hits in enumerate(job.results(errors="return")):
        assert isinstance(hits, JobError) or hits == count_hits(seed)
    assert job.done >= math.pi * (4 - math.pi) / (0.004**2 * DARTS) * 0.9  # what that takes
