"""The servers held over time, and what other policies would have made of the latest jobs."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import TypeAdapter
from support.waiting import wait_until

from hesrpt import Pool
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.jobs_file import parse_jobs_file
from hesrpt.reports.counterfactuals import read_recent_history, subtract_others
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.service.analysis import analyse
from hesrpt.service.answers import Analysis
from hesrpt.service.schedule_view import ComparisonCache, sample_holdings
from hesrpt.storage.journal_entries import WHOLE_POOL, Holding


def test_samples_lose_no_server_seconds() -> None:
    holdings = [
        Holding(0.0, WHOLE_POOL, 4),
        Holding(1.0, 1, 3),
        Holding(1.5, 2, 1),
        Holding(1.51, 2, 0),
        Holding(6.0, 1, 0),
        Holding(6.0, 3, 2),
    ]
    picture = sample_holdings(holdings, now=10.0, points=7, jobs=2)
    width = 10.0 / 7
    series = {number: sum(servers) * width for number, servers in picture["series"]}
    assert series == pytest.approx({1: 15.0, 3: 8.0}, abs=0.01)
    assert sum(picture["others"]) * width == pytest.approx(0.01, abs=0.005)
    assert picture["capacity"] == pytest.approx([4.0] * 7)
    assert picture["times"] == pytest.approx([width * n for n in range(7)], abs=0.001)


def test_an_empty_schedule_has_its_points() -> None:
    picture = sample_holdings([], now=0.0, points=3, jobs=2)
    assert (picture["series"], picture["others"]) == ([], [0.0, 0.0, 0.0])


def test_other_jobs_leave_fewer_servers() -> None:
    holdings = [
        Holding(0.0, WHOLE_POOL, 4),
        Holding(1.0, 1, 3),
        Holding(2.0, 2, 1),
        Holding(3.0, 2, 0),
    ]
    assert subtract_others(holdings, {1}) == [
        Holding(0.0, WHOLE_POOL, 4),
        Holding(1.0, 1, 3),
        Holding(2.0, WHOLE_POOL, 3),
        Holding(3.0, WHOLE_POOL, 4),
    ]


def test_the_latest_jobs_are_compared_while_others_run(tmp_path: Path) -> None:
    engine = FakeEngine(4, lambda job, item, width: 1e9 if job == "endless" else 1.0)
    sizes = {"endless": 4, "job 1": 12, "job 2": 24, "job 3": 36}
    text = "".join(
        f'[[job]]\nname = "{name}"\ncommand = "true {{item}}"\nitems = {{range = [0, {items}]}}\n'
        "p = 0.999999\n"  # items do not slow each other down
        for name, items in sizes.items()
    )
    specs = parse_jobs_file(text, "jobs.toml", tmp_path).jobs
    specs = (replace(specs[0], max_servers=1), *specs[1:])
    with Pool(state=tmp_path / "s", engine=engine) as pool:
        # All at once: simulated time goes on while a thread adds one after the other.
        endless, *jobs = pool.add_jobs([LiveJob.from_command(spec) for spec in specs])
        for job in jobs:
            job.wait(60)
        history = read_recent_history(tmp_path / "s", most=2)
        assert history is not None
        assert len(history.records) == 2
        assert "endless" not in [record.name for record in history.records]
        found = analyse(tmp_path / "s")
        endless.cancel()
    assert TypeAdapter(Analysis).dump_python(TypeAdapter(Analysis).validate_python(found)) == found
    comparison, bound = found["comparison"], found["bound"]
    assert (comparison["jobs"], comparison["policy"]) == (3, "adaptive")
    assert comparison["reason"] is None
    measured = comparison["measured"]
    own, fifo, equi = comparison["simulated"]
    assert [each["policy"] for each in (own, fifo, equi)] == ["adaptive", "fifo", "equi"]
    assert abs(own["mean_flow_time"] - measured) <= own["margin"] + 1e-9
    assert equi["mean_flow_time"] > own["mean_flow_time"] - own["margin"]
    assert bound["reason"] is None
    assert bound["ratio"] == pytest.approx(measured / bound["mean_flow_time"])
    assert bound["ratio"] >= 1
    assert analyse(tmp_path / "s")["comparison"]["jobs"] == 3


def test_nothing_is_compared_before_two_jobs_are_done(tmp_path: Path) -> None:
    with Pool(state=tmp_path / "s", engine=FakeEngine(4)) as pool:
        pool.map(abs, [1])
    assert analyse(tmp_path / "s") == {"comparison": None, "bound": None}


@pytest.mark.slow
def test_another_process_compares(tmp_path: Path) -> None:
    with Pool(state=tmp_path / "s", engine=FakeEngine(4)) as pool:
        for name in "abc":
            pool.map(abs, range(9), name=name)
    cache = ComparisonCache(tmp_path / "s")
    assert cache.get(0) == Analysis(comparison=None, bound=None)
    cache.get(3)
    wait_until(lambda: cache.get(3)["comparison"] is not None, 300)
    found = TypeAdapter(Analysis).validate_python(cache.get(3))
    assert found["comparison"] is not None
    assert found["comparison"]["jobs"] == 3
