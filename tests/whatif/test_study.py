"""Studies of traces, checked by hand and against the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import make_trace

from hesrpt import InputError, PowerLaw, Workload, simulate
from hesrpt.policies.registry import get_title
from hesrpt.traces import Trace
from hesrpt.traces.trace import RECORDED
from hesrpt.whatif import assume_speedup, run_study
from hesrpt.whatif.study import DEFAULT_POLICIES, SIZE_CLASSES, build_workload


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(0.5, 1e5)), min_size=1, max_size=20),
    st.sampled_from([0.05, 0.5, 0.7, 0.99, "uniform(0.2, 0.8)"]),
)
def test_job_takes_its_recorded_run_time_on_its_own_servers(
    jobs: list[tuple[int, float]], p: float | str
) -> None:
    servers, runtimes = [float(q) for q, _ in jobs], [r for _, r in jobs]
    trace = make_trace([0.0] * len(jobs), servers, runtimes)
    workload = build_workload(trace, assume_speedup(p), seed=1)
    times = workload.sizes / workload.speedups.rate(trace.servers)
    np.testing.assert_allclose(times, runtimes, rtol=1e-12)


def test_study_of_two_equal_jobs() -> None:
    # Each job takes 10 s on all 4 servers, so its size is 10·√4 = 20.
    study = run_study(make_trace([0, 0], [4, 4], [10, 10], machine_servers=4), assumption=0.5)
    flow = {policy: run.mean_flow_time for policy, run in study.runs.items()}
    assert flow["fcfs"] == flow["easy"] == pytest.approx(15)
    assert flow["equi"] == pytest.approx(20 / np.sqrt(2))
    same = Workload([20, 20], PowerLaw(0.5), arrivals=[0, 0])
    for policy in ("srpt", "hesrpt", "optimal"):
        assert flow[policy] == simulate(same, 4, policy, whole=True).mean_flow_time
    assert RECORDED not in study.runs  # the trace has no start times
    assert study.slowdowns("easy").tolist() == pytest.approx([1, 2])
    assert study.load == np.inf  # all jobs are submitted at once
    assert study.as_json()["load"] is None
    rows = {row["policy"]: row for row in study.rows()}
    assert rows["easy"]["makespan"] == pytest.approx(20)
    assert rows["easy"]["utilisation"] == pytest.approx(1)
    assert rows["equi"]["makespan"] == pytest.approx(20 / np.sqrt(2))
    assert study.notes == ()
    assert study.conclusion.startswith(
        "with malleable jobs and s(k) = k^0.5, adaptive would cut mean flow time from 15 s (EASY) "
    )


def test_conclusion_names_the_better_of_adaptive_and_equi() -> None:
    rng = np.random.default_rng(1)
    submitted, runtimes = np.cumsum(rng.exponential(10, 300)), rng.exponential(30, 300)
    trace = make_trace(submitted.tolist(), [4.0] * 300, runtimes.tolist(), machine_servers=8)
    study = run_study(trace, assumption=0.5, policies=["easy", "equi", "adaptive", "hesrpt"])
    means = {policy: run.mean_flow_time for policy, run in study.runs.items()}
    better = "adaptive" if means["adaptive"] < means["equi"] else "equi"
    assert study.headline_policy == better
    assert f", {get_title(better)} would cut mean flow time from " in study.conclusion
    only = run_study(trace, assumption=0.5, policies=["easy", "equi", "hesrpt"])
    assert only.headline_policy == "equi"
    assert run_study(trace, assumption=0.5, policies=["easy", "hesrpt"]).headline_policy == "hesrpt"
    assert only.distance is None
    assert only.as_json()["lower_bound"] is None


def test_recorded_schedule_is_part_of_the_study(example_trace: Trace) -> None:
    study = run_study(example_trace)
    recorded = example_trace.start_times - example_trace.submit_times + example_trace.runtimes
    assert study.runs[RECORDED].mean_flow_time == pytest.approx(np.mean(recorded))
    assert study.servers == 64
    assert list(study.runs) == [RECORDED, *DEFAULT_POLICIES]
    # The example was generated with EASY, so replaying it with EASY gives almost the same.
    assert study.runs["easy"].mean_flow_time == pytest.approx(np.mean(recorded), rel=0.02)
    rows = {row["policy"]: row for row in study.rows()}
    assert rows["hesrpt"]["mean_flow_time"] < rows["easy"]["mean_flow_time"]
    assert rows["hesrpt-slowdown"]["mean_slowdown"] < rows["hesrpt"]["mean_slowdown"]
    for statistic, fraction in (("median", 0.5), ("p95", 0.95), ("p99", 0.99)):
        quantile = np.quantile(recorded, fraction)
        assert rows[RECORDED][f"{statistic}_flow_time"] == pytest.approx(quantile)
    span = (example_trace.start_times + example_trace.runtimes).max()
    utilisation = float(example_trace.servers @ example_trace.runtimes) / (64 * span)
    assert rows[RECORDED]["utilisation"] == pytest.approx(utilisation)


def test_size_classes_show_who_pays(example_trace: Trace) -> None:
    study = run_study(example_trace, policies=["equi", "hesrpt"])
    rows = study.rows_by_size()
    assert sum(row["jobs"] for row in rows) == len(study.trace)
    assert [row["class"] for row in rows] == [size_class.title for size_class in SIZE_CLASSES]
    # heSRPT favours small jobs over large ones, compared with EQUI.
    assert rows[0]["hesrpt"] < rows[0]["equi"]
    assert rows[-1]["hesrpt"] > rows[-1]["equi"]


def test_overload_is_noted() -> None:
    rng = np.random.default_rng(3)
    jobs = 2000
    trace = make_trace(
        submit_times=np.sort(rng.uniform(0, 1e5, jobs)).tolist(),
        servers=rng.integers(1, 9, jobs).tolist(),
        runtimes=rng.exponential(120, jobs).tolist(),
    )
    study = run_study(trace, policies=["easy", "hesrpt"])
    assert study.load > 1
    assert study.runs["easy"].is_overloaded
    assert "times the capacity of 8 servers" in study.notes[0]


def test_options_are_noted_and_affect_only_malleable_policies(example_trace: Trace) -> None:
    study = run_study(
        example_trace, policies=["easy", "hesrpt"], resize_cost=120, size_error=1, seed=3, load=0.8
    )
    assert study.notes == (
        "a resize stops a malleable job for 120 s",
        "malleable policies see sizes times exp(1 Z), Z standard normal (seed 3)",
        "submission times are scaled to a load of 0.8",
    )
    plain = run_study(example_trace, policies=["easy", "hesrpt"], load=0.8)
    assert study.runs["easy"].mean_flow_time == plain.runs["easy"].mean_flow_time
    assert study.runs["hesrpt"].mean_flow_time > plain.runs["hesrpt"].mean_flow_time


def test_recorded_schedule_is_noted_if_partial_or_missing(example_trace: Trace) -> None:
    part = run_study(example_trace, policies=["easy"], window="2d..5d")
    assert "simulations start on an empty machine" in part.notes[0]
    busy = run_study(example_trace, policies=["easy"], load=0.8)
    assert RECORDED not in busy.runs  # the recorded waits are those of another load
    start_times = example_trace.start_times.copy()
    start_times[7] = np.nan
    incomplete = run_study(replace(example_trace, start_times=start_times), policies=["easy"])
    assert RECORDED not in incomplete.runs
    assert incomplete.notes == ("the recorded schedule is not shown: 1 job has no recorded start",)


def test_slow_policy_runs_only_on_request() -> None:
    rng = np.random.default_rng(1)
    jobs = 1001
    trace = make_trace(
        submit_times=(np.arange(jobs) * 100.0).tolist(),
        servers=[1.0] * jobs,
        runtimes=rng.exponential(50, jobs).tolist(),
    )
    assert "optimal" not in run_study(trace, assumption="uniform(0.4, 0.9)").runs
    assert "optimal" in run_study(trace).runs
    short = run_study(trace, assumption="uniform(0.4, 0.9)", policies=["optimal"], window="0h..1h")
    assert list(short.runs) == ["optimal"]
    assert "mean flow time is shortest under optimal for a batch:" in short.conclusion


def test_slowdown_policy_is_rounded_only_for_many_jobs(example_trace: Trace) -> None:
    few = run_study(example_trace, policies=["hesrpt-slowdown"]).runs["hesrpt-slowdown"]
    exact = simulate(few.workload, 64, "hesrpt-slowdown", whole=True)
    assert few.mean_flow_time == exact.mean_flow_time
    rng = np.random.default_rng(2)
    jobs = 1001
    trace = make_trace(
        submit_times=(np.arange(jobs) * 20.0).tolist(),
        servers=[2.0] * jobs,
        runtimes=rng.exponential(50, jobs).tolist(),
    )
    many = run_study(trace, policies=["hesrpt-slowdown"]).runs["hesrpt-slowdown"]
    servers = many.servers_at(5000.0)
    assert np.array_equal(servers, np.rint(servers))
    exact = simulate(many.workload, 8, "hesrpt-slowdown", whole=True)
    assert many.mean_slowdown == pytest.approx(exact.mean_slowdown, rel=0.05)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"servers": 0}, "servers must be a whole number of at least 1, got 0"),
        ({"size_error": 1e300}, "size_error must lie between 0 and 100"),
        ({"policies": []}, "policies must name at least one policy"),
        ({"policies": ["slurm"]}, "no policy named 'slurm'"),
    ],
)
def test_invalid_arguments_are_refused(
    example_trace: Trace, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        run_study(example_trace, **arguments)  # type: ignore[arg-type]


def test_servers_are_required_if_the_trace_does_not_say(example_trace: Trace) -> None:
    with pytest.raises(InputError, match="servers must be given"):
        run_study(replace(example_trace, machine_servers=None))
