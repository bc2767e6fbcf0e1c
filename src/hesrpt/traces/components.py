"""Heterogeneous jobs: components that start together, on servers of different kinds."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.traces.building import RawJobs


def join_components(components: RawJobs, jobs: Sequence[str]) -> RawJobs:
    """Return one job for all components of each, given the name of the job of each component.

    A job holds the servers of all its components until the last of them ends.
    """
    members: dict[str, list[int]] = {}
    for component, job in enumerate(jobs):
        members.setdefault(job, []).append(component)
    groups = list(members.values())

    def join(values: FloatArray, reduce: Callable[[FloatArray], np.float64]) -> FloatArray:
        return np.array([reduce(values[group]) for group in groups])

    def quote(job: int, column: str) -> str:
        return " + ".join(components.quote(component, column) for component in groups[job])

    return RawJobs(
        places=[components.places[group[0]] for group in groups],
        names=list(members),
        # A missing value of one component is missing for the job: NaN propagates.
        submit_times=join(components.submit_times, np.min),
        runtimes=join(components.runtimes, np.max),
        servers=join(components.servers, np.sum),
        start_times=join(components.start_times, np.min),
        estimates=join(components.estimates, np.max),
        defects={
            reason: np.array([affected[group].any() for group in groups])
            for reason, affected in components.defects.items()
        },
        quote=quote,
        labels={
            name: [values[group[0]] for group in groups]
            for name, values in components.labels.items()
        },
    )
