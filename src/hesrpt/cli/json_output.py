"""Plans, simulations and comparisons as JSON values."""

from __future__ import annotations

from typing import Any

from hesrpt._version import __version__
from hesrpt.optimal.planner import Plan
from hesrpt.simulator import Comparison, Simulation
from hesrpt.simulator.intervals import Difference

# A plan's phases are left out if they would hold more numbers than this.
_MAX_NUMBERS = 2_000_000


def plan_as_json(plan: Plan, verified_gap: float | None = None) -> dict[str, Any]:
    """Return a plan as JSON values, with the jobs in the order of the input."""
    certificate, workload = plan.certificate, plan.workload
    result: dict[str, Any] = {
        "hesrpt": __version__,
        "objective": plan.objective,
        "servers": plan.servers,
        "whole": plan.whole,
        "mean_flow_time": plan.mean_flow_time,
        "total_flow_time": plan.total_flow_time,
        "weighted_flow_time": plan.weighted_flow_time,
        "mean_slowdown": plan.mean_slowdown,
        "makespan": plan.makespan,
        "certificate": {
            "proven": certificate.proven,
            "reason": certificate.reason,
            "lower_bound": certificate.lower_bound,
            "gap": certificate.gap,
            "certified_gap": certificate.certified_gap,
            "verified_gap": verified_gap,
        },
        "jobs": [
            {
                "name": name,
                "size": size,
                "completion_time": end,
                "flow_time": flow_time,
                "slowdown": slowdown,
                "value": value,
            }
            for name, size, end, flow_time, slowdown, value in zip(
                workload.names,
                workload.sizes.tolist(),
                plan.completion_times.tolist(),
                plan.flow_times.tolist(),
                plan.slowdowns.tolist(),
                certificate.job_values.tolist(),
                strict=True,
            )
        ],
        "phases": None,
    }
    if len(workload) * len(plan.timeline.ends) <= _MAX_NUMBERS:
        result["phases"] = [
            {"start": phase.start, "end": phase.end, "servers": phase.servers.tolist()}
            for phase in plan.phases()
        ]
    return result


def simulation_as_json(simulation: Simulation) -> dict[str, Any]:
    """Return a simulation as JSON values, without its allocations."""
    return {
        "hesrpt": __version__,
        "policy": simulation.policy,
        "servers": simulation.servers,
        "whole": simulation.whole,
        "events": simulation.events,
        "overloaded": simulation.is_overloaded,
        "metrics": simulation.metrics(),
        "jobs": simulation.rows(),
    }


def comparison_as_json(comparison: Comparison) -> dict[str, Any]:
    """Return the metrics of all policies as JSON values."""
    first = comparison[next(iter(comparison))]
    return {
        "hesrpt": __version__,
        "servers": first.servers,
        "whole": first.whole,
        "jobs": len(first.workload),
        "replications": comparison.replications,
        "confidence": comparison.confidence,
        "best": comparison.best,
        "lower_bound": comparison.lower_bound,
        "policies": comparison.rows(),
        "differences": [_difference_as_json(each) for each in comparison.differences()],
    }


def _difference_as_json(difference: Difference) -> dict[str, Any]:
    """Return a difference as JSON values; without an interval, the half widths are null."""
    has_interval = difference.replications > 1
    return {
        "policy": difference.policy,
        "other": difference.other,
        "mean": difference.mean,
        "half_width": difference.half_width if has_interval else None,
        "percentage": difference.percentage,
        "percentage_half_width": difference.percentage_half_width if has_interval else None,
        "clear": difference.is_clear if has_interval else None,
    }
