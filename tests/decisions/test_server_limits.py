"""How many servers a job may have: what users can say, in Python and in jobs files."""

from __future__ import annotations

import logging
from math import inf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.waiting import wait_until

from hesrpt import InputError, Pool
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import CapacityChanged, JobArrived
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.jobs_file import parse_jobs_file
from hesrpt.pool.batch_run import RunOptions, run_jobs
from hesrpt.scheduler.decision_log import WaitingWarner
from hesrpt.scheduler.live_job import LiveJob

BAD_LIMITS: list[tuple[dict[str, Any], str]] = [
    ({"servers": 0}, "servers must be a whole number from 1 to 1,000,000, got 0"),
    ({"max_servers": 1.5}, "max_servers must be a whole number from 1 to 1,000,000, got 1.5"),
    ({"min_servers": "2"}, "min_servers must be a whole number from 1 to 1,000,000, got '2'"),
    ({"max_servers": True}, "max_servers must be a whole number from 1 to 1,000,000, got True"),
    (
        {"max_servers": 1_000_001},
        "max_servers must be a whole number from 1 to 1,000,000, got 1000001",
    ),
    ({"min_servers": 3, "max_servers": 2}, "min_servers must be at most max_servers, which is 2"),
    ({"servers": 2, "max_servers": 3}, "max_servers cannot be combined with servers"),
    ({"servers": 2, "min_servers": 1}, "min_servers cannot be combined with servers"),
]


@pytest.mark.parametrize(("limits", "message"), BAD_LIMITS)
def test_impossible_limits_are_refused(limits: dict[str, Any], message: str) -> None:
    with Pool(engine=FakeEngine(4)) as pool:
        with pytest.raises(InputError, match=message):
            pool.map(abs, [1], **limits)
        with pytest.raises(InputError, match=message):
            pool.executor(**limits)
        assert pool.jobs == []
    lines = [
        f"{key} = {str(value).lower() if value is True else repr(value)}"
        for key, value in limits.items()
    ]
    text = "\n".join(["[[job]]", "name = 'a'", "command = 'true'", *lines])
    with pytest.raises(InputError, match=f"jobs.toml:[45]: {message}"):
        parse_jobs_file(text, "jobs.toml", Path())


def parse(command: str, *lines: str) -> JobSpec:
    text = "\n".join(["[[job]]", "name = 'a'", f"command = '{command}'", *lines])
    return parse_jobs_file(text, "jobs.toml", Path()).jobs[0]


@pytest.mark.parametrize(
    ("command", "lines", "expected"),
    [
        ("sleep 3", [], (0, 1)),
        ("run -j {servers}", [], (0, None)),
        ("sleep 3", ["resize = 'never'"], (0, 1)),
        ("run", ["resize = 'affinity'"], (0, None)),
        ("run", ["servers = 2"], (2, 2)),
        ("run -j {servers}", ["servers = 1"], (1, 1)),
        ("run", ["max_servers = 3"], (0, 3)),
        ("run", ["min_servers = 2", "max_servers = 3"], (2, 3)),
        ("run {item}", ["items = [1]"], (0, None)),
        ("run {item}", ["items = [1]", "servers = 2"], (2, 2)),
    ],
)
def test_command_without_servers_is_one_server_wide(
    command: str, lines: list[str], expected: tuple[int, int | None]
) -> None:
    spec = parse(command, *lines)
    assert (spec.min_servers, spec.max_servers) == expected
    assert JobSpec.from_json(spec.to_json()) == spec


def test_four_commands_run_side_by_side_on_four_servers(tmp_path: Path) -> None:
    """Each one waits for the others."""
    line = "touch {job}.here; until [ $(ls *.here | wc -l) = 4 ]; do sleep 0.02; done"
    job = f"[[job]]\nname = 'NAME'\ncommand = '{line}'\ntimeout = 60\n"
    text = "".join(job.replace("NAME", name) for name in "abcd")
    pool = run_jobs(parse_jobs_file(text, "jobs.toml", tmp_path).jobs, RunOptions(servers=4))
    assert [job.state for job in pool.jobs] == ["done"] * 4


