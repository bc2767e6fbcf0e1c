"""Reading measured speedup curves from CSV files."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt import InputError
from hesrpt.readers import Curve, read_curves


def write_curves(directory: Path, text: str) -> Path:
    path = directory / "curves.csv"
    path.write_text(text)
    return path


def test_single_curve_needs_no_name(tmp_path: Path) -> None:
    path = write_curves(tmp_path, "servers,speedup\n1,1\n2,1.8\n4,3\n")
    assert read_curves(path) == [Curve("", (1.0, 2.0, 4.0), (1.0, 1.8, 3.0))]


def test_curves_are_grouped_by_application_and_source(
    tmp_path: Path,
) -> None:
    path = write_curves(
        tmp_path,
        "source,application,workers,throughput,unit\n"
        "lab,sort,1,10,MB/s\nlab,sort,2,15,MB/s\nhome,sort,8,4,MB/s\nhome,sort,16,6,MB/s\n",
    )
    assert read_curves(path) == [
        Curve("sort, lab", (1.0, 2.0), (1.0, 1.5)),
        # The fewest workers, 8 here, count as one server.
        Curve("sort, home", (1.0, 2.0), (1.0, 1.5), base=8.0),
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workers,speedup\n1,1\n2,fast\n", "curves.csv:3: speedup must be a number"),
        ("workers,speedup\n0,1\n", "curves.csv:2: workers must be a number greater than 0"),
        ("workers,speed\n1,1\n", "needs exactly one of the columns speedup, throughput"),
        ("workers,servers,speedup\n1,1,1\n", "columns workers, servers, got workers, servers"),
        ("speedup\n1\n", "needs exactly one of the columns workers, servers, got none"),
        (
            "workers,workers,speedup\n1,1,1\n",
            "column 'workers' appears more than once",
        ),
        ("workers,throughput\n1,0\n2,5\n", "curves.csv:2: the throughput of the curve on the"),
        ("workers,speedup\n1,1,1\n", "curves.csv:2: expected 2 values"),
        ("", "curves.csv: is empty"),
    ],
)
def test_invalid_files_are_refused_with_a_clear_error(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError) as caught:
        read_curves(write_curves(tmp_path, text))
    assert message in str(caught.value)


@given(st.text(alphabet='workesdptugh,.\n 0123456789"-e', max_size=60))
def test_no_input_crashes_the_reader(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = write_curves(tmp_path_factory.mktemp("curves"), "workers,speedup\n" + text)
    try:
        curves = read_curves(path)
    except InputError:
        return
    assert all(len(curve.servers) == len(curve.speedups) > 0 for curve in curves)
