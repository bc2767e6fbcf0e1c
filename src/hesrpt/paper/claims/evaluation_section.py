"""Sentences of the paper's numerical evaluation, judged by our numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from hesrpt.paper.claims.verdicts import (
    Claim,
    Finding,
    claim_of,
    judge_about,
    judge_at_least,
    judge_close,
    judge_excess,
    judge_magnitude,
    judge_which,
    summarise_exceptions,
)
from hesrpt.paper.evaluation import FlowTimeTable
from hesrpt.paper.speedup_curves import FittedCurve
from hesrpt.policies.registry import get_title

# Policies are "similar" if their ratios differ by at most this fraction.
_SIMILAR = 0.1
# The rounding error of a ratio.
_ROUNDING = 1e-9
_OTHER_SIZE = "this run does not have the paper's numbers of jobs and servers"


def _get_reason(table: FlowTimeTable, reason: str = "our sets of jobs are not the paper's") -> str:
    """Return the likeliest reason for a difference."""
    return reason if table.has_paper_size else _OTHER_SIZE


def _check_excess(table: FlowTimeTable, policy: str, p: float, theirs: float) -> Finding:
    """Compare a policy's excess over heSRPT with the paper's percentage."""
    ours = table.ratio(p, policy)
    return Finding(
        computed=f"{ours - 1:.1%} above the optimum; the paper says {theirs - 1:.0%}",
        verdict=judge_excess(ours, theirs),
        rule="excess",
        values={"ours": ours, "theirs": theirs},
        possible_reason=_get_reason(table),
    )


def _name_powers(values: Mapping[float, float]) -> dict[str, float]:
    return {f"p={p:g}": value for p, value in values.items()}


def _get_worst_ratios(table: FlowTimeTable) -> dict[str, float]:
    """Return the highest ratio to heSRPT of each competitor."""
    return {
        policy: max(table.ratio(p, policy) for p in table.powers) for policy in table.competitors
    }


@claim_of("Section 4.2")
def check_best_everywhere(table: FlowTimeTable) -> Finding:
    """heSRPT is better than every competitor in every case."""
    ratios = [table.ratio(p, policy) for p in table.powers for policy in table.competitors]
    exceptions = sum(ratio < 1 - _ROUNDING for ratio in ratios)
    finding = summarise_exceptions(
        exceptions, len(ratios), f"ratios to heSRPT, of which the lowest is {min(ratios):.6f}"
    )
    return replace(finding, possible_reason=_get_reason(table))


@claim_of("Section 4.2")
def check_equi_at_low_p(table: FlowTimeTable) -> Finding:
    """EQUI is very close to heSRPT if p is low."""
    ratios = {p: table.ratio(p, "equi") for p in table.powers if p < 0.5}
    return Finding(
        computed=", ".join(
            f"{ratio:.4f} times the optimum at p = {p:g}" for p, ratio in ratios.items()
        ),
        verdict=judge_close(max(ratios.values())),
        rule="close",
        values=_name_powers(ratios),
        possible_reason=_get_reason(table),
    )


@claim_of("Section 4.2")
def check_equi_at_099(table: FlowTimeTable) -> Finding:
    """EQUI is almost a factor of 2 worse than the optimum at p = 0.99."""
    ours = table.ratio(0.99, "equi")
    return Finding(
        computed=f"{ours:.3f} times the optimum",
        verdict=judge_about(ours, 2.0),
        rule="about",
        values={"ours": ours, "theirs": 2.0},
        possible_reason=_get_reason(table),
    )


@claim_of("Section 4.2")
def check_srpt_at_099(table: FlowTimeTable) -> Finding:
    """SRPT is nearly optimal at p = 0.99."""
    ratio = table.ratio(0.99, "srpt")
    return Finding(
        computed=f"{ratio:.3f} times the optimum",
        verdict=judge_close(ratio),
        rule="close",
        values={"ours": ratio},
        possible_reason=_get_reason(table),
    )


@claim_of("Section 4.2")
def check_srpt_at_005(table: FlowTimeTable) -> Finding:
    """SRPT is an order of magnitude worse than heSRPT at p = 0.05."""
    ours = table.ratio(0.05, "srpt")
    return Finding(
        computed=f"{ours:.1f} times the optimum; an order of magnitude is 10",
        verdict=judge_magnitude(ours, 10.0),
        rule="magnitude",
        values={"ours": ours, "theirs": 10.0},
        possible_reason=_get_reason(
            table,
            "the paper may use the words loosely. At p = 0.05 a job is hardly faster on all "
            "servers than on a few, and all other jobs wait for it; at p = 0.5, SRPT takes "
            f"{table.ratio(0.5, 'srpt'):.0f} times the optimum",
        ),
    )


@claim_of("Section 4.2")
def check_hell_like_srpt(table: FlowTimeTable) -> Finding:
    """HELL performs similarly to SRPT in most cases."""
    ratios = {p: table.ratio(p, "hell") / table.ratio(p, "srpt") for p in table.powers}
    alike = sum(abs(ratio - 1) <= _SIMILAR for ratio in ratios.values())
    return Finding(
        computed=f"within 10% of SRPT at {alike} of {len(ratios)} values of p (holds if at more "
        "than half of them, roughly if at any of them)",
        verdict=judge_which(alike > len(ratios) / 2, alike > 0),
        rule="which",
        values={"alike": alike} | _name_powers(ratios),
        possible_reason=_get_reason(table),
    )


@claim_of("Section 4.2")
def check_hell_at_005(table: FlowTimeTable) -> Finding:
    """HELL is only 50% worse than the optimum at p = 0.05."""
    return _check_excess(table, "hell", 0.05, 1.5)


@claim_of("Section 4.2")
def check_knee_best(table: FlowTimeTable) -> Finding:
    """KNEE is by far the best of the competitors."""
    worst = _get_worst_ratios(table)
    wins = sum(
        table.ratio(p, "knee") <= min(table.ratio(p, other) for other in table.competitors)
        for p in table.powers
    )
    return Finding(
        computed=f"KNEE is the best competitor at {wins} of {len(table.powers)} values of p. The "
        "highest ratio of each over all p: "
        + ", ".join(f"{get_title(policy)} {ratio:.3g}" for policy, ratio in worst.items())
        + " (holds if KNEE is the best at every p, roughly if its highest ratio is the lowest)",
        verdict=judge_which(wins == len(table.powers), min(worst.values()) == worst["knee"]),
        rule="which",
        values={"wins": wins} | worst,
        possible_reason=_get_reason(
            table, "the paper may mean the worst case over all p; at low p EQUI is better"
        ),
    )


@claim_of("Section 4.2")
def check_knee_at_03(table: FlowTimeTable) -> Finding:
    """KNEE is roughly 30% worse than heSRPT at p = 0.3."""
    return _check_excess(table, "knee", 0.3, 1.3)


@claim_of("Section 4.2")
def check_knee_worst_case(table: FlowTimeTable) -> Finding:
    """KNEE's worst case is p = 0.3."""
    ratios = {p: table.ratio(p, "knee") for p in table.powers}
    worst = max(ratios, key=lambda p: ratios[p])
    at_worst, at_03 = (table.ratios_by_set(p, "knee") for p in (worst, 0.3))
    worse = int(np.sum(at_worst > at_03))
    return Finding(
        computed=f"{ratios[worst]:.3f} times the optimum at p = {worst:g}, {ratios[0.3]:.3f} at "
        f"p = 0.3; p = {worst:g} is worse in {worse} of {len(at_worst)} sets (holds if the worst "
        "case is p = 0.3)",
        verdict=judge_which(worst == 0.3, False),
        rule="which",
        values=_name_powers(ratios),
        possible_reason=_get_reason(
            table, "the paper's search for α may be coarser, or its KNEE differs in details"
        ),
    )


