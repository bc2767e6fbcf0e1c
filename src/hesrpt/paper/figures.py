"""The paper's figures, with the data behind them and the claims about them.

Speedup curves are power laws (Fig. 1), and laws fitted to measured speedups (Fig. 2). The
evaluation has three jobs under heSRPT (Fig. 3), and five policies compared (Fig. 4).
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite, nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import FitError, FitWarning
from hesrpt.optimal.planner import plan
from hesrpt.paper.claims import (
    Claim,
    claim_of,
    judge,
    judge_which,
    list_checks,
    summarise_exceptions,
)
from hesrpt.paper.exhibits import COMPARED_POLICIES, NOT_RANDOM, SHAPE, Exhibit, Row, Settings
from hesrpt.plotting import draw_schedule, paper_figures
from hesrpt.plotting.style import format_ratio
from hesrpt.policies import Knee
from hesrpt.policies.registry import get_title
from hesrpt.readers import Curve, read_curves
from hesrpt.simulator import simulate
from hesrpt.simulator.simulation import tune_knee
from hesrpt.speedups import Amdahl, PowerLaw, fit_amdahl, fit_power_law
from hesrpt.workload import Workload

# --- speedup curves ---------------------------------------------------------------------------

#: The paper's fits to PARSEC-3 benchmarks. It does not publish the measured points.
PARSEC = {"blackscholes": 0.89, "bodytrack": 0.82, "canneal": 0.69}

#: Published throughputs. Training of neural networks on V100 GPUs: DLPerf benchmark test report
#: v1.0, 2020 (github.com/Oneflow-Inc/DLPerf), 32-bit floats, batches of 32 (BERT base) and 128
#: (ResNet-50) on each GPU. Tensor contraction on the cores of one processor, where a throughput is
#: the inverse of the time: the README of github.com/galeselee/HOSCF.
PUBLISHED = read_curves(Path(__file__).with_name("published_curves.csv"))

_POWERS_SHOWN = (0.05, 0.3, 0.5, 0.7, 0.9, 1.0)
#: The number of measured curves on one page.
CURVES_PER_PAGE = 24


@dataclass(frozen=True)
class FittedCurve:
    """A measured curve with its fits; a law that cannot be fitted is None."""

    curve: Curve
    power_law: PowerLaw | None
    amdahl: Amdahl | None
    problem: str  # why a law could not be fitted

    @property
    def better(self) -> str:
        """The law with the higher R², or "neither" if a constant fits better than both."""
        power, amdahl = self.r_squared
        if not (power > 0 or amdahl > 0):
            return "neither"
        return "Amdahl" if amdahl > power or not isfinite(power) else "k^p"

    @property
    def r_squared(self) -> tuple[float, float]:
        """The R² of the power law and of Amdahl's law; NaN for one that cannot be fitted."""
        both = (law.r_squared if law else None for law in (self.power_law, self.amdahl))
        power, amdahl = (nan if value is None else value for value in both)
        return power, amdahl

    def get_row(self) -> Row:
        """Return the row of this curve in a table; unknown values are None."""
        power, amdahl = (value if isfinite(value) else None for value in self.r_squared)
        return {
            "application": self.curve.application,
            "points": len(self.curve.servers),
            "p": self.power_law.p if self.power_law else None,
            "r_squared_power_law": power,
            "parallel_fraction": self.amdahl.parallel_fraction if self.amdahl else None,
            "r_squared_amdahl": amdahl,
            "better": self.better,
            "problem": self.problem,
        }


def fit_curve(curve: Curve) -> FittedCurve:
    """Fit a power law and Amdahl's law to a measured curve."""
    servers, speedups = np.array(curve.servers), np.array(curve.speedups)
    laws: list[Any] = []
    problem = ""
    for fit in (fit_power_law, fit_amdahl):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the table shows R²
            try:
                laws.append(fit(servers[speedups > 0], speedups[speedups > 0]))
            except FitError as error:
                laws.append(None)
                problem = str(error)
    power_law, amdahl = laws
    return FittedCurve(curve, power_law, amdahl, problem)


