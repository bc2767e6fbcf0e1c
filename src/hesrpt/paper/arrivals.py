"""Beyond the paper: policies compared on jobs that arrive over time."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from math import inf, isfinite

import numpy as np

from hesrpt.errors import OverloadWarning
from hesrpt.paper.exhibits import COMPARED_POLICIES, Exhibit, Row, Settings
from hesrpt.plotting import paper_figures
from hesrpt.policies import Knee
from hesrpt.simulator import simulate, tuning
from hesrpt.simulator.overload import detect_overload
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

#: The paper's policies, and one for arrivals.
POLICIES = (*COMPARED_POLICIES, "adaptive")
#: Work that arrives per server and unit of time.
LOADS = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95)
#: The values of p.
POWERS = (0.5, 0.9)
SERVERS, STREAMS = 64, 3
#: KNEE's α is the best one for this many jobs at the start of the first stream.
TUNED_ON = 4000


def simulate_load(p: float, load: float, jobs: int, seeds: range) -> list[Row]:
    """Return a row for each policy with its mean flow time, or None if it is overloaded."""
    streams = [
        Workload.poisson(load * SERVERS, jobs, speedup=PowerLaw(p), seed=seed) for seed in seeds
    ]
    knee = tuning.tune_knee(Knee(), streams[0].head(TUNED_ON), SERVERS, whole=True)
    rows: list[Row] = []
    for policy in POLICIES:
        results = [
            _simulate_knee(knee, stream) if policy == "knee" else _simulate(policy, stream)
            for stream in streams
        ]
        means = [mean for mean, _ in results]
        overloaded = any(is_late for _, is_late in results)
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


def _simulate(policy: str, stream: Workload) -> tuple[float, bool]:
    """Return the mean flow time, and whether the policy is overloaded."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", OverloadWarning)  # the rows report overload
        run = simulate(stream, SERVERS, policy, whole=True)
    return run.mean_flow_time, run.is_overloaded


def _simulate_knee(knee: Knee, stream: Workload) -> tuple[float, bool]:
    """Return the same for KNEE, simulated by the compiled loop that also tunes it."""
    run_compiled = tuning.create_compiled_trial(
        replace(knee, alpha=None), stream, SERVERS, whole=True
    )
    assert knee.alpha is not None
    assert stream.arrivals is not None
    ends = run_compiled(knee.alpha, np.inf)
    return float((ends - stream.arrivals).mean()), detect_overload(stream, SERVERS, ends)


def exhibit_arrivals(rows: list[Row], settings: Settings) -> Exhibit:
    """Return the mean flow times of all policies over the load."""
    ratios, adaptive = compare_with_best(rows), compare_with_best(rows, "adaptive")
    worst = max(sorted(ratios), key=lambda key: ratios[key])
    highest = f"{ratios[worst]:.2f}" if isfinite(ratios[worst]) else "infinity (overload)"
    return Exhibit(
        name="beyond_arrivals",
        title="Jobs that arrive over time",
        sentence=(
            "If jobs arrive over time, the ratio of heSRPT's mean flow time to that of the best "
            f"other policy ranges from {min(ratios.values()):.2f} to {highest} (at "
            f"p = {worst[0]:g}, load {worst[1]:g}), and that of adaptive, which is made for "
            f"arrivals, from {min(adaptive.values()):.2f} to {max(adaptive.values()):.2f}."
        ),
        figure=paper_figures.draw_flow_times_by_load(rows),
        rows=rows,
        parameters={
            "N": SERVERS,
            "whole": True,
            "sizes": "exponential, mean 1",
            "jobs": settings.stream,
            "streams": STREAMS,
            "knee_tuned_on": TUNED_ON,
            "first_seed": settings.seed,
        },
        note=(
            f"{SERVERS} whole servers, Poisson arrivals, exponential sizes. A dot is the mean over "
            f"{STREAMS} streams of {settings.stream:,} jobs, and its line spans the streams. The "
            "load is the work that arrives per server and unit of time. A policy's line ends where "
            f"the policy is overloaded. KNEE uses the best α for the first {TUNED_ON:,} jobs."
        ),
    )


def compare_with_best(
    rows: Sequence[Row], policy: str = "hesrpt"
) -> dict[tuple[float, float], float]:
    """Return a policy's mean flow time relative to the best other policy, by p and load.

    The ratio is infinite if only this policy is overloaded. Cases in which all others are
    overloaded are left out.
    """
    times: dict[tuple[float, float], dict[str, float]] = {}
    for row in rows:
        if not row["overloaded"]:
            times.setdefault((row["p"], row["load"]), {})[row["policy"]] = row["mean_flow_time"]
    ratios = {}
    for key, here in times.items():
        own = here.pop(policy, inf)
        if here:
            ratios[key] = own / min(here.values())
    return ratios
