"""The statements of the paper, checked: its examples and remarks, its theorems and their proofs.

Statements about all cases are checked on random jobs, servers and p. Three independent computations
must agree: optima from :mod:`hesrpt.paper.reference_optimiser`, which does not use the paper's
results, completion times from the simulator, and the formulas of
:mod:`hesrpt.optimal.closed_form`. The checks of each part are in the order of the paper.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import pairwise, permutations

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal import closed_form
from hesrpt.optimal.planner import plan
from hesrpt.paper.claims import (
    Claim,
    agrees,
    claim_of,
    format_deviation,
    formula_agrees,
    get_deviation,
    holds_always,
    judge_exact,
    judge_printed,
    judge_which,
    list_checks,
    summarise_deviations,
    summarise_exceptions,
)
from hesrpt.paper.figures import THREE_JOBS, THREE_P, THREE_SERVERS
from hesrpt.paper.reference_optimiser import Case, generate_cases, optimise
from hesrpt.policies import Equi, HeLrpt, HeSrpt, Policy, Srpt, State
from hesrpt.policies.registry import get_title
from hesrpt.schedule import Schedule
from hesrpt.simulator import simulate
from hesrpt.speedups import Amdahl, Custom, PowerLaw, Speedup
from hesrpt.workload import Workload

# The number of random cases in checks that take long.
_FEW = 25
# Tolerances: of costs that the optimiser finds, and of formulas.
_COSTS, _FORMULAS = 1e-6, 1e-9

# --- examples, remarks, and the first three figures -------------------------------------------

# The example in the introduction: two jobs of size 1 on ten servers.
_TWO_SIZES, _TEN_SERVERS = np.ones(2), 10.0
_POWERS = np.linspace(0.01, 0.99, 99).tolist()


@claim_of("Figure 1")
def check_concave_below_linear(seed: int) -> Claim:
    """Every k^p with 0 < p < 1 is concave and lies below the line p = 1."""
    k = np.geomspace(1, 1e6, 500)
    found = [
        bool(np.all(law.rate(k[1:]) < k[1:]) and np.all(np.diff(law.slope(k)) < 0))
        for law in map(PowerLaw, _POWERS)
    ]
    return summarise_exceptions(found, "values of p from 0.01 to 0.99, on 1 to 1,000,000 servers")


@claim_of("Figure 1")
def check_below_linear_everywhere(seed: int) -> Claim:
    """k^p with 0 < p < 1 lies below the line p = 1 for all k."""
    k = np.geomspace(1e-6, 1, 500)[:-1]
    found = [bool(np.all(PowerLaw(p).rate(k) <= k)) for p in _POWERS]
    claim = summarise_exceptions(found, "values of p from 0.01 to 0.99, on parts of a server")
    half = float(PowerLaw(0.5).rate(np.array(0.5)))
    parts = int(np.sum(1e6 * closed_form.shares(500, 0.9) < 1))
    return replace(
        claim,
        computed=f"{claim.computed}. At p = 0.5, half a server is as fast as {half:.2f} servers "
        "are at p = 1",
        possible_reason="the figure may start at k = 1. But parts of a server occur: with p = 0.9, "
        f"heSRPT gives {parts} of 500 jobs on 1,000,000 servers less than one",
    )


@claim_of("Section 1, footnote 2")
def check_server_rate(seed: int) -> Claim:
    """If a server has the rate μ, μ s(k) replaces s(k) in every formula."""

    def compare(sizes: FloatArray, servers: float, p: float, rate: float) -> list[float]:
        """Return the total flow time: simulated, by the formula for μ s(k), and with μ s(N)."""

        def speed(k: FloatArray) -> FloatArray:
            return np.asarray(rate * k**p)

        k, constants = np.arange(1, len(sizes) + 1), closed_form.scale_free_constants(len(sizes), p)
        each = k * speed(1 + constants) - (k - 1) * speed(constants)
        run = simulate(Workload(sizes, Custom(speed)), servers, HeSrpt(p=p))
        everywhere = float(sizes @ each / speed(np.array(servers)))
        once = closed_form.total_flow_time(sizes, servers, p) / rate
        return [run.total_flow_time, everywhere, once]

    example = compare(_TWO_SIZES, _TEN_SERVERS, 0.5, 2.0)
    cases = [
        compare(case.sizes, case.servers, case.p, float(case.rng.uniform(2, 10)))
        for case in generate_cases(seed, 10, 20)
    ]
    simulated, *others = np.transpose(cases)
    everywhere, once = (get_deviation(way, simulated) for way in others)
    return Claim(
        computed="two jobs of size 1 on 10 servers of rate 2, p = 0.5: a simulated total flow time "
        f"of {example[0]:.4f}, and {example[1]:.4f} by the formula of Theorem 8 with 2 s(k) for "
        f"every s(k); with 2 s(N) for s(N) alone, it is {example[2]:.4f}, and over {len(cases)} "
        f"random cases deviations are {format_deviation(once)}",
        judgement=judge_exact(everywhere, _FORMULAS),
        values={"ours": example[0], "theirs": example[1]}
        | {"deviation": everywhere, "deviation_if_once": once},
        possible_reason="the formula uses s(ab) = s(a) s(b), which is not true of μ s. Only rates "
        "of service, such as s(N), are multiplied by μ, not the ratios of shares in brackets",
    )


def _check_limit(policy: str, powers: tuple[float, ...], seed: int) -> Claim:
    """Return how a policy's excess over the optimum falls as p approaches a limit."""
    ratios = []
    for p in powers:
        batch = Workload.pareto(500, speedup=PowerLaw(p), seed=seed)
        ours, best = (simulate(batch, 1e6, name).total_flow_time for name in (policy, "hesrpt"))
        ratios.append(ours / best)
    excess = [ratio - 1 for ratio in ratios]
    shown = ", ".join(
        f"{f'{above:.2g}' if above > 1e-6 else format_deviation(above)} at p = {p:g}"
        for p, above in zip(powers, excess, strict=True)
    )
    falling = all(after < max(before, 1e-12) for before, after in pairwise(excess))
    return Claim(
        computed=f"500 jobs on 1,000,000 servers: the ratio of {get_title(policy)} to the optimum "
        f"exceeds 1 by {shown}",
        judgement=judge_exact(excess[-1] if falling else 1.0, 1e-3),
        values={f"p={p:g}": ratio for p, ratio in zip(powers, ratios, strict=True)},
    )


