"""Figures show what the schedule says."""

from __future__ import annotations

import numpy as np
import pytest

from hesrpt import Amdahl, PowerLaw, Speedup, Workload, plan


@pytest.mark.parametrize("speedup", [PowerLaw(0.5), Amdahl(0.9)], ids=str)
@pytest.mark.parametrize("whole", [False, True])
def test_the_picture_of_three_jobs(speedup: Speedup, whole: bool) -> None:
    best = plan(Workload([9, 4, 1], speedup, names=["a", "b", "c"]), 500, whole=whole)
    above, below = best.plot().axes
    first_to_last = np.argsort(best.completion_times)
    lines = above.get_lines()
    assert len(lines) == 3
    for line, job in zip(lines, first_to_last, strict=True):
        times, sizes = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        assert sizes[0] == best.workload.sizes[job]
        assert sizes[-1] == pytest.approx(0, abs=1e-9)
        assert times[-1] == pytest.approx(best.completion_times[job])
    tops = [np.asarray(band.get_paths()[0].vertices)[:, 1].max() for band in below.collections]
    assert tops[-1] == pytest.approx(500)
    # The first job to end lies at the bottom, with the servers that it holds.
    assert tops[0] == pytest.approx(best.servers_at(0.0)[first_to_last[0]])


def test_many_jobs_are_drawn_in_bands() -> None:
    sizes = np.random.default_rng(0).pareto(1.5, 5000) + 1
    above, below = plan(Workload(sizes, PowerLaw(0.5)), 64).plot().axes
    assert len(above.get_lines()) == 20
    assert len(below.collections) == 20
    started = sum(float(np.asarray(line.get_ydata())[0]) for line in above.get_lines())
    assert started == pytest.approx(sizes.sum())


def test_a_figure_is_saved_where_asked(tmp_path: object) -> None:
    path = f"{tmp_path}/plan.png"
    plan(Workload([2, 1], PowerLaw(0.5)), 4).plot(path)
    with open(path, "rb") as picture:
        assert picture.read(4) == b"\x89PNG"
