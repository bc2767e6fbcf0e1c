"""Figures of what-if studies."""

from __future__ import annotations

from hesrpt.plotting.whatif_figures import draw_overview
from hesrpt.traces import Trace
from hesrpt.whatif import run_study


def test_overview_shows_flow_times_of_all_policies_and_jobs_of_some(example_trace: Trace) -> None:
    flow_times, jobs = draw_overview(run_study(example_trace)).axes
    assert len(flow_times.get_lines()) == 8
    assert len(jobs.get_lines()) == 4
