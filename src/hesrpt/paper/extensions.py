"""Beyond the paper: whole servers, few servers, speedups that are not power laws, and arrivals.

For jobs that arrive over time, policies are compared with each other, and with the best possible.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from math import inf, isfinite

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import FitWarning, OverloadWarning
from hesrpt.optimal.bounds import lower_bound
from hesrpt.optimal.planner import plan
from hesrpt.paper.claims import Claim, claim_of, judge_which
from hesrpt.paper.exhibits import COMPARED_POLICIES, SHAPE, Exhibit, Row, Settings
from hesrpt.paper.figures import FittedCurve, FlowTimeTable, get_parameters
from hesrpt.plotting import paper_figures
from hesrpt.policies import HeSrpt, Knee, PolicyLike
from hesrpt.simulator import Simulation, simulate
from hesrpt.simulator.simulation import tune_knee
from hesrpt.speedups import Amdahl, PowerLaw, Speedup, fit_power_law
from hesrpt.workload import Workload

#: The number of sets of jobs in these figures.
SETS = 3
# The p that heSRPT uses for a curve that does not grow with the servers.
_NO_GROWTH = 1e-3
# More curves than this are drawn as a distribution, without their names.
_MAX_NAMED_CURVES = 12
_TITLES = {"hesrpt": "heSRPT with a fitted p", "equi": "EQUI", "srpt": "SRPT"}


def exhibit_whole_servers(
    divisible: FlowTimeTable, whole: FlowTimeTable, few: FlowTimeTable, settings: Settings
) -> Exhibit:
    """Return the comparison of Fig. 4 with whole servers, and with fewer servers than jobs."""
    tables, rows = {}, []
    for table in (divisible, whole, few):
        servers, is_whole, _ = table.system
        tables[f"{servers:,} {'whole' if is_whole else 'divisible'} servers"] = table
        rows += [{"N": servers, "whole": is_whole} | row for row in table.rows()]
    before, sets = divisible.ratios, few.system.seeds
    change = max(abs(ratio / before[case] - 1) for case, ratio in whole.ratios.items())
    equi = [few.ratio(p, "equi") for p in few.powers]
    parameters = get_parameters(settings) | {"sets": len(sets)}
    del parameters["N"]
    return Exhibit(
        name="beyond_whole_servers",
        title="Whole servers, and fewer servers than jobs",
        sentence=(
            f"On {settings.servers:,} servers, allocating whole servers changes a ratio by at most "
            f"{change:.1%}. On {few.system.servers:,} servers, jobs take {min(equi):.2f} to "
            f"{max(equi):.2f} times as long under EQUI as under heSRPT."
        ),
        figure=paper_figures.draw_ratio_panels(tables),
        rows=rows,
        parameters=parameters,
        note=(
            f"{settings.jobs} jobs; all panels use the first {len(sets)} sets of Figure 4. A dot "
            "is the median over the sets, and its line spans the lowest and the highest set. With "
            "whole servers, heSRPT allocates them as the planner does, which is optimal."
        ),
    )


def exhibit_amdahl(settings: Settings) -> Exhibit:
    """Show how much heSRPT with a fitted p loses if jobs follow Amdahl's law."""
    fractions = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
    servers, jobs, sets = 1000.0, 100, settings.get_seeds(SETS)
    fitted_at = np.geomspace(1, servers, 11)
    rows: list[Row] = []
    for fraction in fractions:
        speedup = Amdahl(fraction)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # how bad the fit is, is the subject
            p = fit_power_law(fitted_at, speedup.rate(fitted_at)).p
        label = {"parallel_fraction": fraction}
        rows += _compare_with_optimum(label, speedup, p, servers, jobs, sets)
    ratio = {(row["parallel_fraction"], row["policy"]): row["ratio_to_optimum"] for row in rows}
    losses = [ratio[f, "hesrpt"] - 1 for f in fractions]
    equi_wins = [f for f in fractions if ratio[f, "equi"] < ratio[f, "hesrpt"]]
    return Exhibit(
        name="beyond_amdahl",
        title="Amdahl's law",
        sentence=(
            "If jobs follow Amdahl's law, the mean flow time of heSRPT with a fitted p is "
            f"{min(losses):.1%} to {max(losses):.1%} above the optimum"
            + (f"; for f up to {max(equi_wins):g}, EQUI is better." if equi_wins else ".")
        ),
        figure=paper_figures.draw_losses_under_amdahl(rows, _TITLES),
        rows=rows,
        parameters=_get_parameters(jobs, servers, settings),
        note=(
            f"{jobs} jobs on {servers:,.0f} servers, {len(sets)} sets; lines through the dots span "
            f"the sets. The power law is fitted to Amdahl's law on 1 to {servers:,.0f} servers. "
            "The optimum is the plan for Amdahl's law itself."
        ),
    )


