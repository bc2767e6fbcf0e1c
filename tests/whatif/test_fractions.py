"""Sweeps over the fraction of malleable jobs."""

from __future__ import annotations

import numpy as np
import pytest

from hesrpt import InputError
from hesrpt.plotting.whatif_figures import draw_fractions
from hesrpt.traces import Trace
from hesrpt.whatif import FractionSweep, StudyOptions, run_fractions, run_study


@pytest.fixture(scope="module")
def sweep(example_trace: Trace) -> FractionSweep:
    return run_fractions(
        example_trace,
        StudyOptions(window="0d..5d"),
        fractions=(0.0, 0.5, 1.0),
        policies=("moldable", "equi"),
    )


def test_ends_of_the_sweep_are_all_rigid_and_all_malleable(
    sweep: FractionSweep, example_trace: Trace
) -> None:
    none, half, everything = sweep.points
    for policy in sweep.policies:
        assert none.flow_times[policy] == pytest.approx(sweep.base)
        study = run_study(example_trace, StudyOptions(policies=[policy], window="0d..5d"))
        assert everything.flow_times[policy] == study.runs[policy].mean_flow_time
    assert none.changed == everything.unchanged == {}
    assert half.of_jobs == pytest.approx(0.5, abs=0.01)
    # The mean over all jobs is made up of those who change and the others.
    study = run_study(
        example_trace,
        StudyOptions(policies=["easy", "equi"], malleable=0.5, window="0d..5d", other_limits=False),
    )
    flow, before = study.runs["equi"].flow_times, study.runs["easy"].flow_times
    chosen = study.is_malleable
    assert half.changed["equi"] == pytest.approx(flow[chosen].mean() / before[chosen].mean())
    assert half.unchanged["equi"] == pytest.approx(flow[~chosen].mean() / before[~chosen].mean())
    assert len(sweep.rows()) == 6


def test_sentences_say_when_it_pays(sweep: FractionSweep) -> None:
    lines = sweep.describe()
    assert len(lines) == 4
    assert lines[2].startswith("EQUI: it pays from ")
    assert "the jobs that change are" in lines[3]


def test_a_sweep_needs_a_policy_for_the_jobs_that_change(example_trace: Trace) -> None:
    with pytest.raises(InputError, match="policies must name a policy for the jobs that change"):
        run_fractions(example_trace, policies=[])


def test_figure_has_both_panels(sweep: FractionSweep) -> None:
    left, right = draw_fractions(sweep).axes
    assert left.get_xlabel() == "malleable fraction of the jobs"
    shown = {str(line.get_label()): line for line in left.get_lines()}
    assert set(shown) == {"EASY (rigid)", "moldable", "EQUI"}
    times = np.asarray(shown["EQUI"].get_ydata(), dtype=float)
    assert times[0] == times[1] == pytest.approx(sweep.base / 3600)
    assert len(right.get_lines()) == 5  # two for each policy, and the line at 1
