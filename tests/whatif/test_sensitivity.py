"""The gain of the adaptive policy as the assumptions of a study change."""

from __future__ import annotations

from hesrpt.traces import Trace
from hesrpt.whatif import StudyOptions, run_sensitivity, run_study
from hesrpt.whatif.study_jobs import select_jobs


def test_each_parameter_is_varied_alone(example_trace: Trace) -> None:
    part = select_jobs(example_trace, StudyOptions(window="4d..8d"))
    result = run_sensitivity(
        part, powers=(0.3, 0.9), resize_costs=(0.0, 3600.0), size_errors=(0.0, 1.0)
    )
    assert [(point.parameter, point.value) for point in result.points] == [
        ("p", 0.3),
        ("p", 0.9),
        ("resize_cost", 0.0),
        ("resize_cost", 3600.0),
        ("size_error", 0.0),
        ("size_error", 1.0),
    ]
    base = run_study(part, StudyOptions(policies=("easy", "equi", "hesrpt", "adaptive")))
    for parameter in ("resize_cost", "size_error"):
        unchanged = result.select(parameter)[0]
        for policy, flow_time in unchanged.flow_times.items():
            assert flow_time == base.runs[policy].mean_flow_time
    free, costly = result.select("resize_cost")
    # EQUI resizes whatever it costs; adaptive does not, and still pays off.
    assert costly.flow_times["equi"] > costly.flow_times["easy"]
    assert 1 < costly.gain("easy") < free.gain("easy")
    limits = result.describe_limits()
    assert "against EASY, p 0.3, 0.9: adaptive always pays off" in limits
    assert "against EASY, resize cost (s) 0, 3600: adaptive always pays off" in limits
    assert any(limit.startswith("against heSRPT, p 0.3, 0.9: adaptive ") for limit in limits)
    assert len(result.rows()) == 6


def test_each_point_is_a_study_of_its_own(example_trace: Trace) -> None:
    part = select_jobs(example_trace, StudyOptions(window="4d..8d"))
    found = run_sensitivity(
        part, powers=(0.3, 0.7), resize_costs=(0.0, 60.0), size_errors=(0.0, 1.0)
    )
    malleable = "equi", "hesrpt", "adaptive"
    for point, options in (
        (found.select("p")[0], {"assumption": 0.3}),
        (found.select("resize_cost")[1], {"resize_cost": 60.0}),
        (found.select("size_error")[1], {"size_error": 1.0}),
    ):
        alone = run_study(part, StudyOptions(policies=malleable, other_limits=False, **options))  # type: ignore[arg-type]
        for policy in malleable:
            assert point.flow_times[policy] == alone.runs[policy].mean_flow_time