@claim_of("Sections 1 and 4.1")
def check_limit_srpt(seed: int) -> Claim:
    """As p → 1, SRPT becomes optimal."""
    return _check_limit("srpt", (0.9, 0.99, 0.999, 0.9999), seed)


@claim_of("Section 1")
def check_limit_equi(seed: int) -> Claim:
    """As p → 0, EQUI becomes optimal."""
    return _check_limit("equi", (0.1, 0.01, 0.001, 0.0001), seed)


@claim_of("Figure 3")
def check_three_jobs(seed: int) -> Claim:
    """heSRPT completes three jobs shortest first, and all remaining jobs share the system."""
    planned = plan(Workload(THREE_JOBS, PowerLaw(THREE_P)), THREE_SERVERS)
    in_order = bool(np.all(np.diff(planned.completion_times) < 0))
    shared = all(
        bool(np.all(phase.servers[planned.completion_times > phase.start] > 0))
        for phase in planned.phases()
    )
    return Claim(
        computed=f"jobs of sizes {', '.join(f'{size:g}' for size in THREE_JOBS)} end at times "
        f"{', '.join(f'{end:.3f}' for end in planned.completion_times)}; "
        f"{'all' if shared else 'not all'} of them hold servers until they end "
        "(holds if they end shortest first and all hold servers, roughly if only the former)",
        judgement=judge_which(in_order and shared, in_order),
        values={"in_order": in_order, "shared": shared},
    )


def _get_first_share(speedup: Speedup, servers: float) -> float:
    """Return the share of whichever of two equal jobs ends first."""
    return float(plan(Workload(_TWO_SIZES, speedup), servers).servers_at(0.0).max() / servers)


def _check_first_share(speedup: Speedup, theirs: float, digits: int) -> Claim:
    """Compare the best share of one of the two jobs with the paper's percentage."""
    share = 100 * _get_first_share(speedup, _TEN_SERVERS)
    found = 100 * optimise(_TWO_SIZES, speedup, _TEN_SERVERS).shares[0].max()
    worst = max(share, found, key=lambda value: abs(value - theirs))
    return Claim(
        computed=f"{share:.2f}% by the planner, {found:.2f}% by the numerical optimiser",
        judgement=judge_printed(worst, theirs, digits),
        values={"planner": share, "optimiser": found, "theirs": theirs},
    )


@claim_of("Section 1")
def check_three_quarters(seed: int) -> Claim:
    """For two equal jobs on 10 servers with p = 0.5, it is best to give one of them 75%."""
    return _check_first_share(PowerLaw(0.5), 75.0, 0)


