"""Beyond the paper: how far policies are from the best possible if jobs arrive over time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

import numpy as np

from hesrpt.errors import OverloadWarning
from hesrpt.optimal.bounds import lower_bound
from hesrpt.paper.exhibits import Exhibit, Row, Settings
from hesrpt.plotting import paper_figures
from hesrpt.simulator import simulate
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

# SRPT is left out: at p = 0.5 it is overloaded, and all others would look alike next to it.
POLICIES = ("equi", "hesrpt", "adaptive")
LOADS = (0.3, 0.5, 0.7, 0.9)
POWERS = (0.5, 0.9)
SERVERS, STREAMS = 64, 3


def count_jobs(settings: Settings) -> int:
    """Return the number of jobs in a stream: bounds take longer than simulations."""
    return settings.stream // 50


def bound_load(p: float, load: float, jobs: int, seeds: range) -> list[Row]:
    """Return a row for each policy with its mean flow time relative to the bound."""
    streams = [
        Workload.poisson(load * SERVERS, jobs, speedup=PowerLaw(p), seed=seed) for seed in seeds
    ]
    bounds = [lower_bound(stream, SERVERS) for stream in streams]
    rows: list[Row] = []
    for policy in POLICIES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverloadWarning)  # the streams are short
            runs = [simulate(stream, SERVERS, policy) for stream in streams]
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
    worst = {
        policy: max(row["ratio_to_bound"] for row in rows if row["policy"] == policy)
        for policy in POLICIES
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
        parameters={
            "N": SERVERS,
            "whole": False,
            "sizes": "exponential, mean 1",
            "jobs": count_jobs(settings),
            "streams": STREAMS,
            "first_seed": settings.seed,
        },
        note=(
            f"{SERVERS} divisible servers, Poisson arrivals, exponential sizes. A dot is the mean "
            f"over {STREAMS} streams of {count_jobs(settings):,} jobs, and its line spans the "
            "streams. The best possible is at least the bound, so policies are at most this far "
            "from it. Streams are short, and start with an empty system, because bounds of long "
            "ones take long."
        ),
    )
