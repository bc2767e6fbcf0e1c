"""Studies of traces, checked by hand and against the simulator."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.trace_samples import make_trace

from hesrpt import InputError, PowerLaw, Workload, simulate
from hesrpt.policies.registry import get_title
from hesrpt.traces import Trace
from hesrpt.traces.trace import RECORDED
from hesrpt.units import format_duration_with_margin
from hesrpt.whatif import StudyOptions, run_study
from hesrpt.whatif.study_jobs import DEFAULT_POLICIES
from hesrpt.whatif.study_results import SIZE_CLASSES


def test_study_of_two_equal_jobs() -> None:
    # Each job takes 10 s on all 4 servers, so its size is 10·√4 = 20.
    study = run_study(
        make_trace([0, 0], [4, 4], [10, 10], machine_servers=4), StudyOptions(assumption=0.5)
    )
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
        "with malleable jobs and s(k) = k^0.5, on at most 4 times what the job asked for and the "
        "largest request of any job, mean flow time would fall from 15 s (EASY) to 13.7 s under "
    )


def test_conclusion_names_the_best_policy_and_equi_with_intervals() -> None:
    rng = np.random.default_rng(1)
    submitted, runtimes = np.cumsum(rng.exponential(10, 300)), rng.exponential(30, 300)
    trace = make_trace(submitted.tolist(), [4.0] * 300, runtimes.tolist(), machine_servers=8)
    policies = ["easy", "equi", "adaptive", "hesrpt", "srpt"]
    study = run_study(trace, StudyOptions(assumption=0.5, policies=policies))
    means = {policy: run.mean_flow_time for policy, run in study.runs.items()}
    best = min(policies[1:], key=means.__getitem__)
    assert study.headline_policy == best == study.as_json()["best"]
    assert means["hesrpt"] > means["equi"]  # heSRPT is worse here, and is not the headline
    # The interval is that of the means of 15 batches of 20 jobs.
    batches = study.runs[best].flow_times.reshape(15, 20).mean(axis=1)
    margin = 2.144787 * batches.std(ddof=1) / np.sqrt(15)  # Student's t with 14 degrees of freedom
    shown = format_duration_with_margin(means[best], margin)
    assert f"to {shown} under {get_title(best)}, the best of 4 policies" in study.conclusion
    row = next(row for row in study.rows() if row["policy"] == best)
    assert row["mean_flow_time_half_width"] == pytest.approx(margin, rel=1e-6)
    if best == "equi":
        assert study.conclusion.endswith("(equal shares)")
    else:
        assert "; equal shares (EQUI) reach " in study.conclusion
    only = run_study(trace, StudyOptions(assumption=0.5, policies=["easy", "equi", "hesrpt"]))
    assert only.headline_policy == "equi"
    assert only.conclusion.endswith(" under EQUI, the best of 2 policies (equal shares)")
    worse = run_study(
        trace, StudyOptions(assumption=0.5, policies=["easy", "hesrpt"], window="0s..300s")
    )
    assert worse.headline_policy == "hesrpt"
    assert "±" not in worse.conclusion  # there are too few jobs
    assert worse.rows()[0]["mean_flow_time_half_width"] is None
    assert only.distance is None
    assert only.as_json()["lower_bound"] is None
    easy = run_study(trace, StudyOptions(policies=["easy", "fcfs"]))
    assert ", mean flow time is shortest under EASY (rigid): " in easy.conclusion
    assert easy.headline_policy is None


def test_small_differences_from_equi_are_not_claimed(example_trace: Trace) -> None:
    rng = np.random.default_rng(5)
    # Jobs that hardly meet: all policies do nearly the same.
    trace = make_trace(
        np.cumsum(rng.exponential(100, 400)).tolist(),
        [2.0] * 400,
        rng.exponential(30, 400).tolist(),
    )
    study = run_study(trace, StudyOptions(assumption=0.5, policies=["easy", "equi", "hesrpt"]))
    if study.headline_policy == "hesrpt":
        assert ", no clear difference (" in study.conclusion


def test_users_estimates_are_taken_as_they_are() -> None:
    submitted, asked, runtimes = [0.0, 1.0, 2.0, 6.0], [3.0, 4.0, 1.0, 1.0], [10.0, 5.0, 6.0, 3.0]
    trace = make_trace(submitted, asked, runtimes, machine_servers=4)
    trace = replace(trace, estimates=np.array([5.0, 5.0, 6.0, 3.0]))
    study = run_study(trace, StudyOptions(policies=["easy"]))
    # As in tests/simulator/test_backfilling.py: that job 0 overruns is not foreseen.
    assert study.runs["easy"].completion_times.tolist() == pytest.approx([10, 15, 21, 18])
    assert study.notes[0] == (
        "users' estimates are 1 times the run time in the median; EASY takes them as they are, and "
        "does not foresee that 1 job ran longer"
    )
    some = replace(trace, estimates=np.array([20.0, np.nan, np.nan, np.nan]))
    assert run_study(some, StudyOptions(policies=["easy"])).notes[1] == (
        "the run times of 3 jobs without an estimate count as known"
    )


def test_sizes_may_follow_from_users_estimates() -> None:
    # Job 0 is the smaller one, but its user says otherwise.
    trace = make_trace([0, 0], [1.0, 1.0], [10.0, 20.0], machine_servers=1)
    trace = replace(trace, estimates=np.array([100.0, 20.0]))
    exact = run_study(trace, StudyOptions(policies=["srpt"])).runs["srpt"]
    assert exact.completion_times.tolist() == pytest.approx([10, 30])
    study = run_study(trace, StudyOptions(policies=["srpt"], sizes="estimates"))
    assert study.runs["srpt"].completion_times.tolist() == pytest.approx([30, 20])
    assert "sizes that follow from the users' estimates" in study.notes[1]
    with pytest.raises(InputError, match="sizes cannot be 'estimates': made up has no users'"):
        run_study(make_trace([0], [1.0], [1.0]), StudyOptions(sizes="estimates"))
    with pytest.raises(InputError, match="sizes must be"):
        run_study(trace, StudyOptions(sizes="guesses"))


def test_resizes_and_what_they_cost_are_counted() -> None:
    # Job 0 has 4 servers until job 1 arrives at 10, then 2; job 1 ends first.
    trace = make_trace([0, 10], [4.0, 4.0], [40.0, 10.0], machine_servers=4)
    study = run_study(
        trace, StudyOptions(assumption=0.5, policies=["easy", "equi"], resize_cost=2.0)
    )
    rows = {row["policy"]: row for row in study.rows()}
    assert rows["easy"]["resizes_per_job"] == rows["easy"]["server_hours_lost"] == 0
    assert rows["equi"]["resizes_per_job"] == 1  # two resizes of job 0, none of job 1
    assert rows["equi"]["server_hours_lost"] == pytest.approx((2 * 2 + 4 * 2) / 3600)
    assert study.caveats[-1].startswith(
        "under EQUI, a job was resized 1.0 times on average, and 0 server-hours were lost to it, "
    )
    assert rows["equi"]["server_time_lost"] == pytest.approx(12 / (4 * rows["equi"]["makespan"]))


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
    study = run_study(example_trace, StudyOptions(policies=["equi", "hesrpt"]))
    rows = study.groups["size"]
    assert sum(row["jobs"] for row in rows) == len(study.trace)
    assert [row["group"] for row in rows] == list(SIZE_CLASSES)
    # heSRPT favours small jobs over large ones, compared with EQUI.
    for metric in ("mean_flow_time", "mean_slowdown"):
        assert rows[0][metric]["hesrpt"] < rows[0][metric]["equi"]
        assert rows[-1][metric]["hesrpt"] > rows[-1][metric]["equi"]


def test_overload_is_noted() -> None:
    rng = np.random.default_rng(3)
    jobs = 2000
    trace = make_trace(
        submit_times=np.sort(rng.uniform(0, 1e5, jobs)).tolist(),
        servers=rng.integers(1, 9, jobs).tolist(),
        runtimes=rng.exponential(120, jobs).tolist(),
    )
    study = run_study(trace, StudyOptions(policies=["easy", "hesrpt"]))
    assert study.load > 1
    assert study.runs["easy"].is_overloaded
    assert "times the capacity of 8 servers" in study.notes[0]


def test_options_are_noted_and_affect_only_malleable_policies(example_trace: Trace) -> None:
    study = run_study(
        example_trace,
        StudyOptions(policies=["easy", "hesrpt"], resize_cost=120, size_error=1, seed=3, load=0.8),
    )
    assert study.notes[:3] == (
        "a resize stops a malleable job for 120 s",
        "malleable policies see sizes times exp(1 Z), Z standard normal (seed 3)",
        "submission times are scaled to a load of 0.8",
    )
    plain = run_study(example_trace, StudyOptions(policies=["easy", "hesrpt"], load=0.8))
    assert study.runs["easy"].mean_flow_time == plain.runs["easy"].mean_flow_time
    assert study.runs["hesrpt"].mean_flow_time > plain.runs["hesrpt"].mean_flow_time


def test_recorded_schedule_is_noted_if_partial_or_missing(example_trace: Trace) -> None:
    part = run_study(example_trace, StudyOptions(policies=["easy"], window="2d..5d"))
    assert "simulations start on an empty machine" in part.notes[-1]
    busy = run_study(example_trace, StudyOptions(policies=["easy"], load=0.8))
    assert RECORDED not in busy.runs  # the recorded waits are those of another load
    start_times = example_trace.start_times.copy()
    start_times[7] = np.nan
    incomplete = run_study(
        replace(example_trace, start_times=start_times), StudyOptions(policies=["easy"])
    )
    assert incomplete.notes[-1] == (
        "1 job has no recorded start: the recorded schedule lets it wait as long as the job "
        "submitted before"
    )
    waits = example_trace.start_times - example_trace.submit_times
    recorded = incomplete.runs[RECORDED].flow_times - example_trace.runtimes
    assert recorded[7] == pytest.approx(waits[6])
    assert np.delete(recorded, 7) == pytest.approx(np.delete(waits, 7))
    start_times[:10] = np.nan
    missing = run_study(
        replace(example_trace, start_times=start_times), StudyOptions(policies=["easy"])
    )
    assert RECORDED not in missing.runs
    assert missing.notes[-1] == (
        "the recorded schedule is not shown: 10 jobs have no recorded start"
    )


def test_all_policies_run_exactly_if_many_jobs_differ() -> None:
    rng = np.random.default_rng(1)
    jobs = 1001
    trace = make_trace(
        submit_times=(np.arange(jobs) * 20.0).tolist(),
        servers=[2.0] * jobs,
        runtimes=rng.exponential(50, jobs).tolist(),
    )
    study = run_study(trace, StudyOptions(assumption="uniform(0.4, 0.9)"))
    assert set(DEFAULT_POLICIES) <= set(study.runs)
    assert study.runs["optimal"].mean_flow_time < study.runs["easy"].mean_flow_time
    found = run_study(trace, StudyOptions(policies=["hesrpt-slowdown"])).runs["hesrpt-slowdown"]
    exact = simulate(found.workload, 8, "hesrpt-slowdown", whole=True)
    assert found.mean_flow_time == exact.mean_flow_time


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
        run_study(example_trace, StudyOptions(**arguments))  # type: ignore[arg-type]


def test_servers_are_required_if_the_trace_does_not_say(example_trace: Trace) -> None:
    with pytest.raises(InputError, match="servers must be given"):
        run_study(replace(example_trace, machine_servers=None))
