"""Schedules: how many servers each job held when, when each job ended, and the metrics of both.

A plan, a simulation and a real run all result in a :class:`Schedule`. Every table, figure and
report reads schedules and nothing else.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from hesrpt import files
from hesrpt.arrays import FloatArray
from hesrpt.units import format_count
from hesrpt.validation import check_at_least
from hesrpt.workload import Workload

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


class Timeline:
    """The allocations of a schedule: a sequence of phases in which no allocation changes.

    Phases are computed on demand. A schedule of M jobs has about M phases of up to M jobs each,
    which may be too many to hold in memory at once. A subclass defines ``servers`` or, if it does
    not number its phases, ``servers_at_each``.
    """

    #: The end of each phase, in ascending order. The first phase starts at time 0.
    ends: FloatArray

    @property
    def phase_starts(self) -> FloatArray:
        """The start of each phase."""
        return np.concatenate(([0.0], self.ends[:-1]))

    def servers(self, phase: int) -> FloatArray:
        """Return the servers of each job in one phase, in the order of the workload."""
        return self.servers_at(float(self.phase_starts[phase]))

    def servers_at_each(self, times: FloatArray) -> Iterator[FloatArray]:
        """Yield the servers of each job at each of ``times``, which must be in ascending order."""
        for phase in np.searchsorted(self.ends, times, side="right").tolist():
            last = len(self.ends) - 1
            yield self.servers(min(phase, last)) * (phase <= last)

    def servers_at(self, time: float) -> FloatArray:
        """Return the servers of each job at a given time."""
        return next(iter(self.servers_at_each(np.array([time]))))

    def sample_ends(self, limit: int) -> FloatArray:
        """Return the ends of the phases, or a sample of about ``limit`` that includes the last."""
        ends = np.unique(self.ends)
        ends = ends[ends > 0]
        if len(ends) <= limit:
            return ends
        return np.unique(np.append(np.quantile(ends, np.linspace(0, 1, limit)), ends[-1]))

    def total_servers(self) -> FloatArray:
        """Return the number of allocated servers in each phase."""
        return np.array([held.sum() for held in self.servers_at_each(self.phase_starts)])

    def server_seconds_until(self, times: FloatArray) -> FloatArray:
        """Return the allocated servers times seconds up to each of ``times``, likewise."""
        in_phases = np.diff(self.ends, prepend=0.0) * self.total_servers()
        sums = np.concatenate(([0.0], np.cumsum(in_phases)))
        return np.interp(times, np.concatenate(([0.0], self.ends)), sums)

    def server_seconds(self) -> float:
        """Return the sum of allocated servers times seconds over all phases."""
        return float(self.server_seconds_until(self.ends[-1:])[0])

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        """Yield the remaining sizes at each of ``times``, which must be in ascending order."""
        rates = workload.speedups.rate
        remaining = np.array(workload.sizes)
        allocations = iter(self.servers_at_each(self.phase_starts))
        phase, at = 0, 0.0
        rate = rates(next(allocations))
        for time in times:
            while phase < len(self.ends) - 1 and self.ends[phase] <= time:
                remaining -= rate * (self.ends[phase] - at)
                at, phase = float(self.ends[phase]), phase + 1
                rate = rates(next(allocations))
            since = min(float(time), float(self.ends[-1])) - at
            yield np.maximum(remaining - rate * since, 0.0)


@dataclass(frozen=True)
class Phase:
    """A period in which no allocation changes."""

    start: float
    end: float
    servers: FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class Schedule:
    """A schedule: how many servers each job held when, and when each job ended."""

    workload: Workload
    servers: float
    completion_times: FloatArray
    timeline: Timeline

    def __post_init__(self) -> None:
        self.completion_times.flags.writeable = False

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self.summary}>"

    @property
    def summary(self) -> str:
        """The schedule in one line."""
        return (
            f"{format_count(len(self.workload), 'job')} on {format_count(self.servers, 'server')}, "
            f"mean flow time {self.mean_flow_time:.5g}, makespan {self.makespan:.5g}"
        )

    @cached_property
    def flow_times(self) -> FloatArray:
        """The flow time of each job: its time in the system, from arrival to completion."""
        arrivals = self.workload.arrivals
        return self.completion_times if arrivals is None else self.completion_times - arrivals

    @property
    def slowdowns(self) -> FloatArray:
        """The slowdown of each job: its flow time divided by its size."""
        return self.flow_times / self.workload.sizes

    @property
    def total_flow_time(self) -> float:
        """The sum of all flow times."""
        return float(self.flow_times.sum())

    @property
    def mean_flow_time(self) -> float:
        """The mean of all flow times."""
        return float(self.flow_times.mean())

    @property
    def mean_slowdown(self) -> float:
        """The mean of all slowdowns."""
        return float(self.slowdowns.mean())

    @property
    def weighted_flow_time(self) -> float:
        """The sum of flow time times weight over all jobs; weights are 1 by default."""
        weights = self.workload.weights
        return self.total_flow_time if weights is None else float(weights @ self.flow_times)

    @property
    def makespan(self) -> float:
        """The time at which the last job ends."""
        return float(self.completion_times.max())

    @property
    def duration(self) -> float:
        """The time from the first arrival to the last completion."""
        arrivals = self.workload.arrivals
        return self.makespan - (0.0 if arrivals is None else float(arrivals.min()))

    @property
    def mean_jobs(self) -> float:
        """The mean number of jobs in the system, from the first arrival to the last completion."""
        return self.total_flow_time / self.duration

    @property
    def utilisation(self) -> float:
        """The fraction of servers in use, from the first arrival to the last completion."""
        return self.timeline.server_seconds() / (self.servers * self.duration)

    @property
    def fairness(self) -> float:
        """Jain's index of the slowdowns: 1 if all are equal, near 1/M if one dwarfs the others."""
        return jain_index(self.slowdowns)

    def metrics(self) -> dict[str, float]:
        """Return all metrics by name."""
        return {
            **summarise("flow_time", self.flow_times),
            **summarise("slowdown", self.slowdowns),
            "makespan": self.makespan,
            "utilisation": self.utilisation,
            "mean_jobs": self.mean_jobs,
            "fairness": self.fairness,
        }

    def rows(self) -> list[dict[str, str | float]]:
        """Return a row for each job."""
        workload, jobs = self.workload, len(self.workload)
        weights = np.ones(jobs) if workload.weights is None else workload.weights
        columns = {
            "arrival": workload.arrival_times,
            "size": workload.sizes,
            "weight": weights,
            "completion_time": self.completion_times,
            "flow_time": self.flow_times,
            "slowdown": self.slowdowns,
        }
        numbers = zip(*(column.tolist() for column in columns.values()), strict=True)
        return [
            {"job": name, **dict(zip(columns, row, strict=True))}
            for name, row in zip(workload.names, numbers, strict=True)
        ]

    def to_frame(self) -> pd.DataFrame:
        """Return a pandas data frame with a row for each job."""
        return files.build_frame(self.rows())

    def to_csv(self, path: str | Path) -> None:
        """Write a CSV file with a line for each job."""
        files.write_csv(path, self.rows())

    def servers_at(self, time: float) -> FloatArray:
        """Return the servers of each job at a given time, in the order of the workload."""
        check_at_least("time", time, 0)
        return self.timeline.servers_at(time)

    def remaining_at(self, time: float) -> FloatArray:
        """Return the remaining size of each job at a given time, in the order of the workload."""
        check_at_least("time", time, 0)
        return next(self.timeline.remaining(self.workload, np.array([time])))

    def phases(self) -> Iterator[Phase]:
        """Yield the phases of the schedule, except those of length 0."""
        starts, ends = self.timeline.phase_starts, self.timeline.ends
        is_long = ends > starts
        starts, ends = starts[is_long], ends[is_long]
        held = self.timeline.servers_at_each(starts)
        for start, end, servers in zip(starts.tolist(), ends.tolist(), held, strict=True):
            yield Phase(start, end, servers)

    def plot(self, path: str | None = None, *, in_seconds: bool = False) -> Figure:
        """Draw remaining sizes above and servers below, and save the figure if a path is given.

        With ``in_seconds``, the axes are labelled with units of time.
        """
        from hesrpt import plotting  # matplotlib is slow to import

        figure = plotting.draw_schedule(self, in_seconds=in_seconds)
        if path is not None:
            plotting.save_figure(figure, path)
        return figure


def jain_index(values: FloatArray) -> float:
    """Return Jain's index of fairness, (Σx)² / (n Σx²): 1 if all are equal, 1/n if one has all.

    >>> jain_index(np.array([2.0, 2.0])), jain_index(np.array([1.0, 0.0]))
    (1.0, 0.5)
    """
    scaled = values / values.max()  # squares could overflow
    return float(scaled.sum() ** 2 / (len(scaled) * (scaled @ scaled)))


def summarise(name: str, values: FloatArray) -> dict[str, float]:
    """Return the mean, the median, the 95th and 99th percentiles and the maximum of a metric.

    >>> summarise("flow_time", np.array([1.0, 2.0, 9.0]))["median_flow_time"]
    2.0
    """
    median, p95, p99 = np.quantile(values, (0.5, 0.95, 0.99))
    statistics = {
        "mean": values.mean(),
        "median": median,
        "p95": p95,
        "p99": p99,
        "max": values.max(),
    }
    return {f"{statistic}_{name}": float(value) for statistic, value in statistics.items()}
