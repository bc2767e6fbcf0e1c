"""What the paper says of its examples, of the limits of p, and of the first three figures."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np

from hesrpt.optimal.planner import plan
from hesrpt.paper.cases import cases
from hesrpt.paper.evaluation import THREE_JOBS, THREE_P, THREE_SERVERS
from hesrpt.paper.judging import Claim, Finding, exact, no_exception, printed, states, which, within
from hesrpt.paper.optimiser import optimise
from hesrpt.policies import Equi, HeSrpt, Srpt
from hesrpt.simulator import simulate
from hesrpt.speedups import Amdahl, PowerLaw, Speedup
from hesrpt.workload import Workload

# The example of the introduction: two jobs of size 1 on ten servers.
_TWO, _TEN = np.ones(2), 10.0
_CASES = 1000


@states("Figure 1")
def concave_below_linear(seed: int) -> Finding:
    """Every k^p with 0 < p < 1 is concave and lies below the line p = 1."""
    k = np.geomspace(1, 1e6, 500)
    powers = np.linspace(0.01, 0.99, 99)
    against = 0
    for p in powers.tolist():
        speedup = PowerLaw(p)
        below = bool(np.all(speedup.rate(k[1:]) < k[1:]))
        against += not (below and bool(np.all(np.diff(speedup.slope(k)) < 0)))
    return no_exception(against, len(powers), "values of p, up to 1,000,000 servers")


def _first_share(speedup: Speedup, servers: float) -> float:
    """Return what the job that ends first gets of two equal ones."""
    return float(plan(Workload(_TWO, speedup), servers).servers_at(0.0).max() / servers)


@states("Section 1")
def three_quarters(seed: int) -> Finding:
    """Of two equal jobs on 10 servers, p = 0.5, it is best to give 75% to one."""
    share = 100 * _first_share(PowerLaw(0.5), _TEN)
    found = 100 * optimise(_TWO, PowerLaw(0.5), _TEN).shares[0].max()
    return Finding(
        f"{share:.2f}% by the planner, {found:.2f}% by the numerical optimiser",
        printed(max(share, found, key=lambda value: abs(value - 75)), 75, 0), "printed",
        {"planner": share, "optimiser": found, "theirs": 75.0},
    )  # fmt: skip


@states("Section 1")
def halves_for_makespan(seed: int) -> Finding:
    """Equal halves minimise the makespan of the two, but not their flow time."""
    halves = simulate(Workload(_TWO, PowerLaw(0.5)), _TEN, "equi")
    least = optimise(_TWO, PowerLaw(0.5), _TEN, makespan=True).cost
    best = optimise(_TWO, PowerLaw(0.5), _TEN).cost
    loss = halves.total_flow_time / best - 1
    deviation = halves.makespan / least - 1
    return Finding(
        f"makespan {halves.makespan:.4f}, the least is {least:.4f}; total flow time "
        f"{halves.total_flow_time:.4f}, {loss:.1%} above the least",
        which(abs(deviation) < 1e-6 and loss > 1e-6, loss > 0), "which",
        {"makespan": halves.makespan, "least": least, "loss": loss},
    )  # fmt: skip


@states("Section 1")
def srpt_inefficient(seed: int) -> Finding:
    """To give all servers to one of the two, then to the other, is very inefficient."""
    two = Workload(_TWO, PowerLaw(0.5))
    srpt, best = simulate(two, _TEN, "srpt"), plan(two, _TEN)
    loss = srpt.total_flow_time / best.total_flow_time - 1
    rates = PowerLaw(0.5).rate(np.array([_TEN, _TEN / 2]))
    efficiency = float(rates[0] / (2 * rates[1]))
    return Finding(
        f"the servers then do {efficiency:.0%} of the work that they do in equal halves, and the "
        f"total flow time is {loss:.1%} above the least (holds if both are worse by 5% or more)",
        which(efficiency < 0.95 and loss > 0.05, efficiency < 1 and loss > 0), "which",
        {"loss": loss, "efficiency": efficiency},
    )  # fmt: skip


@states("Section 1")
def amdahl_split(seed: int) -> Finding:
    """With Amdahl's law, f = 0.9, it is best to give 63.5% to one of the two."""
    share = 100 * _first_share(Amdahl(0.9), _TEN)
    found = 100 * optimise(_TWO, Amdahl(0.9), _TEN).shares[0].max()
    sixteen = 100 * _first_share(Amdahl(0.9), 16.0)
    return Finding(
        f"{share:.2f}% by the planner, {found:.2f}% by the numerical optimiser",
        printed(max(share, found, key=lambda value: abs(value - 63.5)), 63.5, 1), "printed",
        {"planner": share, "optimiser": found, "theirs": 63.5, "on_16_servers": sixteen},
        f"the example has 10 servers; with 16 servers the split would be {sixteen:.2f}%, close to "
        "what is printed",
    )  # fmt: skip


