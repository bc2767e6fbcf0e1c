"""Assumptions about the speedups of jobs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.trace_samples import make_trace

from hesrpt import InputError, PowerLaw, Speedup
from hesrpt.traces import Trace
from hesrpt.whatif import Assumption, StudyOptions, assume_speedup, run_study
from hesrpt.whatif.assumptions import DEFAULT_LIMIT

CURVES = "application,workers,speedup\na,1,1\na,4,3\na,8,2.5\nb,1,1\nb,2,1.2\n"


def _draw_speedups(assumption: Assumption, trace: Trace) -> Speedup | list[Speedup]:
    drawn = assumption.draw(trace, seed=0)
    return assumption.list_speedups(drawn, limits=np.full(len(trace), 8.0), machine=8.0)


def test_number_is_a_power_law_that_all_jobs_share() -> None:
    trace = make_trace([0, 1, 2], [1, 1, 1], [1, 1, 1])
    for p in (0.7, "0.7", " .7 "):
        assumption = assume_speedup(p)
        assert assumption.is_shared
        assert _draw_speedups(assumption, trace) == PowerLaw(0.7)
        assert assumption.text == f"s(k) = k^0.7, {DEFAULT_LIMIT.text}"
    assert assume_speedup(0.7, max_servers="none").text == "s(k) = k^0.7"


def test_distribution_gives_each_job_its_own_power() -> None:
    assumption = assume_speedup("uniform(0.4, 0.9)")
    trace = make_trace(range(10_000), [1.0] * 10_000, [1.0] * 10_000)
    drawn = _draw_speedups(assumption, trace)
    assert isinstance(drawn, list)
    powers = np.array([speedup.p for speedup in drawn if isinstance(speedup, PowerLaw)])
    assert len(powers) == 10_000
    assert 0.4 < powers.min() < powers.max() < 0.9
    # Sixteen equally likely values: the deviation is 0.5/√12 = 0.144.
    assert abs(powers.mean() - 0.65) < 4 * 0.144 / 100
    assert assume_speedup("normal(0.7, 0.1)").p == pytest.approx(0.7, abs=1e-3)


def test_studies_depend_on_the_drawn_speedups_only_through_the_seed(example_trace: Trace) -> None:
    drawn = assume_speedup("normal(0.7, 0.1)", max_servers="none")
    policies = ("equi", "hesrpt")
    study, again, other = (
        run_study(
            example_trace,
            StudyOptions(
                assumption=drawn, policies=policies, seed=seed, window="0d..3d", other_limits=False
            ),
        )
        for seed in (4, 4, 5)
    )
    assert study.rows() == again.rows()
    assert study.rows() != other.rows()


def test_measured_curves_bound_the_speedups(example_trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(CURVES)
    measured = assume_speedup(curves=tmp_path / "curves.csv", max_servers=6)
    assert measured.text == "speedups drawn from 2 measured curves, on at most 6 servers"
    policies = ("easy", "equi", "hesrpt", "optimal")
    study = run_study(
        example_trace, StudyOptions(assumption=measured, policies=policies, window="0d..2d")
    )
    # Jobs take as long as they did on the servers that they asked for, and at least as long alone
    # on all the servers that they may use.
    speedups = study.runs["equi"].workload.speedups
    fastest = study.runs["equi"].workload.sizes / speedups.rate(np.full(len(study.trace), 6.0))
    for policy in policies[1:]:
        assert np.all(study.runs[policy].flow_times >= fastest * (1 - 1e-9))
    assert np.all(study.runs["easy"].flow_times >= study.trace.runtimes * (1 - 1e-9))


@pytest.mark.parametrize(
    ("p", "message"),
    [
        ("uniform(.,.)", "p must be a number in"),
        ("uniform(0.4,0.9", "p must be a number in"),
        ("0.7x", "p must be a number in"),
        (1.5, r"p must lie in \(0, 1\), got 1.5"),
        ("1.5", r"p must lie in \(0, 1\), got 1.5"),
        ("uniform(0.9, 0.2)", "0 < LOW < HIGH < 1"),
        ("normal(0.9, 0)", "DEVIATION > 0"),
    ],
)
def test_invalid_powers_are_refused(p: float | str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        assume_speedup(p)


def test_exactly_one_kind_of_speedup_is_needed() -> None:
    for arguments in ({}, {"p": 0.5, "curves": "curves.csv"}):
        with pytest.raises(InputError, match="choose either p or curves"):
            assume_speedup(**arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="max_servers must be at least 1"):
        assume_speedup(0.5, max_servers=0.5)
