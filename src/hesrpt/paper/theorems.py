"""The theorems and lemmas of the paper, each checked over a random sweep of jobs, servers and p.

Optima come from :mod:`hesrpt.paper.optimiser`, which knows nothing of the paper, completion times
from the simulator, and formulas from :mod:`hesrpt.optimal.closed_form`: three ways that must agree.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal import closed_form
from hesrpt.paper.judging import Claim, Finding, equality, exact, no_exception, states, within
from hesrpt.paper.optimiser import optimise
from hesrpt.policies import Equi, HeSrpt, Policy, Srpt, State
from hesrpt.simulator import simulate
from hesrpt.speedup import Amdahl, PowerLaw, Speedup
from hesrpt.workload import Workload

# Random cases: where the optimiser works for each, and where formulas do.
_FEW, _MANY = 25, 1000
# A flat optimum leaves shares and lengths of phases more uncertain than its cost.
_SHARES, _COST, _FORMULA = 1e-3, 1e-6, 1e-9


class Case:
    """Jobs from the largest to the smallest, servers and p, drawn at random."""

    def __init__(self, rng: np.random.Generator, most_jobs: int) -> None:
        self.jobs = int(rng.integers(2, most_jobs + 1))
        self.p = float(rng.uniform(0.05, 0.9))
        self.servers = float(np.exp(rng.uniform(0, 14)))
        self.sizes: FloatArray = -np.sort(-(rng.pareto(1.5, self.jobs) + 1))

    @property
    def workload(self) -> Workload:
        return Workload(self.sizes, PowerLaw(self.p))

    @property
    def total(self) -> float:
        """The optimal total flow time, by the formula."""
        return closed_form.total_flow_time(self.sizes, self.servers, self.p)


def cases(seed: int, count: int, most_jobs: int) -> Iterator[tuple[Case, np.random.Generator]]:
    """Yield random cases, each with a generator for what else must be drawn."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        yield Case(rng, most_jobs), rng


def _deviation(ours: FloatArray | float, theirs: FloatArray | float) -> float:
    return float(np.max(np.abs(np.asarray(ours) / np.asarray(theirs) - 1)))


# --- makespan ---------------------------------------------------------------------------------


@states("Theorem 1")
def equal_completion(seed: int) -> Finding:
    """The least makespan ends all jobs at the same time."""
    worst, telling = 0.0, 0
    for case, _ in cases(seed, 2 * _FEW, 4):
        # Where a job needs next to nothing, nothing is lost when it ends early.
        if closed_form.makespan_shares(case.sizes, case.p).min() > 1e-3:
            found = optimise(case.sizes, PowerLaw(case.p), case.servers, makespan=True)
            worst = max(worst, float(found.durations[1:].sum() / found.durations.sum()))
            telling += 1
    return equality(
        worst, _SHARES, f"time between first and last completion in {telling} numerical optima"
    )


