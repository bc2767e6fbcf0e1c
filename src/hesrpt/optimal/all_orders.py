"""A bound on the cost of all schedules of a plan's jobs, whatever their completion order.

The job values of a plan bound the schedules that end jobs in the same order. Prices of a server
over time bound all schedules (see docs/explanation/bounds.md), and the prices of the plan's own
phases are nearly the best ones. So the bound takes hardly any search.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.objectives import FlowObjective
from hesrpt.schedule import Timeline
from hesrpt.workload import Workload

if TYPE_CHECKING:
    from hesrpt.optimal.bounds import LowerBound
    from hesrpt.optimal.price_search import FoundPrices

# The most intervals of a path of prices, and the same for more jobs than that.
_MAX_INTERVALS, _MANY_JOBS, _MAX_INTERVALS_OF_MANY = 100, 10_000, 50


def bound_all_orders(
    workload: Workload, servers: float, objective: FlowObjective, whole: bool, timeline: Timeline
) -> LowerBound:
    """Return a bound that no schedule of these jobs can beat, in whatever order they end.

    They must arrive together. The prices of the timeline, that of a plan for these jobs, are only
    where the search starts: the bound is proven from the prices that are found.
    """
    from hesrpt.optimal.bounds import bound_by_prices
    from hesrpt.optimal.price_search import refine_prices, search_prices

    ends, paid = timeline.ends, getattr(timeline, "prices", None)
    search: Callable[..., FoundPrices] = search_prices
    if paid is not None and len(paid) == len(ends) and np.all((paid >= 0) & np.isfinite(paid)):
        most = _MAX_INTERVALS if len(workload) <= _MANY_JOBS else _MAX_INTERVALS_OF_MANY
        times, prices = merge_phases(ends, paid, most)
        search = partial(refine_prices, times + float(workload.arrival_times[0]), prices)
    return bound_by_prices(workload, servers, objective, whole, search)


def merge_phases(ends: FloatArray, prices: FloatArray, most: int) -> tuple[FloatArray, FloatArray]:
    """Return the ends and the mean prices of about ``most`` intervals at most, and 0 before them.

    Intervals are short where prices change, where servers cost much, and in general.

    >>> merge_phases(np.array([1.0, 2.0, 2.0, 4.0]), np.array([3.0, 2.0, 9.0, 1.0]), 10)
    (array([0., 1., 2., 4.]), array([3., 2., 1.]))
    """
    is_long = np.diff(ends, prepend=0.0) > 1e-12 * ends[-1]
    ends, prices = ends[is_long], prices[is_long]
    paid = np.cumsum(prices * np.diff(ends, prepend=0.0))
    progress = 0.5 * ends / ends[-1]
    if paid[-1] > 0:
        logarithms = np.log(np.maximum(prices, 1e-9 * prices.max()))
        changes = np.cumsum(np.abs(np.diff(logarithms, prepend=logarithms[0])))
        progress += paid / paid[-1] + changes / max(float(changes[-1]), 1.0)
    steps = np.linspace(0.0, progress[-1], most + 1)[1:-1]
    last = np.unique(np.append(np.searchsorted(progress, steps), len(ends) - 1))
    times, paid = np.append(0.0, ends[last]), np.append(0.0, paid[last])
    return times, np.diff(paid) / np.diff(times)
