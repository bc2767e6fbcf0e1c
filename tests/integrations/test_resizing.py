"""Resizes are feasible and worthwhile, and optimal if resizing is free."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.integrations.resizing import (
    ResizeSetting,
    choose_resize,
    forecast_completion_times,
    plan_servers,
)
from hesrpt.optimal import closed_form
from hesrpt.policies import round_fairly

FREE = ResizeSetting(servers=10_000, min_servers=1, max_servers=10_000, p=0.5, resize_cost=0.0)
COSTLY = ResizeSetting(servers=8, min_servers=1, max_servers=8, p=0.8, resize_cost=2.0)


@st.composite
def situations(draw: st.DrawFn) -> tuple[int, FloatArray, IntArray, ResizeSetting]:
    """Draw a job, the work and servers of all jobs, and a setting that may have too few servers."""
    jobs = draw(st.integers(1, 6))
    min_servers = draw(st.integers(1, 3))
    work = draw(st.lists(st.floats(0.01, 1000), min_size=jobs, max_size=jobs))
    more = draw(st.lists(st.integers(0, 6), min_size=jobs, max_size=jobs))
    setting = ResizeSetting(
        servers=draw(st.integers(1, 40)),
        min_servers=min_servers,
        max_servers=min_servers + draw(st.integers(6, 30)),
        p=draw(st.floats(0.05, 0.95)),
        resize_cost=draw(st.sampled_from([0.0, 0.5, 2.0, 20.0])),
    )
    held = min_servers + np.array(more)
    return draw(st.integers(0, jobs - 1)), np.array(work), held, setting


@given(situations())
def test_resizes_are_feasible_and_pay(
    situation: tuple[int, FloatArray, IntArray, ResizeSetting],
) -> None:
    job, work, held, setting = situation
    new = choose_resize(job, work, held, setting)
    if new is None:
        return
    seconds_left = work[job] / held[job] ** setting.p
    assert setting.min_servers <= new <= setting.max_servers
    assert seconds_left > setting.resize_cost, "the job is about to end"
    if new > held[job]:
        assert new <= setting.servers - (held.sum() - held[job]), "other jobs hold these servers"
        assert seconds_left - work[job] / new**setting.p > setting.resize_cost
    else:
        assert new < held[job]
        assert len(work) > 1 or held.sum() > setting.servers, "nobody else needs the servers"


@given(situations())
def test_plan_uses_all_usable_servers_and_favours_short_jobs(
    situation: tuple[int, FloatArray, IntArray, ResizeSetting],
) -> None:
    _, work, _, setting = situation
    plan = plan_servers(work, setting)
    low, high = setting.min_servers, setting.max_servers
    assert np.all((plan >= low) & (plan <= high))
    assert plan.sum() == np.clip(setting.servers, low * len(work), high * len(work))
    by_size = plan[np.argsort(work, kind="stable")]
    assert np.all(np.diff(by_size) <= 0), "a longer job has more servers"


@pytest.mark.parametrize("p", [0.3, 0.5, 0.8])
def test_plan_matches_the_paper(p: float) -> None:
    largest_first = closed_form.shares(4, p)
    work = np.array([3.0, 8.0, 1.0, 5.0])
    expected = round_fairly(500 * largest_first, 500)[[2, 0, 3, 1]]
    assert_array_equal(plan_servers(work, replace(FREE, servers=500, p=p)), expected)


def test_free_resizes_follow_the_plan_and_end_jobs_when_the_paper_says() -> None:
    work, held = np.array([50.0, 20.0, 5.0]), np.ones(3, dtype=np.int64)
    plan = plan_servers(work, FREE)
    for job in (2, 0, 1):
        assert choose_resize(job, work, held, FREE) == plan[job]
        held[job] = plan[job]
        assert choose_resize(job, work, held, FREE) is None
    optimum = closed_form.completion_times(work, FREE.servers, FREE.p)
    assert_allclose(forecast_completion_times(work, held, FREE, FREE.p), optimum, rtol=1e-3)


def test_job_gets_no_more_servers_than_are_free() -> None:
    work = np.array([400.0, 200.0, 100.0])
    assert choose_resize(2, work, np.array([1, 1, 1]), COSTLY) == 6
    assert choose_resize(2, work, np.array([1, 3, 1]), COSTLY) == 4
    assert choose_resize(2, work, np.array([4, 3, 1]), COSTLY) is None


def test_resize_that_does_not_pay_is_not_made() -> None:
    held = np.array([1, 1])
    assert choose_resize(1, np.array([100.0, 30.0]), held, COSTLY) == 7
    # Of the 30 s that remain, a resize can save 24 s.
    expensive = replace(COSTLY, resize_cost=25.0)
    assert choose_resize(1, np.array([100.0, 30.0]), held, expensive) is None


def test_servers_that_do_not_help_the_shortest_job_go_to_the_next() -> None:
    # The shortest job ends within a second, so more servers would not help it.
    assert choose_resize(0, np.array([300.0, 1.0]), np.array([1, 1]), COSTLY) == 7


def test_short_jobs_get_more_equal_shares() -> None:
    large = replace(COSTLY, servers=32, max_servers=32)
    work = np.array([20.0, 14.0, 12.0, 11.0, 10.0, 9.0, 8.0, 7.0])
    held = np.ones(8, dtype=np.int64)
    planned = plan_servers(work, large)[7]
    short, long = choose_resize(7, work, held, large), choose_resize(7, 100 * work, held, large)
    assert long == planned
    assert short is not None
    assert short < planned
    more_equal = forecast_completion_times(work, held, large, large.p / 2)
    assert more_equal.mean() < forecast_completion_times(work, held, large, large.p).mean()


def test_long_job_shrinks_for_a_short_one_if_that_pays() -> None:
    held = np.array([7, 1])
    new = choose_resize(0, np.array([5000.0, 100.0]), held, COSTLY)
    assert new is not None
    assert new < 7
    for work in ([5000.0, 4.0], [20.0, 15.0]):  # the short job, or both, are about to end
        assert choose_resize(0, np.array(work), held, COSTLY) is None
    expensive = replace(COSTLY, resize_cost=30.0)
    assert choose_resize(0, np.array([5000.0, 100.0]), held, expensive) is None


def test_job_shrinks_for_jobs_that_cannot_start() -> None:
    held = np.array([8, 1])
    assert choose_resize(0, np.array([100.0, 100.0]), held, COSTLY) in range(1, 8)
    assert choose_resize(0, np.array([5.0, 100.0]), held, COSTLY) is None, "it ends soon anyway"
    # With more jobs than servers, a job that stops would queue behind all of them.
    queue = np.array([8] + [1] * 12)
    assert choose_resize(0, np.full(13, 100.0), queue, COSTLY) is None
