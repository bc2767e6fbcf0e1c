"""The paper's evaluation: three jobs under heSRPT (Fig. 3), and five policies compared (Fig. 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from hesrpt import plotting
from hesrpt.arrays import FloatArray
from hesrpt.optimal.planner import plan
from hesrpt.paper.exhibits import NOT_RANDOM, POLICIES, SHAPE, Exhibit, Row, Settings
from hesrpt.plotting.style import get_style, use_log_scale
from hesrpt.policies import Knee
from hesrpt.simulator import simulate
from hesrpt.simulator.tuning import tune_knee
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

#: Fig. 3: three jobs, whose sizes the paper does not say.
THREE_JOBS, THREE_SERVERS, THREE_P = (60.0, 40.0, 20.0), 500, 0.5


def three_jobs() -> Exhibit:
    """Return Fig. 3: the remaining sizes of three jobs, over their allocations."""
    workload = Workload(
        THREE_JOBS, PowerLaw(THREE_P), names=[f"job {i}" for i in range(1, len(THREE_JOBS) + 1)]
    )
    planned = plan(workload, THREE_SERVERS)
    moments = np.linspace(0, planned.makespan, 121)
    rows: list[Row] = []
    for moment, left in zip(
        moments.tolist(), planned.timeline.remaining(workload, moments), strict=True
    ):
        held = planned.servers_at(moment)
        rows += [
            {"time": moment, "job": name, "size": size, "remaining": rest, "share": share}
            for name, size, rest, share in zip(
                workload.names,
                workload.sizes.tolist(),
                left.tolist(),
                (held / THREE_SERVERS).tolist(),
                strict=True,
            )
        ]
    first = planned.servers_at(0.0) / THREE_SERVERS
    sentence = (
        "The shortest job ends first, but it never has all servers: while three jobs are left it "
        f"holds {first[2]:.0%}, the next {first[1]:.0%} and the longest {first[0]:.0%}."
    )
    figure = plotting.draw_schedule(planned)
    parameters: Row = {"M": len(THREE_JOBS), "N": THREE_SERVERS, "p": THREE_P, "seed": NOT_RANDOM}
    return Exhibit(
        "fig3_three_jobs", "Figure 3: three jobs under heSRPT", sentence, figure, rows, parameters
    )


@dataclass(frozen=True)
class Table:
    """Mean flow times of several policies (second key) for several p (first key), by set."""

    times: Mapping[float, Mapping[str, FloatArray]]
    alphas: Mapping[float, FloatArray]  # of KNEE, the best for each set
    as_in_paper: bool = True

    def first(self, sets: int) -> Table:
        """Return the table of the first few sets."""
        return Table(
            {
                p: {policy: values[:sets] for policy, values in here.items()}
                for p, here in self.times.items()
            },
            {p: alphas[:sets] for p, alphas in self.alphas.items()},
            self.as_in_paper,
        )

    def median(self, p: float, policy: str) -> float:
        """Return the median over the sets, as the paper does."""
        return float(np.median(self.times[p][policy]))

    def ratio(self, p: float, policy: str) -> float:
        """Return the ratio of the medians of a policy and of heSRPT."""
        return self.median(p, policy) / self.median(p, "hesrpt")

    @property
    def powers(self) -> list[float]:
        return list(self.times)

    @property
    def policies(self) -> list[str]:
        return list(self.times[self.powers[0]])

    @property
    def competitors(self) -> list[str]:
        return [policy for policy in self.policies if policy != "hesrpt"]

    def rows(self, seeds: Sequence[int]) -> list[Row]:
        """Return a row for each p, policy and set of jobs."""
        return [
            {
                "p": p,
                "policy": policy,
                "seed": seed,
                "mean_flow_time": time,
                "median_of_sets": self.median(p, policy),
                "ratio_to_hesrpt": self.ratio(p, policy),
                "alpha": alpha if policy == "knee" else None,
            }
            for p in self.powers
            for policy in self.policies
            for seed, time, alpha in zip(
                seeds, self.times[p][policy].tolist(), self.alphas[p].tolist(), strict=True
            )
        ]


def mean_flow_times(
    p: float, servers: float, whole: bool, jobs: int, seeds: range
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Run each policy on sets of jobs with Pareto sizes; return also KNEE's best α for each."""
    batches = [Workload.pareto(jobs, shape=SHAPE, seed=seed, speedup=PowerLaw(p)) for seed in seeds]
    knees = [tune_knee(Knee(), batch, servers, whole=whole) for batch in batches]
    times: dict[str, FloatArray] = {}
    for policy in POLICIES:
        runs = [
            simulate(batch, servers, knee if policy == "knee" else policy, whole=whole)
            for batch, knee in zip(batches, knees, strict=True)
        ]
        times[policy] = np.array([run.mean_flow_time for run in runs])
    return times, np.array([knee.alpha for knee in knees])