@claim_of("Abstract")
def check_at_least_thirty_percent(table: FlowTimeTable) -> Finding:
    """heSRPT beats its competitors by at least 30%, and often by much more."""
    ratios = [table.ratio(p, policy) for p in table.powers for policy in table.competitors]
    enough = sum(ratio >= 1.3 for ratio in ratios)
    much_more = sum(ratio >= 2 for ratio in ratios)
    each = all(worst >= 1.3 for worst in _get_worst_ratios(table).values())
    return Finding(
        computed=f"by at least 30% in {enough} of {len(ratios)} cases, and by at least 100% in "
        f"{much_more} (holds if by 30% in all cases, roughly if each competitor has such a case)",
        verdict=judge_which(enough == len(ratios), each and much_more > 0),
        rule="which",
        values={"enough": enough, "much_more": much_more, "cases": len(ratios)},
        possible_reason=_get_reason(
            table, "the caption of Figure 4 is more precise: in at least one case"
        ),
    )


@claim_of("Figure 4")
def check_thirty_percent_once(table: FlowTimeTable) -> Finding:
    """heSRPT beats every competitor by at least 30% in at least one case."""
    worst = _get_worst_ratios(table)
    policy = min(worst, key=lambda policy: worst[policy])
    return Finding(
        computed=f"the competitor with the mildest worst case is {get_title(policy)}, "
        f"which is then {worst[policy] - 1:.1%} above heSRPT",
        verdict=judge_at_least(worst[policy] - 1, 0.3),
        rule="at least",
        values={"ours": worst[policy] - 1, "theirs": 0.3},
        possible_reason=_get_reason(table),
    )


