"""Beyond the paper: how far policies are from the best possible if jobs arrive over time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence

from hesrpt.errors import OverloadWarning
from hesrpt.optimal.bounds import lower_bound
from hesrpt.paper.exhibits import Exhibit, Row, Settings
from hesrpt.plotting import paper_figures
from hesrpt.simulator import simulate
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

POLICIES = ("equi", "hesrpt", "srpt", "adaptive")
LOADS = (0.3, 0.5, 0.7, 0.9)
POWERS = (0.5, 0.9)
SERVERS = 64


def count_jobs(settings: Settings) -> int:
    """Return the number of jobs in a stream: bounds take longer than simulations."""
    return settings.stream // 50


def bound_load(p: float, load: float, jobs: int, seed: int) -> list[Row]:
    """Return a row for each policy with its mean flow time relative to the bound."""
    stream = Workload.poisson(load * SERVERS, jobs, speedup=PowerLaw(p), seed=seed)
    bound = lower_bound(stream, SERVERS)
    rows: list[Row] = []
    for policy in POLICIES:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", OverloadWarning)  # the stream is short
            run = simulate(stream, SERVERS, policy)
        rows.append(
            {
                "p": p,
                "load": load,
                "policy": policy,
                "mean_flow_time": run.mean_flow_time,
                "lower_bound": bound.mean,
                "ratio_to_bound": 1 + bound.gap(run),
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
            f"{worst['equi'] - 1:.0%} under EQUI, {worst['hesrpt'] - 1:.0%} under heSRPT and "
            f"{worst['srpt'] - 1:.0%} under SRPT."
        ),
        figure=paper_figures.draw_ratios_to_bound(rows),
        rows=list(rows),
        parameters={
            "N": SERVERS,
            "whole": False,
            "sizes": "exponential, mean 1",
            "jobs": count_jobs(settings),
            "first_seed": settings.seed,
        },
        note=(
            f"{SERVERS} divisible servers, Poisson arrivals, exponential sizes, one stream of "
            f"{count_jobs(settings):,} jobs for each p and load. The best possible is at least the "
            "bound, so policies are at most this far from it. Streams are short, and start with an "
            "empty system, because bounds of long ones take long."
        ),
    )
