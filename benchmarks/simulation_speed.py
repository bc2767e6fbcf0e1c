"""Simulation speed: compared with SimPy and Ciw, in events per second, and how it grows."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Any

import ciw
import numpy as np
import simpy
from rich.console import Console
from rich.table import Table

from benchmarks.ratios import Ratio, at_least
from benchmarks.timing import measure_best_time, measure_time_ratio
from hesrpt import Amdahl, PowerLaw, Workload, simulate
from hesrpt.arrays import FloatArray
from hesrpt.policies import PolicyLike, State, get_malleable_policy
from hesrpt.simulator.ranked_loop import create_ranked_loop
from hesrpt.simulator.simulation import create_run


def simulate_with_hesrpt(workload: Workload) -> float:
    return simulate(workload, 1.0, "equi").mean_flow_time


def simulate_with_simpy(workload: Workload) -> float:
    """Return the mean flow time of processor sharing in SimPy: arrivals interrupt the server."""
    assert workload.arrivals is not None
    sizes, times = workload.sizes.tolist(), workload.arrivals.tolist()
    flow_times = [0.0] * len(sizes)
    environment = simpy.Environment()

    def arrive() -> Iterator[Any]:
        for job, time in enumerate(times):
            yield environment.timeout(time - environment.now)
            server.interrupt(job)

    def serve() -> Iterator[Any]:
        jobs: list[int] = []
        remaining: list[float] = []
        served = 0
        while served < len(sizes):
            start, least = environment.now, min(remaining, default=0.0)
            try:
                yield (
                    environment.timeout(least * len(remaining))
                    if remaining
                    else environment.event()
                )
            except simpy.Interrupt as arrival:
                if remaining:
                    share = (environment.now - start) / len(remaining)
                    remaining = [work - share for work in remaining]
                jobs.append(arrival.cause)
                remaining.append(sizes[arrival.cause])
            else:
                smallest = remaining.index(least)
                remaining = [work - least for work in remaining]
                del remaining[smallest]
                job = jobs.pop(smallest)
                flow_times[job] = environment.now - times[job]
                served += 1

    server = environment.process(serve())
    environment.process(arrive())
    environment.run(until=server)
    return sum(flow_times) / len(flow_times)


def simulate_with_ciw(workload: Workload) -> float:
    """Return the mean flow time at Ciw's processor-sharing node.

    Its ``number_of_servers`` limits how many jobs may share the one server.
    """
    assert workload.arrivals is not None
    gaps = np.diff(workload.arrivals, prepend=0.0).tolist()
    network = ciw.create_network(
        arrival_distributions=[ciw.dists.Sequential([*gaps, float("inf")])],
        service_distributions=[ciw.dists.Sequential(workload.sizes.tolist())],
        number_of_servers=[float("inf")],
    )
    simulation = ciw.Simulation(network, node_class=ciw.PSNode)
    simulation.simulate_until_max_customers(len(workload), method="Finish")
    records = simulation.get_all_records()
    return float(np.mean([record.exit_date - record.arrival_date for record in records]))


def compare_with_simulators(console: Console, jobs: int = 20_000, load: float = 0.9) -> list[Ratio]:
    """Compare equal shares with the same queue and the same jobs in SimPy and in Ciw."""
    workload = Workload.poisson(load, jobs, speedup=Amdahl(1.0))
    simulate_with_hesrpt(workload.head(100))  # compile first
    mean = simulate_with_hesrpt(workload)
    # Runs of milliseconds are noisy, so repeat them for about as long as one SimPy run takes.
    time = measure_best_time(lambda: simulate_with_hesrpt(workload), repeats=50)
    ratios = []
    others = (("SimPy", simulate_with_simpy, 150), ("Ciw", simulate_with_ciw, 450))
    for name, flow, target in others:
        means: list[float] = []
        theirs = measure_best_time(lambda f=flow, m=means: m.append(f(workload)))  # type: ignore[misc]
        difference = abs(means[0] / mean - 1)
        console.print(
            f"equal shares, {jobs:,} jobs, load {load:g}: {theirs / time:,.0f} times faster than "
            f"{name} ({time * 1e3:.1f} ms, {theirs:.2f} s; target {target}), "
            f"mean flow times {difference:.0e} apart (target 1e-6)"
        )
        assert difference < 1e-6, f"{name} found {means[0]}, hesrpt {mean}"
        ratios.append(at_least(f"{name} / equal shares, {jobs:,} jobs", theirs / time, target))
    return ratios


def wait_with_simpy(events: int) -> None:
    """Run events in SimPy that do nothing at all."""
    environment = simpy.Environment()

    def wait() -> Iterator[Any]:
        for _ in range(events):
            yield environment.timeout(1.0)

    environment.process(wait())
    environment.run()


def in_proportion(state: State) -> FloatArray:
    return state.servers * state.remaining / float(state.remaining.sum())


def measure_event_rate(console: Console, servers: float = 64.0) -> list[Ratio]:
    """Show how many events per second compiled policies and a plain function achieve.

    The target of 5 million events a second depends on the machine, so they are also compared with
    SimPy's events that do nothing.
    """
    cases: list[tuple[str, PolicyLike, float, int, int]] = [
        ("hesrpt", "hesrpt", 44.0, 500_000, 5_000_000),
        ("adaptive", "adaptive", 46.5, 500_000, 2_500_000),  # as many jobs in the system
        ("a policy in plain Python", in_proportion, 30.0, 20_000, 50_000),
    ]
    rates, workloads = {}, {}
    for name, policy, rate, jobs, target in cases:
        workload = workloads[name] = Workload.poisson(rate, jobs, speedup=PowerLaw(0.5))
        simulate(workload.head(100), servers, policy)  # compile first
        simulation = simulate(workload, servers, policy)
        seconds = measure_best_time(lambda w=workload, p=policy: simulate(w, servers, p))  # type: ignore[misc]
        console.print(
            f"k^0.5, {servers:g} servers, {jobs:,} jobs, {simulation.mean_jobs:.1f} in the system, "
            f"{name}: {simulation.events / seconds:,.0f} events per second (target {target:,})"
        )
        rates[name] = simulation.events / seconds
    empty = 100_000 / measure_best_time(lambda: wait_with_simpy(100_000))
    console.print(f"SimPy: {empty:,.0f} events per second that do nothing")
    in_loop = measure_time_ratio(
        lambda: _execute_loop(workloads["hesrpt"], servers, "hesrpt"),
        lambda: _execute_loop(workloads["adaptive"], servers, "adaptive"),
    )
    console.print(f"in the compiled loop, adaptive is {in_loop:.2f} times as fast as heSRPT")
    return [
        at_least(
            "heSRPT's events per second / SimPy's that do nothing", rates["hesrpt"] / empty, 3.5
        ),
        at_least("adaptive's events per second / heSRPT's, in the compiled loop", in_loop, 0.5),
    ]


def _execute_loop(workload: Workload, servers: float, policy: str) -> float:
    """Return the processor time of the compiled loop alone."""
    loop = create_ranked_loop(create_run(workload, servers, get_malleable_policy(policy)))
    assert loop is not None
    start = process_time()
    loop.execute()
    return process_time() - start


def measure_growth(console: Console, servers: float = 1000.0) -> None:
    """Show how the time for a batch grows with the number of jobs, compared with a sort."""
    headers = "policy", "jobs", "seconds", "times the row before", "np.argsort: seconds"
    table = Table(*headers, "times the row before", box=None)
    workloads = [Workload.pareto(10**e, speedup=PowerLaw(0.5)) for e in (4, 5, 6)]
    sorts = [measure_best_time(lambda w=w: np.argsort(w.sizes)) for w in workloads]  # type: ignore[misc]
    for policy in ("hesrpt", "adaptive", "equi", "srpt"):
        simulate(workloads[0].head(100), servers, policy)  # compile first
        before: tuple[float, float] | None = None
        for workload, sort in zip(workloads, sorts, strict=True):
            seconds = measure_best_time(lambda w=workload, p=policy: simulate(w, servers, p))  # type: ignore[misc]
            ratios = ("", "") if before is None else (seconds / before[0], sort / before[1])
            our_ratio, sort_ratio = (ratio if ratio == "" else f"{ratio:.1f}" for ratio in ratios)
            cells = (policy, f"{len(workload):,}", f"{seconds:.4f}", our_ratio)
            table.add_row(*cells, f"{sort:.4f}", sort_ratio)
            before = seconds, sort
        table.add_section()
    console.print(table)
