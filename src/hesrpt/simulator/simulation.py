"""The record of a simulation: a schedule, whose phases are worked out again when asked for."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError, OverloadWarning
from hesrpt.policies import (
    Policy,
    PolicyLike,
    RigidDiscipline,
    bind_policy,
    describe_workload,
    get_policy,
)
from hesrpt.schedule import Schedule, Timeline
from hesrpt.validation import check_between, check_flag, check_positive, check_whole_number
from hesrpt.workload import Workload

if TYPE_CHECKING:
    from hesrpt.simulator.kernel_data import Phases
    from hesrpt.simulator.loop import Outcome, Progress, Run

# Runs with more entries than this (jobs that hold servers, over all phases) are not recorded.
_MOST_ENTRIES = 20_000_000
# More than this is no setting that anybody means.
_MOST = {"resize_cost": 1e15, "size_error": 100.0}
# So few jobs tell nothing about a load.
_FEWEST_FOR_LOAD = 200


@dataclass(frozen=True, eq=False, repr=False)
class Simulation(Schedule):
    """A schedule with the policy that made it, and what it took."""

    policy: str
    whole: bool
    events: int
    jobs_over_time: float  # the number of jobs in the system, integrated over time

    @property
    def summary(self) -> str:
        return f"{self.policy}: {super().summary}"

    @cached_property
    def overloaded(self) -> bool:
        """Whether jobs arrive faster than they are served, so that ever more are waiting."""
        return is_overloaded(self.workload, self.servers, self.completion_times)

    @property
    def mean_jobs(self) -> float:
        return self.jobs_over_time / self.duration


@dataclass(frozen=True)
class RigidRun:
    """All that determines a simulation of a rigid discipline, checked and bound."""

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
    """Run a policy on jobs, and return who held how many servers when, and who ended when.

    Parameters
    ----------
    workload
        The jobs, with or without arrival times.
    servers
        How many servers there are.
    policy
        A name (see ``hesrpt.policies.POLICIES``), a policy object, or any callable that takes a
        :class:`hesrpt.policies.State` and returns the servers of each job. It decides again
        whenever a job arrives or ends, and every ``review_every`` seconds if it has that attribute.
    whole
        Whether servers are handed out whole.
    resize_cost
        How many seconds a job stands still each time its servers change, its start excepted.
    size_error
        The policy sees each size times exp(``size_error`` · Z), with Z normal.
    seed
        Of the size errors.
    progress
        Called with the number of jobs that have arrived and that of all jobs, now and then.

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
    if simulation.overloaded:
        warnings.warn(
            f"under policy {simulation.policy} jobs arrive faster than {servers:g} servers serve "
            "them: ever more are waiting, and averages depend on how many jobs there are",
            OverloadWarning,
            stacklevel=2,
        )
    return simulation


def execute_run(run: Run | RigidRun, progress: Progress | None = None) -> Simulation:
    """Simulate a run, without a warning if jobs arrive too fast."""
    if isinstance(run, RigidRun):
        from hesrpt.simulator.backfilling import find_start_times

        starts, _ = find_start_times(run.workload, run.servers, run.discipline)
        return record_rigid_jobs(run.workload, run.servers, starts, run.discipline.name)
    from hesrpt.simulator.loop import run_loop

    outcome = run_loop(run, progress=progress)
    return Simulation(
        run.workload,
        run.servers,
        outcome.completion_times,
        _Timeline(run, outcome),
        run.policy.name,
        run.whole,
        outcome.events,
        outcome.job_seconds,
    )


def record_rigid_jobs(
    workload: Workload, servers: float, starts: FloatArray, policy: str
) -> Simulation:
    """Return the schedule of jobs that hold the servers they ask for from their start to end."""
    from hesrpt.simulator.backfilling import RigidTimeline, run_times

    assert workload.requested is not None
    ends = starts + run_times(workload)
    arrivals = 0.0 if workload.arrivals is None else workload.arrivals
    return Simulation(
        workload,
        servers,
        ends,
        RigidTimeline(starts, ends, workload.requested),
        policy,
        True,
        2 * len(workload),
        float(np.sum(ends - arrivals)),
    )


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
) -> Run | RigidRun:
    """Check the arguments of :func:`simulate`, tune and bind the policy, and return the run.

    ``approximate_p`` is used by policies that need a power law if the jobs do not share one.
    """
    if not isinstance(workload, Workload):
        raise InputError(f"simulate() needs a Workload, got {type(workload).__name__}")
    servers = check_positive("servers", servers)
    if check_flag("whole", whole) and servers != int(servers):
        raise InputError(
            f"must be a whole number for whole servers, got {servers!r}", argument="servers"
        )
    for name, value in (("resize_cost", resize_cost), ("size_error", size_error)):
        check_between(name, value, 0, _MOST[name])
    workload.speedups.check(servers)
    estimates = None
    seed = check_whole_number("seed", seed, minimum=0)
    if size_error > 0:
        normal = np.random.default_rng(seed).standard_normal(len(workload))
        estimates = np.exp(float(size_error) * normal)
    facts = describe_workload(workload, servers, whole, approximate_p)
    chosen = get_policy(policy)
    if isinstance(chosen, RigidDiscipline):
        return RigidRun(workload, servers, bind_policy(chosen, facts))
    from hesrpt.simulator.loop import Run
    from hesrpt.simulator.tuning import needs_tuning, tune_knee

    if needs_tuning(chosen):
        chosen = tune_knee(chosen, workload, servers, whole=whole)
    bound: Policy = bind_policy(chosen, facts)
    if bound.review_every is not None:
        check_positive(f"review_every of policy {bound.name}", bound.review_every)
    return Run(workload, servers, bound, bool(whole), float(resize_cost), estimates)


