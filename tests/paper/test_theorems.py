"""Theorems hold for other seeds, and checks of wrong theorems fail."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.paper.claims import theorems
from hesrpt.paper.claims.theorems import THEOREM_CHECKS
from hesrpt.paper.claims.verdicts import RULES, Claim, Verdict
from hesrpt.paper.claims.worked_examples import EXAMPLE_CHECKS
from hesrpt.paper.reference_optimiser import Optimum, generate_cases

HOLDS, DIFFERS = Verdict.HOLDS, Verdict.DIFFERS


@pytest.mark.parametrize(
    "check", [*THEOREM_CHECKS, *EXAMPLE_CHECKS], ids=lambda check: str(check.__name__)
)
def test_theorems_and_examples_hold_for_other_seeds(check: Callable[[int], Claim]) -> None:
    differ = ("makespan_formula", "amdahl_split")
    claim = check(1234)
    assert claim.verdict is (DIFFERS if claim.name in differ else HOLDS), claim
    assert claim.rule in RULES


def get_wrong_best_in_order(sizes: Any, servers: float, p: float) -> Any:
    return SimpleNamespace(total_flow_time=1.0 + list(sizes).index(min(sizes)))


@pytest.mark.parametrize(
    ("function", "wrong", "claim"),
    [
        ("shares", lambda m, p: np.full(m, 1 / m), "optimal_allocation"),
        ("shares", lambda m, p: np.full(m, 1 / m), "short_jobs_favoured"),
        ("total_flow_time", lambda x, n, p: 0.9 * np.sum(x), "total_by_simulation"),
        ("total_flow_time", lambda x, n, p: 0.9 * np.sum(x), "total_by_optimiser"),
        ("shares", lambda m, p: np.full(m, 1 / m), "gaps_with_constant_shares"),
        ("best_in_order", get_wrong_best_in_order, "shortest_first"),
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
def test_wrong_formula_is_detected(
    monkeypatch: pytest.MonkeyPatch, function: str, wrong: Callable[..., Any], claim: str
) -> None:
    monkeypatch.setattr(closed_form, function, wrong)
    assert getattr(theorems, f"check_{claim}")(0).verdict is DIFFERS


@pytest.mark.parametrize(
    "check",
    [
        theorems.check_equal_completion,
        theorems.check_scale_free,
        theorems.check_size_invariant,
    ],
)
def test_wrong_optimum_is_detected(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[int], Claim]
) -> None:
    rng = np.random.default_rng(0)

    def return_random_shares(sizes: FloatArray, *_: Any, **__: Any) -> Optimum:
        shares = [rng.dirichlet(np.ones(k)) for k in range(len(sizes), 0, -1)]
        return Optimum(cost=1.0, durations=np.ones(len(shares)), shares=shares)

    monkeypatch.setattr(theorems, "optimise", return_random_shares)
    assert check(0).verdict is DIFFERS


@pytest.mark.parametrize(
    ("power", "takes_longer"), [(0.5, True), (0.999, True), (1.0, False), (2, False)]
)
def test_alternating_takes_longer_only_under_concave_speedups(
    power: float, takes_longer: bool
) -> None:
    def total(sizes: FloatArray) -> float:
        return float(np.sum(np.arange(1, len(sizes) + 1) * -np.sort(-sizes)))

    for case, rng in generate_cases(3, 50, 6):
        speedup = SimpleNamespace(rate=lambda servers: servers**power)
        shares = rng.dirichlet(np.full(case.jobs, 3.0))
        result = theorems.takes_longer_to_alternate(
            case,
            speedup,  # type: ignore[arg-type]
            shares,
            total,
            rng,
        )
        assert result == takes_longer
