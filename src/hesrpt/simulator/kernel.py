"""The event loop, compiled. It knows jobs, clocks and rates, but neither policies nor speedups.

It runs from event to event: arrivals, departures, reviews. Each event leads to a new decision on
the servers of all jobs. If decisions depend only on the number of jobs, the loop reads them from a
table of rows. If a row is missing, or if decisions depend on more, the loop returns to its caller,
which provides the row or decision and calls again.

One virtual clock drives all jobs, and a job ends when that clock reaches its target. Under some
policies a departure changes all rates by the same factor. Then only the pace of the clock changes,
at a cost that does not depend on the number of jobs.

If rows depend on a calibration, the loop also keeps the sums of
:class:`hesrpt.policies.calibration.Calibration`, and chooses the level of the rows. Without one,
``calibration`` is None, and numba compiles a loop of its own, from which all of that is left out.
"""

from __future__ import annotations

from math import exp, inf, log, log1p, sqrt

from hesrpt.arrays import FloatArray
from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.calibration_kernel_data import (
    CalibrationData,
    CalibrationSettings,
    CalibrationState,
)
from hesrpt.simulator.kernel_data import Jobs, LoopState, Phases, Rows, Settings

# Why the loop has returned.
DONE, NEEDS_ROW, NEEDS_DECISION, PAUSED, STARVED, STOPPED, PHASES_FULL, TOO_MANY_SERVERS = range(8)
# Stages of a decision: an event has happened, the list of jobs is up to date, the caller has
# decided, the servers are assigned.
CHANGED, LISTED, DECIDED, ASSIGNED = range(4)

# Departures closer together than this, relative to the time, are simultaneous.
SAME_TIME = 1e-14
# With more jobs than this, the row is looked up again when half of them have left.
MANY = 64
# A larger common factor might overflow: the row is looked up instead.
MAX_FACTOR = 1e50
MAX_LOG_FACTOR = 115.0
# A policy that serves no job at this many reviews in a row never will.
MAX_IDLE_REVIEWS = 1000
# Below this, sums of a calibration are not forgotten any further.
MIN_DENOMINATOR = 1e-9


