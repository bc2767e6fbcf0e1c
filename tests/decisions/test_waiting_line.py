"""Plans for many jobs: only those that run and those that are next take part."""

from __future__ import annotations

import heapq
from random import Random

import numpy as np
import pytest
from support.core_jobs import bag, command

from hesrpt.arrays import FloatArray
from hesrpt.decisions.active_job import ActiveJob
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import (
    CapacityChanged,
    Command,
    Finish,
    ItemsExhausted,
    ItemsFinished,
    ItemsRead,
    JobArrived,
    JobSteered,
    Start,
    Tick,
)
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.policies import HeSrpt, State


class VirtualRun:
    """A core whose items take as long as a function says."""

    def __init__(self, core: Core, seconds: float = 1.0) -> None:
        self.core, self.seconds, self.time = core, seconds, 0.0
        self.ends: list[tuple[float, int, str, int]] = []
        self.started: list[str] = []
        self.ended: list[str] = []

    def handle(self, *events: object) -> list[Command]:
        commands = self.core.handle(*events)  # type: ignore[arg-type]
        for each in commands:
            if isinstance(each, Start):
                self.started.append(each.job)
                for item in each.items:
                    end = self.time + self.seconds
                    heapq.heappush(self.ends, (end, len(self.started), each.job, item))
            elif isinstance(each, Finish):
                self.ended.append(each.job)
        return commands

    def finish_item(self) -> list[Command]:
        self.time, _, job, item = heapq.heappop(self.ends)
        return self.handle(ItemsFinished(self.time, job, (item,), (self.seconds,)))


def arrive(jobs: int, **options: object) -> list[JobArrived]:
    return [JobArrived(0.0, bag(f"j{n}", 1, float(n + 1), **options)) for n in range(jobs)]


@pytest.mark.parametrize("policy", ["adaptive", "hesrpt", "srpt", "optimal"])
def test_the_smallest_of_many_jobs_run_first(policy: str) -> None:
    run = VirtualRun(Core(4, policy))
    arrivals = arrive(150)
    Random(1).shuffle(arrivals)
    run.handle(*arrivals)
    while run.core.jobs:
        run.finish_item()
    assert run.started == [f"j{n}" for n in range(150)]


@pytest.mark.parametrize("policy", ["equi", "fifo"])
def test_the_first_of_many_jobs_run_first(policy: str) -> None:
    run = VirtualRun(Core(4, policy))
    arrivals = arrive(150)
    Random(1).shuffle(arrivals)
    run.handle(*arrivals)
    while run.core.jobs:
        run.finish_item()
    # Jobs that start at the same time do so from the smallest to the largest.
    places = {arrival.spec.name: place for place, arrival in enumerate(arrivals)}
    assert all(abs(places[name] - place) < 4 for place, name in enumerate(run.started))


def test_a_small_job_that_arrives_is_next_even_if_many_wait() -> None:
    run = VirtualRun(Core(4, "adaptive"))
    run.handle(*(JobArrived(0.0, bag(f"j{n}", 1, 100.0 + n)) for n in range(1000)))
    for number in range(40):
        name = f"small {number}"
        run.handle(JobArrived(run.time, bag(name, 1, 1.0)))
        run.finish_item()
        assert run.started[-1] == name


def test_a_large_job_that_arrives_waits_for_its_turn() -> None:
    run = VirtualRun(Core(4, "srpt"))
    run.handle(*arrive(200), JobArrived(0.0, bag("medium", 1, 100.5)))
    run.finish_item()
    run.handle(*(JobArrived(run.time, bag(f"large {n}", 1, 1000.0 + n)) for n in range(50)))
    run.handle(JobArrived(run.time, bag("late medium", 1, 150.5)))
    while run.core.jobs:
        run.finish_item()
    assert run.started.index("medium") == 100
    assert run.started.index("late medium") == 151
    assert run.started[-50:] == [f"large {n}" for n in range(50)]


def test_many_jobs_may_end_at_the_same_time() -> None:
    core = Core(64, "adaptive")
    run = VirtualRun(core)
    run.handle(*arrive(1000))
    for _ in range(10):
        assert core.tally.observed == 64
        time, *_ = run.ends[0]
        events = [ItemsFinished(time, job, (item,), (1.0,)) for _, _, job, item in run.ends]
        run.ends, run.time = [], time
        run.handle(*events)
    assert core.tally.observed == 64


def test_bags_of_unknown_size_start_early_however_many_wait() -> None:
    run = VirtualRun(Core(4, "srpt"))
    run.handle(*arrive(300), JobArrived(0.0, JobSpec(name="unknown", items=1000)))
    assert "unknown" not in run.started
    run.handle(*(JobArrived(0.0, bag(f"bag {n}", 9, 0.5)) for n in range(2)))
    for _ in range(8):
        run.finish_item()
    assert "unknown" in run.started


def test_bags_that_are_promised_servers_get_them_however_many_wait() -> None:
    core = Core(4, "srpt")
    run = VirtualRun(core)
    run.handle(*arrive(300))
    run.handle(JobArrived(0.0, bag("promised", 100, 1e6, min_servers=2)))
    assert core.jobs["promised"].planned == 2
    run.finish_item()
    run.finish_item()
    assert run.started[-2:] == ["promised", "promised"]