def exhibit_power_laws() -> Exhibit:
    """Return Fig. 1: k^p for several p."""
    servers = np.linspace(1, 32, 125)
    return Exhibit(
        name="fig1_speedups",
        title="Figure 1: speedup functions k^p",
        sentence=(
            "Every power law with p < 1 is concave and lies below the line p = 1, the speedup of "
            "jobs that use every server perfectly."
        ),
        figure=paper_figures.draw_power_laws(_POWERS_SHOWN, servers),
        rows=[
            {"p": p, "servers": k, "speedup": k**p} for p in _POWERS_SHOWN for k in servers.tolist()
        ],
        parameters={"seed": NOT_RANDOM},
    )


def exhibit_paper_fits() -> Exhibit:
    """Return the part of Fig. 2 that the paper publishes: three fits, without their points."""
    servers = np.geomspace(1, 64, 61)
    return Exhibit(
        name="fig2_fits",
        title="Figure 2: power laws fitted by the paper",
        sentence=(
            "The paper's fits to three PARSEC-3 benchmarks have p between 0.69 and 0.89. It does "
            "not publish the measured points."
        ),
        figure=paper_figures.draw_fitted_power_laws(PARSEC, servers),
        rows=[
            {"application": name, "p": p, "servers": k, "speedup": k**p}
            for name, p in PARSEC.items()
            for k in servers.tolist()
        ],
        parameters={"seed": NOT_RANDOM},
    )


def exhibit_measured_curves(fits: Sequence[FittedCurve], source: str) -> Exhibit:
    """Return measured curves with both fits, on as many pages as they need."""
    first, *further = (
        paper_figures.draw_measured_curves(fits[start : start + CURVES_PER_PAGE])
        for start in range(0, len(fits), CURVES_PER_PAGE)
    )
    powers = [fit.power_law.p for fit in fits if fit.power_law and fit.r_squared[0] > 0]
    amdahl = sum(fit.better == "Amdahl" for fit in fits)
    neither = sum(fit.better == "neither" for fit in fits)
    median = f" (median p = {np.median(powers):.2f})" if powers else ""
    return Exhibit(
        name="fig2_measured",
        title="Figure 2 with other measurements: speedups and fitted laws",
        sentence=(
            f"A power law has R² > 0 for {len(powers)} of {len(fits)} measured curves{median}; "
            f"Amdahl's law fits {amdahl} of them better"
            + (f", and a constant fits {neither} better than both." if neither else ".")
        ),
        figure=first,
        further_pages=further,
        rows=[
            {"application": fit.curve.application, "servers": k, "speedup": s}
            for fit in fits
            for k, s in zip(fit.curve.servers, fit.curve.speedups, strict=True)
        ],
        table=[fit.get_row() for fit in fits],
        parameters={"curves": source, "seed": NOT_RANDOM},
        note=(
            "Each fit minimises the relative deviations and gives outliers less weight. Past its "
            "peak a curve is treated as flat, because a job need not use servers that slow it "
            "down. R² is computed from the measured points; it is negative if their mean would "
            "fit better."
        ),
    )


@claim_of("Section 1, Figure 2")
def check_power_laws_fit(fits: Sequence[FittedCurve]) -> Claim:
    """A power law k^p fits a variety of measured speedups."""
    power = np.array([fit.r_squared[0] for fit in fits])
    good = int(np.sum(power >= 0.9))
    amdahl = sum(fit.better == "Amdahl" for fit in fits)
    return Claim(
        computed=f"the fit has R² ≥ 0.9 for {good} of {len(fits)} measured curves and R² > 0 for "
        f"{int(np.sum(power > 0))}; Amdahl's law fits {amdahl} better (holds if R² ≥ 0.9 for 90% "
        "of the curves, roughly if for half of them)",
        judgement=judge_which(good >= 0.9 * len(fits), good >= len(fits) / 2),
        values={"good": good, "curves": len(fits)},
        possible_reason="many measured curves flatten, or fall past a peak; no power law does",
    )