@compiled
def run(
    jobs: Jobs,
    rows: Rows,
    phases: Phases,
    state_array: list[LoopState],
    settings_array: list[Settings],
    calibration: CalibrationData | None,
) -> int:
    """Run until there is a reason to return to the caller, and return that reason.

    State and settings are arrays with one record.
    """
    state, settings = state_array[0], settings_array[0]
    total = jobs.by_arrival.size
    recording = settings.recording
    last_event = state.events + settings.max_events
    while True:
        # --- decide -----------------------------------------------------------------------------
        if state.stage != ASSIGNED:
            if state.stage == CHANGED:
                if calibration is not None:
                    _observe_work(jobs, state, calibration)
                    if state.arrived > state.admitted:
                        _observe_arrivals(jobs, state, calibration)
                    else:
                        _choose_level(state.arrived, calibration.state[0], calibration.settings[0])
                _update_remaining(jobs, state)
                _admit(jobs, state, settings.sorted_by_size)
                if settings.sorted_by_size and not settings.keeps_order:
                    _sort(jobs, state.present)
                state.stage = LISTED
            row = state.present
            if calibration is not None:
                row = _find_row(state.present, calibration)
            if state.present > 0 and settings.by_rank and (row < 0 or rows.start[row] < 0):
                return NEEDS_ROW
            if state.present > 0 and not settings.by_rank and state.stage != DECIDED:
                return NEEDS_DECISION
            _assign_servers(jobs, rows, row, state, settings.by_rank, settings.resize_cost)
            if calibration is not None:
                calibration.state[0].log_jobs = calibration.state[0].log_jobs_squared = 0.0
            if not state.held <= settings.max_servers:
                return TOO_MANY_SERVERS
            state.stage = ASSIGNED

        if calibration is not None:
            if calibration.settings[0].exponent > 0.0 and not recording:
                limit = min(settings.stop_at, state.next_review)
                _run_calibrated(jobs, state, calibration, limit, last_event)
        elif settings.by_rank and not recording and rows.rate_factor[state.present] > 0.0:
            _run_by_factors(jobs, rows, state, settings.uniform, settings.stop_at, last_event)

        # --- find the next event ----------------------------------------------------------------
        present = state.present
        first = present - state.running
        target = inf
        for place in range(first, present):
            target = min(target, jobs.target[jobs.present[place]])
        departs = max(state.now + (target - state.virtual_time) * state.pace, state.now)
        arrives = jobs.arrivals[jobs.by_arrival[state.arrived]] if state.arrived < total else inf
        review = state.next_review if present > 0 else inf
        if departs == inf and arrives == inf:
            if present == 0:
                return DONE
            state.idle_reviews += 1
            if review == inf or state.idle_reviews > MAX_IDLE_REVIEWS:
                return STARVED
        else:
            state.idle_reviews = 0
        now = min(departs, arrives, review)
        if now > settings.stop_at:
            return STOPPED
        if recording and (
            state.phases + 2 > phases.ends.size or state.entries + state.running > phases.job.size
        ):
            return PHASES_FULL
        if state.events >= last_event:
            return PAUSED

        # --- advance to it ----------------------------------------------------------------------
        if recording:
            for place in range(first, present):
                job = jobs.present[place]
                phases.job[state.entries] = job
                phases.held[state.entries] = jobs.held[job]
                state.entries += 1
            phases.ends[state.phases] = now
            phases.start[state.phases + 1] = state.entries
            state.phases += 1
        state.allocations += state.running
        passed = now - state.now
        state.job_seconds += present * passed
        state.server_seconds += state.held * passed
        virtual_time = target if now == departs else state.virtual_time + passed / state.pace
        if calibration is not None:
            _observe_time(present, virtual_time - state.virtual_time, calibration)
        state.virtual_time = virtual_time
        state.now = now
        if now == departs:
            if calibration is not None:
                _observe_ends(jobs, state, calibration)
            _remove_ended(jobs, state)
        while state.arrived < total and jobs.arrivals[jobs.by_arrival[state.arrived]] <= now:
            state.arrived += 1
            state.events += 1
        if now == review:
            state.events += 1
            state.next_review = now + settings.review_every
        elif present == 0:
            state.next_review = now + settings.review_every
        state.stage = CHANGED


