"""Timelines of simulations: how many servers each job held when."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.schedule import Timeline
from hesrpt.simulator.kernel_data import Phases
from hesrpt.simulator.loop import run_loop
from hesrpt.simulator.runs import Outcome, Run
from hesrpt.workload import Workload

# Runs with more allocations than this (running jobs, summed over phases) are not recorded.
_MAX_ALLOCATIONS = 20_000_000


class SimulatedTimeline(Timeline):
    """The phases of a simulation, which is run again to record them when they are needed."""

    def __init__(self, run: Run, outcome: Outcome) -> None:
        self.run = run
        self.completion_times = outcome.completion_times
        self._allocations, self._server_seconds = outcome.allocations, outcome.server_seconds

    @property
    def _is_recordable(self) -> bool:
        return self._allocations <= _MAX_ALLOCATIONS

    @cached_property
    def _phases(self) -> Phases:
        if not self._is_recordable:
            raise InputError(
                f"the simulation has {self._allocations:,} allocations, too many to list them all; "
                "servers_at(time) and remaining_at(time) return those at one time"
            )
        phases = run_loop(self.run, recording=True).phases
        assert phases is not None
        return phases

    @property
    def ends(self) -> FloatArray:  # type: ignore[override]
        return self._phases.ends

    def sample_ends(self, limit: int) -> FloatArray:
        if self._is_recordable:
            return super().sample_ends(limit)
        # The run is simulated again for each of these times.
        half = min(limit, max(2_000_000 // self.run.jobs, 60)) // 2
        even = np.linspace(0.0, self.completion_times.max(), half + 1)[1:]
        return np.union1d(even, np.quantile(self.completion_times, np.linspace(0, 1, half)))

    def servers(self, phase: int) -> FloatArray:
        phases = self._phases
        entries = slice(int(phases.start[phase]), int(phases.start[phase + 1]))
        held = np.zeros(self.run.jobs)
        held[phases.job[entries]] = phases.held[entries]
        return held

    def servers_at(self, time: float) -> FloatArray:
        if self._is_recordable:
            held = super().servers_at(time)
        else:
            held = run_loop(self.run, stop_at=time).held
        # The second run may differ in the last digit of an end.
        return np.where(self.completion_times > time, held, 0.0)

    def total_servers(self) -> FloatArray:
        sums = np.concatenate(([0.0], np.cumsum(self._phases.held)))
        return sums[self._phases.start[1:]] - sums[self._phases.start[:-1]]

    def server_seconds(self) -> float:
        return self._server_seconds

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        if self._is_recordable and self.run.resize_cost == 0:
            yield from super().remaining(workload, times)
            return
        for time in times:
            yield run_loop(self.run, stop_at=float(time)).remaining


class RigidTimeline(Timeline):
    """Each job holds the servers that it asked for, from its start to its end."""

    def __init__(self, starts: FloatArray, completion_times: FloatArray, held: FloatArray) -> None:
        self.starts, self.completion_times, self.held = starts, completion_times, held

    @cached_property
    def ends(self) -> FloatArray:  # type: ignore[override]
        times = np.unique(np.concatenate((self.starts, self.completion_times)))
        return times[times > 0]

    @property
    def _phase_starts(self) -> FloatArray:
        return np.concatenate(([0.0], self.ends[:-1]))

    def servers(self, phase: int) -> FloatArray:
        return self.servers_at(float(self._phase_starts[phase]))

    def servers_at(self, time: float) -> FloatArray:
        is_running = (self.starts <= time) & (time < self.completion_times)
        return np.where(is_running, self.held, 0.0)

    def servers_of(self, job: int) -> FloatArray:
        times = self._phase_starts
        is_running = (self.starts[job] <= times) & (times < self.completion_times[job])
        return np.where(is_running, self.held[job], 0.0)

    def total_servers(self) -> FloatArray:
        times = self._phase_starts
        acquired = _sum_up_to(times, self.starts, self.held)
        return acquired - _sum_up_to(times, self.completion_times, self.held)

    def server_seconds(self) -> float:
        return float(self.held @ (self.completion_times - self.starts))


def _sum_up_to(times: FloatArray, events: FloatArray, amounts: FloatArray) -> FloatArray:
    """Return the sum of the amounts of all events up to each time."""
    order = np.argsort(events, kind="stable")
    sums = np.concatenate(([0.0], np.cumsum(amounts[order])))
    return sums[np.searchsorted(events[order], times, side="right")]
