"""Groups of jobs, and how evenly policies treat users."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from support.trace_samples import make_trace

from hesrpt.schedule import jain_index
from hesrpt.traces import Trace
from hesrpt.whatif import StudyOptions, run_study
from hesrpt.whatif.study_results import (
    MAX_USERS,
    group_by_servers,
    group_by_size,
    group_by_user,
)


def test_every_job_is_in_one_group(example_trace: Trace) -> None:
    for group in (group_by_size, group_by_servers, group_by_user):
        groups = group(example_trace)
        assert np.array_equal(sum(members for _, members in groups), np.ones(len(example_trace)))


def test_classes_of_servers_end_at_the_largest_request() -> None:
    trace = make_trace([0] * 6, [1, 2, 8, 9, 65, 100], [1] * 6, machine_servers=128)
    groups = {title: np.flatnonzero(members).tolist() for title, members in group_by_servers(trace)}
    assert groups == {
        "1 server": [0],
        "2 to 8 servers": [1, 2],
        "9 to 64 servers": [3],
        "65 to 100 servers": [4, 5],
    }
    single = make_trace([0, 0], [2, 9], [1, 1], machine_servers=9)
    assert [title for title, _ in group_by_servers(single)] == ["2 to 8 servers", "9 servers"]


def test_users_with_the_most_server_hours_have_rows_of_their_own() -> None:
    users = [f"u{number}" for number in range(MAX_USERS + 5)]
    trace = make_trace(
        [0] * len(users), [1] * len(users), [float(n + 1) for n in range(len(users))]
    )
    groups = group_by_user(replace(trace, labels={"user": np.array(users)}))
    assert len(groups) == MAX_USERS + 1
    assert groups[0][0] == f"user {users[-1]}"
    assert groups[-1][0] == "5 other users"
    assert np.flatnonzero(groups[-1][1]).tolist() == [0, 1, 2, 3, 4]
    assert group_by_user(trace) == []
    alone = replace(trace, labels={"user": np.array(["ann"] * len(users))})
    assert group_by_user(alone) == []


def test_fairness_over_users_by_hand() -> None:
    # Under FCFS the jobs run one after the other: ann waits for 0 and 10 s, bob for 15 s.
    trace = make_trace([0, 0, 0], [4, 4, 4], [10, 5, 5], machine_servers=4)
    trace = replace(trace, labels={"user": np.array(["ann", "ann", "bob"])})
    study = run_study(trace, StudyOptions(assumption=0.5, policies=["fcfs", "equi"]))
    slowdowns = np.array([(1 + 3) / 2, 4])
    fairness = study.fairness()
    assert fairness["fcfs"]["jain_index"] == pytest.approx(36 / (2 * (slowdowns @ slowdowns)))
    assert fairness["fcfs"]["worse_off"] == 0
    flow = study.runs["equi"].flow_times
    worse = [flow[:2].mean() > 1.01 * 12.5, flow[2] > 1.01 * 20]
    assert fairness["equi"]["worse_off"] == np.mean(worse)
    rows = study.groups["user"]
    assert [row["group"] for row in rows] == ["user ann", "user bob"]
    assert rows[0]["mean_flow_time"]["fcfs"] == pytest.approx(12.5)
    assert rows[1]["mean_slowdown"]["fcfs"] == pytest.approx(4)
    assert jain_index(np.array([1e300, 1e300])) == pytest.approx(1)