@claim_of("Section 1")
def check_halves_for_makespan(seed: int) -> Claim:
    """Equal shares minimise the makespan of the two jobs, but not their flow time."""
    halves = simulate(Workload(_TWO_SIZES, PowerLaw(0.5)), _TEN_SERVERS, "equi")
    least, best = (
        optimise(_TWO_SIZES, PowerLaw(0.5), _TEN_SERVERS, makespan=makespan).cost
        for makespan in (True, False)
    )
    loss, deviation = halves.total_flow_time / best - 1, halves.makespan / least - 1
    return Claim(
        computed=f"the makespan is {halves.makespan:.4f}, and the least possible is {least:.4f}; "
        f"the total flow time is {halves.total_flow_time:.4f}, {loss:.1%} above the optimum "
        "(holds if only the makespan is optimal)",
        judgement=judge_which(abs(deviation) < 1e-6 and loss > 1e-6, loss > 0),
        values={"makespan": halves.makespan, "least": least, "loss": loss},
    )


@claim_of("Section 1")
def check_srpt_inefficient(seed: int) -> Claim:
    """Giving all servers to one of the two jobs and then to the other is very inefficient."""
    two = Workload(_TWO_SIZES, PowerLaw(0.5))
    srpt, best = simulate(two, _TEN_SERVERS, "srpt"), plan(two, _TEN_SERVERS)
    loss = srpt.total_flow_time / best.total_flow_time - 1
    rates = PowerLaw(0.5).rate(np.array([_TEN_SERVERS, _TEN_SERVERS / 2]))
    efficiency = float(rates[0] / (2 * rates[1]))
    return Claim(
        computed=f"the servers do {efficiency:.0%} of the work that they do with equal shares, and "
        f"the total flow time is {loss:.1%} above the optimum (holds if both are at least 5% "
        "worse, roughly if both are worse)",
        judgement=judge_which(efficiency < 0.95 and loss > 0.05, efficiency < 1 and loss > 0),
        values={"loss": loss, "efficiency": efficiency},
    )


@claim_of("Section 1")
def check_amdahl_split(seed: int) -> Claim:
    """Under Amdahl's law with f = 0.9, it is best to give one of the two jobs 63.5%."""
    claim = _check_first_share(Amdahl(0.9), 63.5, 1)
    sixteen = 100 * _get_first_share(Amdahl(0.9), 16.0)
    return replace(
        claim,
        values={**claim.values, "on_16_servers": sixteen},
        possible_reason=f"the example has 10 servers; on 16 servers the share is {sixteen:.2f}%, "
        "close to the printed number",
    )


@claim_of("Section 1")
def check_amdahl_asymmetric(seed: int) -> Claim:
    """Unequal shares of equal jobs are not an artefact of k^p."""
    share = _get_first_share(Amdahl(0.9), _TEN_SERVERS)
    return Claim(
        computed=f"under Amdahl's law with f = 0.9, the shares are {share:.0%} and {1 - share:.0%} "
        "(holds if they differ by more than 2%)",
        judgement=judge_which(share > 0.51, share > 0.5),
        values={"share": share},
    )


@holds_always(
    "Section 3",
    "shortest first is as good as the optimum and better than equal shares, and in a random "
    "order it is better to move the smallest job to the front",
    8,
    cases=200,
)
def check_shortest_first_on_one_server(case: Case) -> bool:
    """On one server, shortest first is optimal: serving only the smallest job is an improvement."""

    def serve_in_order(state: State, ranks: IntArray) -> FloatArray:
        """Serve one job at a time, the one of the lowest rank first."""
        here = ranks[state.jobs]
        return np.where(here == here.min(), state.servers, 0.0)

    jobs = Workload(case.sizes, PowerLaw(case.p).time_shared())  # sharing a server gains nothing
    larger = 2 * case.rng.permutation(case.jobs - 1)
    smallest = 2 * int(case.rng.integers(case.jobs - 1)) + 1  # some larger job comes before it
    before, after = (
        simulate(jobs, 1, partial(serve_in_order, ranks=np.append(larger, rank))).total_flow_time
        for rank in (smallest, -1)
    )
    shortest_first, best, equal = (
        simulate(jobs, 1, policy).total_flow_time for policy in ("srpt", "optimal", "equi")
    )
    is_best = abs(best / shortest_first - 1) < _FORMULAS
    return is_best and after < before and shortest_first < equal


