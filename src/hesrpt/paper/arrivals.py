"""Beyond the paper: heSRPT as a rule for jobs that arrive over time, against the others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from matplotlib.figure import Figure

from hesrpt import plots
from hesrpt.errors import OverloadWarning
from hesrpt.paper.base import POLICIES, Exhibit, Row, Settings
from hesrpt.policies import Knee
from hesrpt.simulator import simulate, tuning
from hesrpt.simulator.simulation import is_overloaded
from hesrpt.speedup import PowerLaw
from hesrpt.workload import Workload

#: The load: work that arrives, as a part of what the servers do with a job each.
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
POWERS = (0.5, 0.9)
SERVERS, STREAMS = 64, 3
#: Jobs in a stream for each in a set of the comparison.
LONGER = 20
# KNEE's α is the best one for so many jobs.
_TUNED_ON = 500


def at_load(p: float, load: float, jobs: int, seeds: range) -> list[Row]:
    """Return the mean flow time of each policy, or that it is overloaded."""
    streams = [
        Workload.poisson(load * SERVERS, jobs, speedup=PowerLaw(p), seed=seed) for seed in seeds
    ]
    knee = Knee.tuned(streams[0].head(_TUNED_ON), SERVERS, whole=True)
    rows: list[Row] = []
    for policy in POLICIES:
        means, overloaded = [], False
        for stream in streams:
            mean, too_much = _knee(knee, stream) if policy == "knee" else _simulated(policy, stream)
            means.append(mean)
            overloaded |= too_much
        rows.append(
            {
                "p": p,
                "load": load,
                "policy": policy,
                "overloaded": overloaded,
                "mean_flow_time": None if overloaded else float(np.mean(means)),
                "lowest_of_streams": None if overloaded else min(means),
                "highest_of_streams": None if overloaded else max(means),
            }
        )
    return rows


def _simulated(policy: str, stream: Workload) -> tuple[float, bool]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverloadWarning)  # shown as a line that ends
        run = simulate(stream, SERVERS, policy, whole=True)
    return run.mean_flow_time, run.overloaded


def _knee(knee: Knee, stream: Workload) -> tuple[float, bool]:
    """Return the same for KNEE, compiled."""
    quick = tuning.compiled(replace(knee, alpha=None), stream, SERVERS, whole=True)
    assert quick is not None
    assert knee.alpha is not None
    assert stream.arrivals is not None
    ends = quick(knee.alpha, np.inf)
    return float((ends - stream.arrivals).mean()), is_overloaded(stream, SERVERS, ends)


def exhibit(rows: list[Row], settings: Settings) -> Exhibit:
    """Return the mean flow times over the load."""
    figure = Figure(figsize=(10, 4), layout="constrained")
    panels = figure.subplots(1, len(POWERS))
    for axes, p in zip(panels, POWERS, strict=True):
        for policy in POLICIES:
            line = [
                (row["load"], row["mean_flow_time"])
                for row in rows
                if row["p"] == p and row["policy"] == policy and not row["overloaded"]
            ]
            axes.plot(*np.array(line).T, **plots.line_style(policy))
        plots.plain_logarithmic(axes)
        axes.set_title(f"p = {p:g}", fontsize="medium")
        axes.set_xlabel("load")
    panels[0].set_ylabel("mean flow time, where finite")
    plots.legend_below(figure, panels[0])
    ratios = ratio_to_best(rows)
    worst = max(ratios, key=lambda key: ratios[key])
    sentence = (
        "With jobs that arrive over time heSRPT is no longer optimal: relative to the best of the "
        f"others its mean flow time is between {min(ratios.values()):.2f} and {ratios[worst]:.2f} "
        f"(p = {worst[0]:g}, load {worst[1]:g})."
    )
    parameters: Row = {
        "N": SERVERS, "whole": True, "sizes": "exponential, mean 1", "jobs": LONGER * settings.jobs,
        "streams": STREAMS, "first_seed": settings.seed,
    }  # fmt: skip
    return Exhibit(
        "beyond_arrivals", "Jobs that arrive over time", sentence, figure, rows, parameters
    )


def ratio_to_best(rows: Sequence[Row]) -> dict[tuple[float, float], float]:
    """Return heSRPT's mean flow time relative to the best other policy, for each p and load."""
    times: dict[tuple[float, float], dict[str, float]] = {}
    for row in rows:
        if not row["overloaded"]:
            times.setdefault((row["p"], row["load"]), {})[row["policy"]] = row["mean_flow_time"]
    return {
        key: here.pop("hesrpt", float("inf")) / min(here.values()) for key, here in times.items()
    }
