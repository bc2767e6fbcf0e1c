"""The paper's evaluation: three jobs under heSRPT (Fig. 3), and five policies compared (Fig. 4)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal.planner import plan
from hesrpt.paper.exhibits import (
    COMPARED_POLICIES,
    NOT_RANDOM,
    SHAPE,
    Exhibit,
    Row,
    Settings,
)
from hesrpt.plotting import draw_schedule, paper_figures
from hesrpt.plotting.style import format_ratio
from hesrpt.policies import Knee
from hesrpt.policies.registry import get_title
from hesrpt.simulator import simulate
from hesrpt.simulator.simulation import tune_knee
from hesrpt.speedups import PowerLaw
from hesrpt.workload import Workload

#: The three jobs of Fig. 3. The paper does not give their sizes.
THREE_JOBS, THREE_SERVERS, THREE_P = (60.0, 40.0, 20.0), 500, 0.5


def exhibit_three_jobs() -> Exhibit:
    """Return Fig. 3: the remaining sizes of three jobs, and the servers that they hold."""
    names = [f"job {number}" for number in range(1, len(THREE_JOBS) + 1)]
    workload = Workload(THREE_JOBS, PowerLaw(THREE_P), names=names)
    planned = plan(workload, THREE_SERVERS)
    times = np.linspace(0, planned.makespan, 121)
    rows: list[Row] = []
    for time, remaining in zip(
        times.tolist(), planned.timeline.remaining(workload, times), strict=True
    ):
        shares = planned.servers_at(time) / THREE_SERVERS
        rows += [
            {"time": time, "job": name, "size": size, "remaining": work, "share": share}
            for name, size, work, share in zip(
                names, THREE_JOBS, remaining.tolist(), shares.tolist(), strict=True
            )
        ]
    longest, middle, shortest = planned.servers_at(0.0) / THREE_SERVERS
    return Exhibit(
        name="fig3_three_jobs",
        title="Figure 3: three jobs under heSRPT",
        sentence=(
            "The shortest job ends first, but it never holds all servers: while three jobs run, it "
            f"holds {shortest:.0%} of the servers, the next one {middle:.0%} and the longest one "
            f"{longest:.0%}."
        ),
        figure=draw_schedule(planned),
        rows=rows,
        parameters={"M": len(THREE_JOBS), "N": THREE_SERVERS, "p": THREE_P, "seed": NOT_RANDOM},
    )


@dataclass(frozen=True)
class FlowTimeTable:
    """Mean flow times by p, policy and set of jobs."""

    times: Mapping[float, Mapping[str, FloatArray]]  # of each set, by p and policy
    alphas: Mapping[float, FloatArray]  # KNEE's best α for each set, by p
    has_paper_size: bool = True

    def select_first(self, sets: int) -> FlowTimeTable:
        """Return the table of the first ``sets`` sets."""
        return FlowTimeTable(
            times={
                p: {policy: values[:sets] for policy, values in by_policy.items()}
                for p, by_policy in self.times.items()
            },
            alphas={p: alphas[:sets] for p, alphas in self.alphas.items()},
            has_paper_size=self.has_paper_size,
        )

    def median(self, p: float, policy: str) -> float:
        """Return the median over the sets, which the paper reports."""
        return float(np.median(self.times[p][policy]))

    def ratio(self, p: float, policy: str) -> float:
        """Return the ratio of a policy's median to that of heSRPT."""
        return self.median(p, policy) / self.median(p, "hesrpt")

    def ratios_by_set(self, p: float, policy: str) -> FloatArray:
        """Return the ratio of a policy to heSRPT on each set."""
        return self.times[p][policy] / self.times[p]["hesrpt"]

    @property
    def powers(self) -> list[float]:
        """The values of p."""
        return list(self.times)

    @property
    def policies(self) -> list[str]:
        """All policies, heSRPT first."""
        return list(self.times[self.powers[0]])

    @property
    def competitors(self) -> list[str]:
        """All policies but heSRPT."""
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


def simulate_sets(
    p: float, servers: float, whole: bool, jobs: int, seeds: range
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Return each policy's mean flow time on every set of Pareto jobs, and KNEE's best α."""
    batches = [Workload.pareto(jobs, shape=SHAPE, seed=seed, speedup=PowerLaw(p)) for seed in seeds]
    knees = [tune_knee(Knee(), batch, servers, whole=whole) for batch in batches]
    times: dict[str, FloatArray] = {}
    for policy in COMPARED_POLICIES:
        runs = [
            simulate(batch, servers, knee if policy == "knee" else policy, whole=whole)
            for batch, knee in zip(batches, knees, strict=True)
        ]
        times[policy] = np.array([run.mean_flow_time for run in runs])
    return times, np.array([knee.alpha for knee in knees])


_NOTE = (
    "A dot is the median over the sets, as in the paper; its line spans the lowest and the highest "
    "set. HELL allocates whole servers: for p < 1/2 its efficiency ratio has no maximum over "
    "fractions of a server. HELL and KNEE give servers to each job once and leave the rest idle: "
    "this variant comes closest to the paper's numbers. KNEE uses the best of more than "
    "100 values of α for each set."
)


def exhibit_comparison(table: FlowTimeTable, settings: Settings) -> Exhibit:
    """Return Fig. 4: the mean flow times of five policies for each p."""
    ratios = [
        (table.ratio(p, policy), policy, p) for p in table.powers for policy in table.competitors
    ]
    worst_ratio, worst_policy, worst_p = max(ratios)
    wins = sum(ratio >= 1 - 1e-9 for ratio, _, _ in ratios)
    cases = "every case" if wins == len(ratios) else f"{wins} of {len(ratios)} cases"
    return Exhibit(
        name="fig4_comparison",
        title="Figure 4: five policies compared",
        sentence=(
            f"heSRPT has the lowest mean flow time in {cases}. The worst case is "
            f"{get_title(worst_policy)} at p = {worst_p:g}, with "
            f"{format_ratio(worst_ratio)} times the mean flow time of heSRPT."
        ),
        figure=paper_figures.draw_mean_flow_times(table),
        rows=table.rows(settings.get_seeds()),
        parameters=get_parameters(settings),
        note=f"The number beside each dot is the ratio to heSRPT. {_NOTE}",
    )


def exhibit_ratios(table: FlowTimeTable, settings: Settings) -> Exhibit:
    """Return the comparison of Fig. 4 as ratios to heSRPT over p."""
    closest = [
        min((table.ratio(p, policy), policy) for policy in table.competitors) for p in table.powers
    ]
    best = ", ".join(
        f"{get_title(policy)} at p = {p:g} ({abs(ratio - 1):.1%} above heSRPT)"
        for p, (ratio, policy) in zip(table.powers, closest, strict=True)
    )
    return Exhibit(
        name="fig4_ratios",
        title="Figure 4 as ratios to the optimum",
        sentence=f"The best competitor is {best}.",
        figure=paper_figures.draw_ratios(table),
        rows=table.rows(settings.get_seeds()),
        parameters=get_parameters(settings),
        note=_NOTE,
    )


def get_parameters(settings: Settings) -> Row:
    """Return the parameters of a comparison."""
    return {
        "M": settings.jobs,
        "N": int(settings.servers),
        "sizes": f"Pareto({SHAPE})",
        "sets": settings.sets,
        "first_seed": settings.seed,
    }