@holds_always("Section 4.1", "simulations in which SRPT gives up a random part of the servers", 8)
def check_srpt_alone_optimal(case: Case) -> bool:
    """At p = 1, every policy that does not give all servers to the smallest job does worse."""

    def share_some(state: State) -> FloatArray:
        """Give part of the servers to another job, or to none."""
        held = Srpt()(state)
        part = held.max() * case.rng.uniform(0.01, 1)
        smallest = int(np.argmax(held))
        other = int(case.rng.integers(len(held)))
        held[smallest] -= part
        if other != smallest:
            held[other] += part
        return held

    jobs = Workload(case.sizes, Amdahl(1.0))
    best = simulate(jobs, case.servers, Srpt()).total_flow_time
    return simulate(jobs, case.servers, share_some).total_flow_time > best * (1 + 1e-12)


@holds_always(
    "Sections 1 and 4.1", "the total speed of all jobs, for random p and up to 100 jobs", 100
)
def check_efficiency(case: Case) -> bool:
    """heSRPT uses the servers more efficiently than SRPT, and EQUI more than heSRPT."""
    speedup = PowerLaw(case.p)
    equi, he, srpt = (
        float(np.sum(speedup.rate(policy.row(case.jobs, case.servers, speedup, False))))
        for policy in (Equi(), HeSrpt(p=case.p), Srpt())
    )
    return equi > he > srpt


@claim_of("Section 4.2")
def check_intermediate_srpt(seed: int) -> Claim:
    """Policies such as Intermediate-SRPT reduce to EQUI if there are fewer jobs than servers."""

    def serve(state: State) -> FloatArray:
        """Share equally, or serve the smallest jobs if there are more jobs than servers."""
        if len(state) <= state.servers:
            return np.full(len(state), state.servers / len(state))
        held = np.zeros(len(state))
        held[np.argsort(state.remaining)[: int(state.servers)]] = 1.0
        return held

    deviations = []
    for case in generate_cases(seed, 100, 20):
        servers = case.jobs + int(case.rng.integers(1, 1000))
        ends = [simulate(case.workload, servers, one).completion_times for one in (serve, "equi")]
        deviations.append(get_deviation(*ends))
    crowd = Workload([4, 3, 2, 1], PowerLaw(0.5).time_shared())
    few = [simulate(crowd, 2, policy).total_flow_time for policy in (serve, "equi")]
    claim = summarise_deviations(
        deviations, _FORMULAS, "simulated completion times under both policies"
    )
    return replace(
        claim,
        computed=f"{claim.computed}. With more jobs than servers they differ: for sizes 4, 3, 2, "
        f"1 on 2 servers, p = 0.5, total flow times are {few[0]:.4g} and {few[1]:.4g}",
    )


@holds_always("Section 4.3", "first phases of proven plans under Amdahl's law", 6, cases=200)
def check_short_jobs_favoured_by_others(case: Case) -> bool:
    """The optimum also favours short jobs under other speedups."""
    speedup = Amdahl(float(case.rng.uniform(0.5, 0.99)))
    servers = float(case.rng.uniform(10, 100))
    held = plan(Workload(case.sizes, speedup), servers).servers_at(0.0)
    return bool(np.all(np.diff(held) >= -1e-9 * servers))


EXAMPLE_CHECKS = list_checks(globals())


# --- makespan ---------------------------------------------------------------------------------


@agrees(
    "Theorem 1", "fraction of the makespan after the first job ends, in numerical optima", cases=50
)
def check_equal_completion(case: Case) -> Iterator[float]:
    """With the least makespan, all jobs end at the same time."""
    # A job that is tiny next to another one can end early at no cost.
    if (case.sizes.min() / case.sizes.max()) ** (1 / case.p) > 1e-3:
        order = case.rng.permutation(case.sizes)
        optimum = optimise(order, PowerLaw(case.p), case.servers, makespan=True)
        yield float(optimum.durations[1:].sum() / optimum.durations.sum())


