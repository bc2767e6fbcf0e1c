"""The theorems and lemmas of the paper, each checked over a random sweep of jobs, servers and p.

Optima come from :mod:`hesrpt.paper.optimiser`, which knows nothing of the paper, completion times
from the simulator, and formulas from :mod:`hesrpt.optimal.closed_form`: three ways that must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.optimal.planner import plan
from hesrpt.paper.cases import Case, cases
from hesrpt.paper.judging import Claim, Finding, equality, exact, no_exception, states, within
from hesrpt.paper.optimiser import optimise
from hesrpt.policies import Equi, HeSrpt, Policy, Srpt, State
from hesrpt.simulator import simulate
from hesrpt.speedups import Amdahl, PowerLaw, Speedup
from hesrpt.workload import Workload

# Random cases: where the optimiser works for each, and where formulas do.
_FEW, _MANY = 25, 1000
# A flat optimum leaves shares and lengths of phases more uncertain than its cost.
_SHARES, _COST, _FORMULA = 1e-5, 1e-6, 1e-9


def _deviation(ours: FloatArray | float, theirs: FloatArray | float) -> float:
    return float(np.max(np.abs(np.asarray(ours) / np.asarray(theirs) - 1)))


# --- makespan ---------------------------------------------------------------------------------


@states("Theorem 1")
def equal_completion(seed: int) -> Finding:
    """The least makespan ends all jobs at the same time."""
    between = []
    for case, rng in cases(seed, 2 * _FEW, 4):
        # Where a job is next to nothing beside another one, nothing is lost when it ends early.
        if (case.sizes.min() / case.sizes.max()) ** (1 / case.p) > 1e-3:
            order = rng.permutation(case.sizes)
            found = optimise(order, PowerLaw(case.p), case.servers, makespan=True)
            between.append(float(found.durations[1:].sum() / found.durations.sum()))
    return equality(
        between, _SHARES, "part of the makespan after the first job has ended, in optima"
    )


@states("Theorem 2")
def makespan_allocation(seed: int) -> Finding:
    """It is reached by shares in proportion to x^(1/p), which is heLRPT."""
    deviations = []
    for case, _ in cases(seed, _FEW, 4):
        shares = closed_form.makespan_shares(case.sizes, case.p)
        found = optimise(case.sizes, PowerLaw(case.p), case.servers, makespan=True)
        deviations.append(float(np.abs(found.shares[0] - shares).max()))
        run = simulate(case.workload, case.servers, "helrpt")
        deviations.append(_deviation(run.completion_times, found.cost))
    return equality(
        deviations, _SHARES, "shares in numerical optima, and when heLRPT ends jobs, simulated"
    )


@states("Theorem 2")
def makespan_formula(seed: int) -> Finding:
    """The least makespan is the 1/p-norm of the sizes."""
    sizes, servers, p = np.array([9.0, 4.0, 1.0]), 10.0, 0.5
    best = optimise(sizes, PowerLaw(p), servers, makespan=True).cost
    norm = float(np.sum(sizes ** (1 / p)) ** p)
    worst = 0.0
    for case, _ in cases(seed, _FEW, 4):
        run = simulate(case.workload, case.servers, "helrpt")
        with_speed = np.sum(case.sizes ** (1 / case.p)) ** case.p / case.servers**case.p
        worst = max(worst, _deviation(run.makespan, float(with_speed)))
    return Finding(
        f"sizes 9, 4, 1 on 10 servers, p = 0.5: the least makespan is {best:.4f}, the norm is "
        f"{norm:.4f}; with the speed N^p, norm / N^p = {norm / servers**p:.4f}, deviations over "
        f"{_FEW} cases are {within(worst)}",
        exact(abs(best / norm - 1), _FORMULA), "exact",
        {"ours": best, "theirs": norm, "deviation_with_speed": worst},
        "the statement leaves out the speed N^p of the system; it holds as printed for N = 1",
    )  # fmt: skip


@states("Section 2")
def long_jobs_favoured(seed: int) -> Finding:
    """To minimise the makespan, a longer job gets a larger share."""
    against = 0
    for case, _ in cases(seed, _MANY, 20):
        against += bool(np.any(np.diff(closed_form.makespan_shares(case.sizes, case.p)) >= 0))
    return no_exception(against, _MANY, "the formula, for random batches of up to 20 jobs")


# --- flow time --------------------------------------------------------------------------------


@states("Theorem 3")
def constant_allocation(seed: int) -> Finding:
    """The optimal allocation does not change between departures."""
    against = 0
    for case, rng in cases(seed, _MANY, 8):
        speedup, shares = PowerLaw(case.p), closed_form.shares(case.jobs, case.p)

        def total(sizes: FloatArray, case: Case = case) -> float:
            return closed_form.total_flow_time(sizes, case.servers, case.p)

        against += not loses_by_changing(case, speedup, shares, total, rng)
    return no_exception(against, _MANY, _CHANGED)


@states("Section 4.3")
def constant_for_concave(seed: int) -> Finding:
    """Theorem 3 holds for other concave speedups than k^p."""
    against = changed = 0
    for case, rng in cases(seed, 8 * _FEW, 4):
        case.servers = float(rng.uniform(2, 100))
        speedup = Amdahl(float(rng.uniform(0.5, 0.99)))
        shares = plan(Workload(case.sizes, speedup), case.servers).servers_at(0.0) / case.servers

        def total(sizes: FloatArray, case: Case = case, speedup: Speedup = speedup) -> float:
            return plan(Workload(sizes, speedup), case.servers).total_flow_time

        if np.count_nonzero(shares > 1e-6) > 1:  # otherwise one job has all: nothing to change
            against += not loses_by_changing(case, speedup, shares, total, rng)
            changed += 1
    return no_exception(against, changed, "the same with Amdahl's law")


_CHANGED = "flow time with shares that alternate about the optimal ones in the first phase"


def loses_by_changing(
    case: Case,
    speedup: Speedup,
    shares: FloatArray,
    total: Callable[[FloatArray], float],
    rng: np.random.Generator,
) -> bool:
    """Return whether it costs time to alternate about some shares until the first job ends.

    On average over this time every job has its share. After it, everything is optimal: ``total`` is
    the least total flow time of what is then left.
    """
    change = rng.uniform(-1, 1, case.jobs) * shares
    change -= shares * change.sum()  # what one job gains, others lose
    moved = change != 0
    change *= 0.5 * float(np.min(shares[moved] / np.abs(change[moved])))
    less, same, more = (
        speedup.rate((shares + sign * change) * case.servers) for sign in (-1, 0, 1)
    )
    length = float(np.min(case.sizes[same > 0] / np.maximum(same, more)[same > 0]))

    def rest(rates: FloatArray) -> float:
        left = case.sizes - length * rates
        left = left[left > 1e-12 * case.sizes]
        return total(left) if len(left) else 0.0

    return rest((less + more) / 2) > rest(same) * (1 + 1e-12)


@states("Lemma on scaling (Section 3.3)")
def scaling(seed: int) -> Finding:
    """To leave a part β of the system unused is to run it at (1 − β)^p of its speed."""
    deviations = []
    for case, rng in cases(seed, _FEW, 12):
        unused = float(rng.uniform(0.05, 0.9))
        policies: tuple[Policy, ...] = (HeSrpt(p=case.p), Equi(), Srpt())
        policy = policies[int(rng.integers(len(policies)))]

        def partly(state: State, policy: Policy = policy, unused: float = unused) -> FloatArray:
            return policy(state) * (1 - unused)

        slow = simulate(case.workload, case.servers, partly)
        fast = simulate(case.workload, case.servers, policy)
        speed = (1 - unused) ** case.p
        deviations.append(_deviation(slow.total_flow_time * speed, fast.total_flow_time))
    return equality(deviations, _FORMULA, "simulations of heSRPT, EQUI and SRPT with part of N")


@states("Theorem 4")
def scale_free(seed: int) -> Finding:
    """In the best schedule of an order, shares of a job and those after it stay in proportion."""
    changes = []
    for case, rng in cases(seed, 2 * _FEW, 4):
        found = optimise(rng.permutation(case.sizes), PowerLaw(case.p), case.servers)
        for job in range(1, case.jobs):
            parts = [s[job] / s[: job + 1].sum() for s in found.telling if len(s) > job]
            if len(parts) > 1:
                changes.append(float(np.ptp(parts)))
    return equality(changes, _SHARES, "their change between phases in optima for random orders")


@states("Lemma on T^P (Section 3.4)")
def flow_time_of_order(seed: int) -> Finding:
    """The least total flow time of an order is a sum over its scale-free constants."""
    deviations = []
    for case, rng in cases(seed, _FEW, 4):
        order = rng.permutation(case.sizes)
        best = closed_form.best_in_order(order, case.servers, case.p)
        held_after = np.concatenate(([0.0], np.cumsum(best.shares)[:-1]))
        constants = held_after / best.shares
        formula = closed_form.flow_time_of_constants(order, constants, case.servers, case.p)
        found = optimise(order, PowerLaw(case.p), case.servers)
        deviations.append(_deviation(formula, found.cost))
    return equality(deviations, _COST, "formula and numerical optima for random orders")


@states("Proof of the Lemma on T^P")
def constant_twin(seed: int) -> Finding:
    """If shares never grew, the time between two ends would be 1/s(θ_1 + … + θ_k) times as long."""
    deviations = []
    for case, _ in cases(seed, _FEW, 20):
        shares = closed_form.shares(case.jobs, case.p)
        ends = simulate(case.workload, case.servers, HeSrpt(p=case.p)).completion_times
        twins = case.sizes / (shares * case.servers) ** case.p
        real, twin = (-np.diff(times, append=0.0) for times in (ends, twins))
        deviations.append(_deviation(twin[:-1] * np.cumsum(shares)[:-1] ** case.p, real[:-1]))
    return equality(deviations, 1e-6, "simulated ends, and those with the first shares kept")


@states("Proof of Theorem 5")
def relaxed_bound(seed: int) -> Finding:
    """The relaxed minimum of T^P is a lower bound for its completion order."""
    against = 0
    for case, rng in cases(seed, _MANY, 8):
        order = rng.permutation(case.sizes)
        constants = closed_form.scale_free_constants(case.jobs, case.p)
        relaxed = closed_form.flow_time_of_constants(order, constants, case.servers, case.p)
        best = closed_form.best_in_order(order, case.servers, case.p).total_flow_time
        against += relaxed > best * (1 + _FORMULA)
    return no_exception(against, _MANY, "formula and best schedule for random orders of up to 8")


@states("Proof of Theorem 5")
def first_order(seed: int) -> Finding:
    """The scale-free constants ω make the derivative of T^P vanish."""
    deviations = []
    for case, _ in cases(seed, _MANY, 100):
        k = np.arange(2, case.jobs + 1)
        constants = closed_form.scale_free_constants(case.jobs, case.p)[1:]
        left = k * (1 + constants) ** (case.p - 1)
        deviations.append(_deviation(left, (k - 1) * constants ** (case.p - 1)))
    return equality(deviations, _FORMULA, "k s'(1 + ω) and (k − 1) s'(ω), k ≥ 2, for random p")


@states("Proof of Theorem 5")
def second_order(seed: int) -> Finding:
    """There T^P has a minimum: its second derivative is positive."""
    against = 0
    for case, _ in cases(seed, _MANY, 100):
        k, p = np.arange(2, case.jobs + 1), case.p
        constants = closed_form.scale_free_constants(case.jobs, p)[1:]
        bend = p * (p - 1) * (k * (1 + constants) ** (p - 2) - (k - 1) * constants ** (p - 2))
        against += not np.all(bend > 0)
    return no_exception(against, _MANY, "random p, up to 100 jobs")


@states("Theorem 5")
def shortest_first(seed: int) -> Finding:
    """The optimal policy ends jobs shortest first."""
    against = orders = 0
    for case, _ in cases(seed, _FEW, 5):
        shortest = closed_form.best_in_order(case.sizes, case.servers, case.p).total_flow_time
        for order in permutations(case.sizes.tolist()):
            best = closed_form.best_in_order(order, case.servers, case.p).total_flow_time
            against += best < shortest * (1 - _FORMULA)
            orders += 1
    for case, _ in cases(seed + 1, 10, 3):
        speedup = PowerLaw(case.p)
        shortest = optimise(case.sizes, speedup, case.servers).cost
        for order in permutations(case.sizes.tolist()):
            found = optimise(np.array(order), speedup, case.servers)
            against += found.cost < shortest * (1 - _COST)
            orders += 1
    return no_exception(against, orders, "all orders of up to 5 jobs, also by numerical optima")


@states("Theorem 6")
def size_invariant(seed: int) -> Finding:
    """The optimal allocation depends on how many jobs are left, not on their sizes."""
    deviations = []
    for case, rng in cases(seed, _FEW, 4):
        other = -np.sort(-(rng.exponential(10, case.jobs) + 0.1))
        one, two = (
            {len(share): share for share in optimise(x, PowerLaw(case.p), case.servers).telling}
            for x in (case.sizes, other)
        )
        deviations += [float(np.abs(one[m] - two[m]).max()) for m in one.keys() & two.keys() - {1}]
    return equality(deviations, _SHARES, "shares in the numerical optima of pairs of batches")


@states("Theorem 7")
def optimal_allocation(seed: int) -> Finding:
    """Of m jobs the i-th largest gets the share (i/m)^c − ((i−1)/m)^c, c = 1/(1 − p)."""
    deviations = []
    for case, _ in cases(seed, _FEW, 4):
        for share in optimise(case.sizes, PowerLaw(case.p), case.servers).telling:
            formula = closed_form.shares(len(share), case.p)
            deviations.append(float(np.abs(share - formula).max()))
    return equality(deviations, _SHARES, "shares in the phases of numerical optima")


@states("Theorem 8")
def total_by_simulation(seed: int) -> Finding:
    """The optimal total flow time is Σ x_k Δ(k) / s(N): heSRPT attains it."""
    deviations = []
    for case, _ in cases(seed, _MANY, 100):
        run = simulate(case.workload, case.servers, HeSrpt(p=case.p))
        deviations.append(_deviation(run.total_flow_time, case.total))
    return equality(deviations, _FORMULA, "simulations of up to 100 jobs")


@states("Theorem 8")
def total_by_optimiser(seed: int) -> Finding:
    """The optimal total flow time is Σ x_k Δ(k) / s(N): nothing betters it."""
    deviations = []
    for case, _ in cases(seed, _FEW, 4):
        found = optimise(case.sizes, PowerLaw(case.p), case.servers)
        deviations.append(_deviation(found.cost, case.total))
    return equality(deviations, _COST, "numerical optima")


@states("Section 3.1, Appendix C")
def short_jobs_favoured(seed: int) -> Finding:
    """Every job gets something, and a smaller job a larger share."""
    against = 0
    for case, _ in cases(seed, _MANY, 100):
        share = closed_form.shares(case.jobs, case.p)
        against += not (share[0] > 0 and bool(np.all(np.diff(share) > 0)))
    return no_exception(against, _MANY, "the formula, for random p and up to 100 jobs")


@states("Appendix C")
def constants_increase(seed: int) -> Finding:
    """ω_k increases with k."""
    against = 0
    for case, _ in cases(seed, _MANY, 1000):
        constants = closed_form.scale_free_constants(case.jobs, case.p)
        against += not np.all(np.diff(constants) > 0)
    return no_exception(against, _MANY, "random p, up to 1,000 jobs")


@states("Appendix C")
def coefficients_increase(seed: int) -> Finding:
    """Δ(k) increases with k."""
    against = 0
    for case, _ in cases(seed, _MANY, 1000):
        against += not np.all(np.diff(closed_form.coefficients(case.jobs, case.p)) > 0)
    return no_exception(against, _MANY, "random p, up to 1,000 jobs")


@states("Appendix C")
def coefficients_formula(seed: int) -> Finding:
    """Δ(k) = (k^c − (k−1)^c)^(1−p)."""
    deviations = []
    for case, _ in cases(seed, _MANY, 50):
        k, c = np.arange(1.0, case.jobs + 1), 1 / (1 - case.p)
        constants = closed_form.scale_free_constants(case.jobs, case.p)
        as_defined = k * (1 + constants) ** case.p - (k - 1) * constants**case.p
        deviations.append(_deviation(as_defined, (k**c - (k - 1) ** c) ** (1 - case.p)))
    return equality(deviations, _FORMULA, "this and its definition, up to 50 jobs")


#: Every check, as the paper goes.
THEOREMS: tuple[Callable[[int], Claim], ...] = (
    equal_completion, makespan_allocation, makespan_formula, long_jobs_favoured,
    constant_allocation, constant_for_concave, scaling, scale_free, flow_time_of_order,
    constant_twin, relaxed_bound, first_order, second_order, shortest_first, size_invariant,
    optimal_allocation, total_by_simulation, total_by_optimiser, short_jobs_favoured,
    constants_increase, coefficients_increase, coefficients_formula,
)  # fmt: skip