@claim_of("Section 4.3")
def check_arrivals(ratios: Mapping[tuple[float, float], float]) -> Finding:
    """heSRPT might be a good heuristic for jobs that arrive over time."""
    worst = max(sorted(ratios), key=lambda key: ratios[key])
    good = sum(ratio <= 1.05 for ratio in ratios.values())
    times = f"{ratios[worst]:.2f} times that" if isfinite(ratios[worst]) else "infinite (overload)"
    return Finding(
        computed="its mean flow time is at most 5% above that of the best other policy in "
        f"{good} of {len(ratios)} combinations of p and load; at worst it is {times}, at "
        f"p = {worst[0]:g} and load {worst[1]:g} (holds if at most 5% above in all cases, "
        "roughly if in most)",
        verdict=judge_which(good == len(ratios), good > len(ratios) / 2),
        rule="which",
        values={
            f"p={p:g},load={load:g}": ratio
            for (p, load), ratio in ratios.items()
            if isfinite(ratio)
        },
        possible_reason="heSRPT allocates servers as if no more jobs would arrive. At high load it "
        "spends them inefficiently on short jobs, and jobs that arrive later wait. At low load it "
        "is among the best",
    )


@claim_of("Section 1, Figure 2")
def check_power_laws_fit(fits: Sequence[FittedCurve]) -> Finding:
    """A power law k^p fits a variety of measured speedups."""
    power = np.array([fit.r_squared[0] for fit in fits])
    good = int(np.sum(power >= 0.9))
    amdahl = sum(fit.better == "Amdahl" for fit in fits)
    return Finding(
        computed=f"the fit has R² ≥ 0.9 for {good} of {len(fits)} measured curves and R² > 0 for "
        f"{int(np.sum(power > 0))}; Amdahl's law fits {amdahl} better (holds if R² ≥ 0.9 for 90% "
        "of the curves, roughly if for half of them)",
        verdict=judge_which(good >= 0.9 * len(fits), good >= len(fits) / 2),
        rule="which",
        values={"good": good, "curves": len(fits)},
        possible_reason="many measured curves flatten, or fall past a peak; no power law does",
    )


#: All checks of sentences about Fig. 4, in the order of the paper.
EVALUATION_CHECKS: tuple[Callable[[FlowTimeTable], Claim], ...] = (
    check_best_everywhere,
    check_equi_at_low_p,
    check_equi_at_099,
    check_srpt_at_099,
    check_srpt_at_005,
    check_hell_like_srpt,
    check_hell_at_005,
    check_knee_best,
    check_knee_at_03,
    check_knee_worst_case,
    check_at_least_thirty_percent,
    check_thirty_percent_once,
)
