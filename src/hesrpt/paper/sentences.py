"""The sentences of the paper's numerical evaluation, judged by what came of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from math import isfinite

import numpy as np

from hesrpt.paper.evaluation import Table
from hesrpt.paper.judging import (
    Claim,
    Finding,
    about,
    at_least,
    close,
    excess,
    magnitude,
    no_exception,
    states,
    which,
)
from hesrpt.paper.speedup_curves import Fitted
from hesrpt.plotting import get_title

# A competitor is "similar" to another one within this.
_SIMILAR = 0.1
# Ratios may be off by this much.
_ROUNDING = 1e-9


_OTHER_SETTING = "this run's numbers of jobs and servers are not the paper's"


def _reason(table: Table, reason: str = "") -> str:
    """Return the likeliest reason of a difference."""
    return reason or "other sets of jobs" if table.as_in_paper else _OTHER_SETTING


def _worse(table: Table, policy: str, p: float, theirs: float) -> Finding:
    ours = table.ratio(p, policy)
    return Finding(
        f"{ours - 1:.1%} above the optimum; the text says {theirs - 1:.0%}",
        excess(ours, theirs), "excess", {"ours": ours, "theirs": theirs}, _reason(table),
    )  # fmt: skip


def _by_power(values: Mapping[float, float]) -> dict[str, float]:
    return {f"p={p:g}": value for p, value in values.items()}


def _worst(table: Table) -> dict[str, float]:
    """Return the greatest ratio to heSRPT of each competitor."""
    return {
        policy: max(table.ratio(p, policy) for p in table.powers) for policy in table.competitors
    }


@states("Section 4.2")
def best_everywhere(table: Table) -> Finding:
    """heSRPT is better than every competitor in every case."""
    ratios = [table.ratio(p, policy) for p in table.powers for policy in table.competitors]
    against = sum(ratio < 1 - _ROUNDING for ratio in ratios)
    found = no_exception(
        against, len(ratios), f"ratios of competitors to heSRPT, the lowest {min(ratios):.6f}"
    )
    return replace(found, why=_reason(table))


@states("Section 4.2")
def equi_at_low_p(table: Table) -> Finding:
    """EQUI is very close to heSRPT where p is low."""
    ratios = {p: table.ratio(p, "equi") for p in table.powers if p < 0.5}
    return Finding(
        ", ".join(f"{ratio:.4f} times the optimum at p = {p:g}" for p, ratio in ratios.items()),
        close(max(ratios.values())), "close", _by_power(ratios), _reason(table),
    )  # fmt: skip


@states("Section 4.2")
def equi_at_099(table: Table) -> Finding:
    """EQUI is almost a factor of 2 worse than the optimum at p = 0.99."""
    ours = table.ratio(0.99, "equi")
    return Finding(
        f"{ours:.3f} times the optimum; the text says almost 2",
        about(ours, 2.0), "about", {"ours": ours, "theirs": 2.0}, _reason(table),
    )  # fmt: skip


@states("Section 4.2")
def srpt_at_099(table: Table) -> Finding:
    """SRPT is nearly optimal at p = 0.99."""
    ratio = table.ratio(0.99, "srpt")
    return Finding(
        f"{ratio:.3f} times the optimum", close(ratio), "close", {"ours": ratio}, _reason(table)
    )


@states("Section 4.2")
def srpt_at_005(table: Table) -> Finding:
    """SRPT is an order of magnitude worse than heSRPT at p = 0.05."""
    ours = table.ratio(0.05, "srpt")
    return Finding(
        f"{ours:.1f} times the optimum; an order of magnitude is 10", magnitude(ours, 10.0),
        "magnitude", {"ours": ours, "theirs": 10.0},
        _reason(
            table,
            "with p = 0.05 a job is hardly faster on all servers than on a few, so that jobs wait "
            "for each other in vain; the text may mean it loosely (at p = 0.5 SRPT is "
            f"{table.ratio(0.5, 'srpt'):.0f} times the optimum)",
        ),
    )  # fmt: skip


@states("Section 4.2")
def hell_like_srpt(table: Table) -> Finding:
    """HELL performs similarly to SRPT in most cases."""
    ratios = {p: table.ratio(p, "hell") / table.ratio(p, "srpt") for p in table.powers}
    alike = sum(abs(ratio - 1) <= _SIMILAR for ratio in ratios.values())
    return Finding(
        f"within 10% of it at {alike} of {len(ratios)} values of p (holds if at most of them, "
        "roughly if at any)",
        which(alike > len(ratios) / 2, alike > 0), "which", {"alike": alike} | _by_power(ratios),
        _reason(table),
    )  # fmt: skip


@states("Section 4.2")
def hell_at_005(table: Table) -> Finding:
    """HELL is only 50% worse than the optimum at p = 0.05."""
    return _worse(table, "hell", 0.05, 1.5)


@states("Section 4.2")
def knee_best(table: Table) -> Finding:
    """KNEE is by far the best of the competitors."""
    worst = _worst(table)
    wins = sum(
        table.ratio(p, "knee") <= min(table.ratio(p, other) for other in table.competitors)
        for p in table.powers
    )
    return Finding(
        f"it is the best of them at {wins} of {len(table.powers)} values of p; in their worst "
        "cases: "
        + ", ".join(f"{get_title(policy)} {ratio:.3g}" for policy, ratio in worst.items())
        + " (holds if it is the best at every p, roughly if in the worst case)",
        which(wins == len(table.powers), min(worst.values()) == worst["knee"]), "which",
        {"wins": wins} | worst,
        _reason(table, "the worst case over all p may be what is meant; at low p EQUI is better"),
    )  # fmt: skip


@states("Section 4.2")
def knee_at_03(table: Table) -> Finding:
    """KNEE is roughly 30% worse than heSRPT at p = 0.3."""
    return _worse(table, "knee", 0.3, 1.3)


@states("Section 4.2")
def knee_worst_case(table: Table) -> Finding:
    """The worst case of KNEE is p = 0.3."""
    ratios = {p: table.ratio(p, "knee") for p in table.powers}
    worst = max(ratios, key=lambda p: ratios[p])
    sets = [table.times[p]["knee"] / table.times[p]["hesrpt"] for p in (worst, 0.3)]
    worse = int(np.sum(sets[0] > sets[1]))
    return Finding(
        f"{ratios[worst]:.3f} times the optimum at p = {worst:g}; {ratios[0.3]:.3f} at p = 0.3; "
        f"worse there in {worse} of {len(sets[0])} sets (holds if the worst is p = 0.3)",
        which(worst == 0.3, False), "which", _by_power(ratios),
        _reason(table, "a coarser search for α at p = 0.3, or other details of KNEE"),
    )  # fmt: skip


@states("Abstract")
def at_least_thirty_percent(table: Table) -> Finding:
    """heSRPT beats its competitors by at least 30%, and often by much more."""
    ratios = [table.ratio(p, policy) for p in table.powers for policy in table.competitors]
    enough = sum(ratio >= 1.3 for ratio in ratios)
    much_more = sum(ratio >= 2 for ratio in ratios)
    each = all(worst >= 1.3 for worst in _worst(table).values())
    return Finding(
        f"by 30% or more in {enough} of {len(ratios)} cases, by 100% or more in {much_more} (holds "
        "if by 30% in all cases, roughly if in at least one case for each competitor)",
        which(enough == len(ratios), each and much_more > 0), "which",
        {"enough": enough, "much_more": much_more, "cases": len(ratios)},
        _reason(table, "the caption of Figure 4 has the right words: in at least one case"),
    )  # fmt: skip


@states("Figure 4")
def thirty_percent_once(table: Table) -> Finding:
    """heSRPT beats every competitor by at least 30% in at least one case."""
    worst = _worst(table)
    policy = min(worst, key=lambda policy: worst[policy])
    return Finding(
        f"the competitor with the mildest worst case is {get_title(policy)}, "
        f"{worst[policy] - 1:.1%} above heSRPT",
        at_least(worst[policy] - 1, 0.3), "at least", {"ours": worst[policy] - 1, "theirs": 0.3},
        _reason(table),
    )  # fmt: skip


@states("Section 4.3")
def arrivals(ratios: Mapping[tuple[float, float], float]) -> Finding:
    """heSRPT might be a good heuristic for jobs that arrive over time."""
    worst = max(sorted(ratios), key=lambda key: ratios[key])
    good = sum(ratio <= 1.05 for ratio in ratios.values())
    times = f"{ratios[worst]:.2f} times it" if isfinite(ratios[worst]) else "overloaded"
    return Finding(
        f"its mean flow time is within 5% of the best other policy in {good} of {len(ratios)} "
        f"cases of p and load; at worst {times}, at p = {worst[0]:g} and load {worst[1]:g} (holds "
        "if within 5% in all cases, roughly if in most)",
        which(good == len(ratios), good > len(ratios) / 2), "which",
        {
            f"p={p:g},load={load:g}": ratio
            for (p, load), ratio in ratios.items()
            if isfinite(ratio)
        },
        "heSRPT shares as if no job would ever arrive: at high load it spends servers on short "
        "jobs at a low efficiency, and those to come must wait. At low load it is among the best",
    )  # fmt: skip


@states("Section 1, Figure 2")
def power_laws_fit(fits: Sequence[Fitted]) -> Finding:
    """k^p can be fitted to a variety of measured speedups."""
    power = np.array([fit.r_squared[0] for fit in fits])
    good = int(np.sum(power >= 0.9))
    return Finding(
        f"{good} of {len(fits)} measured curves are fitted with R² ≥ 0.9, {int(np.sum(power > 0))} "
        f"with R² > 0; Amdahl's law is better for {sum(f.better == 'Amdahl' for f in fits)} (holds "
        "if R² ≥ 0.9 for 90% of them, roughly if for half)",
        which(good >= 0.9 * len(fits), good >= len(fits) / 2), "which",
        {"good": good, "curves": len(fits)},
        "many measured curves flatten or fall past a peak, which no power law does",
    )  # fmt: skip


#: What is said about Fig. 4, as the paper goes.
SENTENCES: tuple[Callable[[Table], Claim], ...] = (
    best_everywhere, equi_at_low_p, equi_at_099, srpt_at_099, srpt_at_005, hell_like_srpt,
    hell_at_005, knee_best, knee_at_03, knee_worst_case, at_least_thirty_percent,
    thirty_percent_once,
)  # fmt: skip
