"""Beyond the paper: whole servers, few servers, and other speedups than k^p."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from matplotlib.figure import Figure

from hesrpt.optimal.planner import plan
from hesrpt.paper.evaluation import Table, draw_ratios, parameters_of
from hesrpt.paper.exhibits import SHAPE, Exhibit, Row, Settings
from hesrpt.paper.speedup_curves import Fitted
from hesrpt.plotting.style import add_legend_below, get_style, use_log_scale
from hesrpt.policies import HeSrpt, PolicyLike
from hesrpt.simulator import simulate
from hesrpt.speedups import Amdahl, Speedup, fit_power_law
from hesrpt.workload import Workload

#: Sets of jobs in these figures.
SETS = 3
# The p of a curve that does not grow with the servers.
_NO_GROWTH = 1e-3
# So many curves are shown by name, more as a distribution.
_NAMED = 12


def few_servers(settings: Settings) -> int:
    """Return a number of servers far below that of the jobs."""
    return max(settings.jobs // 8, 1)


def whole_servers(divisible: Table, whole: Table, few: Table, settings: Settings) -> Exhibit:
    """Return the comparison of Fig. 4 with whole servers, and with fewer servers than jobs."""
    systems = (
        (settings.servers, False, divisible),
        (settings.servers, True, whole),
        (few_servers(settings), True, few),
    )
    figure = Figure(figsize=(11, 3.8), layout="constrained")
    panels = figure.subplots(1, len(systems), sharey=True)
    rows: list[Row] = []
    for axes, (servers, is_whole, table) in zip(panels, systems, strict=True):
        draw_ratios(axes, table)
        kind = "whole servers" if is_whole else "servers, any fraction"
        axes.set_title(f"{settings.jobs} jobs on {servers:,} {kind}", fontsize="medium")
        rows += [
            {"N": servers, "whole": is_whole} | row for row in table.rows(settings.seeds(SETS))
        ]
    panels[0].set_ylabel("mean flow time relative to heSRPT")
    add_legend_below(figure, panels[0])
    change = max(
        abs(whole.ratio(p, policy) / divisible.ratio(p, policy) - 1)
        for p in whole.powers
        for policy in whole.competitors
    )
    equi = [few.ratio(p, "equi") for p in few.powers]
    sentence = (
        f"On {settings.servers:,} servers, to hand them out whole changes a ratio by at most "
        f"{change:.1%}; on {few_servers(settings)}, jobs take {min(equi):.2f} to {max(equi):.2f} "
        "times as long under EQUI as under heSRPT."
    )
    parameters = parameters_of(settings) | {"sets": len(settings.seeds(SETS))}
    del parameters["N"]
    return Exhibit(
        "beyond_whole_servers", "Whole servers, and few of them", sentence, figure, rows,
        parameters,
        note=f"The first {len(settings.seeds(SETS))} sets of Figure 4 in all three panels. With "
        "whole servers heSRPT hands them out as the planner does, which is optimal.",
    )  # fmt: skip


def _told(speedup: Speedup, p: float, servers: float, jobs: int, seeds: range) -> dict[str, float]:
    """Return mean flow times relative to the optimum for the true curve, averaged over sets."""
    policies: dict[str, PolicyLike] = {"hesrpt": HeSrpt(p=p), "equi": "equi", "srpt": "srpt"}
    times = dict.fromkeys(policies, 0.0)
    best = 0.0
    for seed in seeds:
        batch = Workload.pareto(jobs, shape=SHAPE, seed=seed, speedup=speedup)
        best += plan(batch, servers).mean_flow_time
        for name, policy in policies.items():
            times[name] += simulate(batch, servers, policy).mean_flow_time
    return {name: time / best for name, time in times.items()}


_TOLD = {"hesrpt": "heSRPT, told a fitted p", "equi": "EQUI", "srpt": "SRPT"}


def amdahl(settings: Settings) -> Exhibit:
    """Return what heSRPT with a fitted p loses where jobs in truth follow Amdahl's law."""
    fractions = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995, 0.999)
    servers, jobs = 1000.0, 100
    at = np.geomspace(1, servers, 11)
    rows: list[Row] = []
    for fraction in fractions:
        speedup = Amdahl(fraction)
        p = fit_power_law(at, speedup.rate(at)).p
        told = _told(speedup, p, servers, jobs, settings.seeds(SETS))
        rows += [
            {"parallel_fraction": fraction, "fitted_p": p, "policy": name, "ratio_to_optimum": r}
            for name, r in told.items()
        ]
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    for name, label in _TOLD.items():
        line = [row["ratio_to_optimum"] for row in rows if row["policy"] == name]
        axes.plot(
            [1 - f for f in fractions], line, **get_style(name).line_options | {"label": label}
        )
    axes.axhline(1.0, color="black", linewidth=0.8, label="optimum for the true curve")
    use_log_scale(axes, "x")
    use_log_scale(axes)
    axes.invert_xaxis()
    axes.set_xticks([1 - f for f in fractions], [f"{f:g}" for f in fractions], fontsize="small")
    axes.set_xlabel("parallel fraction f of Amdahl's law")
    axes.set_ylabel("mean flow time relative to the optimum")
    axes.legend(fontsize="small")
    ratio = {(row["parallel_fraction"], row["policy"]): row["ratio_to_optimum"] for row in rows}
    losses = [ratio[f, "hesrpt"] - 1 for f in fractions]
    equal = [f for f in fractions if ratio[f, "equi"] < ratio[f, "hesrpt"]]
    sentence = (
        "Where jobs follow Amdahl's law, heSRPT with the power law closest to it takes "
        f"{min(losses):.1%} to {max(losses):.1%} longer than the optimum, which knows the law"
        + (f"; up to f = {max(equal):g} EQUI is better than that." if equal else ".")
    )
    return Exhibit(
        "beyond_amdahl", "Amdahl's law", sentence, figure, rows,
        _parameters(jobs, servers, settings),
        note=f"{jobs} jobs on {servers:g} servers, {len(settings.seeds(SETS))} sets. The power law "
        f"is fitted to Amdahl's law on 1 to {servers:g} servers.",
    )  # fmt: skip


