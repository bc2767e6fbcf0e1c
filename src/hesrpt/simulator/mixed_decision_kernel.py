"""The decision on the servers of jobs that differ, compiled: by which rule, and in what order.

Each kind of rule decides as a policy does, up to rounding: see :mod:`hesrpt.policies.rules`.
"""

from __future__ import annotations

from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.kernel_data import Jobs
from hesrpt.simulator.mixed_kernel_data import (
    CLOSED_FORM,
    EQUAL,
    FIRST_COME,
    PRICE,
    SMALLEST_FIRST,
    VALUE,
    Decisions,
)
from hesrpt.simulator.pricing_kernel import share_by_price
from hesrpt.simulator.sharing_kernel import (
    round_fairly,
    serve_in_order,
    share_by_rank,
    share_equally,
)
from hesrpt.simulator.sorting_kernel import sort_by_key
from hesrpt.simulator.valuing_kernel import has_rising_weights, share_by_value
from hesrpt.speedups.shape_kernel import find_rate


@inlined
def decide(jobs: Jobs, decisions: Decisions, count: int) -> None:
    """Decide on the servers of all jobs in the system."""
    mixed, rule, work = decisions.jobs, decisions.rule[0], decisions.work
    kind, servers = rule.kind, rule.servers
    focus = rule.focus
    if rule.is_calibrated:
        calibration = decisions.calibration
        focus = (calibration.state[0].level / calibration.settings[0].levels) ** 2
    if kind == EQUAL:
        share_equally(jobs.present, count, mixed, servers)
    elif kind == FIRST_COME:
        serve_in_order(jobs.present, count, mixed, servers)
    elif kind in (PRICE, VALUE):
        listed = mixed.order
        if kind == PRICE:
            list_by_time(jobs, decisions, count)
        is_priced = kind == PRICE and focus < 1.0
        if not is_priced:
            # As if no more jobs arrived: see hesrpt.policies.Optimal.
            listed = mixed.planned
            list_by_time_alone(jobs, decisions, count)
            is_rising = rule.shares_speedup and has_rising_weights(listed, count, mixed)
            if count <= rule.max_valued or is_rising:
                values = decisions.values
                share_by_value(listed, count, mixed, decisions.deciding, values, rule, is_rising)
            else:
                is_priced, focus = True, 1.0
        if is_priced:
            search, deciding = decisions.search, decisions.deciding
            share_by_price(listed, count, mixed, deciding, search, servers, focus, rule.is_whole)
    else:
        for place in range(count):
            job = jobs.present[place]
            mixed.key[job] = jobs.remaining[job] * jobs.estimate[job] / mixed.weight[job]
        sort_by_key(mixed.order, count, mixed.key, mixed.arrival_rank, work.scratch)
        if kind == SMALLEST_FIRST:
            serve_in_order(mixed.order, count, mixed, servers)
        elif kind == CLOSED_FORM:
            exponent = rule.exponent
            if focus != 1.0:  # see hesrpt.policies.adaptive.effective_exponent
                exponent = focus * exponent / (1.0 - exponent + focus * exponent)
            share_by_rank(mixed.order, count, mixed, servers, exponent, work.sums)
    if rule.is_whole:
        round_fairly(jobs.present, count, mixed, servers, work)


@compiled
def list_by_time(jobs: Jobs, decisions: Decisions, count: int) -> None:
    """List jobs by the time that they take on a share that suits them, over their weight."""
    mixed, shapes, rule = decisions.jobs, decisions.shapes, decisions.rule[0]
    total_gain = 0.0
    for place in range(count):
        total_gain += mixed.gain[jobs.present[place]]
    for place in range(count):
        job = jobs.present[place]
        time = jobs.remaining[job] * jobs.estimate[job]
        if not rule.shares_speedup:
            share = rule.servers * mixed.gain[job] / total_gain
            time /= find_rate(shapes.records[shapes.of_job[job]], shapes.corners, share)
        mixed.key[job] = time / mixed.weight[job]
    sort_by_key(mixed.order, count, mixed.key, mixed.arrival_rank, decisions.work.scratch)


@compiled
def list_by_time_alone(jobs: Jobs, decisions: Decisions, count: int) -> None:
    """List jobs by the time that they take alone on all servers, over their weight."""
    mixed = decisions.jobs
    for place in range(count):
        job = jobs.present[place]
        time_alone = jobs.remaining[job] * jobs.estimate[job] / mixed.fastest[job]
        mixed.key[job] = time_alone / mixed.weight[job]
    sort_by_key(mixed.planned, count, mixed.key, mixed.arrival_rank, decisions.work.scratch)
