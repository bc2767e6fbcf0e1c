"""Steps in the proofs of the paper, and properties of its constants, checked on random cases.

Formulas come from :mod:`hesrpt.optimal.closed_form`, completion times from the simulator, and
optima from :mod:`hesrpt.paper.reference_optimiser`.
"""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.paper.claims.verdicts import (
    Finding,
    claim_of,
    get_deviation,
    summarise_deviations,
    summarise_exceptions,
)
from hesrpt.paper.random_cases import Case, generate_cases
from hesrpt.paper.reference_optimiser import optimise
from hesrpt.policies import HeSrpt
from hesrpt.simulator import simulate
from hesrpt.speedups import Custom, PowerLaw

_CASES = 1000
_TOLERANCE = 1e-9


@claim_of("Proof of Theorem 4")
def check_slow_system(seed: int) -> Finding:
    """A system that is slower by a factor δ takes δ times as long, with the same optimal shares."""
    deviations = []
    for case, rng in generate_cases(seed, 25, 4):
        order, slower = rng.permutation(case.sizes), float(rng.uniform(1, 10))

        def get_slow_rate(servers: FloatArray, p: float = case.p, by: float = slower) -> FloatArray:
            return np.asarray(servers**p / by)

        normal = optimise(order, PowerLaw(case.p), case.servers)
        slow = optimise(order, Custom(get_slow_rate), case.servers)
        deviations.append(get_deviation(slow.cost / slower, normal.cost))
        deviations += [
            float(np.abs(one - two).max())
            for one, two in zip(
                normal.shares_in_long_phases, slow.shares_in_long_phases, strict=True
            )
        ]
    return summarise_deviations(
        deviations, 1e-5, "costs and shares in numerical optima for random orders and 1 < δ < 10"
    )


@claim_of("Proof of Theorem 4")
def check_mixed_system(seed: int) -> Finding:
    """In a system that is slow until a given time, the same shares are optimal before and after."""
    exceptions = tried = 0
    for case, rng in generate_cases(seed, _CASES, 5):
        order, slower = rng.permutation(case.sizes), float(rng.uniform(1, 10))
        best = closed_form.best_in_order(order, case.servers, case.p)
        slow_until = float(rng.uniform(0.1, 0.9) * best.completion_times.min() * slower)

        def get_later_cost(
            shares: FloatArray,
            case: Case = case,
            order: FloatArray = order,
            speed: float = slow_until / slower,
        ) -> float | None:
            """Return the total flow time after the slow start, or None if a job ended in it."""
            left = order - speed * (shares * case.servers) ** case.p
            if left.min() <= 0:
                return None
            return closed_form.best_in_order(left, case.servers, case.p).total_flow_time

        # The cost is convex in the shares, so it is enough to compare with others nearby.
        others = best.shares * rng.uniform(0.7, 1.3, case.jobs)
        cost, other_cost = get_later_cost(best.shares), get_later_cost(others / others.sum())
        if cost is not None and other_cost is not None:
            exceptions += other_cost < cost * (1 - _TOLERANCE)
            tried += 1
    return summarise_exceptions(
        exceptions, tried, "other shares during a slow start do worse, for random orders"
    )


@claim_of("Proof of the Lemma on T^P")
def check_gaps_with_constant_shares(seed: int) -> Finding:
    """With constant shares, times between completions would be 1/s(θ_1 + … + θ_k) times as long."""
    deviations = []
    for case, _ in generate_cases(seed, 25, 20):
        shares = closed_form.shares(case.jobs, case.p)
        ends = simulate(case.workload, case.servers, HeSrpt(p=case.p)).completion_times
        constant_ends = case.sizes / (shares * case.servers) ** case.p
        gaps, constant_gaps = (-np.diff(times) for times in (ends, constant_ends))
        held = np.cumsum(shares)[:-1]
        deviations.append(get_deviation(constant_gaps * held**case.p, gaps))
    return summarise_deviations(
        deviations, 1e-6, "simulated completion times, with growing and with constant shares"
    )


@claim_of("Proof of Theorem 5")
def check_relaxed_bound(seed: int) -> Finding:
    """The relaxed minimum of T^P is a lower bound for the completion order P."""
    exceptions = 0
    for case, rng in generate_cases(seed, _CASES, 8):
        order = rng.permutation(case.sizes)
        constants = closed_form.scale_free_constants(case.jobs, case.p)
        relaxed = closed_form.flow_time_of_constants(order, constants, case.servers, case.p)
        best = closed_form.best_in_order(order, case.servers, case.p).total_flow_time
        exceptions += relaxed > best * (1 + _TOLERANCE)
    return summarise_exceptions(
        exceptions, _CASES, "the formula and the best schedules for random orders of up to 8 jobs"
    )