def exhibit_measured_speedups(fits: Sequence[FittedCurve], settings: Settings) -> Exhibit:
    """Show how much heSRPT with a fitted p loses if jobs follow a measured curve."""
    servers, jobs, sets = 64.0, 20, settings.get_seeds(SETS)
    rows: list[Row] = []
    for fit in fits:
        p = _NO_GROWTH if fit.power_law is None else fit.power_law.p
        label = {"curve": fit.curve.application}
        rows += _compare_with_optimum(label, fit.curve.concave, p, servers, jobs, sets)
    losses = [row["ratio_to_optimum"] - 1 for row in rows if row["policy"] == "hesrpt"]
    has_many = len(fits) > _MAX_NAMED_CURVES
    draw = paper_figures.draw_loss_distribution if has_many else paper_figures.draw_losses_on_curves
    return Exhibit(
        name="beyond_measured",
        title="Measured speedups",
        sentence=(
            f"On {len(fits)} measured curves, the mean flow time of heSRPT with a fitted p is at "
            f"most {max(losses):.1%} above the optimum; the median is {np.median(losses):.1%}."
        ),
        figure=draw(rows, _TITLES),
        rows=rows,
        parameters=_get_parameters(jobs, servers, settings),
        note=(
            f"{jobs} jobs on {servers:g} servers, {len(sets)} sets; lines through the dots span "
            "the sets. Jobs follow the lowest concave curve through or above the measured points, "
            "which is flat past the last point. The optimum is the plan for that curve."
        ),
    )


def _compare_with_optimum(
    label: Row, speedup: Speedup, p: float, servers: float, jobs: int, seeds: range
) -> list[Row]:
    """Return each policy's mean flow time relative to the optimum; heSRPT assumes ``p``."""
    policies: dict[str, PolicyLike] = {"hesrpt": HeSrpt(p=p), "equi": "equi", "srpt": "srpt"}
    batches = [Workload.pareto(jobs, shape=SHAPE, seed=seed, speedup=speedup) for seed in seeds]
    best: FloatArray = np.array([plan(batch, servers).mean_flow_time for batch in batches])
    rows: list[Row] = []
    for name, policy in policies.items():
        times = np.array([simulate(batch, servers, policy).mean_flow_time for batch in batches])
        spread = {"lowest_of_sets": min(times / best), "highest_of_sets": max(times / best)}
        ratio = times.sum() / best.sum()
        rows.append({**label, "fitted_p": p, "policy": name, "ratio_to_optimum": ratio, **spread})
    return rows


def _get_parameters(jobs: int, servers: float, settings: Settings) -> Row:
    sets = len(settings.get_seeds(SETS))
    return get_parameters(settings) | {"M": jobs, "N": int(servers), "sets": sets}


#: The paper's policies, and one for arrivals.
POLICIES = (*COMPARED_POLICIES, "adaptive")
#: Work that arrives per server and unit of time.
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: The values of p.
POWERS = (0.5, 0.9)
SERVERS, STREAMS = 64, 3
#: KNEE's α is the best one for this many jobs at the start of the first stream.
TUNED_ON = 4000


