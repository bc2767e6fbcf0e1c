"""The reproduction: its oracle, its rules, that wrong mathematics is found out, and its files."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from PIL import Image
from support.paths import ROOT
from support.shell import run

from hesrpt import Amdahl, InputError, PowerLaw, Workload, paper, plan
from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.paper import judging, optimiser, theorems
from hesrpt.paper.cases import cases
from hesrpt.paper.evaluation import Table
from hesrpt.paper.examples import EXAMPLES
from hesrpt.paper.judging import Claim, Verdict
from hesrpt.paper.optimiser import Optimum, optimise
from hesrpt.paper.sentences import SENTENCES
from hesrpt.paper.theorems import THEOREMS
from hesrpt.readers import Curve

DOCUMENT = ROOT / "docs" / "paper"
HOLDS, ROUGHLY, DIFFERS = Verdict.HOLDS, Verdict.ROUGHLY, Verdict.DIFFERS

# --- the oracle -------------------------------------------------------------------------------


def test_the_optimiser_agrees_with_the_formulas() -> None:
    for case, rng in cases(11, 20, 5):
        found = optimise(case.sizes, PowerLaw(case.p), case.servers)
        assert found.cost == pytest.approx(case.total, rel=1e-8)
        order = rng.permutation(case.sizes)
        best = closed_form.best_in_order(order, case.servers, case.p).total_flow_time
        assert optimise(order, PowerLaw(case.p), case.servers).cost == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("fraction", [0.3, 0.9, 0.99])
def test_the_optimiser_agrees_with_the_planner(fraction: float) -> None:
    sizes = np.array([5.0, 3.0, 2.5, 1.0])
    planned = plan(Workload(sizes, Amdahl(fraction)), servers=12)
    found = optimise(sizes, Amdahl(fraction), 12.0)
    assert found.cost == pytest.approx(planned.total_flow_time, rel=1e-7)
    shortest = plan(Workload(sizes, Amdahl(fraction)), servers=12, objective="makespan").makespan
    least = optimise(sizes, Amdahl(fraction), 12.0, makespan=True).cost
    assert least == pytest.approx(shortest, rel=1e-6)


# --- the rules --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (judging.exact(1e-9, 1e-6), HOLDS),
        (judging.exact(1e-3, 1e-6), ROUGHLY),
        (judging.exact(0.02, 1e-6), DIFFERS),
        (judging.exact(float("nan"), 1e-6), DIFFERS),
        (judging.always(0, 1000), HOLDS),
        (judging.always(10, 1000), ROUGHLY),
        (judging.always(11, 1000), DIFFERS),
        (judging.printed(63.54, 63.5, 1), HOLDS),
        (judging.printed(64.0, 63.5, 1), ROUGHLY),
        (judging.printed(71.07, 63.5, 1), DIFFERS),
        (judging.about(1.9, 2.0), HOLDS),
        (judging.about(1.6, 2.0), ROUGHLY),
        (judging.about(1.4, 2.0), DIFFERS),
        (judging.excess(1.56, 1.5), HOLDS),
        (judging.excess(1.7, 1.5), ROUGHLY),
        (judging.excess(1.0, 1.3), DIFFERS),
        (judging.magnitude(30.0, 10.0), HOLDS),
        (judging.magnitude(50.0, 10.0), ROUGHLY),
        (judging.magnitude(103.0, 10.0), DIFFERS),
        (judging.close(1.04), HOLDS),
        (judging.close(1.09), ROUGHLY),
        (judging.close(1.2), DIFFERS),
        (judging.at_least(0.35, 0.3), HOLDS),
        (judging.at_least(0.28, 0.3), ROUGHLY),
        (judging.at_least(0.2, 0.3), DIFFERS),
        (judging.which(True, True), HOLDS),
        (judging.which(False, True), ROUGHLY),
        (judging.which(False, False), DIFFERS),
    ],
)
def test_verdicts_follow_from_numbers(verdict: Verdict, expected: Verdict) -> None:
    assert verdict is expected


def test_deviations_are_shown_without_their_noise() -> None:
    assert judging.within(3e-10) == "below 1e-9"
    assert judging.within(0.0) == "below 1e-13"
    assert judging.within(0.3) == "0.3"
    assert judging.within(float("inf")) == "inf"


# --- the theorems -----------------------------------------------------------------------------


@pytest.mark.parametrize("check", [*THEOREMS, *EXAMPLES], ids=lambda check: str(check.__name__))
def test_theorems_and_examples_hold_for_other_seeds(check: Callable[[int], Claim]) -> None:
    differ = ("makespan_formula", "amdahl_split")
    claim = check(1234)
    assert claim.verdict is (DIFFERS if claim.name in differ else HOLDS), claim
    assert claim.rule in judging.RULES


def _longest_first_is_best(sizes: Any, servers: float, p: float) -> Any:
    return SimpleNamespace(total_flow_time=1.0 + list(sizes).index(min(sizes)))


@pytest.mark.parametrize(
    ("function", "wrong", "found_by"),
    [
        ("shares", lambda m, p: np.full(m, 1 / m), "optimal_allocation"),
        ("shares", lambda m, p: np.full(m, 1 / m), "short_jobs_favoured"),
        ("total_flow_time", lambda x, n, p: 0.9 * np.sum(x), "total_by_simulation"),
        ("total_flow_time", lambda x, n, p: 0.9 * np.sum(x), "total_by_optimiser"),
        ("shares", lambda m, p: np.full(m, 1 / m), "constant_twin"),
        ("best_in_order", _longest_first_is_best, "shortest_first"),
        ("scale_free_constants", lambda m, p: np.full(m, 1e9), "second_order"),
        ("makespan_shares", lambda x, p: np.full(len(x), 1 / len(x)), "makespan_allocation"),
        ("makespan_shares", lambda x, p: np.full(len(x), 1 / len(x)), "long_jobs_favoured"),
        ("scale_free_constants", lambda m, p: np.ones(m), "first_order"),
        ("scale_free_constants", lambda m, p: np.ones(m), "constants_increase"),
        ("scale_free_constants", lambda m, p: np.ones(m), "coefficients_formula"),
        ("coefficients", lambda m, p: np.ones(m), "coefficients_increase"),
        ("flow_time_of_constants", lambda x, c, n, p: np.sum(x), "flow_time_of_order"),
        ("flow_time_of_constants", lambda x, c, n, p: 1e9 * np.sum(x), "relaxed_bound"),
    ],
)
def test_wrong_mathematics_is_found_out(
    monkeypatch: pytest.MonkeyPatch, function: str, wrong: Callable[..., Any], found_by: str
) -> None:
    monkeypatch.setattr(closed_form, function, wrong)
    assert getattr(theorems, found_by)(0).verdict is DIFFERS


@pytest.mark.parametrize(
    "check",
    [
        theorems.equal_completion,
        theorems.scale_free,
        theorems.size_invariant,
    ],
)
def test_other_optima_would_be_found_out(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[int], Claim]
) -> None:
    drawn = np.random.default_rng(0)

    def other(sizes: FloatArray, *_: Any, **__: Any) -> Optimum:
        some = [drawn.dirichlet(np.ones(k)) for k in range(len(sizes), 0, -1)]
        return Optimum(1.0, np.ones(len(some)), some)

    monkeypatch.setattr(theorems, "optimise", other)
    assert check(0).verdict is DIFFERS


def test_where_nothing_could_be_compared_nothing_holds() -> None:
    assert judging.equality([], 1.0, "nothing").verdict is DIFFERS
    assert judging.no_exception(0, 0, "nothing").verdict is DIFFERS


@pytest.mark.parametrize(("power", "loses"), [(0.5, True), (0.999, True), (1.0, False), (2, False)])
def test_only_where_returns_diminish_does_it_cost_time_to_change(power: float, loses: bool) -> None:
    def total(sizes: FloatArray) -> float:
        return float(np.sum(np.arange(1, len(sizes) + 1) * -np.sort(-sizes)))  # one after the other

    for case, rng in cases(3, 50, 6):
        speedup = SimpleNamespace(rate=lambda servers: servers**power)
        shares = rng.dirichlet(np.full(case.jobs, 3.0))
        lost = theorems.loses_by_changing(case, speedup, shares, total, rng)  # type: ignore[arg-type]
        assert lost == loses


def test_an_optimiser_that_gets_stuck_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(optimiser, "_STEPS", 1)
    with pytest.raises(ArithmeticError, match="stuck"):
        optimise(np.array([3.0, 2.0, 1.0]), PowerLaw(0.5), 10.0)


def test_sentences_follow_the_table() -> None:
    def table(**ratios: tuple[float, ...]) -> Table:
        powers = (0.05, 0.3, 0.5, 0.9, 0.99)
        every = {"hesrpt": (1.0,) * 5, **ratios}
        return Table(
            {
                p: {name: np.array([r[i]]) for name, r in every.items()}
                for i, p in enumerate(powers)
            },
            {p: np.ones(1) for p in powers},
        )

    def judged(made: Table) -> dict[str, Verdict]:
        return {claim.name: claim.verdict for claim in (check(made) for check in SENTENCES)}

    as_told = judged(
        table(
            srpt=(10, 9, 8, 1.5, 1.02), equi=(1.01, 1.04, 1.4, 1.5, 1.95),
            hell=(1.5, 9, 8, 1.5, 1.02), knee=(1.005, 1.31, 1.3, 1.1, 1.001),
        )
    )  # fmt: skip
    assert as_told.pop("knee_best") is ROUGHLY
    assert as_told.pop("at_least_thirty_percent") is ROUGHLY
    assert set(as_told.values()) == {HOLDS}
    otherwise = judged(
        table(
            srpt=(100, 9, 8, 1.5, 1.2), equi=(1.2, 0.9, 1.1, 1.1, 1.1),
            hell=(5, 1, 1, 1.2, 1), knee=(1.1, 2.0, 2.1, 2.0, 1.2),
        )
    )  # fmt: skip
    assert set(otherwise.values()) == {DIFFERS}


# --- all of it --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Everything, as the document shows it, made by the command."""
    directory = tmp_path_factory.mktemp("paper")
    done = run("paper", "--out", "made", "--json", cwd=directory)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == claims_in(directory / "made")
    return directory / "made"


