"""The jobs of a workload as arrays for the compiled kernel, and the total cost at given prices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.compiled import create_records
from hesrpt.optimal.price_kernel import add_usage, find_minima
from hesrpt.optimal.price_kernel_data import (
    MAX_MINIMA,
    Kind,
    Minima,
)
from hesrpt.speedups import SpeedupVector


class PricedJobs:
    """Jobs that pay for servers, sorted by kind and arrival as the kernel needs them."""

    def __init__(
        self,
        sizes: FloatArray,
        arrivals: FloatArray,
        weights: FloatArray,
        speedups: SpeedupVector,
        servers: float,
    ) -> None:
        self.servers = servers
        self.shapes, self.corners, shape_of_job = speedups.shapes(servers, tabulated=True)
        #: The jobs as they were given, in the order of all other arrays.
        self.order = np.lexsort((sizes, arrivals, weights, shape_of_job))
        self.sizes, self.arrivals = sizes[self.order], arrivals[self.order]
        self.weights = weights[self.order]
        self.kinds = _create_kinds(shape_of_job[self.order], self.weights)
        jobs = len(sizes)
        self._minima = Minima(
            np.zeros(jobs, dtype=np.int64),
            np.empty((jobs, MAX_MINIMA)),
            np.empty((jobs, MAX_MINIMA), dtype=np.int64),
            np.empty((jobs, MAX_MINIMA)),
            np.empty((jobs, MAX_MINIMA), dtype=np.int64),
        )

    def __len__(self) -> int:
        return len(self.sizes)

    def evaluate(
        self,
        times: FloatArray,
        prices: FloatArray,
        smoothing: float,
        *,
        max_steps: int = 6,
        for_each: bool = False,
    ) -> PricedCosts:
        """Return the costs of the jobs if the price of a server is constant between ``times``.

        Every arrival must be one of the times. After the last time the price is 0. Costs are
        bounded from below; the more steps, the closer. The usage is that of all jobs together, or
        ``for_each`` of them.
        """
        arrivals = np.searchsorted(times, self.arrivals)
        least, ends = np.empty(len(self)), np.empty(len(self))
        usage = np.zeros((len(self) if for_each else 1, len(prices)))
        jobs = self.kinds, self.shapes, self.corners, self.sizes, arrivals, times, prices
        steps = find_minima(*jobs, _NEGLIGIBLE * smoothing, max_steps, least, self._minima)
        smoothed = add_usage(*jobs, least, self._minima, smoothing, usage, ends)
        return PricedCosts(least, smoothed, usage, ends, steps)


# Local minima this many times the smoothing above the least cost have no weight.
_NEGLIGIBLE = 10.0


@dataclass(frozen=True)
class PricedCosts:
    """What each job costs at given prices, and what it uses."""

    costs: FloatArray
    smoothed_total: float  # with the minimum over completion times smoothed
    usage: FloatArray  # a row with the server time in each interval: the gradient of the cost
    ends: FloatArray
    steps: int  # of the computation


def _create_kinds(shape_of_job: IntArray, weights: FloatArray) -> Any:
    """Return the kinds of jobs that are sorted by shape and weight, as an array of records."""
    is_first = np.ones(len(weights), dtype=bool)
    is_first[1:] = (np.diff(shape_of_job) != 0) | (np.diff(weights) != 0)
    first_job = np.flatnonzero(is_first)
    return create_records(
        Kind,
        len(first_job),
        speedup=shape_of_job[first_job],
        weight=weights[first_job],
        first_job=first_job,
        end_job=np.append(first_job[1:], len(weights)),
    )