def test_command_that_needs_three_servers_never_starts_on_less(tmp_path: Path) -> None:
    """It is beside items that hold two of four servers until it could have started on the rest."""
    text = """
        [[job]]
        name = "items"
        items = [1, 2, 3, 4, 5, 6, 7, 8]
        command = "sleep 0.1"
        [[job]]
        name = "wide"
        command = "echo {servers} > width"
        min_servers = 3
    """
    pool = run_jobs(parse_jobs_file(text, "jobs.toml", tmp_path).jobs, RunOptions(servers=4))
    assert [job.state for job in pool.jobs] == ["done"] * 2
    assert int((tmp_path / "width").read_text()) >= 3


def test_python_jobs_keep_to_their_limits() -> None:
    with Pool(engine=FakeEngine(4)) as pool:
        pool.map(abs, range(8), max_servers=2)
        with pool.executor(servers=1) as executor:
            executor.map(abs, range(3))
    schedule = pool.schedule
    held = [
        schedule.servers_at(time) for time in np.arange(0, schedule.completion_times.max(), 0.5)
    ]
    assert np.max(held, axis=0).tolist() == [2, 1]


def test_job_that_needs_more_servers_than_there_are_is_refused(tmp_path: Path) -> None:
    message = "job 'wide': it needs at least 5 servers, but there are only 4"
    with Pool(engine=FakeEngine(4)) as pool:
        with pytest.raises(InputError, match=message):
            pool.map(abs, [1], name="wide", min_servers=5)
        pool.map(abs, [1], name="narrow", max_servers=5)
        with pytest.raises(InputError, match="job 'a': it needs at least 5 servers"):
            pool.add_jobs([LiveJob.from_command(parse("run", "servers = 5"))])
    assert [job.name for job in pool.jobs] == ["narrow"]


def test_command_that_is_wider_than_every_node_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FakeEngine, "max_command_width", lambda engine: 2)
    with Pool(engine=FakeEngine(4)) as pool:
        pool.map(abs, [1], name="bag", min_servers=3)
        with pytest.raises(InputError, match="'a': it needs at least 3 servers, but a command can"):
            pool.add_jobs([LiveJob.from_command(parse("run", "servers = 3"))])


class GrowingEngine(FakeEngine):
    """Pretends to be a cluster that may grow."""

    def max_capacity(self) -> float:
        return inf


def test_job_waits_for_a_cluster_to_grow(caplog: pytest.LogCaptureFixture) -> None:
    engine = GrowingEngine(2)
    with Pool(engine=engine) as pool:
        (job,) = pool.add_jobs([LiveJob.from_command(parse("run {servers}", "min_servers = 3"))])
        wait_until(lambda: "needs at least 3 servers" in caplog.text)
        assert not job.has_ended
        engine.servers = 4
        assert job.wait(60)


def test_each_reason_to_wait_is_warned_of_once(caplog: pytest.LogCaptureFixture) -> None:
    core, warner = Core(2), WaitingWarner()
    caplog.set_level(logging.WARNING, "hesrpt")

    def count_warnings(time: float) -> int:
        warner.warn(core, time)
        return len(caplog.records)

    core.handle(JobArrived(0, parse("run", "min_servers = 3")))
    assert [count_warnings(time) for time in (0, 2, 4, 8)] == [0, 0, 1, 1]
    assert caplog.messages[-1] == (
        "hesrpt: job 'a' is waiting, because it needs at least 3 servers on one node, "
        "and there are at most 2"
    )
    core.handle(CapacityChanged(8, 0))
    assert [count_warnings(time) for time in (8, 12, 16)] == [1, 2, 2]
    assert "no free servers" in caplog.messages[-1]
    core.handle(CapacityChanged(16, 4))
    assert count_warnings(20) == 2
    core.handle(CapacityChanged(20, 0))
    assert [count_warnings(time) for time in (20, 24)] == [2, 3]