@claim_of("Section 2")
def check_only_equaliser(seed: int) -> Claim:
    """Only one policy ends all jobs at the same time, so it minimises the makespan."""

    def use_half(state: State) -> FloatArray:
        return HeLrpt()(state) / 2

    def get_spread(ends: FloatArray) -> float:
        return float(np.ptp(ends) / ends.max())

    spreads, others = [], 0
    for case in generate_cases(seed, 1000, 6):
        spreads.append(get_spread(simulate(case.workload, case.servers, use_half).completion_times))
        held = case.rng.dirichlet(np.ones(case.jobs)) * case.servers
        others += get_spread(case.sizes / PowerLaw(case.p).rate(held)) < 1e-5
    example = Workload([9, 4, 1], PowerLaw(0.5))
    half, full = (simulate(example, 10, policy).makespan for policy in (use_half, HeLrpt()))
    is_equal = max(spreads) < _FORMULAS
    return Claim(
        computed="if half of the servers are idle and the others are shared in the same "
        f"proportions, jobs {'also' if is_equal else 'do not'} end at the same time: jobs of sizes "
        f"9, 4, 1 on 10 servers, p = 0.5, at {half:.4f} instead of {full:.4f}. Of 1,000 random "
        f"constant shares of all servers, {others} end all jobs at the same time (holds if no "
        "other policy does, roughly if no other constant shares of all servers do)",
        judgement=judge_which(not is_equal and others == 0, others == 0),
        values={"half": half, "full": full, "others": others},
        possible_reason="the paper may mean constant shares of all servers",
    )


@agrees("Theorem 2", "shares in numerical optima, and completion times of heLRPT in simulations")
def check_makespan_allocation(case: Case) -> Iterator[float]:
    """Shares in proportion to x^(1/p), which are those of heLRPT, minimise the makespan."""
    shares = closed_form.makespan_shares(case.sizes, case.p)
    optimum = optimise(case.sizes, PowerLaw(case.p), case.servers, makespan=True)
    yield float(np.abs(optimum.shares[0] - shares).max())
    run = simulate(case.workload, case.servers, "helrpt")
    yield get_deviation(run.completion_times, optimum.cost)


@claim_of("Theorem 2")
def check_makespan_formula(seed: int) -> Claim:
    """The least makespan is the 1/p-norm of the sizes."""
    sizes, servers, p = np.array([9.0, 4.0, 1.0]), 10.0, 0.5
    best = optimise(sizes, PowerLaw(p), servers, makespan=True).cost
    norm = float(np.sum(sizes ** (1 / p)) ** p)
    deviations = []
    for case in generate_cases(seed, _FEW, 4):
        run = simulate(case.workload, case.servers, "helrpt")
        with_speed = np.sum(case.sizes ** (1 / case.p)) ** case.p / case.servers**case.p
        deviations.append(get_deviation(run.makespan, with_speed))
    return Claim(
        computed=f"sizes 9, 4, 1 on 10 servers, p = 0.5: the least makespan is {best:.4f}, and the "
        f"norm is {norm:.4f}. Divided by the speed N^p of the system, the norm is "
        f"{norm / servers**p:.4f}; over {_FEW} random cases, deviations from that are "
        f"{format_deviation(max(deviations))}",
        judgement=judge_exact(abs(best / norm - 1), _FORMULAS),
        values={"ours": best, "theirs": norm, "deviation_with_speed": max(deviations)},
        possible_reason="the theorem omits the speed N^p of the system; as printed, it holds for "
        "N = 1",
    )


@holds_always("Section 2", "the formula for random batches of up to 20 jobs", 20)
def check_long_jobs_favoured(case: Case) -> bool:
    """To minimise the makespan, a longer job gets a larger share."""
    return not np.any(np.diff(closed_form.makespan_shares(case.sizes, case.p)) >= 0)


# --- flow time --------------------------------------------------------------------------------

_ALTERNATING = "it takes longer to alternate around the optimal shares until the first job ends"


@holds_always("Theorem 3", _ALTERNATING, 8)
def check_constant_allocation(case: Case) -> bool:
    """The optimal allocation does not change between departures."""
    shares = closed_form.shares(case.jobs, case.p)
    total = partial(closed_form.total_flow_time, servers=case.servers, p=case.p)
    return takes_longer_to_alternate(case, PowerLaw(case.p), shares, total)


@holds_always("Section 3.2", f"{_ALTERNATING}, for random orders", 6)
def check_constant_in_any_order(case: Case) -> bool | None:
    """Theorem 3 also holds for the policy that is optimal for a given completion order."""
    case.sizes = case.rng.permutation(case.sizes)
    solve = partial(closed_form.best_in_order, servers=case.servers, p=case.p)
    shares = solve(case.sizes).shares
    if shares.min() <= 1e-3:
        return None  # the loss of a smaller share is lost in rounding errors
    return takes_longer_to_alternate(
        case, PowerLaw(case.p), shares, lambda sizes: solve(sizes).total_flow_time
    )


