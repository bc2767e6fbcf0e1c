"""Steps in the proofs of the paper, and properties of its constants, checked on random cases.

Formulas come from :mod:`hesrpt.optimal.closed_form`, completion times from the simulator.
"""

from __future__ import annotations

import numpy as np

from hesrpt.optimal import closed_form
from hesrpt.paper.claims.verdicts import (
    Finding,
    claim_of,
    get_deviation,
    summarise_deviations,
    summarise_exceptions,
)
from hesrpt.paper.random_cases import generate_cases
from hesrpt.policies import HeSrpt
from hesrpt.simulator import simulate

_CASES = 1000
_TOLERANCE = 1e-9


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
