"""The run's clock: it counts the seconds during which a scheduler runs, and never goes back."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from support.inline_engine import InlineEngine

import hesrpt
from hesrpt import Pool
from hesrpt.reports.inspection import read_report, read_status

SOURCE = Path(hesrpt.__file__).parent
LIVE_ROOMS = ("jobs", "decisions", "storage", "engines", "scheduler", "reports", "pool")


def run(state: Path, *, resume: bool, clock: float, items: int) -> tuple[float, float]:
    """Run a job with an engine whose clock starts at some time; return its arrival and end."""
    engine = InlineEngine(servers=1)
    engine.time = clock
    with Pool(state=state, resume=resume, engine=engine) as pool:
        job = pool.map(abs, range(items), name="job")
        job.wait()
    (record,) = read_status(state).jobs
    assert record.ended is not None
    assert job.flow_time == pytest.approx(record.flow_time)
    return record.arrived, record.ended


@pytest.mark.parametrize("second_clock", [0.0, 2e9], ids=["steps back", "steps forward"])
def test_flow_times_do_not_depend_on_the_clocks_of_two_machines(
    tmp_path: Path, second_clock: float
) -> None:
    arrived, ended = run(tmp_path / "s", resume=False, clock=1e9, items=100)
    assert 0 <= arrived < ended < 100
    resumed_arrival, resumed_end = run(tmp_path / "s", resume=True, clock=second_clock, items=200)
    assert resumed_arrival == arrived
    assert ended < resumed_end < 200  # the time between the two runs does not count
    schedule = read_report(tmp_path / "s").schedule
    assert schedule.flow_times == pytest.approx([resumed_end - arrived])


def test_setting_the_system_time_does_not_affect_a_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    system_time = time.time
    with Pool(1, state=tmp_path / "s") as pool:
        job = pool.map(abs, [-1], timeout=30, name="first")
        job.wait()
        monkeypatch.setattr(time, "time", lambda: system_time() + 3600)
        assert pool.map(abs, [-2], timeout=30, name="second").results() == [2]
        monkeypatch.setattr(time, "time", lambda: system_time() - 3600)
        assert pool.map(abs, [-3], timeout=30, name="third").results() == [3]
    monkeypatch.setattr(time, "time", lambda: system_time() - 86400)
    with Pool(1, state=tmp_path / "s", resume=True) as pool:
        pool.map(abs, [-1, -2], name="first").wait()
    flow_times = [job.flow_time for job in read_status(tmp_path / "s").jobs]
    assert all(flow_time is not None and 0 <= flow_time < 120 for flow_time in flow_times)


def test_live_rooms_never_use_the_system_time() -> None:
    uses = [
        path.name
        for room in LIVE_ROOMS
        for path in (SOURCE / room).rglob("*.py")
        if re.search(
            r"\btime\.time(_ns)?\(|from time import.*\btime\b|datetime\.now", path.read_text()
        )
    ]
    assert uses == ["logs.py"]  # which shows the time of day to readers
