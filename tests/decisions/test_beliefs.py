"""What the scheduler believes of speedups: cheap if wrong, and learned from all jobs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.core_jobs import starts

from hesrpt import Measured, PowerLaw
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import ItemsFinished, JobArrived
from hesrpt.decisions.learning import (
    Evidence,
    ItemDurations,
    KindMemory,
    LearnedRun,
    SharedEvidence,
)
from hesrpt.jobs.job_spec import PRIOR_P, PRIOR_P_ERROR, JobSpec
from hesrpt.reports.counterfactuals import Capacity, ReplayedJob, replay_run
from hesrpt.speedups import Speedup

CAPPED = Measured([1, 2, 64], [1, 2, 2 + 1e-6])
EIGHT = [Capacity(0.0, 8)]


def create_jobs(seed: int, speedup: Speedup, *, together: bool) -> list[ReplayedJob]:
    """Return three to six jobs of which the scheduler knows only how many items they have."""
    rng = np.random.default_rng(seed)
    jobs, arrived = [], 0.0
    spread = float(rng.choice([0.0, 0.3]))
    for name in "abcdef"[: rng.integers(3, 7)]:
        items = round(np.exp(rng.uniform(np.log(8), np.log(100))))
        seconds = float(rng.choice([0.5, 1.0, 2.0])) * rng.lognormal(0.0, spread, items)
        spec = JobSpec(name=name, items=items)
        jobs.append(
            ReplayedJob(spec=spec, arrived=arrived, seconds=seconds.tolist(), speedup=speedup)
        )
        if not together:
            arrived += float(rng.exponential(seconds.sum() / float(speedup(4.0))))
    return jobs


def measure_mean_flow_time(jobs: list[ReplayedJob], policy: str) -> float:
    ends = replay_run(jobs, EIGHT, policy)
    return float(np.mean([ends[job.spec.name] - job.arrived for job in jobs]))


@pytest.mark.parametrize("together", [True, False])
@pytest.mark.parametrize("speedup", [CAPPED, PowerLaw(0.5), PowerLaw(0.8)])
def test_cold_start_costs_hardly_more_than_equal_shares(speedup: Speedup, together: bool) -> None:
    for seed in range(5):
        jobs = create_jobs(seed, speedup, together=together)
        equi = measure_mean_flow_time(jobs, "equi")
        assert measure_mean_flow_time(jobs, "adaptive") < 1.05 * equi, seed


def test_items_that_scale_well_are_soon_believed_to() -> None:
    """A third of what knowing p would gain over equal shares is gained from a cold start."""
    gain = best_gain = 0.0
    for seed in range(4):
        jobs = create_jobs(seed, PowerLaw(0.95), together=True)
        known = [replace(job, spec=replace(job.spec, speedup=job.speedup)) for job in jobs]
        equi = measure_mean_flow_time(jobs, "equi")
        gain += 1 - measure_mean_flow_time(jobs, "adaptive") / equi
        best_gain += 1 - measure_mean_flow_time(known, "adaptive") / equi
    assert gain > best_gain / 3 > 0.05


def test_width_of_an_item_is_the_mean_while_it_runs() -> None:
    """Four items start at once; two of them go on for as long again, two at a time."""
    core = Core(4, "fifo")
    core.handle(JobArrived(0.0, JobSpec(name="a", items=4)))
    job = core.jobs["a"]
    for item, time in enumerate([2.0, 2.0, 4.0]):
        core.handle(ItemsFinished(time, "a", (item,), (time,)))
    assert job.durations.counts == {4: 2, 3: 1}
    assert job.durations.seconds == {4: 4.0, 3: 4.0}


def fill(durations: ItemDurations, p: float) -> ItemDurations:
    for width in (1, 2, 4, 8):
        for _ in range(20):
            durations.add(width, width ** (1 - p))
    return durations


def test_jobs_learn_from_each_other_before_they_believe_their_own_items() -> None:
    shared = SharedEvidence()
    new = ItemDurations(shared=shared)
    assert new.p == PRIOR_P
    assert new.believe().error == pytest.approx(PRIOR_P_ERROR)
    assert new.believe().cautious_p < 0.2
    others = [fill(ItemDurations(shared=shared), 0.9) for _ in range(3)]
    assert 0.8 < new.p < others[0].p <= 0.9
    assert new.believe().error < PRIOR_P_ERROR / 2
    new.add(1, 1.0)
    new.add(2, 2.0)  # two items of its own say p = 0
    assert 0.7 < new.p < 0.9
    fill(new, 0.3)
    assert new.p < 0.5
    assert others[0].p > 0.75


def test_only_the_latest_jobs_are_believed() -> None:
    shared = SharedEvidence()
    old = fill(ItemDurations(shared=shared), 0.9)
    for _ in range(100):
        fill(ItemDurations(shared=shared), 0.3)
    expected = shared.predict()
    fill(old, 0.9)
    assert old.told is not None  # it counts again, and another one no more
    assert expected.p == pytest.approx(0.3, abs=0.02)
    assert shared.predict().p == pytest.approx(0.3, abs=0.03)


def test_evidence_adds_up_and_can_be_taken_back() -> None:
    one, other = Evidence.of(0.5, 0.1), Evidence.of(0.8, 0.2)
    both = one.plus(other)
    assert both.p == pytest.approx((0.5 * 100 + 0.8 * 25) / 125, abs=0.005)
    assert both.error == pytest.approx(125**-0.5)
    assert both.plus(other, -1.0) == pytest.approx(one)
    assert one.widen(0.1).error == pytest.approx(0.1 * 2**0.5)


def test_new_kind_starts_with_what_other_kinds_have_taught() -> None:
    runs = [
        LearnedRun(number=k, kind=f"k{k}", is_bag=True, durations=fill(ItemDurations(), 0.9))
        for k in range(3)
    ]
    prior = KindMemory(runs).get_prior(JobSpec(name="new"))
    assert prior.item_seconds is None
    assert 0.8 < prior.p < 0.9
    assert prior.p_error < PRIOR_P_ERROR


def test_fifo_starts_no_job_before_the_first_one_leaves_servers() -> None:
    core = Core(4, "fifo")
    arrivals = [JobArrived(0.0, JobSpec(name=name, items=6)) for name in "abc"]
    assert core.handle(*arrivals) == starts("a", 0, 1, 2, 3)
    core.handle(*(ItemsFinished(1.0, "a", (item,), (1.0,)) for item in range(4)))
    assert {name: job.observed for name, job in core.jobs.items()} == {"a": 2, "b": 2, "c": 0}


def test_short_command_of_unknown_size_does_not_wait_for_a_bag() -> None:
    bag = ReplayedJob(
        spec=JobSpec(name="bag", items=40),
        arrived=0.0,
        seconds=[1.0] * 40,
        speedup=PowerLaw(0.99),
    )
    command = ReplayedJob(
        spec=JobSpec(name="command", resize="never"),
        arrived=1.5,
        seconds=[1.0],
        speedup=PowerLaw(0.99),
    )
    ends = replay_run([bag, command], [Capacity(0.0, 2)], "adaptive")
    assert ends["command"] < 5.0 < ends["bag"]
