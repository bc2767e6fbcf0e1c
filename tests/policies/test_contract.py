"""Every registered policy works in every function that takes one, or is refused with a reason."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from hesrpt import Amdahl, InputError, Pool, PowerLaw, Workload, compare, simulate
from hesrpt.cli.main import app
from hesrpt.decisions.core import Core
from hesrpt.decisions.events import Finish, ItemsFinished, JobArrived, Start, Tick
from hesrpt.decisions.forecast import collect_remaining_work, predict_ends
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.policies import (
    POLICIES,
    RigidDiscipline,
    get_policy,
    list_malleable_policies,
)
from hesrpt.policies.registry import get_title
from hesrpt.traces import Trace
from hesrpt.whatif import StudyOptions, run_study

RIGID = [name for name, entry in POLICIES.items() if isinstance(entry.create(), RigidDiscipline)]
MALLEABLE = [name for name in POLICIES if name not in RIGID]
WORKLOAD = Workload(
    [9, 4, 1], PowerLaw(0.5), arrivals=[0, 0, 0.5], weights=[1, 2, 3], requested=[4, 2, 1]
)
REASON = "cannot share servers between running jobs"


def create_trace() -> Trace:
    unknown = np.full(3, np.nan)
    return Trace(
        source="a test",
        submit_times=np.array([0.0, 10.0, 20.0]),
        runtimes=np.array([300.0, 60.0, 5.0]),
        servers=np.array([4.0, 2.0, 1.0]),
        start_times=unknown,
        estimates=unknown,
        names=("a", "b", "c"),
        machine_servers=4,
        jobs_read=3,
        dropped={},
    )


def test_both_kinds_of_policies_are_registered() -> None:
    assert {"fcfs", "easy", "moldable"} == set(RIGID)
    assert list_malleable_policies() == MALLEABLE
    assert {"hesrpt", "knee", "optimal"} < set(MALLEABLE)


@pytest.mark.parametrize("name", POLICIES)
def test_policy_has_its_registered_name(name: str) -> None:
    assert get_policy(name).name == name


@pytest.mark.parametrize("attribute", ["title", "colour", "marker"])
def test_policies_are_distinguishable_in_figures(attribute: str) -> None:
    values = [getattr(entry, attribute) for entry in POLICIES.values()]
    assert len(set(values)) == len(values)


# --- simulate, compare, whatif ------------------------------------------------------------------


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("whole", [False, True])
def test_simulate(name: str, whole: bool) -> None:
    run = simulate(WORKLOAD, servers=8, policy=name, whole=whole)
    assert run.policy == name
    assert np.isfinite(run.completion_times).all()


@pytest.mark.parametrize("name", RIGID)
def test_simulate_refuses_rigid_disciplines_without_requested_servers(name: str) -> None:
    with pytest.raises(InputError, match=f"requested is missing: policy {name} must"):
        simulate(Workload([9, 4, 1], PowerLaw(0.5)), servers=8, policy=name)


@pytest.mark.parametrize("name", MALLEABLE)
def test_simulate_with_different_speedups(name: str) -> None:
    mixed = Workload([9, 4, 1], [PowerLaw(0.5), PowerLaw(0.9), Amdahl(0.9)])
    if name.startswith("hesrpt"):
        with pytest.raises(InputError, match=f"policy {name} needs one power law .* for all jobs"):
            simulate(mixed, servers=8, policy=name)
    else:
        assert np.isfinite(simulate(mixed, servers=8, policy=name).completion_times).all()


def test_compare() -> None:
    compared = compare(WORKLOAD, servers=8, policies=list(POLICIES))
    assert list(compared) == list(POLICIES)
    assert all(np.isfinite(run.completion_times).all() for run in compared.values())


@pytest.mark.parametrize("assumption", [0.7, "uniform(0.4, 0.9)"])
def test_whatif(assumption: float | str) -> None:
    study = run_study(create_trace(), StudyOptions(assumption=assumption, policies=list(POLICIES)))
    assert list(study.runs) == list(POLICIES)
    assert all(np.isfinite(run.completion_times).all() for run in study.runs.values())


# --- the live scheduler -------------------------------------------------------------------------


def run_to_the_end(core: Core, jobs: list[JobSpec]) -> set[str]:
    """Let every item take a second, and return the jobs that finished."""
    finished = set()
    commands = core.handle(*(JobArrived(0.0, job) for job in jobs))
    time = 0.0
    while core.jobs and time < 1000:
        time += 1.0
        items = [
            (command.job, item)
            for command in commands
            if isinstance(command, Start)
            for item in command.items
        ]
        commands = core.handle(
            *(ItemsFinished(time, job, (item,), (1.0,)) for job, item in items), Tick(time)
        )
        finished |= {command.job for command in commands if isinstance(command, Finish)}
    return finished


@pytest.mark.parametrize("name", MALLEABLE)
def test_core_runs_all_jobs_and_predicts_their_ends(name: str) -> None:
    jobs = [
        JobSpec(name="large", items=20, size=100.0, speedup=PowerLaw(0.5)),
        JobSpec(name="small", items=6, size=6.0, speedup=Amdahl(0.9), weight=3.0),
        JobSpec(name="unknown", items=8),
    ]
    core = Core(4, name)
    core.handle(*(JobArrived(0.0, job) for job in jobs))
    ends = predict_ends(collect_remaining_work(core, 0.0))
    assert set(ends) == {"large", "small"}
    assert all(np.isfinite(end) for end in ends.values())
    assert run_to_the_end(Core(4, name), jobs) == {"large", "small", "unknown"}


# The core does not ask policies how to share servers between jobs that can have all servers they
# can use, nor between jobs that can use one each: it must do as they would.
@pytest.mark.parametrize("name", MALLEABLE)
@given(data=st.data())
def test_core_shares_servers_as_the_policy_does(name: str, data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    if data.draw(st.booleans()):
        counts = [1] * len(counts)  # of items: so many servers can a job use
    servers = data.draw(st.integers(1, sum(counts) + 2))
    size = st.floats(0.01, 100)
    jobs = [
        JobSpec(
            name=str(number),
            items=count,
            size=data.draw(size),
            max_servers=count,
            speedup=PowerLaw(data.draw(st.sampled_from([0.3, 0.5, 0.9]))),
        )
        for number, count in enumerate(counts)
    ]
    assert plan(name, jobs, servers, asks=False) == plan(name, jobs, servers, asks=True)


def plan(name: str, jobs: list[JobSpec], servers: int, *, asks: bool) -> list[int]:
    """Return the servers planned for each job, by asking the policy or as usual."""
    core = Core(servers, policy=name)
    with pytest.MonkeyPatch.context() as patch:
        if asks:
            patch.setattr(type(core.allocator.policy), "uses_all_servers", False)
        core.handle(*(JobArrived(0.0, job) for job in jobs))
    return [core.jobs[job.name].planned for job in jobs]


@pytest.mark.parametrize("name", RIGID)
def test_core_refuses_rigid_disciplines(name: str) -> None:
    with pytest.raises(InputError, match=f"policy {name} {REASON}"):
        Core(4, name)


@pytest.mark.parametrize("name", MALLEABLE)
def test_pool(name: str) -> None:
    with Pool(policy=name, engine=FakeEngine(4)) as pool:
        jobs = [pool.map(abs, range(items), name=str(items)) for items in (12, 3)]
        for job in jobs:
            job.wait()
        assert [job.state for job in jobs] == ["done", "done"]


@pytest.mark.parametrize("name", RIGID)
def test_pool_refuses_rigid_disciplines_before_it_starts_anything(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hesrpt.pool.pool.create_engine", lambda *_: pytest.fail("engine created"))
    with pytest.raises(InputError, match=f"policy {name} {REASON}"):
        Pool(policy=name, state=tmp_path / "state")
    assert list(tmp_path.iterdir()) == []


JOBS_FILE = """
[[job]]
name = "count"
items = {range = [0, 6]}
command = "echo {item}"

[[job]]
name = "once"
command = "echo"
"""


@pytest.mark.parametrize("name", POLICIES)
def test_run(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """``hesrpt run``, with an engine that only pretends to run the commands."""
    monkeypatch.setattr("hesrpt.pool.pool.create_engine", lambda *_: FakeEngine(4))
    (tmp_path / "jobs.toml").write_text(JOBS_FILE)
    state = tmp_path / "state"
    result = CliRunner().invoke(
        app, ["run", str(tmp_path / "jobs.toml"), "--policy", name, "--state", str(state)]
    )
    if name in RIGID:
        assert isinstance(result.exception, InputError)
        assert f"policy {name} {REASON}" in str(result.exception)
        assert not state.exists()
    else:
        assert result.exit_code == 0, result.output
        assert "once: done" in result.output
        assert f" {get_title(name)} on 4 servers" in result.output