@holds_always("Section 4.3", f"{_ALTERNATING}, under Amdahl's law", 4, cases=200)
def check_constant_for_concave(case: Case) -> bool | None:
    """Theorem 3 also holds for concave speedups other than k^p."""
    case.servers = float(case.rng.uniform(2, 100))
    speedup = Amdahl(float(case.rng.uniform(0.5, 0.99)))

    def solve(sizes: FloatArray) -> Schedule:
        return plan(Workload(sizes, speedup), case.servers)

    shares = solve(case.sizes).servers_at(0.0) / case.servers
    if np.count_nonzero(shares > 1e-6) < 2:
        return None  # one job holds all servers
    return takes_longer_to_alternate(
        case, speedup, shares, lambda sizes: solve(sizes).total_flow_time
    )


def takes_longer_to_alternate(
    case: Case, speedup: Speedup, shares: FloatArray, total: Callable[[FloatArray], float]
) -> bool:
    """Return whether it takes longer to alternate around some shares until the first job ends.

    On average, every job holds its share during that time. Afterwards the schedule is optimal:
    ``total`` returns the least total flow time for the remaining sizes.
    """
    change = case.rng.uniform(-1, 1, case.jobs) * shares
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


@agrees(
    "Lemma on scaling (Section 3.3)",
    "simulations of heSRPT, EQUI and SRPT on some of the servers",
    max_jobs=12,
    tolerance=_FORMULAS,
)
def check_scaling(case: Case) -> Iterator[float]:
    """A system with a fraction β unused runs at (1 − β)^p of its speed."""
    unused = float(case.rng.uniform(0.05, 0.9))
    policies: tuple[Policy, ...] = (HeSrpt(p=case.p), Equi(), Srpt())
    policy = policies[int(case.rng.integers(len(policies)))]

    def use_part(state: State) -> FloatArray:
        return policy(state) * (1 - unused)

    slow = simulate(case.workload, case.servers, use_part)
    fast = simulate(case.workload, case.servers, policy)
    speed = (1 - unused) ** case.p
    yield get_deviation(slow.total_flow_time * speed, fast.total_flow_time)


@agrees(
    "Theorem 4",
    "changes of these ratios between phases, in numerical optima for random orders",
    cases=50,
)
def check_scale_free(case: Case) -> Iterator[float]:
    """For a given completion order, the best ratios between the shares of jobs never change."""
    optimum = optimise(case.rng.permutation(case.sizes), PowerLaw(case.p), case.servers)
    for job in range(1, case.jobs):
        parts = [s[job] / s[: job + 1].sum() for s in optimum.long_phases if len(s) > job]
        if len(parts) > 1:
            yield float(np.ptp(parts))


@agrees(
    "Proof of Theorem 4", "costs and shares in numerical optima for random orders and 1 < δ < 10"
)
def check_slow_system(case: Case) -> Iterator[float]:
    """A system that is slower by a factor δ takes δ times as long, with the same optimal shares."""
    order, slower = case.rng.permutation(case.sizes), float(case.rng.uniform(1, 10))

    def get_slow_rate(servers: FloatArray) -> FloatArray:
        return np.asarray(servers**case.p / slower)

    normal = optimise(order, PowerLaw(case.p), case.servers)
    slow = optimise(order, Custom(get_slow_rate), case.servers)
    yield get_deviation(slow.cost / slower, normal.cost)
    for one, two in zip(normal.long_phases, slow.long_phases, strict=True):
        yield float(np.abs(one - two).max())


@holds_always(
    "Proof of Theorem 4", "other shares during a slow start do worse, for random orders", 5
)
def check_mixed_system(case: Case) -> bool | None:
    """In a system that is slow until a given time, the same shares are optimal before and after."""
    order, slower = case.rng.permutation(case.sizes), float(case.rng.uniform(1, 10))
    best = closed_form.best_in_order(order, case.servers, case.p)
    slow_until = float(case.rng.uniform(0.1, 0.9) * best.completion_times.min() * slower)

    def get_later_cost(shares: FloatArray) -> float | None:
        """Return the total flow time after the slow start, or None if a job ended in it."""
        left = order - slow_until / slower * (shares * case.servers) ** case.p
        if left.min() <= 0:
            return None
        return closed_form.best_in_order(left, case.servers, case.p).total_flow_time

    # The cost is convex in the shares, so it is enough to compare with others nearby.
    others = best.shares * case.rng.uniform(0.7, 1.3, case.jobs)
    cost, other_cost = get_later_cost(best.shares), get_later_cost(others / others.sum())
    if cost is None or other_cost is None:
        return None
    return other_cost >= cost * (1 - _FORMULAS)


