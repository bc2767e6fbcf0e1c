"""When jobs end if those present always share the servers equally: where searches start."""

from __future__ import annotations

import numpy as np

from hesrpt.arrays import FloatArray, scalar
from hesrpt.speedups import SpeedupVector

# A job has ended if this fraction of it is left, because of rounding.
_NOTHING_LEFT = 1e-12


def find_equal_share_ends(
    sizes: FloatArray, arrivals: FloatArray, speedups: SpeedupVector, servers: float
) -> FloatArray:
    """Return the time at which each job ends under equal shares.

    >>> from hesrpt.speedups import PowerLaw
    >>> speedups = SpeedupVector.repeat(PowerLaw(0.5), 2)
    >>> find_equal_share_ends(np.array([2.0, 3.0]), np.array([0.0, 9.0]), speedups, 4.0)
    array([ 1. , 10.5])
    """
    usable = speedups.demand(np.zeros(len(sizes)), servers)
    by_arrival = np.argsort(arrivals, kind="stable")
    times = np.append(arrivals[by_arrival], np.inf)
    ends, left = np.empty(len(sizes)), sizes.copy()
    present = by_arrival[:0]
    arrived, now = 0, float(times[0])
    while len(present) or arrived < len(sizes):
        if not len(present):
            now = float(times[arrived])
        new = int(np.searchsorted(times, now, side="right"))
        present = np.concatenate((present, by_arrival[arrived:new]))
        arrived = new
        share = servers / len(present)
        if (shared := speedups.shared) is not None:
            rates = shared.rate(scalar(min(share, float(usable[0]))))
        else:
            rates = speedups.rate(np.minimum(share, usable))[present]
        step = min(float((left[present] / rates).min()), float(times[arrived]) - now)
        left[present] -= step * rates
        has_ended = left[present] <= _NOTHING_LEFT * sizes[present]
        now = min(now + step, float(times[arrived]))
        ends[present[has_ended]] = now
        present = present[~has_ended]
    return ends
