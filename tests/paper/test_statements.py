"""Theorems hold for other seeds, and checks of wrong theorems fail."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.optimal.closed_form import best_in_order
from hesrpt.paper import statements
from hesrpt.paper.claims import RULES, Claim, Verdict
from hesrpt.paper.reference_optimiser import Optimum, generate_cases
from hesrpt.paper.statements import EXAMPLE_CHECKS, THEOREM_CHECKS
from hesrpt.policies import Equi, Srpt
from hesrpt.simulator import simulate
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

HOLDS, ROUGHLY, DIFFERS = Verdict.HOLDS, Verdict.ROUGHLY, Verdict.DIFFERS


@pytest.mark.parametrize(
    "check", [*THEOREM_CHECKS, *EXAMPLE_CHECKS], ids=lambda check: str(check.__name__)
)
def test_theorems_and_examples_hold_for_other_seeds(check: Callable[[int], Claim]) -> None:
    others = {
        "makespan_formula": DIFFERS,
        "amdahl_split": DIFFERS,
        "below_linear_everywhere": DIFFERS,
        "server_rate": DIFFERS,
        "only_equaliser": ROUGHLY,
    }
    claim = check(1234)
    assert claim.verdict is others.get(claim.name, HOLDS), claim
    assert claim.rule in RULES


def get_wrong_best_in_order(sizes: Any, servers: float, p: float) -> Any:
    return SimpleNamespace(total_flow_time=1.0 + list(sizes).index(min(sizes)))


def get_order_with_equal_shares(sizes: Any, servers: float, p: float) -> Any:
    best = best_in_order(sizes, servers, p)
    return replace(best, shares=np.full(len(best.shares), 1 / len(best.shares)))


def get_order_that_likes_large_jobs(sizes: Any, servers: float, p: float) -> Any:
    best = best_in_order(sizes, servers, p)
    return replace(best, total_flow_time=-best.total_flow_time)


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
        ("best_in_order", get_order_with_equal_shares, "mixed_system"),
        ("best_in_order", get_order_that_likes_large_jobs, "constant_in_any_order"),
        ("scale_free_constants", lambda m, p: np.ones(m), "product_formula"),
        ("coefficients", lambda m, p: np.arange(1.0, m + 1), "coefficients_derivative"),
    ],
)
def test_wrong_formula_is_detected(
    monkeypatch: pytest.MonkeyPatch, function: str, wrong: Callable[..., Any], claim: str
) -> None:
    monkeypatch.setattr(closed_form, function, wrong)
    assert getattr(statements, f"check_{claim}")(0).verdict is DIFFERS


@pytest.mark.parametrize(
    "check",
    [
        statements.check_equal_completion,
        statements.check_scale_free,
        statements.check_size_invariant,
        statements.check_slow_system,
    ],
)
def test_wrong_optimum_is_detected(
    monkeypatch: pytest.MonkeyPatch, check: Callable[[int], Claim]
) -> None:
    rng = np.random.default_rng(0)

    def return_random_shares(sizes: FloatArray, *_: Any, **__: Any) -> Optimum:
        shares = [rng.dirichlet(np.ones(k)) for k in range(len(sizes), 0, -1)]
        return Optimum(cost=1.0, durations=np.ones(len(shares)), shares=shares)

    monkeypatch.setattr(statements, "optimise", return_random_shares)
    assert check(0).verdict is DIFFERS


def test_wrong_policies_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The claims about policies compare simulations, which must tell policies apart."""

    def simulate_srpt_as_equi(workload: Workload, servers: float, policy: Any) -> Any:
        is_srpt = policy == "srpt" or isinstance(policy, Srpt)
        return simulate(workload, servers, "equi" if is_srpt else policy)

    monkeypatch.setattr(statements, "simulate", simulate_srpt_as_equi)
    assert statements.check_srpt_alone_optimal(0).verdict is DIFFERS
    assert statements.check_shortest_first_on_one_server(0).verdict is DIFFERS

    def simulate_helrpt(workload: Workload, servers: float, policy: Any) -> Any:
        return simulate(workload, servers, "helrpt" if policy == "equi" else policy)

    monkeypatch.setattr(statements, "simulate", simulate_helrpt)
    assert statements.check_intermediate_srpt(0).verdict is DIFFERS


def test_claims_that_differ_would_hold_in_other_models(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below one server, a time-shared server is only as fast as at p = 1."""
    monkeypatch.setattr(statements, "PowerLaw", lambda p: PowerLaw(p).time_shared())
    assert statements.check_below_linear_everywhere(0).verdict is HOLDS


def test_equal_ends_with_idle_servers_are_what_makes_a_claim_hold_only_roughly(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(statements, "HeLrpt", Equi)  # which does not end jobs at the same time
    assert statements.check_only_equaliser(0).verdict is HOLDS


@pytest.mark.parametrize(
    ("power", "takes_longer"), [(0.5, True), (0.999, True), (1.0, False), (2, False)]
)
def test_alternating_takes_longer_only_under_concave_speedups(
    power: float, takes_longer: bool
) -> None:
    def total(sizes: FloatArray) -> float:
        return float(np.sum(np.arange(1, len(sizes) + 1) * -np.sort(-sizes)))

    for case in generate_cases(3, 50, 6):
        speedup = SimpleNamespace(rate=lambda servers: servers**power)
        shares = case.rng.dirichlet(np.full(case.jobs, 3.0))
        result = statements.takes_longer_to_alternate(
            case,
            speedup,  # type: ignore[arg-type]
            shares,
            total,
        )
        assert result == takes_longer
