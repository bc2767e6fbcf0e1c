"""Beyond the paper: heSRPT as a rule for jobs that arrive over time, against the others."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite

import numpy as np
from matplotlib.figure import Figure

from hesrpt.errors import OverloadWarning
from hesrpt.paper.exhibits import POLICIES, Exhibit, Row, Settings
from hesrpt.plotting.style import add_legend_below, get_style, use_log_scale
from hesrpt.policies import Knee
from hesrpt.simulator import simulate, tuning
from hesrpt.simulator.simulation import is_overloaded
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

#: The load: work that arrives, as a part of what the servers do with a job each.
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
POWERS = (0.5, 0.9)
SERVERS, STREAMS = 64, 3
#: KNEE's α is the best one for so many jobs, the first of the first stream.
TUNED_ON = 4000


def at_load(p: float, load: float, jobs: int, seeds: range) -> list[Row]:
    """Return the mean flow time of each policy, or that it is overloaded."""
    streams = [
        Workload.poisson(load * SERVERS, jobs, speedup=PowerLaw(p), seed=seed) for seed in seeds
    ]
    knee = tuning.tune_knee(Knee(), streams[0].head(TUNED_ON), SERVERS, whole=True)
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
                "alpha": knee.alpha if policy == "knee" else None,
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
    quick = tuning.create_compiled_trial(replace(knee, alpha=None), stream, SERVERS, whole=True)
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
            axes.plot(*np.array(line).T, **get_style(policy).line_options)
        use_log_scale(axes)
        axes.set_title(f"p = {p:g}", fontsize="medium")
        axes.set_xlabel("load")
    panels[0].set_ylabel("mean flow time, where finite")
    add_legend_below(figure, panels[0])
    ratios = ratio_to_best(rows)
    worst = max(sorted(ratios), key=lambda key: ratios[key])
    high = f"{ratios[worst]:.2f}" if isfinite(ratios[worst]) else "infinite, being overloaded"
    sentence = (
        "With jobs that arrive over time, the mean flow time of heSRPT relative to the best of the "
        f"others is between {min(ratios.values()):.2f} and {high} (p = {worst[0]:g}, load "
        f"{worst[1]:g})."
    )
    parameters: Row = {
        "N": SERVERS, "whole": True, "sizes": "exponential, mean 1", "jobs": settings.stream,
        "streams": STREAMS, "knee_tuned_on": TUNED_ON, "first_seed": settings.seed,
    }  # fmt: skip
    return Exhibit(
        "beyond_arrivals", "Jobs that arrive over time", sentence, figure, rows, parameters,
        note=f"{SERVERS} whole servers, Poisson arrivals, exponential sizes, {STREAMS} streams of "
        f"{settings.stream:,} jobs. The load is the work that arrives per second and server; a "
        "line ends where a policy can no longer keep up. KNEE has the α that is best for the "
        f"first {TUNED_ON:,} jobs.",
    )  # fmt: skip


def ratio_to_best(rows: Sequence[Row]) -> dict[tuple[float, float], float]:
    """Return heSRPT's mean flow time relative to the best other policy, for each p and load.

    It is infinite where heSRPT cannot keep up but others can; where none can there is none.
    """
    times: dict[tuple[float, float], dict[str, float]] = {}
    for row in rows:
        if not row["overloaded"]:
            times.setdefault((row["p"], row["load"]), {})[row["policy"]] = row["mean_flow_time"]
    ratios = {}
    for key, here in times.items():
        own = here.pop("hesrpt", inf)
        if here:
            ratios[key] = own / min(here.values())
    return ratios