@agrees(
    "Lemma on T^P (Section 3.4)",
    "the formula and numerical optima for random orders",
    tolerance=_COSTS,
)
def check_flow_time_of_order(case: Case) -> Iterator[float]:
    """The least total flow time for a completion order is a sum over its scale-free constants."""
    order = case.rng.permutation(case.sizes)
    best = closed_form.best_in_order(order, case.servers, case.p)
    held_after = np.concatenate(([0.0], np.cumsum(best.shares)[:-1]))
    constants = held_after / best.shares
    formula = closed_form.flow_time_of_constants(order, constants, case.servers, case.p)
    yield get_deviation(formula, optimise(order, PowerLaw(case.p), case.servers).cost)


@agrees(
    "Proof of the Lemma on T^P",
    "simulated completion times, with growing and with constant shares",
    max_jobs=20,
    tolerance=1e-6,
)
def check_gaps_with_constant_shares(case: Case) -> Iterator[float]:
    """With constant shares, times between completions would be 1/s(θ_1 + … + θ_k) times as long."""
    shares = closed_form.shares(case.jobs, case.p)
    ends = simulate(case.workload, case.servers, HeSrpt(p=case.p)).completion_times
    constant_ends = case.sizes / (shares * case.servers) ** case.p
    gaps, constant_gaps = (-np.diff(times) for times in (ends, constant_ends))
    yield get_deviation(constant_gaps * np.cumsum(shares)[:-1] ** case.p, gaps)


@holds_always(
    "Proof of Theorem 5", "the formula and the best schedules for random orders of up to 8 jobs", 8
)
def check_relaxed_bound(case: Case) -> bool:
    """The relaxed minimum of T^P is a lower bound for the completion order P."""
    order = case.rng.permutation(case.sizes)
    constants = closed_form.scale_free_constants(case.jobs, case.p)
    relaxed = closed_form.flow_time_of_constants(order, constants, case.servers, case.p)
    best = closed_form.best_in_order(order, case.servers, case.p).total_flow_time
    return relaxed <= best * (1 + _FORMULAS)


@formula_agrees("Proof of Theorem 5", "k s'(1 + ω) and (k − 1) s'(ω) for k ≥ 2 and random p", 100)
def check_first_order(case: Case) -> Iterator[float]:
    """At the scale-free constants ω, the derivative of T^P is zero."""
    k = np.arange(2, case.jobs + 1)
    constants = closed_form.scale_free_constants(case.jobs, case.p)[1:]
    derivative = k * (1 + constants) ** (case.p - 1)
    yield get_deviation(derivative, (k - 1) * constants ** (case.p - 1))


@holds_always("Proof of Theorem 5", "random p and up to 100 jobs", 100)
def check_second_order(case: Case) -> bool:
    """At ω, T^P has a minimum: its second derivative is positive."""
    k, p = np.arange(2, case.jobs + 1), case.p
    constants = closed_form.scale_free_constants(case.jobs, p)[1:]
    bend = p * (p - 1) * (k * (1 + constants) ** (p - 2) - (k - 1) * constants ** (p - 2))
    return bool(np.all(bend > 0))


@claim_of("Theorem 5")
def check_shortest_first(seed: int) -> Claim:
    """The optimal policy completes jobs in order of size, the shortest first."""
    found: list[bool] = []
    # The first permutation is the given order: shortest first.
    for case in generate_cases(seed, _FEW, 5):
        solve = partial(closed_form.best_in_order, servers=case.servers, p=case.p)
        costs = [solve(order).total_flow_time for order in permutations(case.sizes)]
        found += [cost >= costs[0] * (1 - _FORMULAS) for cost in costs]
    for case in generate_cases(seed + 1, 10, 3):
        search = partial(optimise, speedup=PowerLaw(case.p), servers=case.servers)
        costs = [search(np.array(order)).cost for order in permutations(case.sizes)]
        found += [cost >= costs[0] * (1 - _COSTS) for cost in costs]
    return summarise_exceptions(
        found, "all orders of up to 5 jobs, by formula and by numerical optima"
    )


@agrees("Theorem 6", "shares in numerical optima of two batches with different sizes")
def check_size_invariant(case: Case) -> Iterator[float]:
    """The optimal allocation depends on the number of jobs, not on their sizes."""
    other = -np.sort(-(case.rng.exponential(10, case.jobs) + 0.1))
    one, two = (
        {len(share): share for share in optimise(sizes, PowerLaw(case.p), case.servers).long_phases}
        for sizes in (case.sizes, other)
    )
    for jobs in one.keys() & two.keys() - {1}:
        yield float(np.abs(one[jobs] - two[jobs]).max())


