"""The sentences of the paper's numerical evaluation, judged by what came of ours."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hesrpt.paper.evaluation import Table
from hesrpt.paper.judging import (
    Claim,
    Finding,
    about,
    at_least,
    close,
    magnitude,
    no_exception,
    states,
    which,
)
from hesrpt.paper.speedups import Fitted
from hesrpt.plots import proper_name

# A competitor is "similar" to another one within this.
_SIMILAR = 0.1


def _about(table: Table, policy: str, p: float, theirs: float) -> Finding:
    ours = table.ratio(p, policy)
    return Finding(
        f"{ours:.3f} times the optimum; the text says {theirs:g}",
        about(ours, theirs), "about", {"ours": ours, "theirs": theirs},
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
    against = sum(ratio < 1 for ratio in ratios)
    return no_exception(
        against, len(ratios), f"ratios of competitors to heSRPT, the lowest {min(ratios):.6f}"
    )


@states("Section 4.2")
def equi_at_low_p(table: Table) -> Finding:
    """EQUI is very close to heSRPT where p is low."""
    ratios = {p: table.ratio(p, "equi") for p in table.powers if p < 0.5}
    return Finding(
        ", ".join(f"{ratio:.4f} times the optimum at p = {p:g}" for p, ratio in ratios.items()),
        close(max(ratios.values())), "close", _by_power(ratios),
    )  # fmt: skip


@states("Section 4.2")
def equi_at_099(table: Table) -> Finding:
    """EQUI is almost a factor of 2 worse than the optimum at p = 0.99."""
    return _about(table, "equi", 0.99, 2.0)


@states("Section 4.2")
def srpt_at_099(table: Table) -> Finding:
    """SRPT is nearly optimal at p = 0.99."""
    ratio = table.ratio(0.99, "srpt")
    return Finding(f"{ratio:.3f} times the optimum", close(ratio), "close", {"ours": ratio})


@states("Section 4.2")
def srpt_at_005(table: Table) -> Finding:
    """SRPT is an order of magnitude worse than heSRPT at p = 0.05."""
    ours = table.ratio(0.05, "srpt")
    return Finding(
        f"{ours:.1f} times the optimum; an order of magnitude is 10", magnitude(ours, 10.0),
        "magnitude", {"ours": ours, "theirs": 10.0},
        "with p = 0.05 a job is hardly faster on all servers than on a few, so that to serve jobs "
        "one after the other is far worse than to serve all at once; the text may mean it loosely",
    )  # fmt: skip


@states("Section 4.2")
def hell_like_srpt(table: Table) -> Finding:
    """HELL performs similarly to SRPT in most cases."""
    ratios = {p: table.ratio(p, "hell") / table.ratio(p, "srpt") for p in table.powers}
    alike = sum(abs(ratio - 1) <= _SIMILAR for ratio in ratios.values())
    return Finding(
        f"within 10% of it at {alike} of {len(ratios)} values of p",
        which(alike > len(ratios) / 2, alike > 0), "which", {"alike": alike} | _by_power(ratios),
    )  # fmt: skip


@states("Section 4.2")
def hell_at_005(table: Table) -> Finding:
    """HELL is only 50% worse than the optimum at p = 0.05."""
    return _about(table, "hell", 0.05, 1.5)


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
        + ", ".join(f"{proper_name(policy)} {ratio:.3g}" for policy, ratio in worst.items()),
        which(wins == len(table.powers), min(worst.values()) == worst["knee"]), "which",
        {"wins": wins} | worst,
        "it holds for the worst case over all p, not for each p: at low p EQUI is better",
    )  # fmt: skip


@states("Section 4.2")
def knee_at_03(table: Table) -> Finding:
    """KNEE is roughly 30% worse than heSRPT at p = 0.3."""
    return _about(table, "knee", 0.3, 1.3)


@states("Section 4.2")
def knee_worst_case(table: Table) -> Finding:
    """The worst case of KNEE is p = 0.3."""
    ratios = {p: table.ratio(p, "knee") for p in table.powers}
    worst = max(ratios, key=lambda p: ratios[p])
    return Finding(
        f"{ratios[worst]:.3f} times the optimum at p = {worst:g}; {ratios[0.3]:.3f} at p = 0.3",
        which(worst == 0.3, False), "which", _by_power(ratios),
        "the two are close: other sets of jobs, or a coarser search for α, may turn them round",
    )  # fmt: skip


@states("Abstract, Figure 4")
def thirty_percent(table: Table) -> Finding:
    """heSRPT beats every competitor by at least 30% in at least one case."""
    worst = _worst(table)
    policy = min(worst, key=lambda policy: worst[policy])
    return Finding(
        f"the competitor with the mildest worst case is {proper_name(policy)}, "
        f"{worst[policy] - 1:.1%} above heSRPT",
        at_least(worst[policy] - 1, 0.3), "at least", {"ours": worst[policy] - 1, "theirs": 0.3},
    )  # fmt: skip


@states("Section 4.3")
def arrivals(ratios: Mapping[tuple[float, float], float]) -> Finding:
    """heSRPT might be a good heuristic for jobs that arrive over time."""
    worst = max(ratios, key=lambda key: ratios[key])
    good = sum(ratio <= 1.05 for ratio in ratios.values())
    return Finding(
        f"its mean flow time is within 5% of the best other policy in {good} of {len(ratios)} "
        f"cases of p and load; at worst {ratios[worst]:.2f} times it, at p = {worst[0]:g} and load "
        f"{worst[1]:g}",
        which(good == len(ratios), good > len(ratios) / 2), "which",
        {f"p={p:g},load={load:g}": ratio for (p, load), ratio in ratios.items()},
        "heSRPT shares as if no job would ever arrive: at high load it spends servers on short "
        "jobs at a low efficiency, and those to come must wait",
    )  # fmt: skip


@states("Section 1, Figure 2")
def power_laws_fit(fits: Sequence[Fitted]) -> Finding:
    """k^p can be fitted to a variety of measured speedups."""
    power = np.array([fit.r_squared[0] for fit in fits])
    good = int(np.sum(power >= 0.9))
    return Finding(
        f"{good} of {len(fits)} measured curves are fitted with R² ≥ 0.9, {int(np.sum(power > 0))} "
        f"with R² > 0; Amdahl's law is better for {sum(f.better == 'Amdahl' for f in fits)}",
        which(good >= 0.9 * len(fits), good >= len(fits) / 2), "which",
        {"good": good, "curves": len(fits)},
        "many measured curves flatten or fall past a peak, which no power law does",
    )  # fmt: skip


#: What is said about Fig. 4, as the paper goes.
SENTENCES: tuple[Callable[[Table], Claim], ...] = (
    best_everywhere, equi_at_low_p, equi_at_099, srpt_at_099, srpt_at_005, hell_like_srpt,
    hell_at_005, knee_best, knee_at_03, knee_worst_case, thirty_percent,
)  # fmt: skip