@compiled
def _run_by_factors(
    jobs: Jobs, rows: Rows, state: LoopState, uniform: bool, stop_at: float, last_event: int
) -> None:
    """Run as long as events change only the pace of the virtual clock.

    These are departures of the last job in the list, and arrivals if all jobs have the same rate.
    """
    present, running, arrived = state.present, state.running, state.arrived
    events, allocations = state.events, state.allocations
    now, virtual_time, pace = state.now, state.virtual_time, state.pace
    held_factor, job_seconds = state.held_factor, state.job_seconds
    busy, busy_since = 0.0, state.now  # busy time before the system was last empty; its start since
    # Look the row up again now and then, so that rounding errors do not accumulate.
    fewest = state.present_at_decision // 2 if state.present_at_decision > MANY else 0
    # Jobs without servers would hold next to nothing until half of the running jobs have left.
    all_run = state.running_at_decision == state.present_at_decision
    fewest_running = 0 if all_run else state.running_at_decision // 2
    last_arrival = state.events + max(1000, 4 * state.present_at_decision)
    limit = min(stop_at, state.next_review)
    total = jobs.by_arrival.size
    arrives = jobs.arrivals[jobs.by_arrival[arrived]] if arrived < total else inf
    rate, held = jobs.rate[jobs.present[present - 1]], jobs.held[jobs.present[present - 1]]
    while events < last_event:
        job = jobs.present[present - 1]
        target = jobs.target[job]
        departs = max(now + (target - virtual_time) * pace, now)
        if departs < arrives:
            factor = rows.rate_factor[present]
            if present == 1:
                # The next job finds an empty system, and gets the rate that this one had.
                if not uniform or arrives >= limit:
                    break
                jobs.completion[job] = departs
                job_seconds += departs - now
                busy += departs - busy_since
                allocations += 1
                events += 1
                virtual_time, now, busy_since = target, arrives, arrives
                present = running = 0
                departs = arrives
            elif (
                departs >= limit
                or present - 1 <= fewest
                or running - 1 <= fewest_running
                or factor > MAX_FACTOR
            ):
                break
            else:
                job_seconds += present * (departs - now)
                allocations += running
                now, virtual_time = departs, target
                jobs.completion[job] = now
                pace /= factor
                held_factor *= rows.held_factor[present]
                present -= 1
                running -= 1
        elif not uniform or departs == arrives or arrives >= limit or events >= last_arrival:
            break
        if departs >= arrives:
            job_seconds += present * (arrives - now)
            allocations += running
            virtual_time += (arrives - now) / pace
            now = arrives
            job = jobs.by_arrival[arrived]
            target = virtual_time + jobs.remaining[job] / rate
            at = present
            while at > 0 and jobs.target[jobs.present[at - 1]] <= target:
                jobs.present[at] = jobs.present[at - 1]
                at -= 1
            jobs.present[at] = job
            jobs.target[job], jobs.rate[job], jobs.held[job] = target, rate, held
            present += 1
            running += 1
            if present > 1:
                pace *= rows.rate_factor[present]
                held_factor /= rows.held_factor[present]
            arrived += 1
            arrives = jobs.arrivals[jobs.by_arrival[arrived]] if arrived < total else inf
        events += 1
    state.present, state.running, state.arrived = present, running, arrived
    state.admitted = arrived
    state.events, state.allocations = events, allocations
    state.server_seconds += state.held * (busy + now - busy_since)
    state.now, state.virtual_time, state.pace = now, virtual_time, pace
    state.held_factor, state.job_seconds = held_factor, job_seconds


@compiled
def _update_remaining(jobs: Jobs, state: LoopState) -> None:
    """Compute what remains of the jobs that have run since the last decision."""
    for place in range(state.present - state.running, state.present):
        job = jobs.present[place]
        # The target of a paused job includes its pause, in which no work is done.
        to_target = max(jobs.target[job] - state.virtual_time, 0.0) * jobs.rate[job]
        jobs.remaining[job] = min(jobs.remaining[job], to_target)
    state.running = 0


@compiled
def _remove_ended(jobs: Jobs, state: LoopState) -> None:
    """Remove the jobs that end now from the list."""
    first = state.present - state.running
    due = state.virtual_time + SAME_TIME * (state.now / state.pace + state.virtual_time)
    staying = first
    for place in range(first, state.present):
        job = jobs.present[place]
        if jobs.target[job] <= due:
            jobs.completion[job] = state.now
            jobs.remaining[job] = 0.0
            jobs.held[job] = 0.0
            state.events += 1
        else:
            jobs.present[staying] = job
            staying += 1
    state.running -= state.present - staying
    state.present = staying


@compiled
def _admit(jobs: Jobs, state: LoopState, sorted_by_size: bool) -> None:
    """Add the jobs that have arrived to the list: at its end, or in their place by size."""
    admitted = state.admitted
    new = state.arrived - admitted
    old = state.present
    if not sorted_by_size:
        for place in range(new):
            jobs.present[old + place] = jobs.by_arrival[admitted + place]
    else:
        # Merge two lists, largest first, from the back. Ties put the new job last.
        last_old, last_new = old - 1, state.arrived - 1
        for place in range(old + new - 1, -1, -1):
            if last_new < admitted:
                break
            newcomer = jobs.by_arrival[last_new]
            if last_old >= 0:
                job = jobs.present[last_old]
                if (
                    jobs.remaining[job] * jobs.estimate[job]
                    <= jobs.remaining[newcomer] * jobs.estimate[newcomer]
                ):
                    jobs.present[place] = job
                    last_old -= 1
                    continue
            jobs.present[place] = newcomer
            last_new -= 1
    state.present = old + new
    state.admitted = state.arrived


