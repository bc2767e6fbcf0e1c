"""The whole reproduction: its files, its data, its committed pages and its options."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from typing import Any

import pytest
from PIL import Image
from support.paths import ROOT
from support.shell import call, run

from hesrpt import InputError, PowerLaw, Workload, paper, plan
from hesrpt.paper.claims import Verdict
from hesrpt.paper.exhibits import save_page
from hesrpt.plotting import draw_schedule
from hesrpt.readers import Curve

DOCUMENT = ROOT / "docs" / "paper"
HOLDS, DIFFERS = Verdict.HOLDS, Verdict.DIFFERS


@pytest.fixture(scope="module")
def small_out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a small reproduction."""
    directory = tmp_path_factory.mktemp("paper")
    paper.reproduce(directory, jobs=20, servers=100, sets=3, stream=1000, pdf=True, cores=1)
    return directory


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of a full reproduction, written by the command."""
    directory = tmp_path_factory.mktemp("paper")
    done = run("paper", "--out", "out", "--json", cwd=directory)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == read_claims(directory / "out")
    return directory / "out"


def read_claims(directory: Path) -> dict[str, Any]:
    data: dict[str, Any] = json.loads((directory / "claims.json").read_text())
    return data


def read_rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def read_numbers(path: Path) -> list[float]:
    """Return all numbers in a file of data, without the versions of programs."""
    rows = [{**row, "versions": ""} for row in read_rows(path)]
    words = (word for row in rows for cell in row.values() for word in cell.split())
    return [float(word) for word in words if re.fullmatch(r"-?\d+(\.\d+)?(e[-+]\d+)?", word)]


@pytest.mark.slow
def test_differing_claims_are_the_known_ones(out: Path) -> None:
    claims = {claim["name"]: claim for claim in read_claims(out)["claims"]}
    assert {name for name, claim in claims.items() if claim["verdict"] == DIFFERS} == {
        "below_linear_everywhere",
        "server_rate",
        "amdahl_split",
        "makespan_formula",
        "srpt_at_005",
        "knee_worst_case",
        "arrivals",
    }
    assert all(claim["reason"] for claim in claims.values() if claim["verdict"] != HOLDS)
    for name, value, expected in (
        ("amdahl_split", "planner", 71.07),
        ("amdahl_split", "on_16_servers", 63.57),
        ("srpt_at_005", "ours", 103),
        ("hell_at_005", "ours", 1.56),
        ("knee_at_03", "ours", 1.32),
        ("knee_worst_case", "p=0.5", 1.35),
        ("equi_at_099", "ours", 1.90),
    ):
        assert claims[name]["values"][value] == pytest.approx(expected, rel=0.02)


@pytest.mark.slow
def test_every_figure_comes_with_its_data_and_provenance(small_out: Path) -> None:
    figures = read_claims(small_out)["figures"]
    assert len(figures) == 11
    for figure in figures:
        with Image.open(small_out / f"{figure['name']}.png") as image:
            assert figure["sentence"] in image.info["Description"]
        assert "<svg" in (small_out / f"{figure['name']}.svg").read_text()
        assert (small_out / f"{figure['name']}.pdf").read_bytes().startswith(b"%PDF")
        rows = read_rows(small_out / f"{figure['name']}.csv")
        assert rows
        assert all(row["versions"].startswith("hesrpt ") for row in rows)
        assert all(str(value) == rows[0][name] for name, value in figure["parameters"].items())
        assert figure["sentence"].endswith(".")
    seeds = {row["seed"] for row in read_rows(small_out / "fig4_comparison.csv")}
    assert seeds == {str(seed) for seed in range(3)}


@pytest.mark.slow
def test_committed_pages_are_what_make_paper_writes(out: Path) -> None:
    """The words must agree exactly, the numbers closely."""
    # Versions of programs and the last digits of numbers may differ.
    ignored = re.compile(r"Computed by .*? Unless|[-−]?\d[\d.,]*(e[-+]?\d+)?")
    for page in ("index.md", "claims.md"):
        fresh, committed = ((place / page).read_text("utf-8") for place in (out, DOCUMENT))
        assert ignored.sub("#", fresh) == ignored.sub("#", committed), "run `make paper`"
    fresh_claims, committed_claims = (read_claims(place)["claims"] for place in (out, DOCUMENT))
    for new, old in zip(fresh_claims, committed_claims, strict=True):
        assert new["verdict"] == old["verdict"], new["name"]
        if new["rule"] != "exact":
            assert new["values"] == pytest.approx(old["values"], rel=1e-3), new["name"]
    assert {file.name for file in DOCUMENT.iterdir() if file.suffix != ".svg"} == {
        file.name for file in out.iterdir() if file.suffix != ".svg"
    }
    for data in DOCUMENT.glob("*.csv"):  # what the figures show
        fresh_numbers, committed_numbers = (
            read_numbers(place / data.name) for place in (out, DOCUMENT)
        )
        assert fresh_numbers == pytest.approx(committed_numbers, rel=1e-3), (
            f"{data.name}: run `make paper`"
        )


@pytest.mark.slow
def test_reproduction_with_other_settings_and_curves() -> None:
    curves = [
        Curve("good", (1.0, 2.0, 4.0), (1.0, 1.6, 2.5)),
        Curve("falling", (1.0, 2.0, 4.0), (1.0, 0.8, 0.5)),
    ]
    steps: list[tuple[int, int]] = []
    result = paper.reproduce(
        seed=5,
        jobs=6,
        servers=100,
        sets=2,
        curves=curves,
        stream=1000,
        progress=lambda done, total, kind: steps.append((done, total)),
    )
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1] == steps[0][1]
    rows = result.exhibit("fig4_comparison").rows
    assert {row["seed"] for row in rows} == {5, 6}
    assert [row["better"] for row in result.exhibit("fig2_measured").table] == ["k^p", "neither"]
    assert len(result.exhibit("beyond_measured").rows) == 6
    assert result.as_json()["settings"]["curves"] == 2
    with pytest.raises(InputError, match="no claim named 'nonsense'; choose one of: concave_below"):
        result.claim("nonsense")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"jobs": 1}, "jobs must be a whole number of at least 2, got 1"),
        ({"sets": 0}, "sets must be a whole number of at least 1, got 0"),
        ({"seed": -1}, "seed must be a whole number of at least 0, got -1"),
        ({"servers": 2.5}, "servers must be a whole number of at least 1, got 2.5"),
        ({"stream": 10}, "stream must be a whole number of at least 1000, got 10"),
        ({"cores": 0}, "cores must be a whole number of at least 1, got 0"),
        ({"curves": "nowhere.csv"}, "nowhere.csv: cannot be read"),
        ({"out": __file__}, "is not a directory"),
    ],
)
def test_invalid_options_are_reported_first(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        paper.reproduce(**options)


def test_figures_are_written_in_the_formats_asked_for(tmp_path: Path) -> None:
    figure = draw_schedule(plan(Workload([2, 1], PowerLaw(0.5)), servers=4))
    save_page(figure, tmp_path / "figure", "two jobs", ("png", "pdf"))
    assert {file.suffix for file in tmp_path.iterdir()} == {".png", ".pdf"}


def test_command_reports_invalid_curves_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("workers,speedup\n1,1\n2,many\n")
    done = call("paper", "--out", "out", "--curves", "curves.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "hesrpt: curves.csv:3: speedup must be a number of at least 0, got 'many'\n"
    )
    assert not (tmp_path / "out").exists()