def test_jobs_that_change_while_they_wait_are_compared_again() -> None:
    core = Core(2, "adaptive")
    run = VirtualRun(core)
    run.handle(*arrive(300))
    run.handle(JobSteered(0.0, "j299", weight=1e6))
    run.finish_item()
    assert run.started[-1] == "j299"
    run.handle(JobSteered(run.time, "j2", is_paused=True))
    run.finish_item()
    assert run.started[-1] == "j3"
    run.handle(JobSteered(run.time, "j2", is_paused=False))
    run.finish_item()
    assert run.started[-1] == "j2"


def test_servers_may_change_while_many_jobs_wait() -> None:
    core = Core(0, "adaptive")
    run = VirtualRun(core)
    run.handle(*arrive(300), JobArrived(0.0, command("wide", min_servers=8, resize="never")))
    assert run.started == []
    run.handle(CapacityChanged(0.0, 4))
    assert run.started == ["j0", "j1", "j2", "j3"]
    run.handle(CapacityChanged(0.0, 100))
    assert core.tally.observed == 100
    run.handle(CapacityChanged(0.0, 0))
    while run.ends:
        run.finish_item()
    assert core.tally.observed == 0


def test_a_policy_without_an_order_sees_all_jobs() -> None:
    seen: list[int] = []

    def shortest_first(state: State) -> FloatArray:
        seen.append(len(state))
        held = np.zeros(len(state))
        held[np.argmin(state.remaining)] = state.servers
        return held

    run = VirtualRun(Core(1, shortest_first))
    arrivals = arrive(100)
    Random(1).shuffle(arrivals)
    run.handle(*arrivals)
    assert seen == [100]
    while run.core.jobs:
        run.finish_item()
    assert run.started == [f"j{n}" for n in range(100)]


def test_few_jobs_are_planned_one_by_one_after_many_have_left() -> None:
    core = Core(2, "adaptive")
    run = VirtualRun(core)
    run.handle(*(JobArrived(0.0, bag(f"j{n}", 3, 3.0)) for n in range(60)))
    while len(core.jobs) > 3:
        run.finish_item()
    run.handle(Tick(run.time + 5))
    while core.jobs:
        run.finish_item()
    assert len(run.started) == 180
    assert core.tally.observed == 0


def test_many_jobs_whose_items_are_read_later_start_as_they_are_read() -> None:
    core = Core(4, "adaptive")
    run = VirtualRun(core)
    names = [f"j{n}" for n in range(200)]
    specs = [JobSpec(name=name, items=2, is_streamed=True) for name in names]
    run.handle(*(JobArrived(0.0, spec) for spec in specs))
    assert run.started == []
    for name in names:
        run.handle(ItemsRead(0.0, name, 2), ItemsExhausted(0.0, name, 2))
    assert core.tally.observed == 4
    while run.ends:
        run.finish_item()
    assert sorted(run.ended) == sorted(names)


def test_changed_jobs_are_those_with_other_servers() -> None:
    core = Core(2, "fifo")
    run = VirtualRun(core)
    run.handle(*(JobArrived(0.0, bag(f"j{n}", 2, 1.0)) for n in range(1000)))
    assert {job.name for job in core.tally.changed} == {"j0"}
    core.tally.changed.clear()
    run.finish_item()
    assert {job.name for job in core.tally.changed} <= {"j0", "j1"}
    core.tally.changed.clear()
    run.handle(Tick(run.time))
    assert core.tally.changed == set()


@pytest.mark.parametrize("items", [1, 100])
@pytest.mark.parametrize("policy", ["adaptive", "equi"])
def test_the_work_for_an_item_does_not_grow_with_the_queue(
    policy: str, items: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    core, estimates = Core(4, policy), 0
    run = VirtualRun(core)
    estimate = core.estimator.estimate_remaining

    def count(job: ActiveJob, time: float) -> float:
        nonlocal estimates
        estimates += 1
        return estimate(job, time)

    monkeypatch.setattr(core.estimator, "estimate_remaining", count)
    run.handle(*(JobArrived(0.0, JobSpec(name=f"j{n}", items=items)) for n in range(800)))
    estimates = 0
    for number in range(100):
        ended = len(run.ended)
        run.finish_item()
        if len(run.ended) > ended:
            run.handle(JobArrived(run.time, JobSpec(name=f"later {number}", items=items)))
    # Plans are for a few jobs, and all 800 are compared only now and then.
    assert estimates / 100 < 150


def test_jobs_that_wait_count_with_their_weights() -> None:
    seen: list[float] = []

    class Watched(HeSrpt):
        def __call__(self, state: State) -> FloatArray:
            seen.append(state.others)
            return super().__call__(state)

    core = Core(4, Watched())
    specs = [JobSpec(name=f"j{n}", items=5, weight=2.0 + 2 * (n % 2)) for n in range(200)]
    core.handle(*(JobArrived(0.0, spec) for spec in specs))
    assert seen[0] == pytest.approx(3 * (200 - len(list(core.line.contenders))))