def claims_in(directory: Path) -> dict[str, Any]:
    everything: dict[str, Any] = json.loads((directory / "claims.json").read_text())
    return everything


def rows_in(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))


def test_where_the_text_and_the_numbers_part(out: Path) -> None:
    claims = {claim["name"]: claim for claim in claims_in(out)["claims"]}
    assert {name for name, claim in claims.items() if claim["verdict"] == DIFFERS} == {
        "amdahl_split", "makespan_formula", "srpt_at_005", "knee_worst_case", "arrivals",
    }  # fmt: skip
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


def test_every_figure_comes_with_its_data_and_provenance(out: Path) -> None:
    figures = claims_in(out)["figures"]
    assert len(figures) == 10
    for figure in figures:
        with Image.open(out / f"{figure['name']}.png") as image:
            assert figure["sentence"] in image.info["Description"]
        assert "<svg" in (out / f"{figure['name']}.svg").read_text()
        rows = rows_in(out / f"{figure['name']}.csv")
        assert rows
        assert all(row["versions"].startswith("hesrpt ") for row in rows)
        assert all(str(value) == rows[0][name] for name, value in figure["parameters"].items())
        assert figure["sentence"].endswith(".")
    seeds = {row["seed"] for row in rows_in(out / "fig4_comparison.csv")}
    assert seeds == {str(seed) for seed in range(10)}