# --- the evaluation ---------------------------------------------------------------------------

#: The three jobs of Fig. 3. The paper does not give their sizes.
THREE_JOBS, THREE_SERVERS, THREE_P = (60.0, 40.0, 20.0), 500, 0.5


def exhibit_three_jobs() -> Exhibit:
    """Return Fig. 3: the remaining sizes of three jobs, and the servers that they hold."""
    names = [f"job {number}" for number in range(1, len(THREE_JOBS) + 1)]
    workload = Workload(THREE_JOBS, PowerLaw(THREE_P), names=names)
    planned = plan(workload, THREE_SERVERS)
    times = np.linspace(0, planned.makespan, 121)
    rows: list[Row] = [
        {"time": time, "job": name, "size": size, "remaining": work, "share": held / THREE_SERVERS}
        for time, remaining in zip(times, planned.timeline.remaining(workload, times), strict=True)
        for name, size, work, held in zip(
            names, THREE_JOBS, remaining, planned.servers_at(time), strict=True
        )
    ]
    longest, middle, shortest = planned.servers_at(0.0) / THREE_SERVERS
    return Exhibit(
        name="fig3_three_jobs",
        title="Figure 3: three jobs under heSRPT",
        sentence=(
            "The shortest job ends first, but it never holds all servers: while three jobs run, it "
            f"holds {shortest:.0%} of the servers, the next one {middle:.0%} and the longest one "
            f"{longest:.0%}."
        ),
        figure=draw_schedule(planned),
        rows=rows,
        parameters={"M": len(THREE_JOBS), "N": THREE_SERVERS, "p": THREE_P, "seed": NOT_RANDOM},
    )


class System(NamedTuple):
    """The servers of a comparison, and the seeds of its sets of jobs."""

    servers: int
    whole: bool
    seeds: range


@dataclass(frozen=True)
class FlowTimeTable:
    """Mean flow times by p, policy and set of jobs."""

    system: System
    times: Mapping[float, Mapping[str, FloatArray]]  # of each set, by p and policy, heSRPT first
    alphas: Mapping[float, FloatArray]  # KNEE's best α for each set, by p

    def select_first(self, sets: int) -> FlowTimeTable:
        """Return the table of the first ``sets`` sets."""
        return FlowTimeTable(
            self.system._replace(seeds=self.system.seeds[:sets]),
            {p: {one: times[one][:sets] for one in times} for p, times in self.times.items()},
            {p: alphas[:sets] for p, alphas in self.alphas.items()},
        )

    def median(self, p: float, policy: str) -> float:
        """Return the median over the sets, which the paper reports."""
        return float(np.median(self.times[p][policy]))

    def ratio(self, p: float, policy: str) -> float:
        """Return the ratio of a policy's median to that of heSRPT."""
        return self.median(p, policy) / self.median(p, "hesrpt")

    def ratios_by_set(self, p: float, policy: str) -> FloatArray:
        """Return the ratio of a policy to heSRPT on each set."""
        return self.times[p][policy] / self.times[p]["hesrpt"]

    @property
    def powers(self) -> list[float]:
        """The values of p."""
        return list(self.times)

    @property
    def policies(self) -> list[str]:
        """All policies, heSRPT first."""
        return list(self.times[self.powers[0]])

    @property
    def ratios(self) -> dict[tuple[float, str], float]:
        """The ratio of each competitor to heSRPT, by p and policy."""
        return {(p, one): self.ratio(p, one) for p in self.powers for one in self.policies[1:]}

    @property
    def worst_ratios(self) -> dict[str, float]:
        """The highest ratio of each competitor over all p."""
        return {one: max(self.ratio(p, one) for p in self.powers) for one in self.policies[1:]}

    def rows(self) -> list[Row]:
        """Return a row for each p, policy and set of jobs."""
        return [
            {
                "p": p,
                "policy": policy,
                "seed": seed,
                "mean_flow_time": time,
                "median_of_sets": self.median(p, policy),
                "ratio_to_hesrpt": self.ratio(p, policy),
                "alpha": alpha if policy == "knee" else None,
            }
            for p in self.powers
            for policy in self.policies
            for seed, time, alpha in zip(
                self.system.seeds, self.times[p][policy], self.alphas[p], strict=True
            )
        ]


