"""Schedules of real runs: remaining work is the whole size at first, and zero when a job ends."""

from __future__ import annotations

import numpy as np
import pytest

from hesrpt import PowerLaw
from hesrpt.plotting import draw_schedule
from hesrpt.runtime.history import Ended, schedule_of

HOLDINGS = [(0.5, "a", 2), (0.5, "b", 1), (3.0, "a", 0), (3.0, "b", 3), (5.2, "b", 0)]


def ended(name: str, arrived: float, end: float, size: float) -> Ended:
    return Ended(name=name, arrived=arrived, ended=end, items=10, size=size, speedup=PowerLaw(0.9))


def test_remaining_work_reaches_zero_when_the_job_ends() -> None:
    # Neither learned size agrees with the servers held: 100 is too much, 0.1 too little.
    jobs = [ended("a", 0.1, 3.0, 100.0), ended("b", 0.2, 5.0, 0.1)]
    schedule = schedule_of(jobs, HOLDINGS, servers=3)
    assert schedule.remaining_at(0.4) == pytest.approx([100.0, 0.1])
    done_by_b = 1.25 / (2.5 * 1 + 2.0 * 3**0.9)
    assert schedule.remaining_at(1.75) == pytest.approx([50.0, 0.1 * (1 - done_by_b)])
    assert schedule.remaining_at(2.999)[0] == pytest.approx(0.04, rel=0.01)
    assert schedule.remaining_at(3.0)[0] == 0
    assert schedule.remaining_at(5.0).tolist() == [0, 0]
    assert schedule.remaining_at(9.0).tolist() == [0, 0]


def test_job_that_was_never_seen_to_hold_servers_ends_at_zero() -> None:
    schedule = schedule_of([ended("quick", 0.1, 0.2, 0.01)], [], servers=2)
    assert schedule.remaining_at(0.15) == pytest.approx([0.01])
    assert schedule.remaining_at(0.2) == pytest.approx([0.0])


def test_figure_of_a_real_run_ends_at_zero() -> None:
    jobs = [ended("a", 0.1, 3.0, 100.0), ended("b", 0.2, 5.0, 0.1)]
    above, below = draw_schedule(schedule_of(jobs, HOLDINGS, 3), in_seconds=True).axes
    for line, arrived, end in zip(above.get_lines(), (0.1, 0.2), (3.0, 5.0), strict=True):
        assert np.asarray(line.get_xdata())[[0, -1]] == pytest.approx([arrived, end])
        assert np.asarray(line.get_ydata())[-1] == 0
    assert below.get_xlabel() == "time (s)"
