"""Simulating one policy: ``simulate()``, and the schedule that it returns."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError, OverloadWarning
from hesrpt.policies import (
    Easy,
    Knee,
    Policy,
    PolicyLike,
    RigidDiscipline,
    describe_workload,
    get_policy,
)
from hesrpt.policies.knee import time_saved
from hesrpt.policies.registry import get_title
from hesrpt.schedule import Schedule
from hesrpt.simulator.runs import Progress, Run, Tally
from hesrpt.units import format_count
from hesrpt.validation import check_between, check_positive, check_servers, check_whole_number
from hesrpt.workload import Workload

# The compiled modules are imported by the functions that need them: importing numba takes long.

# With fewer jobs than this, overload cannot be told from chance.
_MIN_JOBS = 200
# Higher values make no sense, and might overflow.
_MAX_RESIZE_COST = 1e15
_MAX_SIZE_ERROR = 100.0
# KNEE is tuned until flow times under neighbouring α differ by less than this fraction.
_CLOSE = 1e-3


@dataclass(frozen=True, eq=False, repr=False)
class Simulation(Schedule):
    """The schedule of a simulation."""

    policy: str
    whole: bool
    events: int
    job_seconds: float  # the number of jobs in the system, integrated over time
    tally: Tally | None = None  # what happened to each job, if it was asked for

    @property
    def summary(self) -> str:
        return f"{get_title(self.policy)}: {super().summary}"

    @cached_property
    def is_overloaded(self) -> bool:
        """Whether jobs arrive faster than they are served, so that the queue keeps growing."""
        return detect_overload(self.workload, self.servers, self.completion_times)

    @property
    def mean_jobs(self) -> float:
        return self.job_seconds / self.duration


def simulate(
    workload: Workload,
    servers: float,
    policy: PolicyLike = "hesrpt",
    *,
    whole: bool = False,
    resize_cost: float = 0.0,
    size_error: float = 0.0,
    seed: int = 0,
    progress: Progress | None = None,
) -> Simulation:
    """Simulate a policy on jobs, and return the schedule.

    Parameters
    ----------
    workload
        The jobs, with or without arrival times.
    servers
        The number of servers.
    policy
        A name (see :data:`hesrpt.policies.POLICIES`), a policy object, or any callable that takes a
        :class:`hesrpt.policies.State` and returns the servers of each job. It decides whenever a
        job arrives or ends, and after each ``review_every`` of time if it has that attribute.
    whole
        Whether jobs get only whole servers.
    resize_cost
        The time for which a job pauses when its number of servers changes, except at its start.
        Policies ``adaptive`` and ``optimal`` resize a job only where that pays.
    size_error
        The policy sees each size times exp(``size_error`` · Z), with Z standard normal.
    seed
        The random seed of the size errors.
    progress
        Called now and then with the number of jobs that have arrived and the total number of jobs.

    >>> from hesrpt import PowerLaw, Workload, simulate
    >>> simulate(Workload([9, 4, 1], PowerLaw(0.5)), servers=10, policy="equi").mean_flow_time
    1.96919603
    """
    simulation = run_simulation(
        workload,
        servers,
        policy,
        whole=whole,
        resize_cost=resize_cost,
        size_error=size_error,
        seed=seed,
        progress=progress,
    )
    if simulation.is_overloaded:
        warn_of_overload([simulation.policy], servers, stacklevel=2)
    return simulation


def run_simulation(
    workload: Workload,
    servers: float,
    policy: PolicyLike,
    *,
    whole: bool = False,
    resize_cost: float = 0.0,
    size_error: float = 0.0,
    seed: int = 0,
    approximate_p: float | None = None,
    relative_sizes: FloatArray | None = None,
    tallying: bool = False,
    progress: Progress | None = None,
) -> Simulation:
    """Simulate as :func:`simulate` does, without warning about overload.

    ``approximate_p`` is used by policies that need a power law if the jobs do not share one.
    ``relative_sizes`` are the sizes that the policy sees, relative to the true ones. With
    ``tallying``, resizes and server time are counted for each job.
    """
    if not isinstance(workload, Workload):
        raise InputError(f"simulate() needs a Workload, got {type(workload).__name__}")
    servers = check_servers(servers, whole)
    check_between("resize_cost", resize_cost, 0, _MAX_RESIZE_COST)
    check_between("size_error", size_error, 0, _MAX_SIZE_ERROR)
    seed = check_whole_number("seed", seed, minimum=0)
    workload.speedups.check(servers)
    chosen = get_policy(policy)
    if isinstance(chosen, RigidDiscipline):
        from hesrpt.simulator.backfilling import find_starts

        bound = chosen.bind(describe_workload(workload, servers, whole, approximate_p))
        starts, widths, ends, _ = find_starts(workload, servers, bound)
        return record_unresized_jobs(workload, servers, starts, ends, widths, bound.name)
    estimates = relative_sizes
    if size_error > 0:
        normal = np.random.default_rng(seed).standard_normal(len(workload))
        errors = np.exp(float(size_error) * normal)
        estimates = errors if estimates is None else estimates * errors

    def create(jobs: Workload, estimates: FloatArray | None) -> Run:
        run = create_run(jobs, servers, chosen, whole, resize_cost, estimates, approximate_p)
        return replace(run, tallying=tallying)

    if workload.rigid is None:
        return _execute(create(workload, estimates), progress)
    return _simulate_beside_rigid(workload, servers, chosen, estimates, create, progress)


def create_run(
    workload: Workload,
    servers: float,
    policy: Policy,
    whole: bool = False,
    resize_cost: float = 0.0,
    estimates: FloatArray | None = None,
    approximate_p: float | None = None,
) -> Run:
    """Tune and bind a policy, and return its run."""
    if isinstance(policy, Knee) and policy.alpha is None:
        policy = tune_knee(policy, workload, servers, whole=whole)
    bound = policy.bind(describe_workload(workload, servers, whole, approximate_p))
    if bound.review_every is not None:
        check_positive(f"review_every of policy {bound.name}", bound.review_every)
    return Run(workload, servers, bound, bool(whole), float(resize_cost), estimates)


def tune_knee(policy: Knee, workload: Workload, servers: float, *, whole: bool = False) -> Knee:
    """Return KNEE with the α that gives the least mean flow time, as the paper's authors chose it.

    The search tries 100 values over the range in which α makes a difference, then finer grids
    around the best one.

    >>> from hesrpt import PowerLaw
    >>> tuned = tune_knee(Knee(), Workload([9, 4, 1], PowerLaw(0.5)), servers=10)
    >>> round(tuned.alpha, 3)
    0.061
    """
    run = Run(workload, servers, policy, whole, 0.0, None)
    alphas = np.geomspace(*_alpha_range(workload, servers), 100)
    while True:
        flow_times = _try_all(run, policy, alphas)
        best = int(np.argmin(flow_times))
        below, above = max(best - 1, 0), min(best + 1, len(alphas) - 1)
        is_flat = max(flow_times[below], flow_times[above]) <= flow_times[best] * (1 + _CLOSE)
        if is_flat or alphas[above] / alphas[below] < 1 + 1e-6:
            return replace(policy, alpha=float(alphas[best]))
        alphas = np.geomspace(alphas[below], alphas[above], 11)


def _try_all(run: Run, policy: Knee, alphas: FloatArray) -> FloatArray:
    """Return the total flow time under each α; infinity if it is known to be far from the best."""
    from hesrpt.simulator.loop import create_loop

    flow_times, best = np.full(len(alphas), np.inf), np.inf
    # Begin with a coarse round over the whole range, so that most other trials give up early.
    for place in sorted(range(len(alphas)), key=lambda place: place % 10):
        tried = replace(policy, alpha=float(alphas[place]))
        trial = replace(run, policy=tried, max_flow_time=best * (1 + _CLOSE))
        outcome = create_loop(trial).execute()
        if not np.isnan(outcome.completion_times).any():
            flow_times[place] = outcome.job_seconds
            best = min(best, flow_times[place])
    return flow_times


def _alpha_range(workload: Workload, servers: float) -> tuple[float, float]:
    """Return the values of α between which knees fall from all servers to next to none."""
    speedups = workload.speedups.tabulate(servers)
    jobs = len(workload)
    saved_at_all, saved_at_few = (
        time_saved(workload.sizes, speedups, np.full(jobs, held))
        for held in (servers, servers / (1000.0 * jobs))
    )
    highest = float(saved_at_few[saved_at_few > 0].max())
    lowest = float(saved_at_all.min())
    return (lowest if lowest > 0 else highest * 1e-12), highest


def _execute(run: Run, progress: Progress | None) -> Simulation:
    from hesrpt.simulator.loop import SimulatedTimeline, create_loop

    outcome = create_loop(run).execute(progress=progress)
    return Simulation(
        workload=run.workload,
        servers=run.servers,
        completion_times=outcome.completion_times,
        timeline=SimulatedTimeline(run, outcome),
        policy=run.policy.name,
        whole=run.whole,
        events=outcome.events,
        job_seconds=outcome.job_seconds,
        tally=outcome.tally,
    )


def _simulate_beside_rigid(
    workload: Workload,
    servers: float,
    policy: Policy,
    estimates: FloatArray | None,
    create: Callable[[Workload, FloatArray | None], Run],
    progress: Progress | None,
) -> Simulation:
    """Simulate malleable jobs on the servers that rigid ones leave, which EASY schedules."""
    from hesrpt.simulator.backfilling import CombinedTimeline, RigidTimeline, find_capacity

    assert workload.rigid is not None
    rigid, shared = np.flatnonzero(workload.rigid), np.flatnonzero(~workload.rigid)
    beside = run_simulation(workload.take(rigid), servers, Easy())
    assert isinstance(beside.timeline, RigidTimeline)
    parts = [(rigid, beside)]
    if len(shared) > 0:
        run = create(workload.take(shared), None if estimates is None else estimates[shared])
        run = replace(run, capacity=find_capacity(servers, beside.timeline))
        parts.append((shared, _execute(run, progress)))
    completion_times = np.empty(len(workload))
    for jobs, part in parts:
        completion_times[jobs] = part.completion_times
    return Simulation(
        workload=workload,
        servers=servers,
        completion_times=completion_times,
        timeline=CombinedTimeline(len(workload), tuple((jobs, p.timeline) for jobs, p in parts)),
        policy=policy.name,
        whole=parts[-1][1].whole,
        events=sum(part.events for _, part in parts),
        job_seconds=float(np.sum(completion_times - workload.arrival_times)),
        tally=_combine_tallies(len(workload), parts),
    )


def _combine_tallies(jobs: int, parts: Sequence[tuple[IntArray, Simulation]]) -> Tally | None:
    """Return one tally for all jobs, or None if a part has none."""
    combined = Tally(np.zeros(jobs, dtype=np.int64), *np.zeros((4, jobs)))
    for numbers, part in parts:
        if part.tally is None:
            return None
        for name, values in vars(part.tally).items():
            getattr(combined, name)[numbers] = values
    return combined


def record_unresized_jobs(
    workload: Workload,
    servers: float,
    starts: FloatArray,
    ends: FloatArray,
    held: FloatArray,
    policy: str,
) -> Simulation:
    """Return the schedule of jobs that hold the same servers from start to end."""
    from hesrpt.simulator.backfilling import RigidTimeline

    runtimes, none = ends - starts, np.zeros(len(workload))
    asked = held if workload.requested is None else workload.requested
    beyond = np.maximum(held - asked, 0.0) * runtimes
    return Simulation(
        workload=workload,
        servers=servers,
        completion_times=ends,
        timeline=RigidTimeline(starts, ends, held),
        policy=policy,
        whole=True,
        events=2 * len(workload),
        job_seconds=float(np.sum(ends - workload.arrival_times)),
        tally=Tally(none.astype(np.int64), held, held * runtimes, beyond, none),
    )


def detect_overload(workload: Workload, servers: float, completion_times: FloatArray) -> bool:
    """Return whether the number of jobs in the system keeps growing while jobs arrive.

    If it grows steadily, arriving jobs find numbers in proportion to 1, 3, 5 and 7 in the four
    quarters of the time, on average.
    """
    arrivals, jobs = workload.arrivals, len(workload)
    if arrivals is None or jobs < _MIN_JOBS:
        return False
    arrivals = arrivals if np.all(arrivals[1:] >= arrivals[:-1]) else np.sort(arrivals)
    first, last = float(arrivals[0]), float(arrivals[-1])
    if last <= first:
        return False
    # In a busy system, the number of jobs fluctuates like the square root of the number of
    # arrivals. If no more than that remain when the last job arrives, it may be chance.
    if np.count_nonzero(completion_times > last) <= 10 + 0.01 * jobs + 2 * jobs**0.5:
        return False
    speedup = workload.speedups.shared
    max_efficiency = inf if speedup is None else speedup.tabulate(servers).max_slope()
    offered = float(workload.sizes.sum()) / (last - first)
    if max_efficiency < inf and offered > 1.02 * max_efficiency * servers:
        return True  # more work arrives than the servers can do, however they are shared
    present = np.arange(jobs) - np.searchsorted(np.sort(completion_times), arrivals)
    quarter = np.minimum((4 * (arrivals - first) / (last - first)).astype(int), 3)
    counts = np.bincount(quarter, minlength=4)
    if counts.min() < _MIN_JOBS // 8:
        return False
    q = np.bincount(quarter, weights=present, minlength=4) / counts
    return bool(q[1] > 1.5 * q[0] and q[2] > 1.3 * q[1] and q[3] > 1.2 * q[2])


def warn_of_overload(policies: Iterable[str], servers: float, stacklevel: int) -> None:
    """Issue a warning that names the overloaded policies."""
    warnings.warn(
        f"jobs arrive faster than {format_count(servers, 'server')} can serve them under "
        f"{', '.join(policies)}: "
        "the queue keeps growing, and averages depend on the number of jobs",
        OverloadWarning,
        stacklevel=stacklevel + 1,
    )
