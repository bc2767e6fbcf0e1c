"""Lists of training jobs: sizes and speedups from measured step times, and clear errors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.trace_samples import TRAINING, assert_jobs, assert_valid, write_file

from hesrpt import InputError, Measured
from hesrpt.traces import read_trace

JOB: dict[str, Any] = {"job": "a", "arrival": 5, "iterations": 10, "step_seconds": [4, 2.5, 2]}


def write_jobs(directory: Path, *jobs: dict[str, Any]) -> Path:
    return write_file(directory, "".join(json.dumps(job) + "\n" for job in jobs))


def test_training_jobs_are_read(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, TRAINING))
    assert_valid(trace)
    assert trace.names == ("ranking", "vision", "3", "language")
    assert trace.labels["user"].tolist() == ["bob", "ann", "", ""]
    assert trace.machine_servers == 8
    # Jobs that do not ask for a number get the most on which they are at least 80% as efficient.
    # The third is measured on 2 servers first: 6 s on one would be as efficient.
    assert_jobs(
        trace,
        submit_times=[0, 10, 30.5, 40],
        servers=[1, 2, 2, 2],
        runtimes=[250, 60, 30, 100 * 8 / 12],
    )
    assert trace.speedups == (
        Measured([1], [1]),
        Measured([1, 2, 3], [1, 2, 2.5]),
        Measured([2, 4, 8], [2, 3, 2.4]),
        Measured([1, 2], [1, 3]),
    )
    assert trace.dropped == {"were of other workloads": 1}
    assert [note.partition(":")[0].partition(",")[0] for note in trace.notes] == [
        "the file has several workloads",
        "3 jobs did not ask for a number of servers",
    ]


def test_speedup_of_goodput_is_the_best_over_batch_sizes(tmp_path: Path) -> None:
    throughputs = {16: [10.0, 15.0, 18.0], 64: [8.0, 16.0, 30.0]}
    efficiency = {16: 1.0, 64: 0.75}
    goodput = [
        {"batch_size": size, "efficiency": efficiency[size], "throughput": throughputs[size]}
        for size in throughputs
    ]
    job = {"arrival": 0, "iterations": 50, "batch_size": 16, "goodput": goodput, "requested": 1}
    trace = read_trace(write_jobs(tmp_path, job))
    best = np.max([efficiency[size] * np.array(throughputs[size]) for size in throughputs], axis=0)
    assert trace.speedups[0](np.arange(1, 4)) == pytest.approx(
        Measured([1, 2, 3], best / best[0])(np.arange(1, 4))
    )
    assert trace.runtimes == pytest.approx([50 * 16 / 10])


def test_step_times_are_made_concave(tmp_path: Path) -> None:
    # On 2 workers the job is slower than on 1, on 4 it is fastest, and on 8 slower again.
    job = JOB | {"workers": [1, 2, 4, 8], "step_seconds": [8, 9, 2, 4], "requested": 4}
    (speedup,) = read_trace(write_jobs(tmp_path, job)).speedups
    np.testing.assert_array_equal(speedup([1, 2, 4, 8, 100]), [1, 2, 4, 4, 4])
    superlinear = JOB | {"step_seconds": [10, 4], "requested": 1}
    trace = read_trace(write_jobs(tmp_path, superlinear))
    np.testing.assert_array_equal(trace.speedups[0]([1, 2]), [1.25, 2.5])
    assert trace.runtimes.tolist() == [80]  # on two workers half of that, as it was measured


def test_servers_are_those_of_the_file_or_the_most_measured(tmp_path: Path) -> None:
    wide = JOB | {"workers": [1, 8, 16]}
    trace = read_trace(write_jobs(tmp_path, JOB, wide))
    assert trace.machine_servers == 16
    assert "by default 16, the most that any job was measured on" in trace.notes[-1]
    trace = read_trace(write_jobs(tmp_path, {"cluster_servers": 4} | JOB, wide))
    assert trace.machine_servers == 4
    assert len(trace.notes) == 1


def test_selected_jobs_keep_their_speedups(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, TRAINING))
    part = trace.select(np.array([False, True, False, True]), "were not chosen")
    assert part.speedups == (trace.speedups[1], trace.speedups[3])


def test_other_keys_are_kept_on_request(tmp_path: Path) -> None:
    path = write_jobs(tmp_path, JOB | {"application": "bert"}, JOB)
    assert read_trace(path, labels=["application"]).labels["application"].tolist() == ["bert", ""]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arrival": -1}, "arrival must be a number of seconds of at least 0, got '-1'"),
        ({"arrival": "1"}, "arrival must be a number of seconds of at least 0, got '1'"),
        ({"arrival": float("nan")}, "arrival must be a number of seconds of at least 0, got 'nan'"),
        ({"arrival": ...}, "arrival must be a number of seconds of at least 0, got nothing"),
        ({"iterations": 0}, "iterations must be a number greater than 0, got '0'"),
        ({"iterations": True}, "iterations must be a number greater than 0, got 'True'"),
        ({"iterations": ...}, "iterations must be a number greater than 0, got nothing"),
        ({"step_seconds": ...}, "step_seconds must be a list of numbers greater than 0, got nothi"),
        ({"step_seconds": []}, "step_seconds must be a list of numbers greater than 0, got '[]'"),
        ({"step_seconds": 4}, "step_seconds must be a list of numbers greater than 0, got '4'"),
        ({"step_seconds": [1, -2]}, "a list of numbers greater than 0, got '[1, -2]'"),
        ({"step_seconds": [1, "2"]}, "a list of numbers greater than 0, got '[1, \"2\"]'"),
        ({"step_seconds": [1, float("nan")]}, "a list of numbers greater than 0, got '[1, NaN]'"),
        ({"step_seconds": [1, float("inf")]}, "numbers greater than 0, got '[1, Infinity]'"),
        ({"workers": [1, 4, 4]}, "workers must be a list of increasing whole numbers of at least"),
        ({"workers": [4, 2, 1]}, "workers must be a list of increasing whole numbers of at least"),
        ({"workers": [0, 1, 2]}, "workers must be a list of increasing whole numbers of at least"),
        ({"workers": [1, 1.5, 2]}, "increasing whole numbers of at least 1, got '[1, 1.5, 2]'"),
        ({"workers": ["1", 2, 3]}, "increasing whole numbers of at least 1"),
        ({"workers": [1, 2]}, "workers must be as many numbers as there are step times"),
        ({"requested": 0}, "requested must be a whole number of at least 1, got '0'"),
        ({"requested": "4"}, "requested must be a whole number of at least 1, got '4'"),
        ({"cluster_servers": 2.5}, "cluster_servers must be a whole number of at least 1"),
        ({"goodput": 3}, "goodput must be objects with efficiency and throughput, got '3'"),
        ({"goodput": [3]}, "goodput must be objects with efficiency and throughput"),
        ({"goodput": [{"throughput": [1]}]}, "goodput must be objects with efficiency"),
        (
            {"goodput": [{"efficiency": 1, "throughput": [1]}]},
            "batch_size must be a number greater than 0, got nothing",
        ),
        (
            {
                "batch_size": 8,
                "goodput": [
                    {"efficiency": 1, "throughput": [1, 2]},
                    {"efficiency": 1, "throughput": [1]},
                ],
            },
            "goodput must be objects with efficiency and throughput",
        ),
    ],
)
def test_bad_jobs_are_refused_with_their_lines(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    bad = {key: value for key, value in (JOB | changes).items() if value is not ...}
    path = write_jobs(tmp_path, JOB, bad)
    with pytest.raises(InputError) as caught:
        read_trace(path)
    assert str(caught.value).startswith(f"{path}:2: ")
    assert message in str(caught.value)


def test_damaged_lines_are_refused(tmp_path: Path) -> None:
    for line in ('{"arrival": 1, "iter', "[1]", "7"):
        with pytest.raises(InputError, match="trace:3: is not a JSON object"):
            read_trace(write_file(tmp_path, f"{json.dumps(JOB)}\n\n{line}\n"))


def test_jobs_that_take_too_long_are_dropped(tmp_path: Path) -> None:
    path = write_jobs(tmp_path, JOB, JOB | {"iterations": 1e15})
    trace = read_trace(path)
    assert trace.dropped == {"had an invalid run time": 1}
    with pytest.raises(InputError, match="job 'a' had an invalid run time, got '"):
        read_trace(path, strict=True)