def simulate_load(p: float, load: float, jobs: int, seeds: range) -> list[Row]:
    """Return a row for each policy with its mean flow time, or None if it is overloaded."""
    streams = _draw_streams(p, load, jobs, seeds)
    knee = tune_knee(Knee(), streams[0].head(TUNED_ON), SERVERS, whole=True)
    rows: list[Row] = []
    for policy in POLICIES:
        runs = _simulate(streams, knee if policy == "knee" else policy, whole=True)
        means = [run.mean_flow_time for run in runs]
        overloaded = any(run.is_overloaded for run in runs)
        rows.append(
            {
                "p": p,
                "load": load,
                "policy": policy,
                "overloaded": overloaded,
                "mean_flow_time": None if overloaded else float(np.mean(means)),
                "lowest_of_streams": None if overloaded else min(means),
                "highest_of_streams": None if overloaded else max(means),
                "alpha": knee.alpha if policy == "knee" else None,
            }
        )
    return rows


def _draw_streams(p: float, load: float, jobs: int, seeds: range) -> list[Workload]:
    rate, speedup = load * SERVERS, PowerLaw(p)
    return [Workload.poisson(rate, jobs, speedup=speedup, seed=seed) for seed in seeds]


def _simulate(
    streams: Sequence[Workload], policy: PolicyLike, whole: bool = False
) -> list[Simulation]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverloadWarning)  # the rows report it; streams may be short
        return [simulate(stream, SERVERS, policy, whole=whole) for stream in streams]


def _describe_streams(settings: Settings, jobs: int, whole: bool) -> Row:
    return {
        "N": SERVERS,
        "whole": whole,
        "sizes": "exponential, mean 1",
        "jobs": jobs,
        "streams": STREAMS,
        **({"knee_tuned_on": TUNED_ON} if whole else {}),
        "first_seed": settings.seed,
    }


def exhibit_arrivals(rows: list[Row], settings: Settings) -> Exhibit:
    """Return the mean flow times of all policies over the load."""
    ratios, adaptive = compare_with_best(rows), compare_with_best(rows, "adaptive")
    worst = max(sorted(ratios), key=lambda key: ratios[key])
    highest = f"{ratios[worst]:.2f}" if isfinite(ratios[worst]) else "infinity (overload)"
    return Exhibit(
        name="beyond_arrivals",
        title="Jobs that arrive over time",
        sentence=(
            "If jobs arrive over time, the ratio of heSRPT's mean flow time to that of the best "
            f"other policy ranges from {min(ratios.values()):.2f} to {highest} (at "
            f"p = {worst[0]:g}, load {worst[1]:g}), and that of adaptive, which is made for "
            f"arrivals, from {min(adaptive.values()):.2f} to {max(adaptive.values()):.2f}."
        ),
        figure=paper_figures.draw_flow_times_by_load(rows),
        rows=rows,
        parameters=_describe_streams(settings, settings.stream, whole=True),
        note=(
            f"{SERVERS} whole servers, Poisson arrivals, exponential sizes. A dot is the mean over "
            f"{STREAMS} streams of {settings.stream:,} jobs, and its line spans the streams. The "
            "load is the work that arrives per server and unit of time. A policy's line ends where "
            f"the policy is overloaded. KNEE uses the best α for the first {TUNED_ON:,} jobs."
        ),
    )


def compare_with_best(
    rows: Sequence[Row], policy: str = "hesrpt"
) -> dict[tuple[float, float], float]:
    """Return a policy's mean flow time relative to the best other policy, by p and load.

    The ratio is infinite if only this policy is overloaded. Cases in which all others are
    overloaded are left out.
    """
    times: dict[tuple[float, float], dict[str, float]] = {}
    for row in rows:
        if not row["overloaded"]:
            times.setdefault((row["p"], row["load"]), {})[row["policy"]] = row["mean_flow_time"]
    return {
        case: here.pop(policy, inf) / min(here.values())
        for case, here in times.items()
        if here.keys() - {policy}
    }


