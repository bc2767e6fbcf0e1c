"""Run all benchmarks, or those named on the command line."""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks import (
    arrivals,
    bound_quality,
    plan_quality,
    planning_time,
    ray_overhead,
    scheduler_overhead,
    simulation_speed,
    streaming,
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
    "arrivals": arrivals.measure_arrivals,
    "throughput": scheduler_overhead.measure_throughput,
    "streaming": streaming.measure_streaming,
    "decisions": scheduler_overhead.measure_decisions,
    "ray": ray_overhead.measure_throughput,
    "sharing": ray_overhead.compare_flow_times,
    "replays": trace_replay.measure_replays,
    "reading": trace_replay.measure_reading,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    of_arrivals = parser.add_argument_group("options of arrivals")
    of_arrivals.add_argument("--full", action="store_true", help="the whole grid: takes hours")
    of_arrivals.add_argument("--traces", type=Path, help="also replay the traces in a directory")
    of_arrivals.add_argument("--servers", type=int, help="only cells with this many servers")
    of_arrivals.add_argument("--jobs", type=int, default=10_000, help="jobs of each stream")
    of_arrivals.add_argument("--streams", type=int, default=2, help="streams of each cell")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark named {unknown[0]!r}; choose from: {', '.join(BENCHMARKS)}")
    console = Console(highlight=False, soft_wrap=True)
    for name in options.names or BENCHMARKS:
        console.rule(name)
        run = BENCHMARKS[name]
        if name == "arrivals":
            run = partial(
                arrivals.measure_arrivals,
                full=options.full,
                traces=options.traces,
                servers=options.servers,
                jobs=options.jobs,
                streams=options.streams,
            )
        run(console)


if __name__ == "__main__":
    main()
