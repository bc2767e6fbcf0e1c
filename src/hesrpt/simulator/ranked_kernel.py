"""The event loop for policies whose rates are products, compiled.

With m jobs in the system, the i-th largest runs at the rate base[i] / pace[m]. EQUI and heSRPT are
such policies. When the smallest job leaves, only the pace of a virtual clock changes. When a job
arrives, the work that larger jobs have done since the last arrival is subtracted, but nothing is
divided, and the jobs lie side by side in memory, so that the processor handles several at a time.
If all jobs have the same base, even that is left out: a job ends when virtual time reaches its
target.

If the policy is calibrated, the loop also keeps the sums of
:class:`hesrpt.policies.calibration.Calibration`. Without one, ``calibration`` is None, and numba
compiles a loop of its own, from which all of that is left out.
"""

from __future__ import annotations

from math import exp, inf, log

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.calibration_kernel import (
    MIN_DENOMINATOR,
    choose_level,
    find_patience,
    update_focus,
)
from hesrpt.simulator.calibration_kernel_data import CalibrationData
from hesrpt.simulator.ranked_kernel_data import Queue, RankedState, RateTable, Stream

# Why the loop has returned.
DONE, NEEDS_RATES, PAUSED, STOPPED = range(4)

# Loops over so many numbers, or a multiple, leave none to be handled one by one.
_AT_A_TIME = 16

# Virtual time starts again now and then, so that rounding errors do not accumulate.
EVENTS_UNTIL_RESET = 1000


@compiled
def run_ranked(
    stream: Stream,
    queue: Queue,
    table: RateTable,
    state_array: list[RankedState],
    calibration: CalibrationData | None,
) -> int:
    """Run until there is a reason to return to the caller, and return that reason."""
    state = state_array[0]
    arrivals, sizes, work, number = stream.arrivals, stream.sizes, queue.work, queue.number
    present, arrived, events, allocations = (
        state.present,
        state.arrived,
        state.events,
        state.allocations,
    )
    now, virtual_time, job_seconds = state.now, state.virtual_time, state.job_seconds
    busy_seconds, uniform, stop_at = state.busy_seconds, state.uniform, state.stop_at
    total = arrivals.size
    last_event = events + state.max_events
    next_reset = events + max(EVENTS_UNTIL_RESET, 4 * present)
    level = 0
    log_jobs = log_jobs_squared = 0.0  # ln m and ln² m, integrated over virtual time
    if calibration is not None:
        sums, settings = calibration.state[0], calibration.settings[0]
        log_rank = calibration.log_rank
        decay = exp(-1.0 / settings.memory)
        patience = find_patience(arrived, sums, settings)
        level = sums.level
        log_jobs, log_jobs_squared = sums.log_jobs, sums.log_jobs_squared
    base, inverse, pace, speed = (
        table.base[level],
        table.inverse[level],
        table.pace[level],
        table.speed[level],
    )
    fewest, most, idle = table.fewest[level], table.most[level], table.idle[level]
    arrives = arrivals[arrived] if arrived < total else inf
    while True:
        departs = inf
        if present > 0:
            if present < fewest or present > most:
                reason = NEEDS_RATES
                break
            target = work[present - 1] * inverse[present]
            departs = max(now + (target - virtual_time) * pace[present], now)
        elif arrived == total:
            reason = DONE
            break
        if min(departs, arrives) > stop_at:
            reason = STOPPED
            break
        if events >= last_event:
            reason = PAUSED
            break
        allocations += max(present - idle, 0)
        if departs <= arrives:
            # --- the smallest job leaves --------------------------------------------------------
            if calibration is not None:
                passed, rank = target - virtual_time, log_rank[present]
                log_jobs += passed * rank
                log_jobs_squared += passed * rank * rank
            job_seconds += present * (departs - now)
            busy_seconds += departs - now
            now, virtual_time = departs, target
            present -= 1
            stream.completion[number[present]] = now
            events += 1
            new_level = level
            if calibration is not None:
                place, rank = present, log_rank[present + 1]
                spread, lean, height = _sum_up(
                    rank, base[place + 1], target, log_jobs, log_jobs_squared, sums.usual
                )
                lean += queue.lean[place]
                height = lean * (rank - sums.usual) - queue.height[place] - height
                weight = stream.weights[number[place]]
                keep = decay if sums.denominator > MIN_DENOMINATOR else 1.0
                sums.numerator = keep * sums.numerator + weight * height
                sums.denominator = keep * sums.denominator + weight * (queue.spread[place] + spread)
                sums.ended_since += 1
                if sums.ended_since > patience:
                    choose_level(arrived, sums, settings)
                    new_level = sums.level
            if new_level == level and present >= fewest:
                continue
        else:
            # --- jobs arrive --------------------------------------------------------------------
            job_seconds += present * (arrives - now)
            if present > 0:
                busy_seconds += arrives - now
                passed = (arrives - now) * speed[present]
                virtual_time += passed
                if calibration is not None:
                    rank = log_rank[present]
                    log_jobs += passed * rank
                    log_jobs_squared += passed * rank * rank
            now = arrives
        # --- subtract the work that has been done -----------------------------------------------
        if present == 0:
            virtual_time = log_jobs = log_jobs_squared = 0.0
        elif not uniform or departs <= arrives or events >= next_reset:
            if calibration is not None:
                _observe_work(
                    queue,
                    base,
                    calibration,
                    idle,
                    present,
                    virtual_time,
                    log_jobs,
                    log_jobs_squared,
                )
                log_jobs = log_jobs_squared = 0.0
            left, rates = work[idle:present], base[idle + 1 : present + 1]
            for place in range(left.size):
                left[place] = max(left[place] - virtual_time * rates[place], 0.0)
            virtual_time = 0.0
            next_reset = events + max(EVENTS_UNTIL_RESET, 4 * present)
        if departs > arrives:
            first = arrived
            if calibration is not None:
                end = arrived
                while end < total and arrivals[end] == now:
                    end += 1
                later = present + end - arrived
                log_later = log_rank[later] if later < log_rank.size else log(float(later))
                update_focus(present, end - arrived, end, log_later, sums, settings)
                patience = find_patience(end, sums, settings)
                new_level = sums.level
            while arrives == now:
                size = sizes[arrived] + virtual_time
                # Of equal jobs, those that arrived before end first; those that arrive together
                # are in the right order.
                limit = size if arrived == first else np.nextafter(size, 0.0)
                place = present
                while place > 0 and work[place - 1] <= limit:
                    work[place] = work[place - 1]
                    number[place] = number[place - 1]
                    place -= 1
                work[place] = size
                number[place] = arrived
                if calibration is not None:
                    _insert_zero(queue.spread[place : present + 1])
                    _insert_zero(queue.lean[place : present + 1])
                    _insert_zero(queue.height[place : present + 1])
                present += 1
                events += 1
                arrived += 1
                arrives = arrivals[arrived] if arrived < total else inf
        if calibration is not None and new_level != level:
            level = new_level
            base, inverse, pace, speed = (
                table.base[level],
                table.inverse[level],
                table.pace[level],
                table.speed[level],
            )
            fewest, most, idle = table.fewest[level], table.most[level], table.idle[level]
    if calibration is not None:
        sums.log_jobs, sums.log_jobs_squared = log_jobs, log_jobs_squared
    state.present, state.arrived, state.events, state.allocations = (
        present,
        arrived,
        events,
        allocations,
    )
    state.now, state.virtual_time = now, virtual_time
    state.job_seconds, state.busy_seconds = job_seconds, busy_seconds
    return reason


