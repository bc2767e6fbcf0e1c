"""The paper's examples, its remarks on other models and policies, and its first three figures.

The checks are in the order of the paper.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal import closed_form
from hesrpt.optimal.planner import plan
from hesrpt.paper.claims import (
    Claim,
    claim_of,
    format_deviation,
    get_deviation,
    holds_always,
    judge_exact,
    judge_printed,
    judge_which,
    list_checks,
    summarise_deviations,
    summarise_exceptions,
)
from hesrpt.paper.evaluation import THREE_JOBS, THREE_P, THREE_SERVERS
from hesrpt.paper.reference_optimiser import Case, generate_cases, optimise
from hesrpt.policies import Equi, HeSrpt, Srpt, State
from hesrpt.policies.registry import get_title
from hesrpt.simulator import simulate
from hesrpt.speedups import Amdahl, Custom, PowerLaw, Speedup
from hesrpt.workload import Workload

# The example in the introduction: two jobs of size 1 on ten servers.
_TWO_SIZES, _TEN_SERVERS = np.ones(2), 10.0
_POWERS = np.linspace(0.01, 0.99, 99).tolist()
_TOLERANCE = 1e-9


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

    def compare(sizes: FloatArray, servers: float, p: float, rate: float) -> FloatArray:
        """Return the total flow time: simulated, by the formula for μ s(k), and with μ s(N)."""

        def speed(k: FloatArray) -> FloatArray:
            return np.asarray(rate * k**p)

        k, constants = np.arange(1, len(sizes) + 1), closed_form.scale_free_constants(len(sizes), p)
        each = k * speed(1 + constants) - (k - 1) * speed(constants)
        run = simulate(Workload(sizes, Custom(speed)), servers, HeSrpt(p=p))
        everywhere = float(sizes @ each / speed(np.array(servers)))
        once = closed_form.total_flow_time(sizes, servers, p) / rate
        return np.array([run.total_flow_time, everywhere, once])

    example = compare(_TWO_SIZES, _TEN_SERVERS, 0.5, 2.0)
    cases = np.array(
        [
            compare(case.sizes, case.servers, case.p, float(case.rng.uniform(2, 10)))
            for case in generate_cases(seed, 10, 20)
        ]
    )
    everywhere, once = (get_deviation(cases[:, way], cases[:, 0]) for way in (1, 2))
    return Claim(
        computed="two jobs of size 1 on 10 servers of rate 2, p = 0.5: a simulated total flow time "
        f"of {example[0]:.4f}, and {example[1]:.4f} by the formula of Theorem 8 with 2 s(k) for "
        f"every s(k); with 2 s(N) for s(N) alone, it is {example[2]:.4f}, and over {len(cases)} "
        f"random cases deviations are {format_deviation(once)}",
        judgement=judge_exact(everywhere, _TOLERANCE),
        values={
            "ours": float(example[0]),
            "theirs": float(example[1]),
            "deviation": everywhere,
            "deviation_if_once": once,
        },
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
    shortest_first, best, before, after, equal = (
        simulate(jobs, 1, policy).total_flow_time
        for policy in (
            "srpt",
            "optimal",
            partial(serve_in_order, ranks=np.append(larger, smallest)),
            partial(serve_in_order, ranks=np.append(larger, -1)),
            "equi",
        )
    )
    is_best = abs(best / shortest_first - 1) < _TOLERANCE
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
        deviations, _TOLERANCE, "simulated completion times under both policies"
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
