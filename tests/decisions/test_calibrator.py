"""What the policy of a run learns from its jobs, and that the journal keeps it."""

from __future__ import annotations

import heapq
import json
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hesrpt import Pool
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
    estimate = core.allocator.estimate_remaining
    assert estimate(core.jobs["1"], 0.0) == pytest.approx(2005.0)


def test_sizes_of_commands_are_learned_when_they_end() -> None:
    core = Core(1, "adaptive")
    core.handle(*create_commands(None))
    assert core.allocator.estimate_remaining(core.jobs["0"], 0.0) == pytest.approx(600.0)
    core.handle(ItemsFinished(3.0, "0", (0,), (3.0,)))
    core.handle(JobArrived(4.0, JobSpec(name="next", resize="affinity")))
    assert core.allocator.estimate_remaining(core.jobs["next"], 4.0) == pytest.approx(3.0)
    # Commands that take longer than that may well need as much again.
    assert core.allocator.estimate_remaining(core.jobs["next"], 54.0) == pytest.approx(50.0)


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
