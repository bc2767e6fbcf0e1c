"""Studies of traces that record how jobs speed up."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.paths import EXAMPLES
from support.shell import call
from support.trace_samples import TRAINING, make_trace, write_file

import hesrpt
from hesrpt import InputError
from hesrpt.traces import Trace, read_trace
from hesrpt.whatif import StudyOptions, run_fractions, run_sensitivity, run_study
from hesrpt.whatif.assumptions import assume_recorded
from hesrpt.whatif.report import render_report

EXAMPLE = EXAMPLES / "training.jsonl"


@pytest.fixture(scope="module")
def training() -> Trace:
    return read_trace(EXAMPLE)


@pytest.mark.parametrize("policy", ["easy", "equi", "optimal"])
def test_jobs_of_a_study_have_their_own_sizes_and_speedups(training: Trace, policy: str) -> None:
    records = [json.loads(line) for line in EXAMPLE.read_text().splitlines()]
    sizes, speedups = [], []
    for record in records:
        steps = np.array(record.get("step_seconds", []))
        if "goodput" in record:
            rates = [
                each["efficiency"] * np.array(each["throughput"]) for each in record["goodput"]
            ]
            steps = record["batch_size"] / np.max(rates, axis=0)
        sizes.append(record["iterations"] * steps[0])
        speedups.append(hesrpt.Measured(record.get("workers", [1]), steps[0] / steps))
    arrivals = np.array([record["arrival"] for record in records], float)
    workload = hesrpt.Workload(
        sizes,
        speedups,
        arrivals=arrivals - arrivals[0],
        requested=[record["requested"] for record in records],
    )
    simulated = hesrpt.simulate(workload, servers=16, policy=policy, whole=True)
    study = run_study(training, StudyOptions(policies=[policy], other_limits=False))
    np.testing.assert_allclose(study.runs[policy].flow_times, simulated.flow_times, rtol=1e-9)
    assert study.servers == 16
    assert study.assumption.text == "each job's measured speedup"


def test_a_job_runs_as_it_was_measured(tmp_path: Path) -> None:
    trace = read_trace(write_file(tmp_path, TRAINING))
    study = run_study(
        trace.select(np.array(trace.names) == "vision", "alone"), StudyOptions(policies=["equi"])
    )
    assert study.runs["equi"].flow_times.tolist() == [60 * 0.8]  # on 3 of 8 servers


def test_jobs_may_ask_for_more_servers_than_there_are(training: Trace) -> None:
    study = run_study(training, StudyOptions(servers=4, policies=["fcfs"], other_limits=False))
    assert len(study.trace) == len(training)
    assert study.trace.servers.max() == 4
    wide = training.servers > 4
    assert wide.any()
    rates = [(s(r), s(4)) for s, r in zip(training.speedups, training.servers, strict=True)]
    slower = np.array([before / after for before, after in rates])
    np.testing.assert_allclose(
        study.trace.runtimes, np.where(wide, training.runtimes * slower, training.runtimes)
    )


def test_limits_and_other_speedups_may_be_chosen(training: Trace) -> None:
    limited = run_study(
        training, StudyOptions(assumption=assume_recorded(training, "1x"), policies=["equi"])
    )
    assert limited.extrapolation.beyond_request == {"equi": 0}
    assert limited.assumption.text.endswith("on at most what the job asked for")
    assert run_study(training, StudyOptions(assumption=0.5, policies=["easy"])).assumption.p == 0.5


def test_traces_without_speedups_keep_their_default() -> None:
    trace = make_trace([0, 1], [2, 2], [5, 5])
    assert run_study(trace, StudyOptions(policies=["easy"])).assumption.p == 0.7
    with pytest.raises(InputError, match="made up does not say how jobs speed up"):
        assume_recorded(trace)


def test_variations_start_from_recorded_speedups(training: Trace) -> None:
    sweep = run_sensitivity(training, powers=[0.5], resize_costs=[0.0], size_errors=[0.0])
    assert sweep.study.assumption.is_recorded
    by_parameter = {point.parameter: point.flow_times for point in sweep.points}
    assert by_parameter["resize_cost"] == by_parameter["size_error"] != by_parameter["p"]
    assert run_fractions(training, fractions=[0.5], policies=["equi"]).points


def test_report_says_that_speedups_were_measured(training: Trace) -> None:
    page = render_report(run_study(training, StudyOptions(policies=["easy", "equi"])))
    assert "Jobs speed up as the trace records: each job&#39;s measured speedup" in page
    assert "Every job can run on any whole number of servers" in page


def test_command_line_needs_no_options(tmp_path: Path) -> None:
    arguments = ["whatif", str(EXAMPLE), "--policies", "easy,equi", "--report", "out.html"]
    done = call(*arguments, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "with malleable jobs and each job's measured speedup, mean flow time would" in done.stdout
    )
    assert "as the trace records" in (tmp_path / "out.html").read_text()
    done = call("whatif", str(EXAMPLE), "--policies", "easy", "--malleable", "colour", cwd=tmp_path)
    assert done.returncode == 2
    assert "colour" in done.stderr
