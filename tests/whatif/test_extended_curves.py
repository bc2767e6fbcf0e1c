"""Measured curves beyond their data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.trace_samples import make_trace

from hesrpt import InputError
from hesrpt.readers import Curve
from hesrpt.whatif import StudyOptions, assume_speedup, run_study
from hesrpt.whatif.assumptions import extend_curve


@given(st.floats(0.1, 0.95), st.sampled_from([1.0, 2.0, 100.0, 128.0]))
def test_power_law_stays_one_below_and_beyond_its_points(p: float, base: float) -> None:
    at = np.array([1.0, 2.0, 4.0, 8.0])
    curve = Curve("job", tuple(at), tuple(at**p), base=base)
    extended = extend_curve(curve)
    assert (extended.first, extended.last) == (base, 8 * base)
    servers = np.array([1.0, 3.0, base, 5 * base, 8 * base, 100 * base])
    # Chords between corners are a little below the law; below the first point, the slope of the
    # first chord is less than that of the law.
    np.testing.assert_allclose(extended.speedup.rate(servers), servers**p, rtol=0.04)
    assert extended.speedup(1.0) == pytest.approx(1)
    assert extended.p == pytest.approx(p, abs=0.03)


@given(st.lists(st.floats(0.05, 3), min_size=2, max_size=7), st.sampled_from([1.0, 4.0]))
def test_extension_is_concave_and_keeps_the_hull_of_the_points(
    steps: list[float], base: float
) -> None:
    at = np.array([base * 2.0**step for step in range(len(steps))])
    heights = np.cumsum(steps)
    extended = extend_curve(Curve("job", tuple(at / base), tuple(heights), base=base)).speedup
    servers = np.geomspace(0.5, 1000 * at[-1], 300)
    rates = extended.rate(servers)
    assert np.all(np.diff(rates) >= -1e-9 * rates[-1])
    slopes = np.diff(rates) / np.diff(servers)
    assert np.all(np.diff(slopes) <= 1e-9 * slopes[0])
    # Relative to each other, the measured points are where the hull has them.
    unit = extended.rate(at[-1:]) / heights[-1]
    assert np.all(extended.rate(at) >= heights * unit * (1 - 1e-9))


def test_curve_past_its_peak_stays_flat() -> None:
    extended = extend_curve(Curve("job", (1.0, 2.0, 4.0, 8.0), (1.0, 1.8, 3.0, 2.0)))
    assert extended.speedup([4, 8, 1000]).tolist() == [3, 3, 3]  # type: ignore[union-attr]
    flat = extend_curve(Curve("job", (1.0, 2.0), (1.0, 0.9)))
    assert flat.speedup(1000) == 1
    assert "do not grow" in flat.problem
    with pytest.raises(InputError, match="the curve of job has no speedup greater than 0"):
        extend_curve(Curve("job", (1.0, 2.0), (0.0, 0.0)))


def test_requests_beyond_a_curve_keep_their_work(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("workers,speedup\n1,1\n4,2\n16,4\n")
    # 64 servers are beyond the curve, which is a square root.
    trace = make_trace([0, 1e6], [64.0, 4.0], [100.0, 100.0], machine_servers=64)
    study = run_study(
        trace,
        StudyOptions(
            assumption=assume_speedup(curves=tmp_path / "curves.csv", max_servers=16),
            policies=["easy", "equi"],
        ),
    )
    assert study.runs["easy"].flow_times.tolist() == pytest.approx([100, 100])
    assert study.runs["equi"].flow_times.tolist() == pytest.approx([200, 50], rel=0.01)
    assert study.notes[0] == (
        "1 job with 94% of the server-hours (2) ran on more servers than its curve was measured "
        "on; there, the curve is extended by the power law that fits it"
    )


def test_throughput_measured_from_many_servers_is_not_a_curve_from_one(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("workers,throughput\n128,10\n512,20\n")
    assumption = assume_speedup(curves=tmp_path / "curves.csv")
    (curve,) = assumption.curves
    assert (curve.first, curve.last) == (128, 512)
    assert curve.speedup(128) == pytest.approx(128**0.5, rel=0.01)
    trace = make_trace([0, 1e6], [128.0, 2.0], [100.0, 3600.0], machine_servers=128)
    notes = run_study(trace, StudyOptions(assumption=assumption, policies=["easy"])).notes
    assert notes[0].startswith("1 job with 36% of the server-hours (2) ran on fewer servers than")


def test_bad_fits_are_noted(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text(
        "application,workers,speedup\na,1,1\na,8,3\nb,1,1\nb,2,1.02\nb,4,1.06\nb,8,1.01\n"
    )
    trace = make_trace([0], [1.0], [100.0])
    study = run_study(
        trace,
        StudyOptions(assumption=assume_speedup(curves=tmp_path / "curves.csv"), policies=["easy"]),
    )
    assert study.notes[-1].startswith(
        "a power law fits 1 of 2 measured curves badly, so that extending it is uncertain; of b: "
        "the speedup hardly grows with the servers"
    )


def test_curves_that_say_nothing_about_few_servers_are_refused() -> None:
    falling = Curve("train", (1.0, 2.0, 4.0), (1.0, 0.9, 0.7), base=128.0)
    with pytest.raises(InputError, match="the curve of train starts at 128 servers and says noth"):
        extend_curve(falling)
    assert extend_curve(Curve("train", (1.0, 2.0, 4.0), (1.0, 0.9, 0.7))).stays_flat


def test_notes_say_how_curves_are_extended(tmp_path: Path) -> None:
    trace = make_trace([0, 0], [64.0, 16.0], [3600.0, 3600.0], machine_servers=64)
    rising, fallen = "1,1\n4,3\n16,9\n", "1,1\n4,3\n16,2\n"
    for points, extension in (
        (rising, "the curve is extended by the power law that fits it"),
        (fallen, "the curve stays flat: it has passed its peak"),
    ):
        (tmp_path / "curve.csv").write_text(f"servers,speedup\n{points}")
        assumption = assume_speedup(curves=tmp_path / "curve.csv")
        study = run_study(trace, StudyOptions(assumption=assumption, policies=["easy"]))
        assert study.notes[0] == (
            "1 job with 80% of the server-hours (64) ran on more servers than its curve was "
            f"measured on; there, {extension}"
        )