@states("Section 1")
def amdahl_asymmetric(seed: int) -> Finding:
    """That equal jobs get unequal shares is no artefact of k^p."""
    share = _first_share(Amdahl(0.9), _TEN)
    return Finding(
        f"with Amdahl's law, f = 0.9, the split is {share:.0%} to {1 - share:.0%}",
        which(share > 0.51, share > 0.5), "which", {"share": share},
    )  # fmt: skip


@states("Figure 3")
def three_jobs(seed: int) -> Finding:
    """heSRPT ends three jobs shortest first, while all that are left share the system."""
    planned = plan(Workload(THREE_JOBS, PowerLaw(THREE_P)), THREE_SERVERS)
    in_order = bool(np.all(np.diff(planned.completion_times) < 0))
    shared = all(
        bool(np.all(phase.servers[planned.completion_times > phase.start] > 0))
        for phase in planned.phases()
    )
    return Finding(
        f"sizes {', '.join(f'{size:g}' for size in THREE_JOBS)}: they end at "
        f"{', '.join(f'{end:.3f}' for end in planned.completion_times)}; "
        f"{'all' if shared else 'not all'} of them hold servers until they end",
        which(in_order and shared, in_order), "which", {"in_order": in_order, "shared": shared},
    )  # fmt: skip


def _limit(policy: str, powers: tuple[float, ...], seed: int) -> Finding:
    ratios = {}
    for p in powers:
        batch = Workload.pareto(500, speedup=PowerLaw(p), seed=seed)
        times = [simulate(batch, 1e6, chosen).total_flow_time for chosen in (policy, "hesrpt")]
        ratios[p] = times[0] / times[1]
    excess = [ratio - 1 for ratio in ratios.values()]
    shown = ", ".join(
        f"{above:.2g} at p = {p:g}" if above > 1e-6 else f"{within(above)} at p = {p:g}"
        for p, above in zip(powers, excess, strict=True)
    )
    falling = all(after < max(before, 1e-12) for before, after in pairwise(excess))
    return Finding(
        f"500 jobs on 1,000,000 servers: {policy.upper()} is above the optimum by {shown}",
        exact(excess[-1] if falling else 1.0, 1e-3), "exact",
        {f"p={p:g}": ratio for p, ratio in ratios.items()},
    )  # fmt: skip


@states("Sections 1 and 4.1")
def limit_srpt(seed: int) -> Finding:
    """As p → 1, SRPT becomes optimal."""
    return _limit("srpt", (0.9, 0.99, 0.999, 0.9999), seed)


@states("Section 1")
def limit_equi(seed: int) -> Finding:
    """As p → 0, EQUI becomes optimal."""
    return _limit("equi", (0.1, 0.01, 0.001, 0.0001), seed)


@states("Sections 1 and 4.1")
def efficiency(seed: int) -> Finding:
    """heSRPT makes better use of the servers than SRPT, and EQUI than heSRPT."""
    against = 0
    for case, _ in cases(seed, _CASES, 100):
        speedup = PowerLaw(case.p)
        equi, he, srpt = (
            float(np.sum(speedup.rate(policy.row(case.jobs, case.servers, speedup, False))))
            for policy in (Equi(), HeSrpt(p=case.p), Srpt())
        )
        against += not equi > he > srpt
    return no_exception(against, _CASES, "total service rate, for random p and up to 100 jobs")


@states("Section 4.3")
def short_jobs_favoured_by_others(seed: int) -> Finding:
    """Also for other speedups the optimum favours short jobs."""
    against, batches = 0, 200
    for case, rng in cases(seed, batches, 6):
        speedup = Amdahl(float(rng.uniform(0.5, 0.99)))
        servers = float(rng.uniform(10, 100))
        held = plan(Workload(case.sizes, speedup), servers).servers_at(0.0)
        against += not np.all(np.diff(held) >= -1e-9 * servers)
    return no_exception(against, batches, "first phases of proven plans under Amdahl's law")


#: Every check, as the paper goes.
EXAMPLES: tuple[Callable[[int], Claim], ...] = (
    concave_below_linear, limit_srpt, limit_equi, three_jobs, three_quarters,
    halves_for_makespan, srpt_inefficient, amdahl_split, amdahl_asymmetric, efficiency,
    short_jobs_favoured_by_others,
)  # fmt: skip