def simulate_sets(p: float, system: System, jobs: int) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return each policy's mean flow time on every set of Pareto jobs, and KNEE's best α."""
    servers, whole, seeds = system
    batches = [Workload.pareto(jobs, shape=SHAPE, seed=seed, speedup=PowerLaw(p)) for seed in seeds]
    knees = [tune_knee(Knee(), batch, servers, whole=whole) for batch in batches]
    times: dict[str, FloatArray] = {}
    for policy in COMPARED_POLICIES:
        runs = [
            simulate(batch, servers, knee if policy == "knee" else policy, whole=whole)
            for batch, knee in zip(batches, knees, strict=True)
        ]
        times[policy] = np.array([run.mean_flow_time for run in runs])
    return times, np.array([knee.alpha for knee in knees])


# The rounding error of a ratio.
_ROUNDING = 1e-9
_NOTE = (
    "A dot is the median over the sets, as in the paper; its line spans the lowest and the highest "
    "set. HELL allocates whole servers: for p < 1/2 its efficiency ratio has no maximum over "
    "fractions of a server. HELL and KNEE give servers to each job once and leave the rest idle: "
    "this variant comes closest to the paper's numbers. KNEE uses the best of more than "
    "100 values of α for each set."
)


def exhibit_comparison(table: FlowTimeTable, settings: Settings) -> list[Exhibit]:
    """Return Fig. 4, the mean flow times of five policies for each p, and their ratios over p."""
    ratios = table.ratios
    worst_p, worst_policy = worst = max(ratios, key=lambda case: ratios[case])
    wins = sum(ratio >= 1 - _ROUNDING for ratio in ratios.values())
    cases = "every case" if wins == len(ratios) else f"{wins} of {len(ratios)} cases"
    comparison = Exhibit(
        name="fig4_comparison",
        title="Figure 4: five policies compared",
        sentence=(
            f"heSRPT has the lowest mean flow time in {cases}. The worst case is "
            f"{get_title(worst_policy)} at p = {worst_p:g}, with "
            f"{format_ratio(ratios[worst])} times the mean flow time of heSRPT."
        ),
        figure=paper_figures.draw_mean_flow_times(table),
        rows=table.rows(),
        parameters=get_parameters(settings),
        note=f"The number beside each dot is the ratio to heSRPT. {_NOTE}",
    )
    best = []
    for p in table.powers:
        ratio, policy = min((table.ratio(p, policy), policy) for policy in table.policies[1:])
        best.append(f"{get_title(policy)} at p = {p:g} ({abs(ratio - 1):.1%} above heSRPT)")
    return [
        comparison,
        replace(
            comparison,
            name="fig4_ratios",
            title="Figure 4 as ratios to the optimum",
            sentence=f"The best competitor is {', '.join(best)}.",
            figure=paper_figures.draw_ratios(table),
            note=_NOTE,
        ),
    ]


def get_parameters(settings: Settings) -> Row:
    """Return the parameters of a comparison."""
    return {
        "M": settings.jobs,
        "N": int(settings.servers),
        "sizes": f"Pareto({SHAPE})",
        "sets": settings.sets,
        "first_seed": settings.seed,
    }


# --- what the paper says of it ---------------------------------------------------------------


def _check_excess(ours: float, theirs: float) -> Claim:
    """Compare a policy's excess over heSRPT with the paper's percentage."""
    computed = f"{ours - 1:.1%} above the optimum; the paper says {theirs - 1:.0%}"
    return Claim(computed, judge("excess", ours, theirs), {"ours": ours, "theirs": theirs})


def _name_powers(values: Mapping[float, float]) -> dict[str, float]:
    return {f"p={p:g}": value for p, value in values.items()}


@claim_of("Section 4.2")
def check_best_everywhere(table: FlowTimeTable) -> Claim:
    """heSRPT is better than every competitor in every case."""
    ratios = table.ratios.values()
    return summarise_exceptions(
        (ratio >= 1 - _ROUNDING for ratio in ratios),
        f"ratios to heSRPT, of which the lowest is {min(ratios):.6f}",
    )


@claim_of("Section 4.2")
def check_equi_at_low_p(table: FlowTimeTable) -> Claim:
    """EQUI is very close to heSRPT if p is low."""
    ratios = {p: table.ratio(p, "equi") for p in table.powers if p < 0.5}
    shown = (f"{ratio:.4f} times the optimum at p = {p:g}" for p, ratio in ratios.items())
    return Claim(", ".join(shown), judge("close", max(ratios.values())), _name_powers(ratios))


@claim_of("Section 4.2")
def check_equi_at_099(table: FlowTimeTable) -> Claim:
    """EQUI is almost a factor of 2 worse than the optimum at p = 0.99."""
    ours, theirs = table.ratio(0.99, "equi"), 2.0
    computed = f"{ours:.3f} times the optimum"
    return Claim(computed, judge("about", ours, theirs), {"ours": ours, "theirs": theirs})


@claim_of("Section 4.2")
def check_srpt_at_099(table: FlowTimeTable) -> Claim:
    """SRPT is nearly optimal at p = 0.99."""
    ours = table.ratio(0.99, "srpt")
    return Claim(f"{ours:.3f} times the optimum", judge("close", ours), {"ours": ours})


@claim_of("Section 4.2")
def check_srpt_at_005(table: FlowTimeTable) -> Claim:
    """SRPT is an order of magnitude worse than heSRPT at p = 0.05."""
    ours, theirs = table.ratio(0.05, "srpt"), 10.0
    return Claim(
        computed=f"{ours:.1f} times the optimum; an order of magnitude is {theirs:g}",
        judgement=judge("magnitude", ours, theirs),
        values={"ours": ours, "theirs": theirs},
        possible_reason="the paper may use the words loosely. At p = 0.05 a job is hardly faster "
        "on all servers than on a few, and all other jobs wait for it; at p = 0.5, SRPT takes "
        f"{table.ratio(0.5, 'srpt'):.0f} times the optimum",
    )


@claim_of("Section 4.2")
def check_hell_like_srpt(table: FlowTimeTable) -> Claim:
    """HELL performs similarly to SRPT in most cases."""
    ratios = {p: table.ratio(p, "hell") / table.ratio(p, "srpt") for p in table.powers}
    alike = sum(abs(ratio - 1) <= 0.1 for ratio in ratios.values())
    return Claim(
        computed=f"within 10% of SRPT at {alike} of {len(ratios)} values of p (holds if at more "
        "than half of them, roughly if at any of them)",
        judgement=judge_which(alike > len(ratios) / 2, alike > 0),
        values={"alike": alike} | _name_powers(ratios),
    )


@claim_of("Section 4.2")
def check_hell_at_005(table: FlowTimeTable) -> Claim:
    """HELL is only 50% worse than the optimum at p = 0.05."""
    return _check_excess(table.ratio(0.05, "hell"), 1.5)


@claim_of("Section 4.2")
def check_knee_best(table: FlowTimeTable) -> Claim:
    """KNEE is by far the best of the competitors."""
    worst, powers = table.worst_ratios, table.powers
    wins = sum(table.ratio(p, "knee") == min(table.ratio(p, one) for one in worst) for p in powers)
    return Claim(
        computed=f"KNEE is the best competitor at {wins} of {len(powers)} values of p. The "
        "highest ratio of each over all p: "
        + ", ".join(f"{get_title(policy)} {ratio:.3g}" for policy, ratio in worst.items())
        + " (holds if KNEE is the best at every p, roughly if its highest ratio is the lowest)",
        judgement=judge_which(wins == len(powers), min(worst.values()) == worst["knee"]),
        values={"wins": wins} | worst,
        possible_reason="the paper may mean the worst case over all p; at low p EQUI is better",
    )


@claim_of("Section 4.2")
def check_knee_at_03(table: FlowTimeTable) -> Claim:
    """KNEE is roughly 30% worse than heSRPT at p = 0.3."""
    return _check_excess(table.ratio(0.3, "knee"), 1.3)


@claim_of("Section 4.2")
def check_knee_worst_case(table: FlowTimeTable) -> Claim:
    """KNEE's worst case is p = 0.3."""
    ratios = {p: table.ratio(p, "knee") for p in table.powers}
    worst = max(ratios, key=lambda p: ratios[p])
    is_worse = table.ratios_by_set(worst, "knee") > table.ratios_by_set(0.3, "knee")
    return Claim(
        computed=f"{ratios[worst]:.3f} times the optimum at p = {worst:g}, {ratios[0.3]:.3f} at "
        f"p = 0.3; p = {worst:g} is worse in {is_worse.sum()} of {len(is_worse)} sets (holds if "
        "the worst case is p = 0.3)",
        judgement=judge_which(worst == 0.3, False),
        values=_name_powers(ratios),
        possible_reason="the paper's search for α may be coarser, or its KNEE differs in details",
    )


