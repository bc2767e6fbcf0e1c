"""Run the benchmarks: all of them, or those named on the command line."""

from __future__ import annotations

import sys

from rich.console import Console

from benchmarks import cluster, live, orders, simulation, speed, traces

BENCHMARKS = {
    "sort": speed.against_sort,
    "solver": speed.against_convex_solver,
    "growth": speed.growth,
    "orders": orders.unproven_plans,
    "queues": simulation.against_simulators,
    "events": simulation.events,
    "batches": simulation.batches,
    "throughput": live.throughput,
    "decisions": live.decisions,
    "ray": cluster.throughput,
    "sharing": cluster.sharing,
    "replays": traces.replays,
    "reading": traces.reading,
}


def main() -> None:
    names = sys.argv[1:] or list(BENCHMARKS)
    unknown = [name for name in names if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"no benchmark named {unknown[0]!r}; there are: {', '.join(BENCHMARKS)}")
    console = Console(highlight=False, soft_wrap=True)
    for name in names:
        console.rule(name)
        BENCHMARKS[name](console)


if __name__ == "__main__":
    main()
