"""Reading measured speedup curves, and what is made of strange ones."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import InputError
from hesrpt.paper.speedup_curves import PUBLISHED, Fitted
from hesrpt.readers import Curve, read_curves


def written(directory: Path, text: str) -> Path:
    path = directory / "curves.csv"
    path.write_text(text)
    return path


def test_one_curve_needs_no_name(tmp_path: Path) -> None:
    path = written(tmp_path, "servers,speedup\n1,1\n2,1.8\n4,3\n")
    assert read_curves(path) == [Curve("", (1.0, 2.0, 4.0), (1.0, 1.8, 3.0))]


def test_curves_are_told_apart_by_application_and_source_and_other_columns_passed_over(
    tmp_path: Path,
) -> None:
    path = written(
        tmp_path,
        "source,application,workers,throughput,unit\n"
        "lab,sort,1,10,MB/s\nlab,sort,2,15,MB/s\nhome,sort,8,4,MB/s\nhome,sort,16,6,MB/s\n",
    )
    assert read_curves(path) == [
        Curve("sort, lab", (1.0, 2.0), (1.0, 1.5)),
        # Never run on fewer than 8 workers: 8 of them count as one server.
        Curve("sort, home", (1.0, 2.0), (1.0, 1.5)),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers,speedup\n1,1\n2,fast\n", "curves.csv:3: speedup must be a number"),
        ("workers,speedup\n0,1\n", "curves.csv:2: workers must be a number greater than 0"),
        ("workers,speed\n1,1\n", "curves.csv:1: one column of speedup, throughput"),
        ("workers,servers,speedup\n1,1,1\n", "curves.csv:1: one column of workers, servers"),
        ("speedup\n1\n", "curves.csv:1: one column of workers, servers expected, got []"),
        (
            "workers,workers,speedup\n1,1,1\n",
            "column 'workers' appears more than once",
        ),
        ("workers,throughput\n1,0\n2,5\n", "curves.csv:2: the throughput of the curve on the"),
        ("workers,speedup\n1,1,1\n", "curves.csv:2: 2 values expected"),
        ("", "curves.csv: is empty"),
    ],
)
def test_bad_files_get_clear_errors(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        read_curves(written(tmp_path, text))
    assert message in str(caught.value)


@given(st.text(alphabet='workesdptugh,.\n 0123456789"-e', max_size=60))
def test_no_file_makes_the_reader_crash(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    path = written(tmp_path_factory.mktemp("curves"), "workers,speedup\n" + text)
    try:
        curves = read_curves(path)
    except InputError:
        return
    assert all(len(curve.servers) == len(curve.speedups) > 0 for curve in curves)


@pytest.mark.parametrize(
    ("speedups", "better"),
    [
        ((1.0, 2**0.5, 2.0), "k^p"),
        ((1.0, 1 / (0.1 + 0.9 / 2), 1 / (0.1 + 0.9 / 4)), "Amdahl"),
        ((1.0, 0.9, 0.8), "neither"),  # falling
        ((1.0, 1.0, 1.0), "neither"),  # flat
    ],
)
def test_which_law_fits_better(speedups: tuple[float, ...], better: str) -> None:
    fit = Fitted.to(Curve("job", (1.0, 2.0, 4.0), speedups))
    assert fit.better == better
    assert fit.row()["better"] == better


def test_superlinear_and_single_points_do_not_break_it() -> None:
    superlinear = Fitted.to(Curve("cache", (1.0, 2.0, 4.0), (1.0, 2.5, 7.0)))
    assert superlinear.power_law is not None
    assert superlinear.power_law.p == pytest.approx(1)
    single = Fitted.to(Curve("once", (1.0,), (1.0,)))
    assert single.row()["p"] is None
    assert "more than one server" in single.trouble


@given(
    st.lists(
        st.tuples(st.integers(1, 64), st.floats(0, 100)),
        min_size=1,
        max_size=8,
        unique_by=lambda t: t[0],
    )
)
def test_no_curve_breaks_the_fit(points: list[tuple[int, float]]) -> None:
    fit = Fitted.to(Curve("job", *zip(*((float(k), s) for k, s in points), strict=True)))
    row = fit.row()
    assert (row["p"] is None) == (fit.power_law is None)
    assert row["better"] in ("k^p", "Amdahl", "neither")


def test_published_curves_are_speedups() -> None:
    for curve in PUBLISHED:
        assert curve.servers[0] == curve.speedups[0] == 1
        assert all(1 <= s <= k for k, s in zip(curve.servers, curve.speedups, strict=True))