def test_the_document_is_not_stale(out: Path) -> None:
    """docs/paper is what `make paper` writes now: the words exactly, the numbers closely."""
    # Numbers, and the versions of what computed them, may differ.
    passing = re.compile(r"Made by .*? Where|[-−]?\d[\d.,]*(e[-+]?\d+)?")
    for page in ("index.md", "claims.md"):
        fresh, shown = ((place / page).read_text("utf-8") for place in (out, DOCUMENT))
        assert passing.sub("#", fresh) == passing.sub("#", shown), "run `make paper`"
    fresh_claims, shown_claims = (claims_in(place)["claims"] for place in (out, DOCUMENT))
    for new, old in zip(fresh_claims, shown_claims, strict=True):
        assert new["verdict"] == old["verdict"], new["name"]
        if new["rule"] != "exact":
            assert new["values"] == pytest.approx(old["values"], rel=1e-3), new["name"]
    assert {file.name for file in DOCUMENT.iterdir() if file.suffix != ".svg"} == {
        file.name for file in out.iterdir() if file.suffix != ".svg"
    }


# --- options and mistakes ---------------------------------------------------------------------


def test_another_seed_fewer_jobs_and_own_curves() -> None:
    curves = [
        Curve("good", (1.0, 2.0, 4.0), (1.0, 1.6, 2.5)),
        Curve("falling", (1.0, 2.0, 4.0), (1.0, 0.8, 0.5)),
    ]
    steps: list[tuple[int, int]] = []
    result = paper.reproduce(
        seed=5, jobs=6, servers=100, sets=2, curves=curves,
        stream=1000, progress=lambda done, all_, what: steps.append((done, all_)),
    )  # fmt: skip
    assert steps == sorted(steps)
    assert steps[-1][0] == steps[-1][1] == steps[0][1]
    rows = result.exhibit("fig4_comparison").rows
    assert {row["seed"] for row in rows} == {5, 6}
    assert [row["better"] for row in result.exhibit("fig2_measured").table] == ["k^p", "neither"]
    assert len(result.exhibit("beyond_measured").rows) == 6
    assert result.as_json()["settings"]["curves"] == 2
    with pytest.raises(InputError, match="there is no claim 'nonsense'; claims are: concave_below"):
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
        ({"out": __file__}, "is no directory"),
    ],
)
def test_mistakes_are_told_before_the_work(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        paper.reproduce(**options)


def test_the_command_tells_mistakes_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "curves.csv").write_text("workers,speedup\n1,1\n2,many\n")
    done = run("paper", "--out", "made", "--curves", "curves.csv", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr == (
        "hesrpt: curves.csv:3: speedup must be a number of at least 0, got 'many'\n"
    )
    assert not (tmp_path / "made").exists()