@states("Theorem 2")
def makespan_allocation(seed: int) -> Finding:
    """It is reached by shares in proportion to x^(1/p), which is heLRPT."""
    worst = 0.0
    for case, _ in cases(seed, _FEW, 4):
        shares = closed_form.makespan_shares(case.sizes, case.p)
        found = optimise(case.sizes, PowerLaw(case.p), case.servers, makespan=True)
        worst = max(worst, float(np.abs(found.shares[0] - shares).max()))
        run = simulate(case.workload, case.servers, "helrpt")
        best = closed_form.makespan(case.sizes, case.servers, case.p)
        worst = max(worst, _deviation(run.completion_times, best))
    return equality(
        worst,
        _SHARES,
        f"shares of {_FEW} numerical optima, and completion times of heLRPT simulated",
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
    return no_exception(against, _MANY, "random batches of up to 20 jobs")


# --- flow time --------------------------------------------------------------------------------


@states("Theorem 3")
def constant_allocation(seed: int) -> Finding:
    """The optimal allocation does not change between departures."""
    worst = 0.0
    for case, _ in cases(seed, _FEW, 4):
        worst = max(worst, _change_within_phases(case, PowerLaw(case.p)))
    return equality(
        worst,
        _SHARES,
        f"change of shares in {_FEW} numerical optima that may change them within phases",
    )


@states("Section 4.3")
def constant_for_concave(seed: int) -> Finding:
    """Theorem 3 holds for other concave speedups than k^p."""
    worst = 0.0
    for case, rng in cases(seed, _FEW, 4):
        case.servers = float(rng.uniform(2, 100))  # with very many it matters no more who has them
        worst = max(worst, _change_within_phases(case, Amdahl(float(rng.uniform(0.5, 0.99)))))
    return equality(worst, _SHARES, f"the same in {_FEW} cases of Amdahl's law")


def _change_within_phases(case: Case, speedup: Speedup) -> float:
    """Return by how much shares differ between the parts of a phase, in units of the system."""
    found = optimise(case.sizes, speedup, case.servers, parts=2)
    long = found.durations > 1e-4 * found.durations.sum()
    changes = [
        float(np.abs(found.shares[part] - found.shares[part + 1]).max())
        for part in range(0, len(long), 2)
        if long[part] and long[part + 1]
    ]
    return max(changes, default=0.0)


@states("Lemma on scaling (Section 3.3)")
def scaling(seed: int) -> Finding:
    """To leave a part β of the system unused is to run it at (1 − β)^p of its speed."""
    worst = 0.0
    for case, rng in cases(seed, _FEW, 12):
        unused = float(rng.uniform(0.05, 0.9))
        policies: tuple[Policy, ...] = (HeSrpt(p=case.p), Equi(), Srpt())
        policy = policies[int(rng.integers(len(policies)))]

        def partly(state: State, policy: Policy = policy, unused: float = unused) -> FloatArray:
            return policy(state) * (1 - unused)

        slow = simulate(case.workload, case.servers, partly)
        fast = simulate(case.workload, case.servers, policy)
        speed = (1 - unused) ** case.p
        worst = max(worst, _deviation(slow.total_flow_time * speed, fast.total_flow_time))
    return equality(
        worst,
        _FORMULA,
        f"{_FEW} simulations of heSRPT, EQUI and SRPT with part of the servers",
    )


@states("Theorem 4")
def scale_free(seed: int) -> Finding:
    """In the best schedule of an order, shares of a job and those after it stay in proportion."""
    worst = 0.0
    for case, rng in cases(seed, _FEW, 4):
        found = optimise(rng.permutation(case.sizes), PowerLaw(case.p), case.servers)
        for job in range(case.jobs):
            parts = [s[job] / s[: job + 1].sum() for s in found.telling if len(s) > job]
            if parts:
                worst = max(worst, float(np.ptp(parts)))
    return equality(worst, _SHARES, f"their change in numerical optima for {_FEW} random orders")


@states("Lemma on T^P (Section 3.4)")
def flow_time_of_order(seed: int) -> Finding:
    """The least total flow time of an order is a sum over its scale-free constants."""
    worst = 0.0
    for case, rng in cases(seed, _FEW, 4):
        order = rng.permutation(case.sizes)
        best = closed_form.best_in_order(order, case.servers, case.p)
        held_after = np.concatenate(([0.0], np.cumsum(best.shares)[:-1]))
        constants = held_after / best.shares
        formula = closed_form.flow_time_of_constants(order, constants, case.servers, case.p)
        found = optimise(order, PowerLaw(case.p), case.servers)
        worst = max(worst, _deviation(formula, found.cost))
    return equality(worst, _COST, f"formula against numerical optima for {_FEW} random orders")


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
    return no_exception(against, _MANY, "random orders of up to 8 jobs")


@states("Theorem 5")
def shortest_first(seed: int) -> Finding:
    """The optimal policy ends jobs shortest first."""
    against = orders = 0
    for case, _ in cases(seed, _FEW, 5):
        for order in permutations(case.sizes.tolist()):
            best = closed_form.best_in_order(order, case.servers, case.p).total_flow_time
            against += best < case.total * (1 - _FORMULA)
            orders += 1
    for case, _ in cases(seed + 1, 10, 3):
        for order in permutations(case.sizes.tolist()):
            found = optimise(np.array(order), PowerLaw(case.p), case.servers)
            against += found.cost < case.total * (1 - _COST)
            orders += 1
    return no_exception(
        against, orders, "all orders of batches of up to 5 jobs, also by numerical optima"
    )


@states("Theorem 6")
def size_invariant(seed: int) -> Finding:
    """The optimal allocation depends on how many jobs are left, not on their sizes."""
    worst = 0.0
    for case, rng in cases(seed, _FEW, 4):
        other = -np.sort(-(rng.exponential(10, case.jobs) + 0.1))
        both = [
            optimise(sizes, PowerLaw(case.p), case.servers).telling[0]
            for sizes in (case.sizes, other)
        ]
        if len(both[0]) == len(both[1]):
            worst = max(worst, float(np.abs(both[0] - both[1]).max()))
    return equality(worst, _SHARES, f"shares in the numerical optima of {_FEW} pairs of batches")


@states("Theorem 7")
def optimal_allocation(seed: int) -> Finding:
    """Of m jobs the i-th largest gets the share (i/m)^c − ((i−1)/m)^c, c = 1/(1 − p)."""
    worst = 0.0
    for case, _ in cases(seed, _FEW, 4):
        for share in optimise(case.sizes, PowerLaw(case.p), case.servers).telling:
            formula = closed_form.shares(len(share), case.p)
            worst = max(worst, float(np.abs(share - formula).max()))
    return equality(worst, _SHARES, f"shares in all phases of {_FEW} numerical optima")


@states("Theorem 8")
def total_by_simulation(seed: int) -> Finding:
    """The optimal total flow time is Σ x_k Δ(k) / s(N): heSRPT attains it."""
    worst = 0.0
    for case, _ in cases(seed, _MANY, 100):
        run = simulate(case.workload, case.servers, HeSrpt(p=case.p))
        worst = max(worst, _deviation(run.total_flow_time, case.total))
    return equality(worst, _FORMULA, f"{_MANY:,} simulations of up to 100 jobs")


@states("Theorem 8")
def total_by_optimiser(seed: int) -> Finding:
    """The optimal total flow time is Σ x_k Δ(k) / s(N): nothing betters it."""
    worst = 0.0
    for case, _ in cases(seed, _FEW, 4):
        found = optimise(case.sizes, PowerLaw(case.p), case.servers)
        worst = max(worst, _deviation(found.cost, case.total))
    return equality(worst, _COST, f"{_FEW} numerical optima")


@states("Section 3.1, Appendix C")
def short_jobs_favoured(seed: int) -> Finding:
    """Every job gets something, and a smaller job a larger share."""
    against = 0
    for case, _ in cases(seed, _MANY, 100):
        share = closed_form.shares(case.jobs, case.p)
        against += not (share[0] > 0 and bool(np.all(np.diff(share) > 0)))
    return no_exception(against, _MANY, "random p, up to 100 jobs")


@states("Proof of Theorem 5")
def first_order(seed: int) -> Finding:
    """The scale-free constants ω make the derivative of T^P vanish."""
    worst = 0.0
    for case, _ in cases(seed, _MANY, 100):
        k = np.arange(2, case.jobs + 1)
        constants = closed_form.scale_free_constants(case.jobs, case.p)[1:]
        left = k * (1 + constants) ** (case.p - 1)
        worst = max(worst, _deviation(left, (k - 1) * constants ** (case.p - 1)))
    return equality(
        worst,
        _FORMULA,
        f"k s'(1 + ω) = (k − 1) s'(ω) for {_MANY:,} random p and up to 100 jobs",
    )


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
    worst = 0.0
    for case, _ in cases(seed, _MANY, 50):
        k, c = np.arange(1.0, case.jobs + 1), 1 / (1 - case.p)
        constants = closed_form.scale_free_constants(case.jobs, case.p)
        as_defined = k * (1 + constants) ** case.p - (k - 1) * constants**case.p
        worst = max(worst, _deviation(as_defined, (k**c - (k - 1) ** c) ** (1 - case.p)))
    return equality(
        worst, _FORMULA, f"against its definition, for {_MANY:,} random p and up to 50 jobs"
    )


#: Every check, as the paper goes.
THEOREMS: tuple[Callable[[int], Claim], ...] = (
    equal_completion, makespan_allocation, makespan_formula, long_jobs_favoured,
    constant_allocation, constant_for_concave, scaling, scale_free, flow_time_of_order,
    relaxed_bound, first_order, shortest_first, size_invariant, optimal_allocation,
    total_by_simulation, total_by_optimiser, short_jobs_favoured, constants_increase,
    coefficients_increase, coefficients_formula,
)  # fmt: skip