@compiled
def _sort(jobs: Jobs, present: int) -> None:
    """Sort the list by estimated size, largest first, by insertion: it is nearly sorted."""
    for place in range(1, present):
        job = jobs.present[place]
        size = jobs.remaining[job] * jobs.estimate[job]
        at = place
        while at > 0:
            before = jobs.present[at - 1]
            if jobs.remaining[before] * jobs.estimate[before] >= size:
                break
            jobs.present[at] = before
            at -= 1
        jobs.present[at] = job


@compiled
def _assign_servers(
    jobs: Jobs, rows: Rows, row: int, state: LoopState, by_rank: bool, resize_cost: float
) -> None:
    """Give all jobs their servers: by rank, from the last job in the list, or as decided."""
    present = state.present
    total = 0.0
    running = present
    if by_rank and present > 0:
        start, running = rows.start[row], rows.length[row]
        for rank in range(running):
            held = rows.held[start + rank]
            job = jobs.present[present - 1 - rank]
            _assign(jobs, job, held, rows.rate[start + rank], state.now, resize_cost)
            total += held
        if resize_cost > 0.0:
            for place in range(present - running):
                jobs.held[jobs.present[place]] = 0.0
    else:
        for place in range(present):
            held = jobs.decided_servers[place]
            job = jobs.present[place]
            _assign(jobs, job, held, jobs.decided_rates[place], state.now, resize_cost)
            total += held
    state.running = running
    state.present_at_decision = present
    state.running_at_decision = running
    state.held = total
    state.virtual_time = 0.0
    state.pace = 1.0
    state.held_factor = 1.0


@inlined
def _assign(jobs: Jobs, job: int, held: float, rate: float, now: float, resize_cost: float) -> None:
    """Give a job its servers. If their number has changed, it pauses for ``resize_cost``."""
    wait = 0.0
    if resize_cost > 0.0 and held > 0.0:
        if jobs.started[job] != 0 and abs(held - jobs.held[job]) > 1e-12 * held:
            jobs.paused_until[job] = now + resize_cost
        jobs.started[job] = 1
        wait = max(jobs.paused_until[job] - now, 0.0)
    jobs.held[job] = held
    jobs.rate[job] = rate
    jobs.target[job] = wait + jobs.remaining[job] / rate if rate > 0.0 else inf


# --- calibrated policies --------------------------------------------------------------------------