@claim_of("Section 4.3")
def check_arrivals(ratios: Mapping[tuple[float, float], float]) -> Claim:
    """heSRPT might be a good heuristic for jobs that arrive over time."""
    worst = max(sorted(ratios), key=lambda key: ratios[key])
    good = sum(ratio <= 1.05 for ratio in ratios.values())
    times = f"{ratios[worst]:.2f} times that" if isfinite(ratios[worst]) else "infinite (overload)"
    return Claim(
        computed="its mean flow time is at most 5% above that of the best other policy in "
        f"{good} of {len(ratios)} combinations of p and load; at worst it is {times}, at "
        f"p = {worst[0]:g} and load {worst[1]:g} (holds if at most 5% above in all cases, "
        "roughly if in most)",
        judgement=judge_which(good == len(ratios), good > len(ratios) / 2),
        values={
            f"p={p:g},load={load:g}": ratio
            for (p, load), ratio in ratios.items()
            if isfinite(ratio)
        },
        possible_reason="heSRPT allocates servers as if no more jobs would arrive. At high load it "
        "spends them inefficiently on short jobs, and jobs that arrive later wait. At low load it "
        "is among the best",
    )


# SRPT is left out: at p = 0.5 it is overloaded, and all others would look alike next to it.
BOUNDED_POLICIES = ("equi", "hesrpt", "adaptive")
BOUNDED_LOADS = (0.3, 0.5, 0.7, 0.9)
#: Streams are shorter by this factor than others: bounds take longer than simulations.
BOUNDED_PART = 50


def bound_load(p: float, load: float, jobs: int, seeds: range) -> list[Row]:
    """Return a row for each policy with its mean flow time relative to the bound."""
    streams = _draw_streams(p, load, jobs, seeds)
    bounds = [lower_bound(stream, SERVERS) for stream in streams]
    rows: list[Row] = []
    for policy in BOUNDED_POLICIES:
        runs = _simulate(streams, policy)
        ratios = [1 + bound.gap(run) for bound, run in zip(bounds, runs, strict=True)]
        rows.append(
            {
                "p": p,
                "load": load,
                "policy": policy,
                "mean_flow_time": float(np.mean([run.mean_flow_time for run in runs])),
                "lower_bound": float(np.mean([bound.mean for bound in bounds])),
                "ratio_to_bound": float(np.mean(ratios)),
                "lowest_of_streams": min(ratios),
                "highest_of_streams": max(ratios),
            }
        )
    return rows


def exhibit_bounds(rows: Sequence[Row], settings: Settings) -> Exhibit:
    """Return the ratios of mean flow times to the bound over the load."""
    jobs = settings.stream // BOUNDED_PART
    worst = {
        policy: max(row["ratio_to_bound"] for row in rows if row["policy"] == policy)
        for policy in BOUNDED_POLICIES
    }
    return Exhibit(
        name="beyond_bounds",
        title="The distance to the best possible",
        sentence=(
            "Compared with a bound that no scheduler can beat, even one that knows all arrivals, "
            f"mean flow time is up to {worst['adaptive'] - 1:.0%} higher under adaptive, "
            f"{worst['equi'] - 1:.0%} under EQUI and {worst['hesrpt'] - 1:.0%} under heSRPT."
        ),
        figure=paper_figures.draw_ratios_to_bound(rows),
        rows=list(rows),
        parameters=_describe_streams(settings, jobs, whole=False),
        note=(
            f"{SERVERS} divisible servers, Poisson arrivals, exponential sizes. A dot is the mean "
            f"over {STREAMS} streams of {jobs:,} jobs, and its line spans the "
            "streams. The best possible is at least the bound, so policies are at most this far "
            "from it. Streams are short, and start with an empty system, because bounds of long "
            "ones take long."
        ),
    )
