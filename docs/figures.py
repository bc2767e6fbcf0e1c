"""Draw the figures in docs/ that are not part of the reproduced paper: python docs/figures.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from hesrpt import PowerLaw, Workload, plan, plotting, simulate
from hesrpt.arrays import FloatArray
from hesrpt.parallel import run_tasks
from hesrpt.plotting import whatif_figures
from hesrpt.plotting.style import (
    PANEL_WIDTH,
    Figure,
    add_legend_below,
    create_panel,
    get_style,
    use_log_scale,
    with_house_style,
    write_beside,
)
from hesrpt.policies import HeSrpt, PolicyLike
from hesrpt.readers import read_jobs
from hesrpt.speedups import Speedup
from hesrpt.traces import read_trace
from hesrpt.whatif import run_fractions, run_sensitivity

HERE = Path(__file__).parent
EXAMPLES = HERE.parent / "examples"
SERVERS, JOBS, BATCHES, P = 1000, 100, 10, 0.9


@dataclass(frozen=True)
class Setting:
    """One point on the horizontal axis: how jobs speed up, and what the simulation assumes."""

    resize_cost: float = 0.0
    size_error: float = 0.0
    powers_spread: float = 0.0  # each job's p lies between P - spread and P + spread / 9
    max_servers: float = float(SERVERS)

    def create_batch(self, seed: int) -> Workload:
        """Return a random batch of jobs."""
        speedup: Speedup | list[Speedup] = PowerLaw(P)
        if self.powers_spread > 0:
            rng = np.random.default_rng(seed)
            low, high = P - self.powers_spread, P + self.powers_spread / 9
            speedup = [PowerLaw(p) for p in rng.uniform(low, high, JOBS)]
        elif self.max_servers < SERVERS:
            speedup = PowerLaw(P).limited(self.max_servers)
        return Workload.pareto(JOBS, seed=seed, speedup=speedup)


def simulate_batches(policy: PolicyLike, setting: Setting) -> FloatArray:
    """Return the mean flow time of each batch."""
    runs = [
        simulate(
            setting.create_batch(seed),
            SERVERS,
            policy,
            resize_cost=setting.resize_cost,
            size_error=setting.size_error,
            seed=seed,
        )
        for seed in range(BATCHES)
    ]
    return np.array([run.mean_flow_time for run in runs])


@with_house_style
def draw_advantages(
    times: Mapping[str, Mapping[float, tuple[FloatArray, FloatArray]]],
    *,
    label: str,
    is_logarithmic: bool = False,
) -> Figure:
    """Draw the ratio of mean flow times under EQUI and under other policies, over some value.

    For each policy and value, ``times`` has the mean flow times of several batches under EQUI and
    under the policy. A line through each dot spans the batches.
    """
    figure, axes = create_panel(PANEL_WIDTH + 0.8, 3.0)
    for policy, by_value in times.items():
        style = get_style(policy)
        ratios = []
        for value, (equi, other) in by_value.items():
            by_batch = equi / other
            axes.vlines(value, by_batch.min(), by_batch.max(), color=style.colour, linewidth=1.2)
            ratios.append(equi.sum() / other.sum())
        axes.plot(list(by_value), ratios, **style.line_options)
    axes.axhline(1.0, color=get_style("equi").colour, linewidth=1, zorder=1)
    write_beside(
        axes,
        get_style("equi").title,
        (1.0, 1.0),
        3,
        xycoords=("axes fraction", "data"),
        annotation_clip=False,
    )
    if is_logarithmic:
        use_log_scale(axes, "x")
    use_log_scale(axes)
    axes.set_xlabel(label)
    axes.set_ylabel("mean flow time of EQUI\nrelative to the policy")
    add_legend_below(figure, axes)
    return figure


def save_advantages(
    name: str,
    label: str,
    values: Sequence[float],
    create_setting: Callable[[float], Setting],
    policies: Mapping[str, PolicyLike],
    is_logarithmic: bool = False,
) -> None:
    """Draw the advantage of policies over EQUI, against the values of one assumption."""
    tasks = {
        (policy, value): partial(simulate_batches, chosen, create_setting(value))
        for policy, chosen in {**policies, "equi": "equi"}.items()
        for value in values
    }
    times = run_tasks(tasks)
    figure = draw_advantages(
        {
            policy: {value: (times["equi", value], times[policy, value]) for value in values}
            for policy in policies
        },
        label=label,
        is_logarithmic=is_logarithmic,
    )
    plotting.save_figure(figure, HERE / f"{name}.png", description=f"docs/figures.py: {name}")


def main() -> None:
    """Draw all figures."""
    three_jobs = plan(read_jobs(EXAMPLES / "three_jobs.csv", PowerLaw(0.5)), 500)
    plotting.save_figure(
        three_jobs.plot(), HERE / "three_jobs.png", description="docs/figures.py: three_jobs"
    )
    sweep = run_sensitivity(read_trace(EXAMPLES / "cluster.swf"))
    plotting.save_figure(
        whatif_figures.draw_sensitivity(sweep),
        HERE / "sensitivity.png",
        description="docs/figures.py: sensitivity",
    )
    plotting.save_figure(
        whatif_figures.draw_fractions(run_fractions(read_trace(EXAMPLES / "cluster.swf"))),
        HERE / "fractions.png",
        description="docs/figures.py: fractions",
    )
    both: dict[str, PolicyLike] = {"hesrpt": "hesrpt", "srpt": "srpt"}
    save_advantages(
        "resize_cost",
        "cost of a resize (s)",
        np.geomspace(1e-4, 1e-1, 10).tolist(),
        lambda value: Setting(resize_cost=value),
        both,
        is_logarithmic=True,
    )
    save_advantages(
        "size_error",
        "standard deviation of the logarithm of size errors",
        np.linspace(0, 3, 10).tolist(),
        lambda value: Setting(size_error=value),
        both,
    )
    save_advantages(
        "own_speedups",
        "spread of p: jobs have p between 0.9 − spread and 0.9 + spread/9",
        np.linspace(0, 0.8, 5).tolist(),
        lambda value: Setting(powers_spread=value),
        {"optimal": "optimal", "hesrpt": HeSrpt(p=P), "srpt": "srpt"},
    )
    save_advantages(
        "limits",
        "maximum number of servers that one job can use (of 1,000)",
        [1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0],
        lambda value: Setting(max_servers=value),
        {"optimal": "optimal", **both},
        is_logarithmic=True,
    )


if __name__ == "__main__":
    main()
