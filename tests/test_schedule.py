"""Metrics, phases and remaining sizes of a schedule."""

from __future__ import annotations

from itertools import pairwise

import pytest
from numpy.testing import assert_allclose

from hesrpt import (
    Amdahl,
    InputError,
    PowerLaw,
    Workload,
    plan,
)


def test_remaining_sizes_fall_to_zero_at_completion() -> None:
    for whole in (False, True):
        for speedup in (PowerLaw(0.5), Amdahl(0.9)):
            best = plan(Workload([9, 4, 1], speedup), servers=10, whole=whole)
            assert_allclose(best.remaining_at(0.0), [9, 4, 1])
            for job, end in enumerate(best.completion_times):
                assert best.remaining_at(end * (1 - 1e-6))[job] > 0
                assert best.remaining_at(end * (1 + 1e-12))[job] == pytest.approx(0, abs=1e-9)


def test_phases_cover_the_whole_time() -> None:
    best = plan(Workload([9, 4, 4, 1], PowerLaw(0.5)), servers=10)
    phases = list(best.phases())
    assert phases[0].start == 0
    assert phases[-1].end == best.makespan
    assert all(a.end == b.start for a, b in pairwise(phases))
    work = sum(PowerLaw(0.5).rate(phase.servers) * (phase.end - phase.start) for phase in phases)
    assert_allclose(work, [9, 4, 4, 1])


def test_metrics_follow_from_completion_times() -> None:
    best = plan(Workload([9, 4, 1], PowerLaw(0.5), weights=[1, 2, 3]), servers=10)
    ends = best.completion_times
    assert best.mean_flow_time == pytest.approx(ends.sum() / 3)
    assert best.mean_slowdown == pytest.approx((ends / [9, 4, 1]).sum() / 3)
    assert best.weighted_flow_time == pytest.approx(ends @ [1, 2, 3])
    assert best.makespan == ends.max()
    assert "3 jobs on 10 servers" in repr(best)


@pytest.mark.parametrize("time", [-1.0, float("nan")])
def test_negative_times_are_refused(time: float) -> None:
    best = plan(Workload([1], PowerLaw(0.5)), 1)
    for ask in (best.servers_at, best.remaining_at):
        with pytest.raises(InputError, match="time must be"):
            ask(time)