@claim_of("Abstract")
def check_at_least_thirty_percent(table: FlowTimeTable) -> Claim:
    """heSRPT beats its competitors by at least 30%, and often by much more."""
    ratios = table.ratios.values()
    enough, much_more = (sum(ratio >= least for ratio in ratios) for least in (1.3, 2))
    each = min(table.worst_ratios.values()) >= 1.3
    return Claim(
        computed=f"by at least 30% in {enough} of {len(ratios)} cases, and by at least 100% in "
        f"{much_more} (holds if by 30% in all cases, roughly if each competitor has such a case)",
        judgement=judge_which(enough == len(ratios), each and much_more > 0),
        values={"enough": enough, "much_more": much_more, "cases": len(ratios)},
        possible_reason="the caption of Figure 4 is more precise: in at least one case",
    )


@claim_of("Figure 4")
def check_thirty_percent_once(table: FlowTimeTable) -> Claim:
    """heSRPT beats every competitor by at least 30% in at least one case."""
    ratio, policy = min((ratio, policy) for policy, ratio in table.worst_ratios.items())
    return Claim(
        computed=f"the competitor with the mildest worst case is {get_title(policy)}, "
        f"which is then {ratio - 1:.1%} above heSRPT",
        judgement=judge("at least", ratio - 1, 0.3),
        values={"ours": ratio - 1, "theirs": 0.3},
    )


_CHECKS = [check for check in list_checks(globals()) if check is not check_power_laws_fit]


def judge_comparison(table: FlowTimeTable, *, has_paper_size: bool = True) -> list[Claim]:
    """Return the claims about Fig. 4, in the order of the paper, with reasons for differences."""
    claims = [check(table) for check in _CHECKS]
    if not has_paper_size:
        reason = "this run does not have the paper's numbers of jobs and servers"
        return [replace(claim, possible_reason=reason) for claim in claims]
    usual = "our sets of jobs are not the paper's"
    return [replace(claim, possible_reason=claim.possible_reason or usual) for claim in claims]
