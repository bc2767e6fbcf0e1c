"""Draw the figures of the real world in docs/: python docs/figures.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from hesrpt import PowerLaw, Workload, plotting, simulate
from hesrpt.policies import HeSrpt, PolicyLike
from hesrpt.speedups import Speedup

HERE = Path(__file__).parent
SERVERS, JOBS, BATCHES, P = 1000, 100, 10, 0.9
HESRPT = HeSrpt(p=P)
Speedups = Callable[[np.random.Generator], list[Speedup] | Speedup]


def advantage(
    policy: PolicyLike,
    speedup: Speedups = lambda rng: PowerLaw(P),
    resize_cost: float = 0.0,
    size_error: float = 0.0,
) -> float:
    """Return how many times as long jobs take under EQUI, on average over batches."""
    times = {"equi": 0.0, "other": 0.0}
    for seed in range(BATCHES):
        rng = np.random.default_rng(seed)
        batch = Workload.pareto(JOBS, seed=seed, speedup=speedup(rng))
        for name, tried in (("equi", "equi"), ("other", policy)):
            run = simulate(
                batch, SERVERS, tried, resize_cost=resize_cost, size_error=size_error, seed=seed
            )
            times[name] += run.mean_flow_time
    return times["equi"] / times["other"]


def draw(
    name: str, label: str, values: np.ndarray, curves: dict[str, Callable[[float], float]],
    logarithmic: bool = False,
) -> None:  # fmt: skip
    """Draw the advantage of policies over EQUI against a value, and save it."""
    figure = Figure(figsize=(5.6, 3.4), layout="constrained")
    axes = figure.subplots()
    for policy, curve in curves.items():
        ratios = [curve(float(value)) for value in values]
        print(name, policy, [f"{v:.3g}: {r:.2f}" for v, r in zip(values, ratios, strict=True)])
        axes.plot(values, ratios, marker="o", markersize=3, label=policy)
    axes.axhline(1.0, color="grey", linewidth=0.8)
    axes.annotate("EQUI", (values[-1], 1.0), ha="right", va="bottom", color="grey")
    axes.set_ylim(0, 2)  # SRPT, which hardly ever resizes a job, may be far above
    axes.set_xlabel(label)
    axes.set_ylabel("mean flow time of EQUI / of the policy")
    if logarithmic:
        axes.set_xscale("log")
    axes.legend()
    plotting.save_figure(figure, HERE / f"{name}.png", description=f"docs/figures.py: {name}")


def own_powers(spread: float) -> Speedups:
    """Return a speedup for each job, most of them less steep than the usual one."""
    return lambda rng: [PowerLaw(p) for p in rng.uniform(P - spread, P + spread / 9, JOBS)]


def main() -> None:
    """Draw all figures."""
    best = simulate(Workload.pareto(JOBS, seed=0, speedup=PowerLaw(P)), SERVERS, "hesrpt")
    print(f"mean flow time of the first batch: {best.mean_flow_time:.4g}")
    draw(
        "resize_cost",
        "seconds that a job stands still at each change",
        np.geomspace(1e-4, 1e-1, 10),
        {"hesrpt": lambda cost: advantage("hesrpt", resize_cost=cost),
         "srpt": lambda cost: advantage("srpt", resize_cost=cost)},
        logarithmic=True,
    )  # fmt: skip
    draw(
        "size_error",
        "standard deviation of the logarithm of the sizes seen",
        np.linspace(0, 3, 10),
        {"hesrpt": lambda error: advantage("hesrpt", size_error=error),
         "srpt": lambda error: advantage("srpt", size_error=error)},
    )  # fmt: skip
    draw(
        "own_speedups",
        "powers of the jobs spread below 0.9 by up to",
        np.linspace(0, 0.8, 5),
        {"optimal": lambda spread: advantage("optimal", own_powers(spread)),
         "hesrpt, told p = 0.9": lambda spread: advantage(HESRPT, own_powers(spread)),
         "srpt": lambda spread: advantage("srpt", own_powers(spread))},
    )  # fmt: skip
    draw(
        "limits",
        "the most servers that one job can use, of 1,000",
        np.array([1, 3, 10, 30, 100, 300, 1000.0]),
        {"optimal": lambda most: advantage("optimal", lambda rng: PowerLaw(P).limited(most)),
         "hesrpt": lambda most: advantage("hesrpt", lambda rng: PowerLaw(P).limited(most)),
         "srpt": lambda most: advantage("srpt", lambda rng: PowerLaw(P).limited(most))},
        logarithmic=True,
    )  # fmt: skip


if __name__ == "__main__":
    main()
