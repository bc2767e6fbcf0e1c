"""Selecting a part of a trace, and scaling its load."""

from __future__ import annotations

import numpy as np
import pytest
from support.trace_samples import make_trace

from hesrpt import InputError
from hesrpt.traces import Trace
from hesrpt.units import DAY
from hesrpt.whatif import StudyOptions
from hesrpt.whatif.study_jobs import compute_offered_load, select_jobs


def test_window_selects_by_submit_time(example_trace: Trace) -> None:
    submit_times = example_trace.submit_times
    part = select_jobs(example_trace, StudyOptions(window="2d..5d"))
    is_inside = (submit_times >= 2 * DAY) & (submit_times < 5 * DAY)
    np.testing.assert_array_equal(
        part.submit_times, submit_times[is_inside] - submit_times[is_inside][0]
    )
    np.testing.assert_array_equal(
        part.start_times - part.submit_times, (example_trace.start_times - submit_times)[is_inside]
    )
    assert select_jobs(example_trace, StudyOptions(window="..2d")).submit_times[-1] < 2 * DAY
    assert "were not in the window" in part.summary


def test_window_may_have_dates(example_trace: Trace) -> None:
    dated = select_jobs(example_trace, StudyOptions(window="2025-01-03..2025-01-06"))
    assert dated.names == select_jobs(example_trace, StudyOptions(window="2d..5d")).names


def test_load_is_scaled_and_recorded_waits_are_dropped(example_trace: Trace) -> None:
    busy = select_jobs(example_trace, StudyOptions(load=0.8))
    assert compute_offered_load(busy, 64) == pytest.approx(0.8)
    assert np.isnan(busy.start_times).all()


def test_short_and_wide_jobs_are_dropped(example_trace: Trace) -> None:
    long = select_jobs(example_trace, StudyOptions(min_runtime=3600))
    assert long.runtimes.min() >= 3600
    assert "ran for less than 3600 s" in long.summary
    assert (
        "asked for more than 32 servers"
        in select_jobs(example_trace, StudyOptions(servers=32)).summary
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"window": "2d:5d"}, "window must be FROM..TO"),
        ({"window": "2x.."}, "window must have times such as 10d"),
        ({"window": "2024-05.."}, "window must have times such as 10d"),
        ({"window": "900d.."}, "no job remains"),
        ({"window": "5d..2d"}, "window must start before it ends"),
        ({"load": 0.0}, "load must lie between"),
        ({"min_runtime": float("nan")}, "min_runtime must be"),
    ],
)
def test_invalid_options_are_refused(
    example_trace: Trace, options: dict[str, object], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        select_jobs(example_trace, StudyOptions(**options))  # type: ignore[arg-type]


def test_impossible_selections_are_refused(example_trace: Trace) -> None:
    with pytest.raises(InputError, match="made up does not say when it starts"):
        select_jobs(
            make_trace([0, 1], [1, 1], [1, 1]), StudyOptions(servers=8, window="2024-01-01..")
        )
    with pytest.raises(InputError, match="load cannot be scaled: all jobs were submitted at once"):
        select_jobs(make_trace([0, 0], [1, 1], [1, 1]), StudyOptions(servers=8, load=0.5))
    with pytest.raises(InputError, match="asked for 64 servers, but the machine has 32"):
        select_jobs(example_trace, StudyOptions(servers=32, strict=True))
