"""Sharing servers among the jobs in the system, compiled: the rules of simple policies.

Each function decides as the policy of its rule does (:mod:`hesrpt.policies`), up to rounding.
"""

from __future__ import annotations

from math import exp, expm1, floor, log, log1p

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled
from hesrpt.simulator.mixed_kernel_data import MixedJobs, Workspace
from hesrpt.simulator.sorting_kernel import sort_by_key


@compiled
def share_equally(listed: IntArray, count: int, mixed: MixedJobs, servers: float) -> None:
    """Give all jobs of the list the same, and what some cannot use to the others."""
    equal = servers / count
    is_over = False
    for place in range(count):
        job = listed[place]
        mixed.held[job] = equal
        is_over |= equal > mixed.usable[job]
    if is_over:
        redistribute_excess(listed, count, mixed)


@compiled
def serve_in_order(listed: IntArray, count: int, mixed: MixedJobs, servers: float) -> None:
    """Give each job of the list all the servers it can use, until there are none left."""
    used = 0.0
    for place in range(count):
        job = listed[place]
        mixed.held[job] = min(max(servers - used, 0.0), mixed.usable[job])
        used += mixed.usable[job]


@compiled
def share_by_rank(
    listed: IntArray,
    count: int,
    mixed: MixedJobs,
    servers: float,
    exponent: float,
    sums: FloatArray,
) -> None:
    """Give jobs, listed from the first to end to the last, heSRPT's shares.

    These are (W_i/W_m)^c − (W_{i−1}/W_m)^c, where W_i is the weight of the last i jobs to end: see
    :func:`hesrpt.optimal.closed_form_batch.compute_shares`.
    """
    c = 1.0 / (1.0 - exponent)
    total = 0.0
    for place in range(count - 1, -1, -1):
        total += mixed.weight[listed[place]]
        sums[place] = total
    is_over = False
    for place in range(count):
        job = listed[place]
        weight, up_to = mixed.weight[job], sums[place]
        own = 1.0
        if place < count - 1:
            part = weight / up_to
            log_ratio = log1p(-part) if part <= 0.5 else log(sums[place + 1] / up_to)
            own = -expm1(c * log_ratio)
        log_part = log1p((up_to - total) / total) if up_to > total / 2 else log(up_to / total)
        mixed.held[job] = servers * (exp(c * log_part) * own)
        is_over |= mixed.held[job] > mixed.usable[job]
    if is_over:
        redistribute_excess(listed, count, mixed)


@compiled
def redistribute_excess(listed: IntArray, count: int, mixed: MixedJobs) -> None:
    """Give servers that some jobs cannot use to the others, in proportion to what those hold.

    See :func:`hesrpt.policies.sharing.redistribute_excess`.
    """
    held, usable = mixed.held, mixed.usable
    while True:
        excess = growing = 0.0
        is_over = False
        for place in range(count):
            job = listed[place]
            if held[job] > usable[job]:
                is_over = True
                excess += held[job] - usable[job]
                held[job] = usable[job]
            elif held[job] < usable[job]:
                growing += held[job]
        if not is_over:
            return
        if growing <= 0.0:
            for place in range(count):
                job = listed[place]
                room = usable[job] - held[job]
                held[job] += min(max(excess, 0.0), room)
                excess -= room
            return
        for place in range(count):
            job = listed[place]
            if held[job] < usable[job]:
                held[job] += excess * held[job] / growing


@compiled
def round_fairly(
    listed: IntArray, count: int, mixed: MixedJobs, servers: float, work: Workspace
) -> None:
    """Round all shares down, then give one server more to the jobs that lost the most.

    See :func:`hesrpt.policies.sharing.round_fairly`.
    """
    total = rounded = 0.0
    for place in range(count):
        job = listed[place]
        held = mixed.held[job]
        whole = floor(held + 1e-9)
        total += held
        rounded += whole
        work.keys[job] = -np.rint((held - whole) * 1e9)
        mixed.held[job] = whole
    missing = int(min(floor(total + 1e-9), servers) - rounded)
    if missing > 0:
        for place in range(count):
            work.entries[place] = listed[place]
        sort_by_key(work.entries, count, work.keys, mixed.arrival_rank, work.scratch)
        for place in range(min(missing, count)):
            mixed.held[work.entries[place]] += 1.0
