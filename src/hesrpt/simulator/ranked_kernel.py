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

from math import exp, inf

import numpy as np

from hesrpt.compiled import compiled
from hesrpt.simulator.calibration_kernel import (
    MIN_DENOMINATOR,
    choose_level,
    is_out_of_patience,
    update_focus,
)
from hesrpt.simulator.calibration_kernel_data import CalibrationData
from hesrpt.simulator.ranked_calibration_kernel import (
    Passed,
    add_passed,
    add_to_sums,
    is_lost_beside,
    round_up,
    sum_up,
    sum_up_drops,
)
from hesrpt.simulator.ranked_kernel_data import Queue, RankedState, RateTable, Stream

# Why the loop has returned.
DONE, NEEDS_RATES, PAUSED, STOPPED = range(4)

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
    # Arrays are looked up once: in the loop, numba would count references to them each time.
    completion, weights = stream.completion, stream.weights
    spreads, leans, heights = queue.spread, queue.lean, queue.height
    one = np.uint64(1)  # unsigned indices are faster, because they cannot be negative
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
    passed = Passed(0.0, 0.0, 0.0, 0.0, 0.0)
    if calibration is not None:
        sums, settings = calibration.state[0], calibration.settings[0]
        log_rank = calibration.log_rank
        decay = exp(-1.0 / settings.memory)
        level = sums.level
    base, inverse, pace, speed = (
        table.base[level],
        table.inverse[level],
        table.pace[level],
        table.speed[level],
    )
    fewest, most, idle = table.fewest[level], table.most[level], table.idle[level]
    drops, log_drops = table.drop[level], table.log_drop[level]
    squared_log_drops = table.squared_log_drop[level]
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
                time = target - virtual_time
                passed = add_passed(passed, time, log_rank[present], sums.usual)
            job_seconds += present * (departs - now)
            busy_seconds += departs - now
            now, virtual_time = departs, target
            present -= 1
            completion[number[present]] = now
            events += 1
            new_level = level
            if calibration is not None:
                place, rank = present, log_rank[present + 1]
                spread, lean, height = sum_up(rank, base[place + 1], passed)
                lean += leans[place]
                height = lean * (rank - sums.usual) - heights[place] - height
                weight = weights[number[place]]
                keep = decay if sums.denominator > MIN_DENOMINATOR else 1.0
                sums.numerator = keep * sums.numerator + weight * height
                sums.denominator = keep * sums.denominator + weight * (spreads[place] + spread)
                sums.ended_since += 1
                if is_out_of_patience(arrived, sums, settings):
                    choose_level(arrived, sums, settings)
                    new_level = sums.level
            if new_level == level and present >= fewest:
                continue
        else:
            # --- jobs arrive --------------------------------------------------------------------
            job_seconds += present * (arrives - now)
            if present > 0:
                busy_seconds += arrives - now
                time = (arrives - now) * speed[present]
                virtual_time += time
                if calibration is not None:
                    passed = add_passed(passed, time, log_rank[present], sums.usual)
            now = arrives
        # --- subtract the work that has been done -----------------------------------------------
        if present == 0:
            virtual_time = 0.0
            passed = Passed(0.0, 0.0, 0.0, 0.0, 0.0)
        elif not uniform or departs <= arrives or events >= next_reset:
            for at in range(np.uint64(idle), np.uint64(idle + round_up(present - idle))):
                work[at] = max(work[at] - virtual_time * base[at + one], 0.0)
            virtual_time = 0.0
            next_reset = events + max(EVENTS_UNTIL_RESET, 4 * present)
        if departs > arrives:
            first = arrived
            if calibration is not None:
                end = arrived
                while end < total and arrivals[end] == now:
                    end += 1
                later = present + end - arrived
                update_focus(present, end - arrived, end, log_rank[later], sums, settings)
                new_level = sums.level
        # The same rates must hold for all the time that has passed.
        if (
            calibration is not None
            and passed.time != 0.0
            and (
                departs <= arrives
                or new_level != level
                or later > most
                or is_lost_beside(passed, base[later], min(work[present - 1], sizes[end - 1]))
            )
        ):
            add_to_sums(queue, base, calibration, idle, present, passed)
            passed = Passed(0.0, 0.0, 0.0, 0.0, 0.0)
        if departs > arrives:
            while arrives == now:
                size = sizes[arrived] + virtual_time
                # Of equal jobs, those that arrived before end first; those that arrive together
                # are in the right order.
                limit = size if arrived == first else np.nextafter(size, 0.0)
                hole = np.uint64(present)
                while hole > 0 and work[hole - one] <= limit:
                    above = hole - one
                    work[hole] = work[above]
                    number[hole] = number[above]
                    if calibration is not None:
                        # This job gets the next rank.
                        spread, lean, height = sum_up_drops(
                            drops[hole], log_drops[hole], squared_log_drops[hole], passed
                        )
                        spreads[hole] = spreads[above] + spread
                        leans[hole] = leans[above] + lean
                        heights[hole] = heights[above] + height
                    hole = above
                work[hole], number[hole] = size, arrived
                if calibration is not None:
                    spread, lean, height = sum_up(log_rank[hole + one], base[hole + one], passed)
                    spreads[hole], leans[hole], heights[hole] = -spread, -lean, -height
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
            drops, log_drops = table.drop[level], table.log_drop[level]
            squared_log_drops = table.squared_log_drop[level]
    if calibration is not None and passed.time != 0.0:
        add_to_sums(queue, base, calibration, idle, present, passed)
    state.present, state.arrived, state.events, state.allocations = (
        present,
        arrived,
        events,
        allocations,
    )
    state.now, state.virtual_time = now, virtual_time
    state.job_seconds, state.busy_seconds = job_seconds, busy_seconds
    return reason
