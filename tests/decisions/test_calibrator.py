"""What the policy of a run learns from its jobs, and that the journal keeps it."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hesrpt import Pool, PowerLaw
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import ItemsFinished, JobArrived, Start
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.policies import Calibration
from hesrpt.storage.journal import Journal


def run_core(arrivals: Sequence[tuple[float, int]], policy: str = "adaptive") -> Core:
    """Run jobs with this many items of one second, and return the core when all have ended."""
    core = Core(4, policy)
    coming: list[tuple[float, int, Any]] = []
    for number, (time, items) in enumerate(arrivals):
        spec = JobSpec(name=f"job {number}", items=items, size=float(items))
        coming.append((time, number, JobArrived(time, spec)))
    heapq.heapify(coming)
    number = len(coming)
    while coming:
        time = coming[0][0]
        events = []
        while coming and coming[0][0] == time:
            events.append(heapq.heappop(coming)[2])
        for command in core.handle(*events):
            if isinstance(command, Start):
                number += 1
                end = ItemsFinished(time + 1.0, command.job, (command.item,), (1.0,))
                heapq.heappush(coming, (time + 1.0, number, end))
    assert not core.jobs
    return core


def get_calibration(core: Core) -> Calibration:
    calibration = core.allocator.calibration
    assert calibration is not None
    return calibration


def test_batch_keeps_the_focus_of_hesrpt() -> None:
    calibration = get_calibration(run_core([(0.0, items) for items in (3, 5, 8, 13, 21)]))
    assert calibration.focus == 1.0
    assert (calibration.jobs_seen, len(calibration.jobs)) == (5, 0)


def test_stream_near_saturation_lowers_the_focus() -> None:
    rng = np.random.default_rng(1)
    times = np.cumsum(rng.exponential(2.7, 150))  # 10 seconds of work each, on 4 servers
    items = 1 + rng.geometric(0.1, 150)
    core = run_core(list(zip(times.tolist(), items.tolist(), strict=True)))
    calibration = get_calibration(core)
    assert calibration.is_stream
    assert calibration.jobs_seen == 150
    assert calibration.focus < 0.5


def test_policy_without_calibration_learns_nothing() -> None:
    core = run_core([(0.0, 3), (1.0, 2)], "hesrpt")
    assert core.allocator.calibration is None


def create_commands(*sizes: float | None, weights: Sequence[float] = ()) -> list[JobArrived]:
    weights = weights or [1.0] * len(sizes)
    return [
        JobArrived(0.0, JobSpec(name=str(n), size=size, resize="affinity", weight=weight))
        for n, (size, weight) in enumerate(zip(sizes, weights, strict=True))
    ]


def test_commands_of_unknown_size_share_servers_equally() -> None:
    core = Core(16, "adaptive")
    core.handle(*create_commands(None, None, None, None))
    assert [job.planned for job in core.jobs.values()] == [4, 4, 4, 4]
    assert core.allocator.calibration is None  # nothing to learn from


def test_commands_of_unknown_size_share_servers_by_weight() -> None:
    core = Core(16, "adaptive")
    core.handle(*create_commands(None, None, weights=[1.0, 3.0]))
    assert [job.planned for job in core.jobs.values()] == [4, 12]


def test_known_sizes_count_beside_unknown_ones() -> None:
    """A command of unknown size is expected to be as long as the known ones are on average."""
    core = Core(16, "adaptive")
    core.handle(*create_commands(10.0, None, 4000.0))
    shortest, unknown, longest = (job.planned for job in core.jobs.values())
    assert shortest >= unknown > longest
    assert get_calibration(core).jobs_seen == 2
    estimate = core.estimator.estimate_remaining
    assert estimate(core.jobs["1"], 0.0) == pytest.approx(2005.0)


def test_sizes_of_commands_are_learned_when_they_end() -> None:
    core = Core(1, "adaptive")
    core.handle(*create_commands(None))
    assert core.estimator.estimate_remaining(core.jobs["0"], 0.0) == pytest.approx(600.0)
    core.handle(ItemsFinished(3.0, "0", (0,), (3.0,)))
    core.handle(JobArrived(4.0, JobSpec(name="next", resize="affinity")))
    estimate = core.estimator.estimate_remaining
    assert estimate(core.jobs["next"], 4.0) == pytest.approx(3.0)


def run_commands(core: Core, sizes: Sequence[float], spec: JobSpec) -> None:
    """Run commands with these sizes on one server, one after another."""
    for number, size in enumerate(sizes):
        name, start = f"{spec.name} {number}", 1e6 * (number + 1)
        core.handle(JobArrived(start, replace(spec, name=name)))
        core.handle(ItemsFinished(start + size, name, (0,), (size,)))
    assert not core.jobs


@pytest.mark.parametrize("policy", ["adaptive", "hesrpt"])
def test_what_remains_of_commands_is_learned_from_those_before(policy: str) -> None:
    """If most take a second and some take 1000, a command that runs for long is a long one."""
    core = Core(1, policy)
    run_commands(core, [1.0, 1.1, 0.9, 1.2, 1000.0] * 40, JobSpec(name="one", resize="affinity"))
    core.handle(JobArrived(9e8, JobSpec(name="next", resize="affinity")))
    now = core.estimator.estimate_remaining(core.jobs["next"], 9e8)
    later = core.estimator.estimate_remaining(core.jobs["next"], 9e8 + 10)
    assert now == pytest.approx(200.84)
    assert 600 < later < 1500


def test_commands_of_unknown_size_that_run_for_long_get_fewer_servers() -> None:
    core = Core(16, "adaptive")
    for size in [1.0, 1.1, 0.9, 1.2, 1000.0] * 40:
        core.estimator.record_command(size)
    core.handle(JobArrived(9e8, JobSpec(name="old", resize="affinity", speedup=PowerLaw(0.9))))
    core.handle(JobArrived(9e8 + 10, JobSpec(name="new", resize="affinity", speedup=PowerLaw(0.9))))
    assert core.jobs["old"].planned < core.jobs["new"].planned


def test_rough_sizes_of_commands_lower_the_focus() -> None:
    rng = np.random.default_rng(2)
    focus = []
    for error in (0.0, 3.0):
        core = Core(1, "adaptive")
        for size in rng.exponential(10.0, 60).tolist():
            given = size * float(np.exp(error * rng.standard_normal()))
            run_commands(core, [size], JobSpec(name="one", size=given, resize="affinity"))
        focus.append(get_calibration(core).focus)
    assert focus[0] == 1.0
    assert focus[1] < 0.6


def read_calibration(state: Path) -> dict[str, Any]:
    with closing(Journal.read(state)) as journal:
        values: dict[str, Any] = json.loads(journal.get_value("calibration"))
        return values


def test_journal_keeps_the_calibration_over_restarts(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Pool(state=state, engine=FakeEngine(2)) as pool:
        pool.map(abs, range(9), name="first").wait()
        pool.map(abs, range(7), name="second").wait()
    learned = read_calibration(state)
    assert learned["jobs_seen"] == 2
    assert learned["jobs"] == []

    with Pool(state=state, resume=True, engine=FakeEngine(2)) as pool:
        calibration = get_calibration(pool._driver.core)
        assert calibration.without_jobs().as_json() == learned
        pool.map(abs, range(5), name="third").wait()
    assert read_calibration(state)["jobs_seen"] == 3
    assert read_calibration(state)["log_sizes"] == pytest.approx(
        learned["log_sizes"] + np.log(5.0), abs=0.5
    )


def test_another_policy_leaves_the_calibration_alone(tmp_path: Path) -> None:
    state = tmp_path / "state"
    with Pool(state=state, engine=FakeEngine(2)) as pool:
        pool.map(abs, range(3), name="first")
    learned = read_calibration(state)
    with Pool(state=state, resume=True, policy="equi", engine=FakeEngine(2)) as pool:
        pool.map(abs, range(5), name="second")
    assert read_calibration(state) == learned
