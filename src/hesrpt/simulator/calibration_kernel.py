"""The sums of a calibration, compiled: see :mod:`hesrpt.policies.calibration`."""

from __future__ import annotations

from math import exp, log, sqrt

from hesrpt.arrays import FloatArray
from hesrpt.compiled import compiled, inlined
from hesrpt.simulator.calibration_kernel_data import (
    CalibrationData,
    CalibrationSettings,
    CalibrationState,
)
from hesrpt.simulator.kernel_data import Jobs, LoopState

# Below this, sums are not forgotten any further.
MIN_DENOMINATOR = 1e-9


@inlined
def find_row(present: int, calibration: CalibrationData) -> int:
    """Return the number of the row for the present jobs, or -1 if the table is too small."""
    room = calibration.log_rank.size
    return calibration.state[0].level * room + present if present < room else -1


@compiled
def observe_work(jobs: Jobs, state: LoopState, calibration: CalibrationData) -> None:
    """Compute what remains of jobs, and add the work done on them to the calibration."""
    if state.elapsed <= 0.0:
        return
    log_jobs = calibration.log_rank[state.present_at_decision]
    for place in range(state.present - state.running, state.present):
        _observe_job(jobs, place, state.elapsed, calibration, log_jobs)


@inlined
def _observe_job(
    jobs: Jobs,
    place: int,
    elapsed: float,
    calibration: CalibrationData,
    log_jobs: float,
) -> None:
    """Do the same for the job at this place of the list."""
    job = jobs.present[place]
    before = jobs.remaining[job]
    to_target = max(jobs.target[job] - elapsed, 0.0) * jobs.rate[job]
    jobs.remaining[job] = min(before, to_target)
    done = before - jobs.remaining[job]
    usual = calibration.state[0].usual
    add_sample(calibration.samples[job], done, calibration.log_rank[place + 1], log_jobs, usual)


@compiled
def observe_ends(jobs: Jobs, state: LoopState, calibration: CalibrationData, due: float) -> None:
    """Count the jobs that end now, the smallest first."""
    sums, log_rank = calibration.state[0], calibration.log_rank
    decay = exp(-1.0 / calibration.settings[0].memory)
    log_jobs = log_rank[state.present]
    left = state.present
    for place in range(state.present - 1, state.present - state.running - 1, -1):
        job = jobs.present[place]
        if jobs.target[job] <= due:
            sample = calibration.samples[job]
            add_sample(sample, jobs.remaining[job], log_rank[place + 1], log_jobs, sums.usual)
            count_end(sample, sums, log_rank[left], decay)
            left -= 1
        elif left == state.present:
            # A job in the middle of the list may end before this one, and change its rank.
            _observe_job(jobs, place, state.elapsed, calibration, log_jobs)


@inlined
def add_sample(
    sample: FloatArray, done: float, log_rank: float, log_jobs: float, usual: float
) -> None:
    """Add work done to the sums of a job."""
    lean = done * sample[3] * (log_rank - log_jobs)
    sample[0] += lean * (log_rank - log_jobs)
    sample[1] += lean
    sample[2] += lean * (log_jobs - usual)


@inlined
def count_end(sample: FloatArray, sums: CalibrationState, log_jobs: float, decay: float) -> None:
    """Count a job that ends, with e^log_jobs jobs present."""
    if sums.denominator <= MIN_DENOMINATOR:
        decay = 1.0
    height = sample[1] * (log_jobs - sums.usual) - sample[2]
    sums.ended_since += 1
    sums.numerator = decay * sums.numerator + height
    sums.denominator = decay * sums.denominator + sample[0]


@compiled
def observe_arrivals(
    jobs: Jobs, state: LoopState, calibration: CalibrationData, log_jobs: float
) -> None:
    """Weigh the jobs that have arrived, and choose the level; e^log_jobs are in the system now."""
    sums, settings = calibration.state[0], calibration.settings[0]
    for number in range(state.admitted, state.arrived):
        job = jobs.by_arrival[number]
        sums.log_sizes += log(jobs.remaining[job] * jobs.estimate[job])
    for number in range(state.admitted, state.arrived):
        job = jobs.by_arrival[number]
        seen = jobs.remaining[job] * jobs.estimate[job]
        calibration.samples[job, 3] = (
            weigh(seen, state.arrived, sums, settings) / jobs.remaining[job]
        )
    new = state.arrived - state.admitted
    update_focus(state.present, new, state.arrived, log_jobs, sums, settings)


@inlined
def weigh(
    size: float, arrived: int, sums: CalibrationState, settings: CalibrationSettings
) -> float:
    """Return what a job of this size counts, of this many that have arrived."""
    usual = sums.log_sizes / arrived
    return min(exp(settings.size_power * (log(size) - usual)), settings.max_size_weight)


@inlined
def update_focus(
    present: int,
    new: int,
    arrived: int,
    log_jobs: float,
    sums: CalibrationState,
    settings: CalibrationSettings,
) -> None:
    """Choose the level when new jobs join those present; ``arrived`` includes the new ones.

    ``log_jobs`` is the logarithm of the number, or of the weight, of all jobs in the system now.
    """
    if present > 0 and not sums.is_stream:
        sums.is_stream = True
        sums.numerator += settings.prior_focus * settings.prior_weight
        sums.denominator += settings.prior_weight
    least = settings.min_focus * sums.denominator
    sums.numerator = min(max(sums.numerator, least), sums.denominator)
    # The jobs seen so far are a batch to the extent that they are still there.
    still_there = min(float(present + new), float(arrived))
    rest = sums.denominator - sums.numerator
    sums.focus_dividend = sums.numerator * arrived + rest * still_there
    sums.focus_divisor = sums.denominator * arrived
    sums.arrival_times += 1
    share = settings.least_share  # a division takes longer than all the rest
    if sums.arrival_times < settings.usual_memory:
        share = 1.0 / sums.arrival_times
    sums.usual += (log_jobs - sums.usual) * share
    sums.ended_since = 0
    # Hardly ever does the level change, so neither divide nor take a root to find that out.
    low, high = sums.level - 0.5, sums.level + 0.5
    scaled = sums.focus_dividend * settings.levels_squared
    if not (low * low * sums.focus_divisor <= scaled < high * high * sums.focus_divisor):
        sums.level = _find_level(sums.focus_dividend / sums.focus_divisor, settings)


@inlined
def choose_level(arrived: int, sums: CalibrationState, settings: CalibrationSettings) -> None:
    """Choose the level again; it rises if many jobs have ended since jobs last arrived."""
    stopped = min(max(sums.ended_since / find_patience(arrived, sums, settings) - 1.0, 0.0), 1.0)
    at_arrival = sums.focus_dividend / sums.focus_divisor
    sums.level = _find_level(at_arrival + (1.0 - at_arrival) * stopped, settings)


@inlined
def _find_level(focus: float, settings: CalibrationSettings) -> int:
    return int(settings.levels * sqrt(focus) + 0.5)


@inlined
def is_out_of_patience(arrived: int, sums: CalibrationState, settings: CalibrationSettings) -> bool:
    """Whether an unusual number of jobs have ended in a row, found without a division."""
    most = max(settings.patience * arrived, float(sums.arrival_times))
    return sums.ended_since * float(sums.arrival_times) > most


@inlined
def find_patience(arrived: int, sums: CalibrationState, settings: CalibrationSettings) -> float:
    """Return how many departures in a row are not unusual."""
    return max(settings.patience * arrived / max(sums.arrival_times, 1), 1.0)
