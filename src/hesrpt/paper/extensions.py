"""Beyond the paper: whole servers, few servers, and speedups that are not power laws."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import FitWarning
from hesrpt.optimal.planner import plan
from hesrpt.paper.evaluation import FlowTimeTable, get_parameters
from hesrpt.paper.exhibits import SHAPE, Exhibit, Row, Settings
from hesrpt.paper.speedup_curves import FittedCurve
from hesrpt.plotting import paper_figures
from hesrpt.policies import HeSrpt, PolicyLike
from hesrpt.simulator import simulate
from hesrpt.speedups import Amdahl, Speedup, fit_power_law
from hesrpt.workload import Workload

#: The number of sets of jobs in these figures.
SETS = 3
# The p that heSRPT uses for a curve that does not grow with the servers.
_NO_GROWTH = 1e-3
# More curves than this are drawn as a distribution, without their names.
_MAX_NAMED_CURVES = 12
_TITLES = {"hesrpt": "heSRPT with a fitted p", "equi": "EQUI", "srpt": "SRPT"}


def choose_few_servers(settings: Settings) -> int:
    """Return a number of servers far below the number of jobs."""
    return max(settings.jobs // 8, 1)


def exhibit_whole_servers(
    divisible: FlowTimeTable, whole: FlowTimeTable, few: FlowTimeTable, settings: Settings
) -> Exhibit:
    """Return the comparison of Fig. 4 with whole servers, and with fewer servers than jobs."""
    few_servers, sets = choose_few_servers(settings), settings.get_seeds(SETS)
    rows: list[Row] = [
        {"N": servers, "whole": is_whole} | row
        for servers, is_whole, table in (
            (settings.servers, False, divisible),
            (settings.servers, True, whole),
            (few_servers, True, few),
        )
        for row in table.rows(sets)
    ]
    change = max(
        abs(whole.ratio(p, policy) / divisible.ratio(p, policy) - 1)
        for p in whole.powers
        for policy in whole.competitors
    )
    equi = [few.ratio(p, "equi") for p in few.powers]
    parameters = get_parameters(settings) | {"sets": len(sets)}
    del parameters["N"]
    return Exhibit(
        name="beyond_whole_servers",
        title="Whole servers, and fewer servers than jobs",
        sentence=(
            f"On {settings.servers:,} servers, allocating whole servers changes a ratio by at most "
            f"{change:.1%}. On {few_servers} servers, jobs take {min(equi):.2f} to {max(equi):.2f} "
            "times as long under EQUI as under heSRPT."
        ),
        figure=paper_figures.draw_ratio_panels(
            {
                f"{settings.servers:,} divisible servers": divisible,
                f"{settings.servers:,} whole servers": whole,
                f"{few_servers} whole servers": few,
            }
        ),
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
        rows += [
            {"parallel_fraction": fraction, "fitted_p": p} | row
            for row in _compare_with_optimum(speedup, p, servers, jobs, sets)
        ]
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
        rows += [
            {"curve": fit.curve.application, "fitted_p": p} | row
            for row in _compare_with_optimum(fit.curve.concave, p, servers, jobs, sets)
        ]
    losses = [row["ratio_to_optimum"] - 1 for row in rows if row["policy"] == "hesrpt"]
    if len(fits) <= _MAX_NAMED_CURVES:
        figure = paper_figures.draw_losses_on_curves(rows, _TITLES)
    else:
        figure = paper_figures.draw_loss_distribution(rows, _TITLES)
    return Exhibit(
        name="beyond_measured",
        title="Measured speedups",
        sentence=(
            f"On {len(fits)} measured curves, the mean flow time of heSRPT with a fitted p is at "
            f"most {max(losses):.1%} above the optimum; the median is {np.median(losses):.1%}."
        ),
        figure=figure,
        rows=rows,
        parameters=_get_parameters(jobs, servers, settings),
        note=(
            f"{jobs} jobs on {servers:g} servers, {len(sets)} sets; lines through the dots span "
            "the sets. Jobs follow the lowest concave curve through or above the measured points, "
            "which is flat past the last point. The optimum is the plan for that curve."
        ),
    )


def _compare_with_optimum(
    speedup: Speedup, p: float, servers: float, jobs: int, seeds: range
) -> list[Row]:
    """Return each policy's mean flow time relative to the optimum; heSRPT assumes ``p``."""
    policies: dict[str, PolicyLike] = {"hesrpt": HeSrpt(p=p), "equi": "equi", "srpt": "srpt"}
    batches = [Workload.pareto(jobs, shape=SHAPE, seed=seed, speedup=speedup) for seed in seeds]
    best: FloatArray = np.array([plan(batch, servers).mean_flow_time for batch in batches])
    rows: list[Row] = []
    for name, policy in policies.items():
        times = np.array([simulate(batch, servers, policy).mean_flow_time for batch in batches])
        rows.append(
            {
                "policy": name,
                "ratio_to_optimum": float(times.sum() / best.sum()),
                "lowest_of_sets": float((times / best).min()),
                "highest_of_sets": float((times / best).max()),
            }
        )
    return rows


def _get_parameters(jobs: int, servers: float, settings: Settings) -> Row:
    sets = len(settings.get_seeds(SETS))
    return get_parameters(settings) | {"M": jobs, "N": int(servers), "sets": sets}