def measured(fits: Sequence[Fitted], settings: Settings) -> Exhibit:
    """Return what heSRPT with a fitted p loses where jobs in truth follow a measured curve."""
    servers, jobs = 64.0, 20
    rows: list[Row] = []
    for fit in fits:
        p = _NO_GROWTH if fit.power_law is None else fit.power_law.p
        told = _told(fit.curve.concave, p, servers, jobs, settings.seeds(SETS))
        rows += [
            {"curve": fit.curve.application, "fitted_p": p, "policy": name, "ratio_to_optimum": r}
            for name, r in told.items()
        ]
    losses = [row["ratio_to_optimum"] - 1 for row in rows if row["policy"] == "hesrpt"]
    sentence = (
        f"On {len(fits)} measured curves, heSRPT with a fitted p takes {np.median(losses):.1%} "
        f"longer than the optimum, which knows the curve, in the median and {max(losses):.1%} at "
        "most."
    )
    figure = _by_name(rows) if len(fits) <= _NAMED else _as_distribution(rows)
    return Exhibit(
        "beyond_measured", "Measured speedups", sentence, figure, rows,
        _parameters(jobs, servers, settings),
        note=f"{jobs} jobs on {servers:g} servers, {len(settings.seeds(SETS))} sets. The curve is "
        "the least concave one above the measured points, flat past the last of them.",
    )  # fmt: skip


def _by_name(rows: list[Row]) -> Figure:
    """Draw a line for each curve and policy."""
    figure = Figure(figsize=(7.2, 4), layout="constrained")
    axes = figure.subplots()
    for place, (name, label) in enumerate(_TOLD.items()):
        ratios = [row["ratio_to_optimum"] for row in rows if row["policy"] == name]
        style = get_style(name).line_options | {"label": label, "linestyle": "none"}
        height = np.arange(len(ratios)) + 0.25 * (place - 1)
        axes.hlines(height, 1.0, ratios, color=style["color"])
        axes.plot(ratios, height, **style)
        for y, ratio in zip(height, ratios, strict=True):
            axes.annotate(f"  {ratio:.2f}", (ratio, y), va="center", fontsize="x-small")
    labels = [row["curve"] or "measured" for row in rows if row["policy"] == "hesrpt"]
    axes.set_yticks(range(len(labels)), labels)
    axes.margins(x=0.1)
    axes.invert_yaxis()
    axes.set_xlabel("mean flow time relative to the optimum for the measured curve")
    add_legend_below(figure, axes)
    return figure


def _as_distribution(rows: list[Row]) -> Figure:
    """Draw for which part of the curves a policy is how good."""
    figure = Figure(figsize=(7.2, 4), layout="constrained")
    axes = figure.subplots()
    for name, label in _TOLD.items():
        ratios = np.sort([row["ratio_to_optimum"] for row in rows if row["policy"] == name])
        part = np.arange(1, len(ratios) + 1) / len(ratios)
        axes.plot(ratios, part, **get_style(name).line_options | {"label": label, "marker": None})
    axes.set_xlabel("mean flow time relative to the optimum for the measured curve")
    axes.set_ylabel("part of the curves")
    add_legend_below(figure, axes)
    return figure


def _parameters(jobs: int, servers: float, settings: Settings) -> Row:
    return parameters_of(settings) | {
        "M": jobs, "N": int(servers), "sets": len(settings.seeds(SETS)),
    }  # fmt: skip