@agrees("Theorem 7", "the formula and shares in all phases of numerical optima")
def check_optimal_allocation(case: Case) -> Iterator[float]:
    """Of m jobs, the i-th largest gets the share (i/m)^c − ((i−1)/m)^c with c = 1/(1 − p)."""
    for share in optimise(case.sizes, PowerLaw(case.p), case.servers).long_phases:
        yield float(np.abs(share - closed_form.shares(len(share), case.p)).max())


@formula_agrees("Proof of Theorem 7", "the products and the shares of up to 50 jobs", 50)
def check_product_formula(case: Case) -> Iterator[float]:
    """θ_i = ω_{i+1} ⋯ ω_m / ((1 + ω_i) ⋯ (1 + ω_m))."""
    constants = closed_form.scale_free_constants(case.jobs, case.p)
    factors = np.append(constants[1:], 1.0) / (1 + constants)
    products = np.multiply.accumulate(factors[::-1])[::-1]  # from i to m
    yield get_deviation(products, closed_form.shares(case.jobs, case.p))


@formula_agrees("Theorem 8", "the formula and simulations of up to 100 jobs", 100)
def check_total_by_simulation(case: Case) -> Iterator[float]:
    """heSRPT attains the optimal total flow time Σ x_k Δ(k) / s(N)."""
    run = simulate(case.workload, case.servers, HeSrpt(p=case.p))
    yield get_deviation(run.total_flow_time, case.total_flow_time)


@agrees("Theorem 8", "the formula and numerical optima", tolerance=_COSTS)
def check_total_by_optimiser(case: Case) -> Iterator[float]:
    """No policy has a lower total flow time than Σ x_k Δ(k) / s(N)."""
    optimum = optimise(case.sizes, PowerLaw(case.p), case.servers)
    yield get_deviation(optimum.cost, case.total_flow_time)


@holds_always("Section 3.1, Appendix C", "the formula for random p and up to 100 jobs", 100)
def check_short_jobs_favoured(case: Case) -> bool:
    """Every job gets a share, and a smaller job gets a larger one."""
    share = closed_form.shares(case.jobs, case.p)
    return bool(share[0] > 0 and np.all(np.diff(share) > 0))


@holds_always("Appendix C", "random p and up to 1,000 jobs", 1000)
def check_constants_increase(case: Case) -> bool:
    """ω_k increases with k."""
    return bool(np.all(np.diff(closed_form.scale_free_constants(case.jobs, case.p)) > 0))


@holds_always("Appendix C", "random p and up to 1,000 jobs", 1000)
def check_coefficients_increase(case: Case) -> bool:
    """Δ(k) increases with k."""
    return bool(np.all(np.diff(closed_form.coefficients(case.jobs, case.p)) > 0))


@formula_agrees("Appendix C", "this formula and the definition, for up to 50 jobs", 50)
def check_coefficients_formula(case: Case) -> Iterator[float]:
    """Δ(k) = (k^c − (k−1)^c)^(1−p)."""
    k, c = np.arange(1.0, case.jobs + 1), 1 / (1 - case.p)
    constants = closed_form.scale_free_constants(case.jobs, case.p)
    as_defined = k * (1 + constants) ** case.p - (k - 1) * constants**case.p
    yield get_deviation(as_defined, (k**c - (k - 1) ** c) ** (1 - case.p))


@formula_agrees("Appendix C", "integrals of this derivative and differences of Δ, up to k = 50", 50)
def check_coefficients_derivative(case: Case) -> Iterator[float]:
    """dΔ/dk = (1 − p) (k^c − (k−1)^c)^(−p) c (k^(c−1) − (k−1)^(c−1))."""
    nodes, weights = np.polynomial.legendre.leggauss(30)
    c = 1 / (1 - case.p)
    # The integral of the derivative between whole numbers must be the difference of the Δ(k).
    # At k = 1 its slope is infinite for p < 1/2, so integrals start at k = 2.
    k = np.arange(2.0, case.jobs + 1)[:, None] + (nodes + 1) / 2
    inner = c * (k ** (c - 1) - (k - 1) ** (c - 1))
    derivative = (1 - case.p) * (k**c - (k - 1) ** c) ** -case.p * inner
    integrals: FloatArray = derivative @ weights / 2
    yield get_deviation(integrals, np.diff(closed_form.coefficients(case.jobs + 1, case.p))[1:])


THEOREM_CHECKS = list_checks(globals())[len(EXAMPLE_CHECKS) :]
