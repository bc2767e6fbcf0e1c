"""The theorems of the paper and two lemmas, each checked on random jobs, servers and p.

Three independent computations must agree: optima from :mod:`hesrpt.paper.reference_optimiser`,
which does not use the paper's results, completion times from the simulator, and the formulas of
:mod:`hesrpt.optimal.closed_form`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.optimal.planner import plan
from hesrpt.paper.claims.proof_steps import (
    check_coefficients_derivative,
    check_coefficients_formula,
    check_coefficients_increase,
    check_constants_increase,
    check_first_order,
    check_gaps_with_constant_shares,
    check_mixed_system,
    check_product_formula,
    check_relaxed_bound,
    check_second_order,
    check_slow_system,
)
from hesrpt.paper.claims.verdicts import (
    Claim,
    Finding,
    claim_of,
    format_deviation,
    get_deviation,
    judge_exact,
    judge_which,
    summarise_deviations,
    summarise_exceptions,
)
from hesrpt.paper.random_cases import Case, generate_cases
from hesrpt.paper.reference_optimiser import optimise
from hesrpt.policies import Equi, HeLrpt, HeSrpt, Policy, Srpt, State
from hesrpt.simulator import simulate
from hesrpt.speedups import Amdahl, PowerLaw, Speedup
from hesrpt.workload import Workload

# The numbers of random cases: in checks that run the optimiser, and in checks of formulas only.
_FEW, _MANY = 25, 1000
# Tolerances. Near a flat optimum, shares and lengths of phases are less certain than the cost.
_SHARE_TOLERANCE, _COST_TOLERANCE, _FORMULA_TOLERANCE = 1e-5, 1e-6, 1e-9
_ALTERNATING = "it takes longer to alternate around the optimal shares until the first job ends"


# --- makespan ---------------------------------------------------------------------------------


@claim_of("Theorem 1")
def check_equal_completion(seed: int) -> Finding:
    """With the least makespan, all jobs end at the same time."""
    between = []
    for case, rng in generate_cases(seed, 2 * _FEW, 4):
        # A job that is tiny next to another one can end early at no cost.
        if (case.sizes.min() / case.sizes.max()) ** (1 / case.p) > 1e-3:
            order = rng.permutation(case.sizes)
            optimum = optimise(order, PowerLaw(case.p), case.servers, makespan=True)
            between.append(float(optimum.durations[1:].sum() / optimum.durations.sum()))
    return summarise_deviations(
        between,
        _SHARE_TOLERANCE,
        "fraction of the makespan after the first job ends, in numerical optima",
    )


@claim_of("Section 2")
def check_only_equaliser(seed: int) -> Finding:
    """Only one policy ends all jobs at the same time, so it minimises the makespan."""

    def use_half(state: State) -> FloatArray:
        return HeLrpt()(state) / 2

    def get_spread(ends: FloatArray) -> float:
        return float(np.ptp(ends) / ends.max())

    spreads, others = [], 0
    for case, rng in generate_cases(seed, _MANY, 6):
        spreads.append(get_spread(simulate(case.workload, case.servers, use_half).completion_times))
        held = rng.dirichlet(np.ones(case.jobs)) * case.servers
        others += get_spread(case.sizes / PowerLaw(case.p).rate(held)) < _SHARE_TOLERANCE
    example = Workload([9, 4, 1], PowerLaw(0.5))
    half, full = (simulate(example, 10, policy).makespan for policy in (use_half, HeLrpt()))
    is_equal = max(spreads) < _FORMULA_TOLERANCE
    return Finding(
        computed="if half of the servers are idle and the others are shared in the same "
        f"proportions, jobs {'also' if is_equal else 'do not'} end at the same time: jobs of sizes "
        f"9, 4, 1 on 10 servers, p = 0.5, at {half:.4f} instead of {full:.4f}. Of {_MANY:,} random "
        f"constant shares of all servers, {others} end all jobs at the same time (holds if no "
        "other policy does, roughly if no other constant shares of all servers do)",
        verdict=judge_which(not is_equal and others == 0, others == 0),
        rule="which",
        values={"half": half, "full": full, "others": others},
        possible_reason="the paper may mean constant shares of all servers",
    )


@claim_of("Theorem 2")
def check_makespan_allocation(seed: int) -> Finding:
    """Shares in proportion to x^(1/p), which are those of heLRPT, minimise the makespan."""
    deviations = []
    for case, _ in generate_cases(seed, _FEW, 4):
        shares = closed_form.makespan_shares(case.sizes, case.p)
        optimum = optimise(case.sizes, PowerLaw(case.p), case.servers, makespan=True)
        deviations.append(float(np.abs(optimum.shares[0] - shares).max()))
        run = simulate(case.workload, case.servers, "helrpt")
        deviations.append(get_deviation(run.completion_times, optimum.cost))
    return summarise_deviations(
        deviations,
        _SHARE_TOLERANCE,
        "shares in numerical optima, and completion times of heLRPT in simulations",
    )


@claim_of("Theorem 2")
def check_makespan_formula(seed: int) -> Finding:
    """The least makespan is the 1/p-norm of the sizes."""
    sizes, servers, p = np.array([9.0, 4.0, 1.0]), 10.0, 0.5
    best = optimise(sizes, PowerLaw(p), servers, makespan=True).cost
    norm = float(np.sum(sizes ** (1 / p)) ** p)
    worst = 0.0
    for case, _ in generate_cases(seed, _FEW, 4):
        run = simulate(case.workload, case.servers, "helrpt")
        with_speed = np.sum(case.sizes ** (1 / case.p)) ** case.p / case.servers**case.p
        worst = max(worst, get_deviation(run.makespan, float(with_speed)))
    return Finding(
        computed=f"sizes 9, 4, 1 on 10 servers, p = 0.5: the least makespan is {best:.4f}, and the "
        f"norm is {norm:.4f}. Divided by the speed N^p of the system, the norm is "
        f"{norm / servers**p:.4f}; over {_FEW} random cases, deviations from that are "
        f"{format_deviation(worst)}",
        verdict=judge_exact(abs(best / norm - 1), _FORMULA_TOLERANCE),
        rule="exact",
        values={"ours": best, "theirs": norm, "deviation_with_speed": worst},
        possible_reason="the theorem omits the speed N^p of the system; as printed, it holds for "
        "N = 1",
    )


@claim_of("Section 2")
def check_long_jobs_favoured(seed: int) -> Finding:
    """To minimise the makespan, a longer job gets a larger share."""
    exceptions = 0
    for case, _ in generate_cases(seed, _MANY, 20):
        exceptions += bool(np.any(np.diff(closed_form.makespan_shares(case.sizes, case.p)) >= 0))
    return summarise_exceptions(
        exceptions, _MANY, "the formula for random batches of up to 20 jobs"
    )


# --- flow time --------------------------------------------------------------------------------


@claim_of("Theorem 3")
def check_constant_allocation(seed: int) -> Finding:
    """The optimal allocation does not change between departures."""
    exceptions = 0
    for case, rng in generate_cases(seed, _MANY, 8):
        speedup, shares = PowerLaw(case.p), closed_form.shares(case.jobs, case.p)

        def total(sizes: FloatArray, case: Case = case) -> float:
            return closed_form.total_flow_time(sizes, case.servers, case.p)

        exceptions += not takes_longer_to_alternate(case, speedup, shares, total, rng)
    return summarise_exceptions(exceptions, _MANY, _ALTERNATING)


@claim_of("Section 3.2")
def check_constant_in_any_order(seed: int) -> Finding:
    """Theorem 3 also holds for the policy that is optimal for a given completion order."""
    exceptions = tried = 0
    for case, rng in generate_cases(seed, _MANY, 6):
        case.sizes = rng.permutation(case.sizes)
        shares = closed_form.best_in_order(case.sizes, case.servers, case.p).shares

        def total(sizes: FloatArray, case: Case = case) -> float:
            return closed_form.best_in_order(sizes, case.servers, case.p).total_flow_time

        if shares.min() > 1e-3:  # the loss of a smaller share is lost in rounding errors
            exceptions += not takes_longer_to_alternate(case, PowerLaw(case.p), shares, total, rng)
            tried += 1
    return summarise_exceptions(exceptions, tried, f"{_ALTERNATING}, for random orders")


@claim_of("Section 4.3")
def check_constant_for_concave(seed: int) -> Finding:
    """Theorem 3 also holds for concave speedups other than k^p."""
    exceptions = tried = 0
    for case, rng in generate_cases(seed, 8 * _FEW, 4):
        case.servers = float(rng.uniform(2, 100))
        speedup = Amdahl(float(rng.uniform(0.5, 0.99)))
        shares = plan(Workload(case.sizes, speedup), case.servers).servers_at(0.0) / case.servers

        def total(sizes: FloatArray, case: Case = case, speedup: Speedup = speedup) -> float:
            return plan(Workload(sizes, speedup), case.servers).total_flow_time

        if np.count_nonzero(shares > 1e-6) > 1:  # otherwise one job holds all servers
            exceptions += not takes_longer_to_alternate(case, speedup, shares, total, rng)
            tried += 1
    return summarise_exceptions(exceptions, tried, f"{_ALTERNATING}, under Amdahl's law")


def takes_longer_to_alternate(
    case: Case,
    speedup: Speedup,
    shares: FloatArray,
    total: Callable[[FloatArray], float],
    rng: np.random.Generator,
) -> bool:
    """Return whether it takes longer to alternate around some shares until the first job ends.

    On average, every job holds its share during that time. Afterwards the schedule is optimal:
    ``total`` returns the least total flow time for the remaining sizes.
    """
    change = rng.uniform(-1, 1, case.jobs) * shares
    change -= shares * change.sum()  # the changes add up to zero
    moved = change != 0
    change *= 0.5 * float(np.min(shares[moved] / np.abs(change[moved])))
    less, same, more = (
        speedup.rate((shares + sign * change) * case.servers) for sign in (-1, 0, 1)
    )
    length = float(np.min(case.sizes[same > 0] / np.maximum(same, more)[same > 0]))

    def get_rest(rates: FloatArray) -> float:
        remaining = case.sizes - length * rates
        remaining = remaining[remaining > 1e-12 * case.sizes]
        return total(remaining) if len(remaining) else 0.0

    return get_rest((less + more) / 2) > get_rest(same) * (1 + 1e-12)


@claim_of("Lemma on scaling (Section 3.3)")
def check_scaling(seed: int) -> Finding:
    """A system with a fraction β unused runs at (1 − β)^p of its speed."""
    deviations = []
    for case, rng in generate_cases(seed, _FEW, 12):
        unused = float(rng.uniform(0.05, 0.9))
        policies: tuple[Policy, ...] = (HeSrpt(p=case.p), Equi(), Srpt())
        policy = policies[int(rng.integers(len(policies)))]

        def use_part(state: State, policy: Policy = policy, unused: float = unused) -> FloatArray:
            return policy(state) * (1 - unused)

        slow = simulate(case.workload, case.servers, use_part)
        fast = simulate(case.workload, case.servers, policy)
        speed = (1 - unused) ** case.p
        deviations.append(get_deviation(slow.total_flow_time * speed, fast.total_flow_time))
    return summarise_deviations(
        deviations,
        _FORMULA_TOLERANCE,
        "simulations of heSRPT, EQUI and SRPT on some of the servers",
    )


@claim_of("Theorem 4")
def check_scale_free(seed: int) -> Finding:
    """For a given completion order, the best ratios between the shares of jobs never change."""
    changes = []
    for case, rng in generate_cases(seed, 2 * _FEW, 4):
        optimum = optimise(rng.permutation(case.sizes), PowerLaw(case.p), case.servers)
        for job in range(1, case.jobs):
            parts = [
                s[job] / s[: job + 1].sum() for s in optimum.shares_in_long_phases if len(s) > job
            ]
            if len(parts) > 1:
                changes.append(float(np.ptp(parts)))
    return summarise_deviations(
        changes,
        _SHARE_TOLERANCE,
        "changes of these ratios between phases, in numerical optima for random orders",
    )


@claim_of("Lemma on T^P (Section 3.4)")
def check_flow_time_of_order(seed: int) -> Finding:
    """The least total flow time for a completion order is a sum over its scale-free constants."""
    deviations = []
    for case, rng in generate_cases(seed, _FEW, 4):
        order = rng.permutation(case.sizes)
        best = closed_form.best_in_order(order, case.servers, case.p)
        held_after = np.concatenate(([0.0], np.cumsum(best.shares)[:-1]))
        constants = held_after / best.shares
        formula = closed_form.flow_time_of_constants(order, constants, case.servers, case.p)
        optimum = optimise(order, PowerLaw(case.p), case.servers)
        deviations.append(get_deviation(formula, optimum.cost))
    return summarise_deviations(
        deviations, _COST_TOLERANCE, "the formula and numerical optima for random orders"
    )


@claim_of("Theorem 5")
def check_shortest_first(seed: int) -> Finding:
    """The optimal policy completes jobs in order of size, the shortest first."""
    exceptions = orders = 0
    for case, _ in generate_cases(seed, _FEW, 5):
        shortest = closed_form.best_in_order(case.sizes, case.servers, case.p).total_flow_time
        for order in permutations(case.sizes.tolist()):
            best = closed_form.best_in_order(order, case.servers, case.p).total_flow_time
            exceptions += best < shortest * (1 - _FORMULA_TOLERANCE)
            orders += 1
    for case, _ in generate_cases(seed + 1, 10, 3):
        speedup = PowerLaw(case.p)
        shortest = optimise(case.sizes, speedup, case.servers).cost
        for order in permutations(case.sizes.tolist()):
            optimum = optimise(np.array(order), speedup, case.servers)
            exceptions += optimum.cost < shortest * (1 - _COST_TOLERANCE)
            orders += 1
    return summarise_exceptions(
        exceptions, orders, "all orders of up to 5 jobs, by formula and by numerical optima"
    )


@claim_of("Theorem 6")
def check_size_invariant(seed: int) -> Finding:
    """The optimal allocation depends on the number of jobs, not on their sizes."""
    deviations = []
    for case, rng in generate_cases(seed, _FEW, 4):
        other = -np.sort(-(rng.exponential(10, case.jobs) + 0.1))
        one, two = (
            {
                len(share): share
                for share in optimise(x, PowerLaw(case.p), case.servers).shares_in_long_phases
            }
            for x in (case.sizes, other)
        )
        deviations += [float(np.abs(one[m] - two[m]).max()) for m in one.keys() & two.keys() - {1}]
    return summarise_deviations(
        deviations,
        _SHARE_TOLERANCE,
        "shares in numerical optima of two batches with different sizes",
    )


@claim_of("Theorem 7")
def check_optimal_allocation(seed: int) -> Finding:
    """Of m jobs, the i-th largest gets the share (i/m)^c − ((i−1)/m)^c with c = 1/(1 − p)."""
    deviations = []
    for case, _ in generate_cases(seed, _FEW, 4):
        for share in optimise(case.sizes, PowerLaw(case.p), case.servers).shares_in_long_phases:
            formula = closed_form.shares(len(share), case.p)
            deviations.append(float(np.abs(share - formula).max()))
    return summarise_deviations(
        deviations, _SHARE_TOLERANCE, "the formula and shares in all phases of numerical optima"
    )


@claim_of("Theorem 8")
def check_total_by_simulation(seed: int) -> Finding:
    """heSRPT attains the optimal total flow time Σ x_k Δ(k) / s(N)."""
    deviations = []
    for case, _ in generate_cases(seed, _MANY, 100):
        run = simulate(case.workload, case.servers, HeSrpt(p=case.p))
        deviations.append(get_deviation(run.total_flow_time, case.total_flow_time))
    return summarise_deviations(
        deviations, _FORMULA_TOLERANCE, "the formula and simulations of up to 100 jobs"
    )


@claim_of("Theorem 8")
def check_total_by_optimiser(seed: int) -> Finding:
    """No policy has a lower total flow time than Σ x_k Δ(k) / s(N)."""
    deviations = []
    for case, _ in generate_cases(seed, _FEW, 4):
        optimum = optimise(case.sizes, PowerLaw(case.p), case.servers)
        deviations.append(get_deviation(optimum.cost, case.total_flow_time))
    return summarise_deviations(deviations, _COST_TOLERANCE, "the formula and numerical optima")


@claim_of("Section 3.1, Appendix C")
def check_short_jobs_favoured(seed: int) -> Finding:
    """Every job gets a share, and a smaller job gets a larger one."""
    exceptions = 0
    for case, _ in generate_cases(seed, _MANY, 100):
        share = closed_form.shares(case.jobs, case.p)
        exceptions += not (share[0] > 0 and bool(np.all(np.diff(share) > 0)))
    return summarise_exceptions(exceptions, _MANY, "the formula for random p and up to 100 jobs")


#: All checks of theorems, lemmas and steps of proofs, in the order of the paper.
THEOREM_CHECKS: tuple[Callable[[int], Claim], ...] = (
    check_equal_completion,
    check_only_equaliser,
    check_makespan_allocation,
    check_makespan_formula,
    check_long_jobs_favoured,
    check_constant_allocation,
    check_constant_in_any_order,
    check_constant_for_concave,
    check_scaling,
    check_scale_free,
    check_slow_system,
    check_mixed_system,
    check_flow_time_of_order,
    check_gaps_with_constant_shares,
    check_relaxed_bound,
    check_first_order,
    check_second_order,
    check_shortest_first,
    check_size_invariant,
    check_optimal_allocation,
    check_product_formula,
    check_total_by_simulation,
    check_total_by_optimiser,
    check_short_jobs_favoured,
    check_constants_increase,
    check_coefficients_increase,
    check_coefficients_formula,
    check_coefficients_derivative,
)
