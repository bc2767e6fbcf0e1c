"""Schedules of real runs: remaining work is the whole size at first, and zero when a job ends."""

from __future__ import annotations

import numpy as np
import pytest

from hesrpt import InputError, PowerLaw
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.plotting import draw_schedule
from hesrpt.reports.run_schedule import build_schedule
from hesrpt.storage.journal_entries import Holding, JobRecord

HOLDINGS = [
    Holding(0.5, 1, 2),
    Holding(0.5, 2, 1),
    Holding(3.0, 1, 0),
    Holding(3.0, 2, 3),
    Holding(5.2, 2, 0),
]


def create_record(name: str, arrived: float, ended: float, size: float) -> JobRecord:
    return JobRecord(
        spec=JobSpec(name=name),
        number={"a": 1, "b": 2}.get(name, 3),
        arrived=arrived,
        ended=ended,
        done=10,
        size=size,
        speedup=PowerLaw(0.9),
    )


def test_remaining_work_reaches_zero_when_the_job_ends() -> None:
    # Neither learned size agrees with the servers held: 100 is too much, 0.1 too little.
    records = [create_record("a", 0.1, 3.0, 100.0), create_record("b", 0.2, 5.0, 0.1)]
    schedule = build_schedule(records, HOLDINGS, servers=3)
    assert schedule.remaining_at(0.4) == pytest.approx([100.0, 0.1])
    done_by_b = 1.25 / (2.5 * 1 + 2.0 * 3**0.9)
    assert schedule.remaining_at(1.75) == pytest.approx([50.0, 0.1 * (1 - done_by_b)])
    assert schedule.remaining_at(2.999)[0] == pytest.approx(0.04, rel=0.01)
    assert schedule.remaining_at(3.0)[0] == 0
    assert schedule.remaining_at(5.0).tolist() == [0, 0]
    assert schedule.remaining_at(9.0).tolist() == [0, 0]


def test_job_that_was_never_seen_to_hold_servers_ends_at_zero() -> None:
    schedule = build_schedule([create_record("quick", 0.1, 0.2, 0.01)], [], servers=2)
    assert schedule.remaining_at(0.15) == pytest.approx([0.01])
    assert schedule.remaining_at(0.2) == pytest.approx([0.0])


def test_figure_of_a_real_run_ends_at_zero() -> None:
    records = [create_record("a", 0.1, 3.0, 100.0), create_record("b", 0.2, 5.0, 0.1)]
    above, below = draw_schedule(build_schedule(records, HOLDINGS, 3), in_seconds=True).axes
    for line, arrived, end in zip(above.get_lines(), (0.1, 0.2), (3.0, 5.0), strict=True):
        assert np.asarray(line.get_xdata())[[0, -1]] == pytest.approx([arrived, end])
        assert np.asarray(line.get_ydata())[-1] == 0
    assert below.get_xlabel() == "time (s)"


def test_run_without_ended_jobs_has_no_schedule() -> None:
    with pytest.raises(InputError, match="no job has ended yet"):
        build_schedule([], HOLDINGS, servers=3)