@compiled
def _run_calibrated(
    jobs: Jobs, state: LoopState, calibration: CalibrationData, limit: float, last_event: int
) -> None:
    """Run as long as events change only the pace of the virtual clock and the sums.

    Rows are those of heSRPT for some p. The last job of the list leaves, and is counted, as long
    as the level stays. Events end at ``limit``.
    """
    sums, settings, log_rank = calibration.state[0], calibration.settings[0], calibration.log_rank
    exponent, decay = settings.exponent, exp(-1.0 / settings.memory)
    power = 1.0 + (sums.level / settings.levels) ** 2 * exponent / (1.0 - exponent)
    fewest = state.present_at_decision // 2 if state.present_at_decision > MANY else 0
    all_run = state.running_at_decision == state.present_at_decision
    fewest = max(fewest, 1)  # the last job leaves by the main loop
    fewest_running = 0 if all_run else state.running_at_decision // 2
    if state.arrived < jobs.by_arrival.size:
        limit = min(limit, jobs.arrivals[jobs.by_arrival[state.arrived]])
    since = state.now
    # Further departures without an arrival raise the level, unless it is the highest.
    most_ended = inf
    if sums.level < settings.levels:
        most_ended = _patience(state.arrived, sums, settings) - 1.0
    while state.events < last_event and state.present > fewest and sums.ended_since <= most_ended:
        present = state.present
        job = jobs.present[present - 1]
        target = jobs.target[job]
        departs = max(state.now + (target - state.virtual_time) * state.pace, state.now)
        if departs >= limit or state.running - 1 <= fewest_running:
            break
        log_held_factor = -power * log1p(-1.0 / present)
        if log_held_factor > MAX_LOG_FACTOR:
            break
        log_jobs = log_rank[present]
        sums.log_jobs += (target - state.virtual_time) * log_jobs
        sums.log_jobs_squared += (target - state.virtual_time) * log_jobs**2
        mean, mean_square = log_jobs, log_jobs**2
        if target > 0.0:
            mean, mean_square = sums.log_jobs / target, sums.log_jobs_squared / target
        sample = calibration.samples[job]
        _add_sample(sample, jobs.remaining[job], log_jobs, mean, mean_square, sums.usual)
        _count_end(sample, sums, log_jobs, decay)
        state.job_seconds += present * (departs - state.now)
        state.allocations += state.running
        state.now, state.virtual_time = departs, target
        jobs.completion[job] = departs
        state.pace /= exp(log_held_factor * exponent)
        state.held_factor *= exp(log_held_factor)
        state.present -= 1
        state.running -= 1
        state.events += 1
    state.server_seconds += state.held * (state.now - since)


@inlined
def _find_row(present: int, calibration: CalibrationData) -> int:
    """Return the number of the row for the present jobs, or -1 if the table is too small."""
    room = calibration.log_rank.size
    return calibration.state[0].level * room + present if present < room else -1


@inlined
def _observe_time(present: int, passed: float, calibration: CalibrationData) -> None:
    """Integrate the logarithm of the number of jobs over virtual time that has passed."""
    if present > 0:
        log_jobs = calibration.log_rank[present]
        calibration.state[0].log_jobs += passed * log_jobs
        calibration.state[0].log_jobs_squared += passed * log_jobs**2


@compiled
def _observe_work(jobs: Jobs, state: LoopState, calibration: CalibrationData) -> None:
    """Compute what remains of jobs, and add the work done on them to the calibration."""
    if state.virtual_time <= 0.0:
        return
    mean = calibration.state[0].log_jobs / state.virtual_time
    mean_square = calibration.state[0].log_jobs_squared / state.virtual_time
    for place in range(state.present - state.running, state.present):
        _observe_job(jobs, place, state.virtual_time, calibration, mean, mean_square)


@inlined
def _observe_job(
    jobs: Jobs,
    place: int,
    virtual_time: float,
    calibration: CalibrationData,
    mean: float,
    mean_square: float,
) -> None:
    """Do the same for the job at this place of the list."""
    job = jobs.present[place]
    before = jobs.remaining[job]
    to_target = max(jobs.target[job] - virtual_time, 0.0) * jobs.rate[job]
    jobs.remaining[job] = min(before, to_target)
    done = before - jobs.remaining[job]
    usual, rank = calibration.state[0].usual, calibration.log_rank[place + 1]
    _add_sample(calibration.samples[job], done, rank, mean, mean_square, usual)


@compiled
def _observe_ends(jobs: Jobs, state: LoopState, calibration: CalibrationData) -> None:
    """Count the jobs that end now, the smallest first."""
    sums, log_rank = calibration.state[0], calibration.log_rank
    decay = exp(-1.0 / calibration.settings[0].memory)
    due = state.virtual_time + SAME_TIME * (state.now / state.pace + state.virtual_time)
    mean = log_rank[state.present]
    mean_square = mean**2
    if state.virtual_time > 0.0:
        mean = sums.log_jobs / state.virtual_time
        mean_square = sums.log_jobs_squared / state.virtual_time
    left = state.present
    for place in range(state.present - 1, state.present - state.running - 1, -1):
        job = jobs.present[place]
        if jobs.target[job] <= due:
            sample = calibration.samples[job]
            rank = log_rank[place + 1]
            _add_sample(sample, jobs.remaining[job], rank, mean, mean_square, sums.usual)
            _count_end(sample, sums, log_rank[left], decay)
            left -= 1
        elif left == state.present:
            # A job in the middle of the list may end before this one, and change its rank.
            _observe_job(jobs, place, state.virtual_time, calibration, mean, mean_square)


