"""Simulating one policy: ``simulate()``, and the schedule that it returns."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies import (
    Policy,
    PolicyLike,
    RigidDiscipline,
    bind_policy,
    describe_workload,
    get_policy,
)
from hesrpt.policies.registry import get_title
from hesrpt.schedule import Schedule
from hesrpt.simulator.overload import detect_overload, warn_of_overload
from hesrpt.simulator.tally import Tally, tally_rigid_jobs
from hesrpt.validation import check_between, check_flag, check_positive, check_whole_number
from hesrpt.workload import Workload

# The compiled modules are imported by the functions that need them: importing numba takes long.
if TYPE_CHECKING:
    from hesrpt.simulator.runs import Progress, Run

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
) -> Run | RigidRun:
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

    from hesrpt.simulator.runs import Run
    from hesrpt.simulator.tuning import needs_tuning, tune_knee

    if needs_tuning(chosen):
        chosen = tune_knee(chosen, workload, servers, whole=whole)
    bound: Policy = bind_policy(chosen, facts)
    if bound.review_every is not None:
        check_positive(f"review_every of policy {bound.name}", bound.review_every)
    estimates = relative_sizes
    if size_error > 0:
        normal = np.random.default_rng(seed).standard_normal(len(workload))
        errors = np.exp(float(size_error) * normal)
        estimates = errors if estimates is None else estimates * errors
    return Run(workload, servers, bound, bool(whole), float(resize_cost), estimates)


def execute_run(
    run: Run | RigidRun, progress: Progress | None = None, *, tallying: bool = False
) -> Simulation:
    """Simulate a run, without warning about overload."""
    if isinstance(run, RigidRun):
        from hesrpt.simulator.backfilling import find_start_times

        starts, _ = find_start_times(run.workload, run.servers, run.discipline)
        return record_rigid_jobs(run.workload, run.servers, starts, run.discipline.name)

    from hesrpt.simulator.loop import run_loop
    from hesrpt.simulator.timelines import SimulatedTimeline

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


def record_rigid_jobs(
    workload: Workload, servers: float, starts: FloatArray, policy: str
) -> Simulation:
    """Return the schedule of rigid jobs with these start times."""
    from hesrpt.simulator.backfilling import run_times
    from hesrpt.simulator.timelines import RigidTimeline

    assert workload.requested is not None
    ends = starts + run_times(workload)
    arrivals = 0.0 if workload.arrivals is None else workload.arrivals
    return Simulation(
        workload=workload,
        servers=servers,
        completion_times=ends,
        timeline=RigidTimeline(starts, ends, workload.requested),
        policy=policy,
        whole=True,
        events=2 * len(workload),
        job_seconds=float(np.sum(ends - arrivals)),
        tally=tally_rigid_jobs(workload.requested, ends - starts),
    )
