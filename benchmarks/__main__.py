"""Run all benchmarks, or those named on the command line.

In the end, all ratios are printed beside their targets and beside the last ones, which
benchmarks/figures.txt keeps.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from rich.console import Console

from benchmarks import (
    arrivals,
    bound_quality,
    cluster_overhead,
    cold_start,
    delivery,
    item_throughput,
    job_queues,
    mixed_simulation,
    plan_quality,
    planning_time,
    scheduler_overhead,
    service_overhead,
    simulation_speed,
    streaming,
    trace_replay,
)
from benchmarks.plain_dask import start_dask
from benchmarks.plain_ray import start_ray
from benchmarks.ratios import (
    FIGURES,
    Figures,
    Ratio,
    choose_better,
    describe_machine,
    find_worse,
    list_versions,
    print_figures,
    read_figures,
    update_figures,
)

# A benchmark prints what it finds, and returns its ratios if it has any.
Benchmark = Callable[[Console], Sequence[Ratio] | None]

BENCHMARKS: dict[str, Benchmark] = {
    "sort": planning_time.compare_with_sort,
    "solver": planning_time.compare_with_convex_solver,
    "growth": planning_time.measure_growth,
    "verification": planning_time.compare_verification_with_planning,
    "differing": planning_time.measure_jobs_that_differ,
    "orders": plan_quality.compare_with_best_schedules,
    "bounds": bound_quality.measure_ratios,
    "bound-times": bound_quality.measure_times,
    "queues": simulation_speed.compare_with_simulators,
    "events": simulation_speed.measure_event_rate,
    "mixed": mixed_simulation.measure_mixed_events,
    "batches": simulation_speed.measure_growth,
    "compilation": cold_start.measure_cold_starts,
    "arrivals": arrivals.measure_arrivals,
    "throughput": item_throughput.measure_throughput,
    "large-values": item_throughput.measure_large_values,
    "memory": item_throughput.measure_memory,
    "streaming": streaming.measure_streaming,
    "decisions": scheduler_overhead.measure_decisions,
    "starts": scheduler_overhead.measure_starts,
    "delivery": delivery.compare_with_predictions,
    "run-replays": delivery.compare_replays,
    "ray": partial(cluster_overhead.measure_throughput, start=start_ray),
    "sharing": partial(cluster_overhead.compare_flow_times, start=start_ray),
    "service": service_overhead.measure_overhead,
    "service-load": service_overhead.measure_load,
    "job-queues": job_queues.compare_queues,
    "dask": partial(cluster_overhead.measure_throughput, start=start_dask),
    "dask-sharing": partial(cluster_overhead.compare_flow_times, start=start_dask),
    "replays": trace_replay.measure_replays,
    "reading": trace_replay.measure_reading,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    last = parser.add_mutually_exclusive_group()
    last.add_argument(
        "--check", action="store_true", help="fail if a ratio is more than 20%% worse than last"
    )
    last.add_argument(
        "--update", action="store_true", help="keep these ratios, and put them in the documentation"
    )
    of_arrivals = parser.add_argument_group("options of arrivals")
    of_arrivals.add_argument("--full", action="store_true", help="the whole grid: takes hours")
    of_arrivals.add_argument("--cells", type=int, help="only so many cells, chosen at random")
    of_arrivals.add_argument("--traces", type=Path, help="also replay the traces in a directory")
    of_arrivals.add_argument("--servers", type=int, help="only cells with this many servers")
    of_arrivals.add_argument("--jobs", type=int, default=10_000, help="jobs of each stream")
    of_arrivals.add_argument("--streams", type=int, default=2, help="streams of each cell")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"no benchmark named {unknown[0]!r}; choose from: {', '.join(BENCHMARKS)}")
    benchmarks: dict[str, Benchmark] = BENCHMARKS | {
        "arrivals": partial(
            arrivals.measure_arrivals,
            full=options.full,
            number=options.cells,
            traces=options.traces,
            servers=options.servers,
            jobs=options.jobs,
            streams=options.streams,
        )
    }
    console = Console(highlight=False, soft_wrap=True)
    before = read_figures(FIGURES.read_text())
    machine, versions = describe_machine(), list_versions()
    ratios: dict[str, tuple[Ratio, ...]] = {}
    for name in options.names or BENCHMARKS:
        console.rule(name)
        began = time.perf_counter()
        ratios[name] = _measure(console, benchmarks[name], before.ratios.get(name, ()))
        console.print(f"(took {time.perf_counter() - began:.0f} s)")
    figures = Figures(machine, versions, ratios)
    console.rule("ratios")
    print_figures(console, figures, before)
    if options.update:
        update_figures(figures, BENCHMARKS)
    if options.check and figures.find_worse(before):
        sys.exit(1)


def _measure(console: Console, run: Benchmark, before: Sequence[Ratio]) -> tuple[Ratio, ...]:
    """Run a benchmark; if a ratio looks worse than before, twice, and keep the better ratios."""
    ratios = tuple(run(console) or ())
    if not find_worse(ratios, before):
        return ratios
    console.print("Some ratios are worse than last time: measuring them again.")
    again = tuple(run(console) or ())
    return tuple(choose_better(*pair) for pair in zip(ratios, again, strict=True))


if __name__ == "__main__":
    main()
