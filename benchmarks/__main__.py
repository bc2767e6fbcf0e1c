"""Run all benchmarks, or those named on the command line."""

from __future__ import annotations

import sys

from rich.console import Console

from benchmarks import (
    bound_quality,
    plan_quality,
    planning_time,
    ray_overhead,
    scheduler_overhead,
    simulation_speed,
    trace_replay,
)

BENCHMARKS = {
    "sort": planning_time.compare_with_sort,
    "solver": planning_time.compare_with_convex_solver,
    "growth": planning_time.measure_growth,
    "orders": plan_quality.compare_with_best_schedules,
    "bounds": bound_quality.measure_ratios,
    "bound-times": bound_quality.measure_times,
    "queues": simulation_speed.compare_with_simulators,
    "events": simulation_speed.measure_event_rate,
    "batches": simulation_speed.measure_growth,
    "throughput": scheduler_overhead.measure_throughput,
    "decisions": scheduler_overhead.measure_decisions,
    "ray": ray_overhead.measure_throughput,
    "sharing": ray_overhead.compare_flow_times,
    "replays": trace_replay.measure_replays,
    "reading": trace_replay.measure_reading,
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark named {unknown[0]!r}; choose from: {', '.join(BENCHMARKS)}")
    console = Console(highlight=False, soft_wrap=True)
    for name in names:
        console.rule(name)
        BENCHMARKS[name](console)


if __name__ == "__main__":
    main()