@inlined
def _insert_zero(array: FloatArray) -> None:
    """Move all but the last element by one place, and set the first to 0."""
    # Unsigned indices are faster, because numba knows that they are not negative.
    last, one = np.uint64(array.size - 1), np.uint64(1)
    for place in range(last):
        array[last - place] = array[last - place - one]
    array[0] = 0.0


@inlined
def _observe_work(
    queue: Queue,
    base: FloatArray,
    calibration: CalibrationData,
    start: int,
    stop: int,
    virtual_time: float,
    log_jobs: float,
    log_jobs_squared: float,
) -> None:
    """Add the work done to the sums of the jobs from one place to another."""
    usual = calibration.state[0].usual
    # The processor handles so many at a time. What is added behind the last job does no harm: it is
    # overwritten when a job takes that place.
    stop = start + (stop - start + _AT_A_TIME - 1) // _AT_A_TIME * _AT_A_TIME
    stop = min(stop, base.size - 1, queue.spread.size)
    # Loops over slices are faster, because numba knows that no index is negative.
    spreads, leans = queue.spread[start:stop], queue.lean[start:stop]
    heights = queue.height[start:stop]
    rates, ranks = base[start + 1 : stop + 1], calibration.log_rank[start + 1 : stop + 1]
    for place in range(rates.size):
        spread, lean, height = _sum_up(
            ranks[place], rates[place], virtual_time, log_jobs, log_jobs_squared, usual
        )
        spreads[place] += spread
        leans[place] += lean
        heights[place] += height


@inlined
def _sum_up(
    rank: float,
    rate: float,
    virtual_time: float,
    log_jobs: float,
    log_jobs_squared: float,
    usual: float,
) -> tuple[float, float, float]:
    """Return spread, lean and height of the work done by the job of rank e^rank."""
    lean = rank * virtual_time - log_jobs
    spread = rank * (lean - log_jobs) + log_jobs_squared
    height = rank * (log_jobs - virtual_time * usual) - (log_jobs_squared - log_jobs * usual)
    return rate * spread, rate * lean, rate * height
