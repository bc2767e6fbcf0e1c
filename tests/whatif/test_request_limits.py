"""Limits on the servers of malleable jobs: what they change, and what they do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import make_trace

from hesrpt import InputError
from hesrpt.traces import Trace, read_trace
from hesrpt.whatif import StudyOptions, assume_speedup, run_study
from hesrpt.whatif.assumptions import DEFAULT_LIMIT, ServerLimit, parse_limit
from hesrpt.whatif.study_jobs import StudyJobs

LIMITS = st.sampled_from(["1", "3", "8", "64", "0.5x", "1x", "4x", "largest", "2x,largest", "none"])
SPEEDUPS = st.sampled_from([0.05, 0.5, 0.99, "uniform(0.2, 0.8)"])


@pytest.mark.parametrize(
    ("text", "limits"),
    [
        ("none", [64, 64, 64]),
        ("3", [3, 3, 3]),
        ("2x", [2, 8, 40]),
        ("0.3x", [1, 1, 6]),
        ("largest", [20, 20, 20]),
        ("4x,largest", [4, 16, 20]),
        (" 4X , 9 ", [4, 9, 9]),
    ],
)
def test_limits_of_jobs(text: str, limits: list[float]) -> None:
    trace = make_trace([0, 0, 0], [1, 4, 20], [1, 1, 1])
    assert parse_limit(text).compute(trace, 64).tolist() == limits


def test_default_is_a_multiple_of_the_own_request_and_the_largest_request() -> None:
    assert parse_limit(None) == DEFAULT_LIMIT == parse_limit("4x,largest")
    assert DEFAULT_LIMIT.text == (
        "on at most 4 times what the job asked for and the largest request of any job"
    )
    assert parse_limit(1).text == "on at most 1 server"
    assert parse_limit("1x").text == "on at most what the job asked for"
    assert parse_limit("none").text == ""
    assert parse_limit(ServerLimit(servers=5)).servers == 5


@pytest.mark.parametrize("text", ["", "x", "four", "4x,2x", "4,4", "largest,none", "-1", "4x,"])
def test_invalid_limits_are_refused(text: str) -> None:
    with pytest.raises(InputError, match="max_servers must be a number of servers"):
        parse_limit(text)


def test_limits_below_one_server_are_refused() -> None:
    for limit, message in ((0.5, "must be at least 1, got 0.5"), ("0x", "greater than 0, got 0x")):
        with pytest.raises(InputError, match=message):
            parse_limit(limit)


@given(st.integers(1, 64), st.floats(0.5, 1e6), SPEEDUPS, LIMITS, LIMITS)
def test_a_tighter_limit_never_changes_the_work_nor_makes_a_lone_job_faster(
    asked: int, runtime: float, p: float | str, one: str, other: str
) -> None:
    trace = make_trace([0.0], [float(asked)], [runtime])
    jobs = {
        limit: StudyJobs(trace, 64, assume_speedup(p, max_servers=limit), 1, np.array([True]))
        for limit in (one, other)
    }
    sizes = {limit: built.build_malleable().sizes[0] for limit, built in jobs.items()}
    assert sizes[one] == sizes[other] == jobs[one].build_rigid().sizes[0]
    tight, loose = sorted((one, other), key=lambda limit: jobs[limit].limits[0])
    times = [
        float(sizes[limit] / jobs[limit].build_malleable().speedups.rate(np.array([64.0]))[0])
        for limit in (tight, loose)
    ]
    assert times[0] >= times[1]
    if jobs[tight].limits[0] < asked:
        assert times[0] > runtime  # a limit below the request makes the job slower than it was


@given(
    st.lists(st.tuples(st.integers(1, 8), st.floats(0.5, 1e5)), min_size=1, max_size=20),
    SPEEDUPS,
    LIMITS,
)
def test_replaying_a_trace_at_its_own_widths_gives_its_own_run_times(
    given_jobs: list[tuple[int, float]], p: float | str, limit: str
) -> None:
    # The jobs come one at a time, so that a job never waits.
    asked, runtimes = [float(q) for q, _ in given_jobs], [r for _, r in given_jobs]
    submitted = (np.arange(len(asked)) * 2e5).tolist()
    trace = make_trace(submitted, asked, runtimes)
    easy = run_study(
        trace, StudyOptions(assumption=assume_speedup(p, max_servers=limit), policies=["easy"])
    ).runs["easy"]
    np.testing.assert_allclose(easy.flow_times, runtimes, rtol=1e-9)
    own = run_study(
        trace,
        StudyOptions(assumption=assume_speedup(p, max_servers="1x"), policies=["equi", "srpt"]),
    )
    for policy in ("equi", "srpt"):
        np.testing.assert_allclose(own.runs[policy].flow_times, runtimes, rtol=1e-9)


def test_no_job_gets_more_than_the_default_limit(example_trace: Trace) -> None:
    study = run_study(example_trace)
    limits = np.minimum(4 * example_trace.servers, example_trace.servers.max())
    for policy in ("equi", "srpt", "adaptive", "hesrpt", "hesrpt-slowdown", "optimal"):
        tally = study.runs[policy].tally
        assert tally is not None
        assert np.all(tally.most_servers <= limits)
    assert study.extrapolation is not None
    assert study.extrapolation.most_servers["equi"] <= study.extrapolation.largest_request


def test_study_says_how_far_it_goes_beyond_requests() -> None:
    # Two jobs that asked for 1 and 2 of 64 servers, one after the other.
    trace = make_trace([0.0, 1000.0], [1.0, 2.0], [100.0, 100.0], machine_servers=64)
    unlimited = run_study(
        trace,
        StudyOptions(assumption=assume_speedup(0.5, max_servers="none"), policies=["easy", "equi"]),
    )
    extrapolation = unlimited.extrapolation
    assert extrapolation is not None
    assert extrapolation.most_servers == {"equi": 64}
    assert extrapolation.largest_request == 2
    # Both hold 64 servers. For the first job 63 of them are beyond, for the second 62.
    first, second = 100 / 8, 100 * np.sqrt(2) / 8
    beyond = (63 * first + 62 * second) / (64 * (first + second))
    assert extrapolation.beyond_request["equi"] == pytest.approx(beyond)
    means = {other.text: other.flow_times["equi"] for other in extrapolation.other_limits}
    assert means["if no job got more than it asked for"] == pytest.approx(100)
    assert means["if no job got more than the largest request"] == pytest.approx(
        (100 / np.sqrt(2) + 100) / 2
    )
    assert unlimited.caveats[0] == (
        "under EQUI, a job got up to 64 servers, 32 times the largest request of 2; "
        f"{beyond:.0%} of server time was on servers beyond what the jobs had asked for"
    )
    assert unlimited.caveats[1] == (
        "if no job got more than it asked for, mean flow time would be 100 s under EQUI"
    )
    assert unlimited.as_json()["extrapolation"]["most_servers"] == {"equi": 64}
    assert run_study(trace, StudyOptions(policies=["easy"])).caveats == []


def test_each_job_can_have_its_own_multiple(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("submit,run,gpus,Grow\n0,100,4,2x\n0,100,4,0.5\n0,100,4,\n0,100,16,1\n")
    trace = read_trace(path, labels=["Grow"])
    limit = parse_limit("per-job=Grow")
    assert limit.labels == ("Grow",)
    assert limit.compute(trace, 64.0).tolist() == [8, 2, 16, 16]  # nothing stands for 4x
    assert parse_limit("PER-JOB = Grow, largest, 12").compute(trace, 64.0).tolist() == [
        *(8, 2, 12, 12)
    ]
    study = run_study(
        trace,
        StudyOptions(
            servers=64,
            assumption=assume_speedup(0.5, max_servers="per-job=Grow"),
            policies=["equi"],
        ),
    )
    assert study.assumption.text == (
        "s(k) = k^0.5, on at most the multiple of what the job asked for in column 'Grow'"
    )
    # Alone on their servers: times (requested / limit)^0.5.
    expected = 100 * np.sqrt([4 / 8, 4 / 2, 4 / 16, 16 / 16])
    np.testing.assert_allclose(study.runs["equi"].flow_times, expected)


def test_multiples_of_jobs_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("submit,run,gpus,grow,id\n0,100,4,2x,a\n0,100,4,many,b\n")
    limit = parse_limit("per-job=grow")
    with pytest.raises(InputError, match="max_servers names the column 'grow', which was not read"):
        limit.compute(read_trace(path), 64.0)
    with pytest.raises(InputError, match=r"such as 2 or 2x, or nothing for 4x; job b .* 'many'"):
        limit.compute(read_trace(path, labels=["grow"]), 64.0)


def test_result_without_extrapolation_is_shown_for_any_policy() -> None:
    trace = make_trace([0, 0, 1], [1.0, 1.0, 16.0], [10.0, 10.0, 10.0], machine_servers=32)
    study = run_study(trace, StudyOptions(assumption=0.5, policies=["easy", "srpt"]))
    assert study.extrapolation is not None
    assert [list(other.flow_times) for other in study.extrapolation.other_limits] == [["srpt"]] * 2
    usual = run_study(trace, StudyOptions(assumption=0.5, policies=["srpt", "equi"])).extrapolation
    assert usual is not None
    assert [list(other.flow_times) for other in usual.other_limits] == [["equi"]] * 2
