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

While the job of rank i (the i-th largest) runs with m jobs present, its sums grow, per unit of
virtual time, by base[i] times

    spread: (ln i − ln m)²,   lean: ln i − ln m,   height: (ln i − ln m)(ln m − u).

So what a job has gained since the last arrival is a product of the coefficients of its rank and of
integrals over virtual time, which all jobs share: ``Passed``.
"""

from __future__ import annotations

from math import inf
from typing import NamedTuple, Protocol

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.kernel import CalibrationData, count_end, raise_focus, update_focus

# Why the loop has returned.
DONE, NEEDS_RATES, PAUSED, STOPPED = range(4)

# Virtual time starts again now and then, so that rounding errors do not accumulate.
EVENTS_UNTIL_RESET = 1000
# Loops over this many numbers, or a multiple, leave none to be handled one by one.
AT_A_TIME = 16


class Stream(NamedTuple):
    """The jobs as they arrive; of simultaneous ones, the largest first."""

    arrivals: FloatArray
    sizes: FloatArray
    completion: FloatArray
    weights: FloatArray  # what a unit of work counts, if the policy is calibrated


class Queue(NamedTuple):
    """The jobs in the system, at the front of these arrays, the largest first."""

    number: IntArray  # the place of the job in the stream
    work: FloatArray  # what remained when virtual time was 0
    # If the policy is calibrated, the sums of the job at that time, as if a unit of its work
    # counted 1.
    spread: FloatArray
    lean: FloatArray
    height: FloatArray


class RateTable(NamedTuple):
    """With m jobs, the i-th largest runs at the rate ``base[i] / pace[m]``.

    The first index is the level of the calibration. Each level holds for ``fewest`` to ``most``
    jobs; ``most`` is 0 if it is missing.
    """

    base: (
        FloatArray  # has more entries, all 0: for jobs that may arrive, and for loops over several
    )
    inverse: FloatArray  # 1 / base
    pace: FloatArray
    speed: FloatArray  # 1 / pace
    fewest: IntArray
    most: IntArray
    idle: IntArray  # this many of the largest jobs get nothing


class RankedState(Protocol):
    """The state of the loop apart from the jobs, and its settings."""

    uniform: bool  # all jobs run at one rate
    stop_at: float
    max_events: int  # return to the caller after this many
    present: int
    arrived: int
    events: int
    next_reset: int  # when this many events have happened
    now: float
    virtual_time: float
    busy_seconds: float
    job_seconds: float  # the number of jobs in the system, integrated over time


@compiled
def run_ranked(
    stream: Stream,
    queue: Queue,
    table: RateTable,
    state_array: list[RankedState],
    passed_before: FloatArray,
    calibration: CalibrationData | None,
) -> int:
    """Run until there is a reason to return to the caller, and return that reason.

    ``passed_before`` has the entries of :class:`Passed` from one call to the next.
    """
    state = state_array[0]
    arrivals, sizes, work, number = stream.arrivals, stream.sizes, queue.work, queue.number
    # Arrays are looked up once: in the loop, numba would count references to them each time.
    completion, weights = stream.completion, stream.weights
    spreads, leans, heights = queue.spread, queue.lean, queue.height
    one = np.uint64(1)  # unsigned indices are faster, because they cannot be negative
    present, arrived, events = state.present, state.arrived, state.events
    now, virtual_time, job_seconds = state.now, state.virtual_time, state.job_seconds
    busy_seconds, uniform, stop_at = state.busy_seconds, state.uniform, state.stop_at
    total = arrivals.size
    last_event = events + state.max_events
    next_reset = state.next_reset
    passed = Passed(
        passed_before[0],
        passed_before[1],
        passed_before[2],
        passed_before[3],
        passed_before[4],
    )
    level, new_level = -1, 0
    if calibration is not None:
        sums = calibration.sums[0]
        log_rank = calibration.log_rank
        new_level = sums.level
    arrives = arrivals[arrived] if arrived < total else inf
    while True:
        if new_level != level:
            level = new_level
            base, inverse = table.base[level], table.inverse[level]
            pace, speed = table.pace[level], table.speed[level]
            fewest, most, idle = table.fewest[level], table.most[level], table.idle[level]
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
            if calibration is not None:
                place, rank = present, log_rank[present + 1]
                spread, lean, height = sum_up(rank, base[place + 1], passed)
                weight = weights[number[place]]
                spread = weight * (spreads[place] + spread)
                lean = weight * (leans[place] + lean)
                height = weight * (heights[place] + height)
                count_end(sums, spread, lean, height, rank)
                raise_focus(sums)
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
        # --- bring work and sums up to date -----------------------------------------------------
        if present == 0:
            virtual_time = 0.0
            passed = Passed(0.0, 0.0, 0.0, 0.0, 0.0)
        elif not uniform or departs <= arrives or events >= next_reset:
            # What is changed behind the last job is overwritten when a job takes that place.
            for at in range(np.uint64(idle), np.uint64(idle + round_up(present - idle))):
                work[at] = max(work[at] - virtual_time * base[at + one], 0.0)
            if calibration is not None:
                for at in range(np.uint64(idle), np.uint64(idle + round_up(present - idle))):
                    spread, lean, height = sum_up(log_rank[at + one], base[at + one], passed)
                    spreads[at] += spread
                    leans[at] += lean
                    heights[at] += height
                passed = Passed(0.0, 0.0, 0.0, 0.0, 0.0)
            virtual_time = 0.0
            next_reset = events + max(EVENTS_UNTIL_RESET, 4 * present)
        if departs > arrives:
            first = arrived
            if calibration is not None:
                end = arrived
                while end < total and arrivals[end] == now:
                    end += 1
                sums.jobs_seen = end
                log_jobs = log_rank[present + end - arrived]
                update_focus(sums, present, end - arrived, log_jobs, False)
                new_level = sums.level
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
                        spreads[hole], leans[hole] = spreads[above], leans[above]
                        heights[hole] = heights[above]
                    hole = above
                work[hole], number[hole] = size, arrived
                if calibration is not None:
                    spreads[hole] = leans[hole] = heights[hole] = 0.0
                present += 1
                events += 1
                arrived += 1
                arrives = arrivals[arrived] if arrived < total else inf
    state.present, state.arrived, state.events = present, arrived, events
    state.now, state.virtual_time, state.next_reset = now, virtual_time, next_reset
    state.job_seconds, state.busy_seconds = job_seconds, busy_seconds
    for field in range(len(passed)):
        passed_before[field] = passed[field]
    return reason


# --- sums of a calibration ------------------------------------------------------------------------


class Passed(NamedTuple):
    """Integrals over virtual time since the sums of all jobs were up to date."""

    time: float
    log_jobs: float  # of ln m
    log_jobs_squared: float  # of ln² m
    above: float  # of ln m − u
    log_jobs_above: float  # of (ln m)(ln m − u)


@inlined
def add_passed(passed: Passed, time: float, log_jobs: float, usual: float) -> Passed:
    """Return the integrals after some more time with e^log_jobs jobs present."""
    more = time * log_jobs
    above = log_jobs - usual
    return Passed(
        passed.time + time,
        passed.log_jobs + more,
        passed.log_jobs_squared + more * log_jobs,
        passed.above + time * above,
        passed.log_jobs_above + more * above,
    )


@inlined
def sum_up(log_rank: float, base: float, passed: Passed) -> tuple[float, float, float]:
    """Return the spread, lean and height that a rank has gained."""
    lean = log_rank * passed.time - passed.log_jobs
    spread = log_rank * (lean - passed.log_jobs) + passed.log_jobs_squared
    height = log_rank * passed.above - passed.log_jobs_above
    return base * spread, base * lean, base * height


@inlined
def round_up(count: int) -> int:
    """Return the next number that leaves none to be handled one by one."""
    return (count + AT_A_TIME - 1) // AT_A_TIME * AT_A_TIME
