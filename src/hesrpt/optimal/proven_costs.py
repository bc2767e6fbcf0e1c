"""What a job costs at least if servers have a price, proven with rates alone.

J(C) is the least that a job of size x costs if it ends at C and pays for its servers. For any value
ψ of a unit of its work,

    J(C) ≥ H(ψ, C) = ψ x + ∫ from its arrival to C of (weight − π(ψ, μ(t))) dt,
    π(ψ, μ) = max over 0 ≤ n ≤ N of ψ s(n) − μ n.

H is linear in C where the price is constant, so it is enough to look at the ends of each interval.
Each interval needs only one value ψ for which H is high enough at both ends, and one ψ serves many
intervals. How these values are found does not matter, and profits are bounded from above with rates
alone. Nothing here uses the search for prices or its compiled code.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import fsum

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.parallel import run_tasks
from hesrpt.workload import Workload

#: The relative rounding error of a product or a sum of two numbers.
ROUNDING = 2.3e-16
# The jobs of a task. Tasks run in threads: compiled code releases the interpreter's lock.
_JOBS_AT_A_TIME = 250


def bound_job_costs(
    workload: Workload,
    servers: float,
    whole: bool,
    weights: FloatArray,
    times: FloatArray,
    prices: FloatArray,
    targets: FloatArray,
    report: Callable[[float], None] = lambda part: None,
) -> FloatArray:
    """Return lower bounds on what jobs cost if they pay for servers, ``targets`` at most.

    Prices are constant between ``times``, and 0 before and after. ``report`` is called with the
    part of the jobs that is done.
    """
    from hesrpt.optimal.proof_kernel import prove_costs

    speedups = workload.speedups.tabulate(servers)
    shapes = (speedups.on_whole_servers() if whole else speedups).shapes(servers, True)
    arrivals = workload.arrival_times
    times, prices = np.array(times), np.array(prices)  # compiled code takes no frozen arrays

    def prove(jobs: IntArray) -> FloatArray:
        costs = np.empty(len(jobs))
        prove_costs(
            shapes.records,
            shapes.corners,
            shapes.of_job[jobs],
            workload.sizes[jobs],
            weights[jobs],
            arrivals[jobs],
            servers,
            times,
            prices,
            targets[jobs],
            costs,
        )
        return costs

    parts = np.array_split(np.arange(len(workload)), -(-len(workload) // _JOBS_AT_A_TIME))
    tasks = {number: partial(prove, part) for number, part in enumerate(parts)}
    done = 0

    def count(_: int) -> None:
        nonlocal done
        done += 1
        report(done / len(tasks))

    found = run_tasks(tasks, in_threads=tasks, on_done=count)
    return np.concatenate([found[number] for number in tasks])


def total_bound(costs: FloatArray, servers: float, times: FloatArray, prices: FloatArray) -> float:
    """Return the bound on the cost of all schedules: what jobs cost less the price of servers."""
    paid = servers * fsum(prices * np.diff(times))
    return fsum(costs) * (1 - 4 * ROUNDING) - paid * (1 + 8 * ROUNDING)