_NOTE = (
    "Medians over the sets, as in the paper. HELL hands out whole servers, since its ratio has no "
    "greatest value for p < 1/2 if servers can be divided; HELL and KNEE serve each job once and "
    "leave idle what is then left over, which comes closest to the paper's numbers. KNEE's α is "
    "the best of over 100 for each set."
)


def comparison(table: Table, settings: Settings) -> Exhibit:
    """Return Fig. 4: a panel for each p."""
    figure = Figure(figsize=(11, 3.4), layout="constrained")
    names = [plotting.get_title(policy) for policy in table.policies]
    colours = [style.colour for style in plotting.get_styles(table.policies).values()]
    panels = figure.subplots(1, len(table.powers))
    for axes, p in zip(panels, table.powers, strict=True):
        medians = [table.median(p, policy) for policy in table.policies]
        axes.bar(names, medians, color=colours)
        use_log_scale(axes)
        axes.set_ylim(min(medians) / 2, max(medians) * 2)
        for place, (policy, median) in enumerate(zip(table.policies, medians, strict=True)):
            axes.annotate(
                _short(table.ratio(p, policy)), (place, median), ha="center", va="bottom",
                fontsize="x-small",
            )  # fmt: skip
        axes.set_title(f"p = {p:g}", fontsize="medium")
        axes.tick_params(axis="x", labelrotation=90)
    panels[0].set_ylabel("mean flow time (median of sets)")
    figure.supxlabel("above each bar: how many times that of heSRPT", fontsize="small")
    ratios = [
        (table.ratio(p, policy), policy, p) for p in table.powers for policy in table.competitors
    ]
    worst = max(ratios)
    best = sum(ratio >= 1 - 1e-9 for ratio, _, _ in ratios)
    cases = "every case" if best == len(ratios) else f"{best} of {len(ratios)} cases"
    sentence = (
        f"heSRPT has the lowest mean flow time in {cases}; the worst is "
        f"{plotting.get_title(worst[1])} at p = {worst[2]:g}, {_short(worst[0])} times as high."
    )
    return Exhibit(
        "fig4_comparison", "Figure 4: five policies compared", sentence, figure,
        table.rows(settings.seeds()), parameters_of(settings), note=_NOTE,
    )  # fmt: skip


def ratios(table: Table, settings: Settings) -> Exhibit:
    """Return the same, as ratios to heSRPT over p."""
    figure = Figure(figsize=(6.4, 4), layout="constrained")
    axes = figure.subplots()
    draw_ratios(axes, table)
    axes.set_ylabel("mean flow time relative to heSRPT")
    axes.legend(fontsize="small", ncols=2)
    sentence = "The closest to heSRPT is " + ", ".join(
        f"{plotting.get_title(policy)} at p = {p:g} ({abs(ratio - 1):.1%} above)"
        for p in table.powers
        for ratio, policy in [min((table.ratio(p, other), other) for other in table.competitors)]
    )
    return Exhibit(
        "fig4_ratios", "Figure 4 as ratios: how far from the optimum", sentence + ".", figure,
        table.rows(settings.seeds()), parameters_of(settings), note=_NOTE,
    )  # fmt: skip


def draw_ratios(axes: Axes, table: Table) -> None:
    """Draw the ratio of each policy to heSRPT, over p."""
    places = range(len(table.powers))
    for policy in table.policies:
        values = [table.ratio(p, policy) for p in table.powers]
        axes.plot(places, values, **get_style(policy).line_options)
    axes.set_xticks(places, [f"{p:g}" for p in table.powers])
    axes.set_xlabel("p")
    use_log_scale(axes)


def parameters_of(settings: Settings, **others: object) -> Row:
    """Return what a comparison was run with."""
    return {
        "M": settings.jobs, "N": int(settings.servers), "sizes": f"Pareto({SHAPE})",
        "sets": settings.sets, "first_seed": settings.seed, **others,
    }  # fmt: skip


def _short(ratio: float) -> str:
    return f"{ratio:.0f}" if ratio >= 9.95 else f"{ratio:.2f}" if ratio >= 1.095 else f"{ratio:.3f}"
