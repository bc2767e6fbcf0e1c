"""The numerical optimiser agrees with the formulas and with the planner."""

from __future__ import annotations

import numpy as np
import pytest

from hesrpt import Amdahl, PowerLaw, Workload, plan
from hesrpt.optimal import closed_form
from hesrpt.paper import reference_optimiser
from hesrpt.paper.reference_optimiser import generate_cases, optimise


def test_optimiser_agrees_with_the_formulas() -> None:
    for case in generate_cases(11, 20, 5):
        optimum = optimise(case.sizes, PowerLaw(case.p), case.servers)
        assert optimum.cost == pytest.approx(case.total_flow_time, rel=1e-8)
        order = case.rng.permutation(case.sizes)
        best = closed_form.best_in_order(order, case.servers, case.p).total_flow_time
        assert optimise(order, PowerLaw(case.p), case.servers).cost == pytest.approx(best, rel=1e-6)


@pytest.mark.parametrize("fraction", [0.3, 0.9, 0.99])
def test_optimiser_agrees_with_the_planner(fraction: float) -> None:
    sizes = np.array([5.0, 3.0, 2.5, 1.0])
    planned = plan(Workload(sizes, Amdahl(fraction)), servers=12)
    optimum = optimise(sizes, Amdahl(fraction), 12.0)
    assert optimum.cost == pytest.approx(planned.total_flow_time, rel=1e-7)
    shortest = plan(Workload(sizes, Amdahl(fraction)), servers=12, objective="makespan").makespan
    least = optimise(sizes, Amdahl(fraction), 12.0, makespan=True).cost
    assert least == pytest.approx(shortest, rel=1e-6)


def test_optimiser_that_gets_stuck_raises_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference_optimiser, "_MAX_STEPS", 1)
    with pytest.raises(ArithmeticError, match="stuck"):
        optimise(np.array([3.0, 2.0, 1.0]), PowerLaw(0.5), 10.0)