@inlined
def _add_sample(
    sample: FloatArray,
    done: float,
    log_rank: float,
    log_jobs: float,
    log_jobs_squared: float,
    usual: float,
) -> None:
    """Add work done to the sums of a job, given the means of ln m and ln² m in that time."""
    weight = done * sample[3]
    sample[0] += weight * (log_rank * (log_rank - 2.0 * log_jobs) + log_jobs_squared)
    lean = weight * (log_rank - log_jobs)
    sample[1] += lean
    sample[2] += weight * (log_rank * log_jobs - log_jobs_squared) - lean * usual


@inlined
def _count_end(sample: FloatArray, sums: CalibrationState, log_jobs: float, decay: float) -> None:
    """Count a job that ends, with e^log_jobs jobs present."""
    if sums.denominator <= MIN_DENOMINATOR:
        decay = 1.0
    height = sample[1] * (log_jobs - sums.usual) - sample[2]
    sums.ended_since += 1
    sums.numerator = decay * sums.numerator + height
    sums.denominator = decay * sums.denominator + sample[0]


@compiled
def _observe_arrivals(jobs: Jobs, state: LoopState, calibration: CalibrationData) -> None:
    """Weigh the jobs that have arrived, and choose the level."""
    sums, settings = calibration.state[0], calibration.settings[0]
    for number in range(state.admitted, state.arrived):
        job = jobs.by_arrival[number]
        sums.log_sizes += log(jobs.remaining[job] * jobs.estimate[job])
    usual = sums.log_sizes / state.arrived
    for number in range(state.admitted, state.arrived):
        job = jobs.by_arrival[number]
        size = jobs.remaining[job]
        weight = exp(settings.size_power * (log(size * jobs.estimate[job]) - usual))
        calibration.samples[job, 3] = min(weight, settings.max_size_weight) / size
    if state.present > 0 and not sums.is_stream:
        sums.is_stream = True
        sums.numerator += settings.prior_focus * settings.prior_weight
        sums.denominator += settings.prior_weight
    least = settings.min_focus * sums.denominator
    sums.numerator = min(max(sums.numerator, least), sums.denominator)
    focus = sums.numerator / sums.denominator
    present = state.present + state.arrived - state.admitted
    batch = settings.batch_factor * present / state.arrived
    batch *= settings.batch_jobs / (settings.batch_jobs + state.arrived)
    sums.focus_at_arrival = focus + (1.0 - focus) * min(batch, 1.0)
    sums.arrival_times += 1
    memory = min(float(sums.arrival_times), settings.usual_memory)
    sums.usual += (log(float(present)) - sums.usual) / memory
    sums.ended_since = 0
    _choose_level(state.arrived, sums, settings)


@compiled
def _choose_level(arrived: int, sums: CalibrationState, settings: CalibrationSettings) -> None:
    """Choose the level; it rises if many jobs have ended since jobs last arrived."""
    stopped = min(max(sums.ended_since / _patience(arrived, sums, settings) - 1.0, 0.0), 1.0)
    focus = sums.focus_at_arrival + (1.0 - sums.focus_at_arrival) * stopped
    sums.level = int(settings.levels * sqrt(focus) + 0.5)


@inlined
def _patience(arrived: int, sums: CalibrationState, settings: CalibrationSettings) -> float:
    """Return how many departures in a row are not unusual."""
    return max(settings.patience * arrived / max(sums.arrival_times, 1), 1.0)