class _Timeline(Timeline):
    """The phases of a simulation. It is run again to find them, which gives the same result."""

    def __init__(self, run: Run, outcome: Outcome) -> None:
        self.run, self.allocations, self.busy = run, outcome.allocations, outcome.server_seconds
        self.completion_times = outcome.completion_times

    def server_seconds(self) -> float:
        return self.busy

    def totals(self) -> FloatArray:
        recorded = self._recorded
        sums = np.concatenate(([0.0], np.cumsum(recorded.held)))
        return sums[recorded.start[1:]] - sums[recorded.start[:-1]]

    @cached_property
    def _recorded(self) -> Phases:
        from hesrpt.simulator.loop import run_loop

        if self.allocations > _MOST_ENTRIES:
            raise InputError(
                f"the simulation has {self.allocations:,} allocations, too many to list them all; "
                "servers_at(time) and remaining_at(time) give those of one moment"
            )
        recorded = run_loop(self.run, recording=True).phases
        assert recorded is not None
        return recorded

    @property
    def ends(self) -> FloatArray:  # type: ignore[override]
        return self._recorded.ends

    def some_ends(self, most: int) -> FloatArray:
        if self.allocations <= _MOST_ENTRIES:
            return super().some_ends(most)
        # Each moment is simulated anew, so there had better not be many.
        moments = min(most, max(2_000_000 // self.run.jobs, 30))
        return np.linspace(0.0, self.completion_times.max(), moments + 1)[1:]

    def servers(self, phase: int) -> FloatArray:
        recorded = self._recorded
        here = slice(int(recorded.start[phase]), int(recorded.start[phase + 1]))
        held = np.zeros(self.run.jobs)
        held[recorded.job[here]] = recorded.held[here]
        return held

    def servers_at(self, time: float) -> FloatArray:
        from hesrpt.simulator.loop import run_loop

        if self.allocations <= _MOST_ENTRIES:
            held = super().servers_at(time)
        else:
            held = run_loop(self.run, stop_at=time).held
        # Run again, a job may end later by the last digit.
        return np.where(self.completion_times > time, held, 0.0)

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        from hesrpt.simulator.loop import run_loop

        if self.allocations <= _MOST_ENTRIES and self.run.resize_cost == 0:
            yield from super().remaining(workload, times)
            return
        for time in times:
            yield run_loop(self.run, stop_at=float(time)).remaining


def is_overloaded(workload: Workload, servers: float, completion_times: FloatArray) -> bool:
    """Return whether the number of jobs in the system keeps growing while jobs arrive.

    Seen by arriving jobs, it would be in proportion to 1, 3, 5, 7 in the four quarters of the time.
    """
    arrivals = workload.arrivals
    if arrivals is None or len(workload) < _FEWEST_FOR_LOAD:
        return False
    arrived = arrivals if np.all(arrivals[1:] >= arrivals[:-1]) else np.sort(arrivals)
    if arrived[-1] <= arrived[0]:
        return False
    # Where not many are left behind when the last job arrives, it may well have been chance: the
    # number of jobs in a busy system wanders about like the root of the number of arrivals.
    jobs = len(workload)
    if np.count_nonzero(completion_times > arrived[-1]) <= 10 + 0.01 * jobs + 2 * jobs**0.5:
        return False
    speedup = workload.speedups.shared
    steepest = inf if speedup is None else speedup.known_on(servers).steepest()
    span = float(arrived[-1] - arrived[0])
    offered = float(workload.sizes.sum()) / span
    if steepest < inf and offered > 1.02 * steepest * servers:
        return True  # more work than the servers can do, however they are shared
    present = np.arange(len(arrived)) - np.searchsorted(np.sort(completion_times), arrived)
    quarter = np.minimum((4 * (arrived - arrived[0]) / span).astype(int), 3)
    counts = np.bincount(quarter, minlength=4)
    if counts.min() < _FEWEST_FOR_LOAD // 8:
        return False
    q = np.bincount(quarter, weights=present, minlength=4) / counts
    grows = q[1] > 1.5 * q[0] and q[2] > 1.3 * q[1] and q[3] > 1.2 * q[2]
    return bool(grows)
