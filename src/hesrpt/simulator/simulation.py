"""Simulating one policy: ``simulate()``, and the schedule that it returns."""

from __future__ import annotations

import warnings
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING, Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError, OverloadWarning
from hesrpt.policies import (
    Easy,
    Knee,
    Policy,
    PolicyLike,
    RigidDiscipline,
    bind_policy,
    describe_workload,
    get_policy,
)
from hesrpt.policies.registry import get_title
from hesrpt.schedule import Schedule
from hesrpt.simulator.tally import Tally, tally_unresized_jobs
from hesrpt.units import format_count
from hesrpt.validation import check_between, check_flag, check_positive, check_whole_number
from hesrpt.workload import Workload

# The compiled modules are imported by the functions that need them: importing numba takes long.
if TYPE_CHECKING:
    from hesrpt.simulator.runs import Progress, Run

# With fewer jobs than this, overload cannot be told from chance.
_MIN_JOBS = 200
# Higher values make no sense, and might overflow.
_MAX_RESIZE_COST = 1e15
_MAX_SIZE_ERROR = 100.0


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


@dataclass(frozen=True)
class RigidRun:
    """Everything that determines a simulation of a rigid discipline, checked and bound."""

    workload: Workload
    servers: float
    discipline: RigidDiscipline


@dataclass(frozen=True)
class MixedRun:
    """A run of a malleable policy beside rigid jobs, whose schedule is known already."""

    workload: Workload
    servers: float
    policy: str
    rigid: IntArray  # the numbers of the rigid jobs …
    beside: Simulation  # … and their schedule
    shared: IntArray  # the numbers of the others …
    malleable: Run | None  # … and their run; None if there are none


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
    run = create_run(
        workload,
        servers,
        policy,
        whole=whole,
        resize_cost=resize_cost,
        size_error=size_error,
        seed=seed,
    )
    simulation = execute_run(run, progress)
    if simulation.is_overloaded:
        warn_of_overload([simulation.policy], servers, stacklevel=2)
    return simulation


def create_run(
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
) -> Run | RigidRun | MixedRun:
    """Check the arguments of :func:`simulate`, tune and bind the policy, and return the run.

    ``approximate_p`` is used by policies that need a power law if the jobs do not share one.
    ``relative_sizes`` are the sizes that the policy sees, relative to the true ones.
    """
    if not isinstance(workload, Workload):
        raise InputError(f"simulate() needs a Workload, got {type(workload).__name__}")
    servers = check_positive("servers", servers)
    if check_flag("whole", whole) and servers != int(servers):
        raise InputError(
            f"must be a whole number for whole servers, got {servers:g}", argument="servers"
        )
    check_between("resize_cost", resize_cost, 0, _MAX_RESIZE_COST)
    check_between("size_error", size_error, 0, _MAX_SIZE_ERROR)
    seed = check_whole_number("seed", seed, minimum=0)
    workload.speedups.check(servers)
    facts = describe_workload(workload, servers, whole, approximate_p)
    chosen = get_policy(policy)
    if isinstance(chosen, RigidDiscipline):
        return RigidRun(workload, servers, bind_policy(chosen, facts))
    estimates = relative_sizes
    if size_error > 0:
        normal = np.random.default_rng(seed).standard_normal(len(workload))
        errors = np.exp(float(size_error) * normal)
        estimates = errors if estimates is None else estimates * errors
    if workload.rigid is not None:
        options = {"whole": whole, "resize_cost": resize_cost, "approximate_p": approximate_p}
        return _create_mixed_run(workload, servers, chosen, estimates, options)

    from hesrpt.simulator.runs import Run

    if isinstance(chosen, Knee) and chosen.alpha is None:
        from hesrpt.simulator.tuning import tune_knee

        chosen = tune_knee(chosen, workload, servers, whole=whole)
    bound: Policy = bind_policy(chosen, facts)
    if bound.review_every is not None:
        check_positive(f"review_every of policy {bound.name}", bound.review_every)
    return Run(workload, servers, bound, bool(whole), float(resize_cost), estimates)


def _create_mixed_run(
    workload: Workload,
    servers: float,
    policy: Policy,
    relative_sizes: FloatArray | None,
    options: dict[str, Any],
) -> MixedRun:
    """Return the run of a malleable policy beside rigid jobs, which are scheduled by EASY."""
    assert workload.rigid is not None
    rigid, shared = np.flatnonzero(workload.rigid), np.flatnonzero(~workload.rigid)
    beside = execute_run(create_run(workload.take(rigid), servers, Easy()))
    if len(shared) == 0:
        return MixedRun(workload, servers, policy.name, rigid, beside, shared, None)
    run = create_run(
        workload.take(shared),
        servers,
        policy,
        relative_sizes=None if relative_sizes is None else relative_sizes[shared],
        **options,
    )
    assert not isinstance(run, RigidRun | MixedRun)
    return MixedRun(workload, servers, policy.name, rigid, beside, shared, run)


def execute_run(
    run: Run | RigidRun | MixedRun, progress: Progress | None = None, *, tallying: bool = False
) -> Simulation:
    """Simulate a run, without warning about overload."""
    if isinstance(run, MixedRun):
        return _execute_mixed_run(run, progress, tallying)
    if isinstance(run, RigidRun):
        from hesrpt.simulator.backfilling import find_starts

        found = find_starts(run.workload, run.servers, run.discipline)
        return record_unresized_jobs(
            run.workload, run.servers, found.starts, found.ends, found.widths, run.discipline.name
        )

    from hesrpt.simulator.loop import SimulatedTimeline, run_loop

    outcome = run_loop(run, tallying=tallying, progress=progress)
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


def _execute_mixed_run(run: MixedRun, progress: Progress | None, tallying: bool) -> Simulation:
    """Simulate malleable jobs on the servers that rigid ones leave."""
    from hesrpt.simulator.backfilling import RigidTimeline
    from hesrpt.simulator.beside_rigid import (
        CombinedTimeline,
        Part,
        combine_tallies,
        find_capacity,
    )

    assert isinstance(run.beside.timeline, RigidTimeline)
    rigid = run.beside.timeline
    completion_times = np.empty(len(run.workload))
    completion_times[run.rigid] = run.beside.completion_times
    parts = [Part(run.rigid, rigid, run.beside.tally)]
    events, whole = run.beside.events, True
    if run.malleable is not None:
        capacity = find_capacity(run.servers, rigid.starts, rigid.completion_times, rigid.held)
        simulation = execute_run(
            replace(run.malleable, capacity=capacity), progress, tallying=tallying
        )
        completion_times[run.shared] = simulation.completion_times
        parts.append(Part(run.shared, simulation.timeline, simulation.tally))
        events, whole = events + simulation.events, simulation.whole
    return Simulation(
        workload=run.workload,
        servers=run.servers,
        completion_times=completion_times,
        timeline=CombinedTimeline(len(run.workload), tuple(parts)),
        policy=run.policy,
        whole=whole,
        events=events,
        job_seconds=float(np.sum(completion_times - run.workload.arrival_times)),
        tally=combine_tallies(len(run.workload), tuple(parts)),
    )


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

    arrivals = 0.0 if workload.arrivals is None else workload.arrivals
    return Simulation(
        workload=workload,
        servers=servers,
        completion_times=ends,
        timeline=RigidTimeline(starts, ends, held),
        policy=policy,
        whole=True,
        events=2 * len(workload),
        job_seconds=float(np.sum(ends - arrivals)),
        tally=tally_unresized_jobs(held, ends - starts, workload.requested),
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
