"""From equal values to those of the batch, and sharing servers by them.

What a unit of a job's work is worth follows from the price of servers when the job ends. If that is
the price λ now, the job costs w + λ n a second on n servers and does s(n) of work, so it is worth
the least ratio of the two. The *common* price λ is the one at which jobs on their best n use all
servers. In a batch prices fall, and the planner knows by how much. The focus f is between the two:

    v  =  (value at the common price)^(1 − f) · (value in the batch)^f.

For k^p this says that the price expected when a job ends is a power f of the batch's. With more
jobs than the planner can value, or if only the first of a long queue are looked at, that is what is
used for any speedup: of m jobs, the i-th to end counted from the last expects λ (i/m)^f, where λ is
the price now.

The compiled functions are in :mod:`hesrpt.policies.pricing_kernel`.
"""

from __future__ import annotations

from math import ceil, floor, inf, log
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.optimal.whole_recursion import WholeValues, can_be_listed
from hesrpt.policies.calibration_kernel import GRID, MAX_COMMON_PRICE, MIN_COMMON_PRICE
from hesrpt.policies.sharing import usable_servers
from hesrpt.speedups import SpeedupVector

if TYPE_CHECKING:
    from hesrpt.policies.pricing_kernel import Market, PriceSearch


# Keeps from division by 0.
_TINY = 1e-200


class Resizes(NamedTuple):
    """What resizes cost: an entry for each job."""

    now: FloatArray  # the servers that it holds
    loss: FloatArray  # the part of its work until the next change that a resize costs

    def take(self, places: IntArray) -> Resizes:
        """Return the entries of these jobs."""
        return Resizes(self.now[places], self.loss[places])


def count_resizes(
    speedups: SpeedupVector, remaining: FloatArray, now: FloatArray, costs: FloatArray
) -> Resizes:
    """Return what resizes that stop jobs for ``costs`` seconds would cost them.

    When the next job ends is known, but others may arrive before. So a job that pauses for c is
    expected to work on its new servers for a quarter of the time until then, and for 3 c: the more
    resizes cost, the more changes it keeps them over. If it needs less than that to end on the
    servers that it holds, the pause costs more: a job about to end is not resized.
    """
    rates = np.maximum(speedups.rate(now), _TINY)  # a job without servers does not end
    until_end = remaining / rates
    lasts = 4 * costs + float(np.min(until_end, initial=inf)) / 4
    return Resizes(now, np.minimum(costs / np.maximum(np.minimum(lasts, until_end), _TINY), 1))


def share_by_price(
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    focus: float,
    others: float = 0.0,
    resizes: Resizes | None = None,
) -> FloatArray:
    """Return the servers of jobs, listed from the first to end to the last, by expected prices.

    Jobs of the weight ``others`` end after them.
    """
    from hesrpt.policies import pricing_kernel

    places, market, search = _open_market(speedups, servers, weights, resizes)
    pricing_kernel.share_by_price(places, len(places), market, search, focus, others)
    return market.held


def share_by_value(
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    focus: float,
    batch: FloatArray,
    whole: bool,
    resizes: Resizes | None = None,
) -> FloatArray:
    """Return the servers of jobs, listed from the first to end to the last, by their values.

    ``batch`` has their values in the batch. If jobs get ``whole`` servers, the speedups are those
    on whole servers.
    """
    if whole and can_be_listed(len(weights), servers) and resizes is None:
        return _share_few_by_value(speedups, int(servers), weights, focus, batch)
    from hesrpt.policies import pricing_kernel

    places, market, search = _open_market(speedups, servers, weights, resizes, whole)
    search.value[:] = batch
    if not pricing_kernel.share_plenty(places, len(places), market):
        pricing_kernel.share_by_value(places, len(places), market, search, focus)
    return market.held


def _share_few_by_value(
    speedups: SpeedupVector, servers: int, weights: FloatArray, focus: float, batch: FloatArray
) -> FloatArray:
    """Share few whole servers without compiled code, which takes long to load."""
    rates = np.array([each.rate(np.arange(servers + 1.0)) for each in speedups])
    numbers = np.arange(1.0, servers + 1)

    def find_costs(price: float) -> FloatArray:
        costs: FloatArray = (weights[:, np.newaxis] + price * numbers) / rates[:, 1:]
        return costs

    total = float(weights.sum())
    low = floor(log(MIN_COMMON_PRICE * total / servers, GRID))
    high = ceil(log(MAX_COMMON_PRICE * total, GRID))
    demand_low, demand_high = inf, float(servers)
    while high - low > 1:
        middle = (low + high) // 2
        demand = float(np.sum(1 + np.argmin(find_costs(GRID**middle), axis=1)))
        if demand > servers:
            low, demand_low = middle, demand
        else:
            high, demand_high = middle, demand
    part = 1.0
    if demand_high < servers and demand_low < inf:
        part = log(demand_low / servers) / log(demand_low / demand_high)
    common = find_costs(GRID ** (low + part)).min(axis=1)
    values = common * (batch / common) ** focus
    gains = values[:, np.newaxis] * np.diff(rates)
    start, allocation = WholeValues(values[::-1], gains[::-1]).allocate(len(weights))
    return np.concatenate((np.zeros(start), allocation))[::-1]


def _open_market(
    speedups: SpeedupVector,
    servers: float,
    weights: FloatArray,
    resizes: Resizes | None,
    whole: bool = False,
) -> tuple[IntArray, Market, PriceSearch]:
    from hesrpt.policies.pricing_kernel import Market, create_price_search

    jobs = len(weights)
    places = np.arange(jobs)
    shapes = speedups.shapes(servers, tabulated=True)
    usable = usable_servers(speedups, servers, jobs)
    now, loss = resizes or np.zeros((2, jobs))
    weights, held = np.ascontiguousarray(weights), np.zeros(jobs)
    has_losses = resizes is not None
    market = Market(shapes, weights, usable, held, now, loss, servers, has_losses, whole)
    return places, market, create_price_search(jobs)
