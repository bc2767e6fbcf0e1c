"""Which jobs are malleable: fractions, columns and conditions; what happens to the others."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import make_trace

from hesrpt import InputError, simulate
from hesrpt.traces import Trace
from hesrpt.whatif import StudyOptions, run_study
from hesrpt.whatif.malleability import parse_malleability

TRACE = replace(
    make_trace([0, 1, 2, 3], [1, 2, 4, 8], [100, 10, 10, 5]),
    labels={
        "user": np.array(["ann", "bob", "ann", ""]),
        "elastic": np.array(["yes", "no", "TRUE", "0"]),
        "queue": np.array(["3", "12", "", "4"]),
    },
)


def select(which: str, trace: Trace = TRACE) -> list[int]:
    return np.flatnonzero(parse_malleability(which).select(trace, seed=0)).tolist()


@pytest.mark.parametrize(
    ("which", "jobs"),
    [
        ("servers >= 4", [2, 3]),
        ("servers * runtime > 30 and user == 'ann'", [0, 2]),
        ("user in ('bob', '') or runtime / 2 == 50", [0, 1, 3]),
        ("user not in ['ann']", [1, 3]),
        ("not (1 < servers <= 4)", [0, 3]),
        ("elastic", [0, 2]),
        ("not elastic and submit < 3", [1]),
        ("queue >= 4", [1, 3]),  # as numbers, and unknown is not larger
        ("-servers < -4", [3]),
        ("name == '2'", [2]),
        ("1", [0, 1, 2, 3]),
        ("0.0", []),
    ],
)
def test_conditions_select_jobs(which: str, jobs: list[int]) -> None:
    assert select(which) == jobs


@pytest.mark.parametrize(
    ("which", "message"),
    [
        ("1.5", "must be a fraction between 0 and 1, got 1.5"),
        ("0.3 of nodes", "must be a fraction of jobs, users or server-hours, got 'nodes'"),
        ("servers >=", "must be a fraction .* or a condition such as 'servers >= 8 and runtime"),
        ("__import__('os').getcwd()", 'must be a fraction .*; got "__import__'),
        ("servers", "servers is a number, neither true nor false"),
        ("servers + 1", r"servers \+ 1 is neither true nor false"),
        ("queue", "the column queue must have true or false, got '3'"),
        ("user > 3", "user does not contain numbers only"),
        ("gpus > 3", "made up has no column 'gpus' among servers, runtime, .*, user, elastic"),
        ("user in servers", "servers is not a list"),
        ("servers > (1 < 2)", "1 < 2 is not a number, a text or a column"),
    ],
)
def test_what_cannot_be_understood_is_refused(which: str, message: str) -> None:
    with pytest.raises(InputError, match=f"^malleable {message}|: {message}"):
        select(which)
    with pytest.raises(InputError, match="malleable must be a fraction"):
        parse_malleability(True)


@given(st.integers(0, 100), st.integers(0, 2**31), st.sampled_from(["jobs", "users"]))
def test_fractions_are_exact_seeded_and_nested(percent: int, seed: int, counted: str) -> None:
    rng = np.random.default_rng(3)
    trace = make_trace(list(range(200)), [1.0] * 200, rng.exponential(5, 200).tolist())
    trace = replace(trace, labels={"user": np.repeat(np.arange(100).astype(str), 2)})
    which = parse_malleability(f"{percent}% of {counted}")
    chosen = which.select(trace, seed)
    assert chosen.sum() == 2 * percent
    assert np.array_equal(chosen, which.select(trace, seed))
    if percent < 100:
        more = parse_malleability(f"{percent + 1}% of {counted}").select(trace, seed)
        assert (more | ~chosen).all()
    if counted == "users":  # both jobs of a user change, or none
        assert np.array_equal(chosen[::2], chosen[1::2])


def test_a_fraction_of_server_hours_counts_large_jobs_more() -> None:
    rng = np.random.default_rng(4)
    runtimes = rng.pareto(1.2, 3000) + 1
    trace = make_trace(list(range(3000)), [2.0] * 3000, runtimes.tolist())
    for fraction in (0.2, 0.7):
        chosen = parse_malleability(f"{fraction} of server-hours").select(trace, seed=1)
        part = runtimes[chosen].sum() / runtimes.sum()
        assert abs(part - fraction) <= runtimes.max() / runtimes.sum()
    with pytest.raises(InputError, match="cannot be a fraction of users: made up does not say"):
        parse_malleability("0.3 of users").select(trace, seed=1)


def test_the_others_stay_rigid_under_easy(example_trace: Trace) -> None:
    study = run_study(
        example_trace,
        StudyOptions(malleable=0.3, policies=["easy", "moldable", "equi", "hesrpt"], seed=5),
    )
    chosen = study.is_malleable
    assert chosen.sum() == round(0.3 * len(example_trace))
    # Rigid jobs are scheduled by EASY as if they were alone, whatever the malleable policy.
    rigid = study.runs["easy"].workload.take(np.flatnonzero(~chosen))
    alone = simulate(rigid, study.servers, "easy").completion_times
    for policy in ("equi", "hesrpt"):
        np.testing.assert_allclose(study.runs[policy].completion_times[~chosen], alone)
    # Rigid jobs run on what they asked for, and as long as in the trace.
    tally = study.runs["moldable"].tally
    assert tally is not None
    np.testing.assert_array_equal(tally.most_servers[~chosen], example_trace.servers[~chosen])
    assert (tally.most_servers[chosen] != example_trace.servers[chosen]).any()
    assert study.conclusion.startswith("with 30% of the jobs malleable and s(k) = k^0.7, ")
    assert study.notes[0].startswith(
        "malleable or moldable: 0.3 of the jobs, drawn at random (seed 5); these are 117 of 391 "
    )
    assert study.caveats[0].startswith("moldable jobs, which choose their servers once")
    assert [row["group"] for row in study.groups["kind"]] == ["malleable", "rigid"]


def test_no_malleable_job_changes_nothing(example_trace: Trace) -> None:
    study = run_study(
        example_trace, StudyOptions(malleable="servers > 1000", policies=["easy", "equi"])
    )
    np.testing.assert_array_equal(study.runs["equi"].flow_times, study.runs["easy"].flow_times)
    assert "EQUI would change nothing" in study.conclusion
    assert study.groups["kind"] == []
    all_jobs = run_study(example_trace, StudyOptions(malleable=1.0, policies=["equi"]))
    same = run_study(example_trace, StudyOptions(policies=["equi"]))
    assert all_jobs.runs["equi"].mean_flow_time == same.runs["equi"].mean_flow_time