@claim_of("Proof of Theorem 5")
def check_first_order(seed: int) -> Finding:
    """At the scale-free constants ω, the derivative of T^P is zero."""
    deviations = []
    for case, _ in generate_cases(seed, _CASES, 100):
        k = np.arange(2, case.jobs + 1)
        constants = closed_form.scale_free_constants(case.jobs, case.p)[1:]
        derivative = k * (1 + constants) ** (case.p - 1)
        deviations.append(get_deviation(derivative, (k - 1) * constants ** (case.p - 1)))
    return summarise_deviations(
        deviations, _TOLERANCE, "k s'(1 + ω) and (k − 1) s'(ω) for k ≥ 2 and random p"
    )


@claim_of("Proof of Theorem 5")
def check_second_order(seed: int) -> Finding:
    """At ω, T^P has a minimum: its second derivative is positive."""
    exceptions = 0
    for case, _ in generate_cases(seed, _CASES, 100):
        k, p = np.arange(2, case.jobs + 1), case.p
        constants = closed_form.scale_free_constants(case.jobs, p)[1:]
        bend = p * (p - 1) * (k * (1 + constants) ** (p - 2) - (k - 1) * constants ** (p - 2))
        exceptions += not np.all(bend > 0)
    return summarise_exceptions(exceptions, _CASES, "random p and up to 100 jobs")


@claim_of("Proof of Theorem 7")
def check_product_formula(seed: int) -> Finding:
    """θ_i = ω_{i+1} ⋯ ω_m / ((1 + ω_i) ⋯ (1 + ω_m))."""
    deviations = []
    for case, _ in generate_cases(seed, _CASES, 50):
        constants = closed_form.scale_free_constants(case.jobs, case.p)
        factors = np.append(constants[1:], 1.0) / (1 + constants)
        products = np.multiply.accumulate(factors[::-1])[::-1]  # from i to m
        deviations.append(get_deviation(products, closed_form.shares(case.jobs, case.p)))
    return summarise_deviations(
        deviations, _TOLERANCE, "the products and the shares of up to 50 jobs"
    )


@claim_of("Appendix C")
def check_constants_increase(seed: int) -> Finding:
    """ω_k increases with k."""
    exceptions = 0
    for case, _ in generate_cases(seed, _CASES, 1000):
        constants = closed_form.scale_free_constants(case.jobs, case.p)
        exceptions += not np.all(np.diff(constants) > 0)
    return summarise_exceptions(exceptions, _CASES, "random p and up to 1,000 jobs")


@claim_of("Appendix C")
def check_coefficients_increase(seed: int) -> Finding:
    """Δ(k) increases with k."""
    exceptions = 0
    for case, _ in generate_cases(seed, _CASES, 1000):
        exceptions += not np.all(np.diff(closed_form.coefficients(case.jobs, case.p)) > 0)
    return summarise_exceptions(exceptions, _CASES, "random p and up to 1,000 jobs")


@claim_of("Appendix C")
def check_coefficients_formula(seed: int) -> Finding:
    """Δ(k) = (k^c − (k−1)^c)^(1−p)."""
    deviations = []
    for case, _ in generate_cases(seed, _CASES, 50):
        k, c = np.arange(1.0, case.jobs + 1), 1 / (1 - case.p)
        constants = closed_form.scale_free_constants(case.jobs, case.p)
        as_defined = k * (1 + constants) ** case.p - (k - 1) * constants**case.p
        deviations.append(get_deviation(as_defined, (k**c - (k - 1) ** c) ** (1 - case.p)))
    return summarise_deviations(
        deviations, _TOLERANCE, "this formula and the definition, for up to 50 jobs"
    )


@claim_of("Appendix C")
def check_coefficients_derivative(seed: int) -> Finding:
    """dΔ/dk = (1 − p) (k^c − (k−1)^c)^(−p) c (k^(c−1) − (k−1)^(c−1))."""
    deviations = []
    nodes, weights = np.polynomial.legendre.leggauss(30)
    for case, _ in generate_cases(seed, _CASES, 50):
        c = 1 / (1 - case.p)
        # The integral of the derivative between whole numbers must be the difference of the Δ(k).
        # At k = 1 its slope is infinite for p < 1/2, so integrals start at k = 2.
        k = np.arange(2.0, case.jobs + 1)[:, None] + (nodes + 1) / 2
        inner = c * (k ** (c - 1) - (k - 1) ** (c - 1))
        derivative = (1 - case.p) * (k**c - (k - 1) ** c) ** -case.p * inner
        steps = np.diff(closed_form.coefficients(case.jobs + 1, case.p))[1:]
        integrals: FloatArray = derivative @ weights / 2
        deviations.append(get_deviation(integrals, steps))
    return summarise_deviations(
        deviations, _TOLERANCE, "integrals of this derivative and differences of Δ, up to k = 50"
    )
