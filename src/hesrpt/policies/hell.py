"""HELL: the highest ratio of efficiency to remaining time first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies.policy import State
from hesrpt.policies.ranked import RankedPolicy
from hesrpt.policies.sharing import (
    Leftover,
    assign_leftover,
    check_leftover_rule,
    round_fairly,
)
from hesrpt.speedups import PowerLaw, Speedup


@dataclass(frozen=True)
class Hell(RankedPolicy):
    """Of all jobs and numbers of servers, the greatest (s(k)/k) / (x/s(k)) is served first.

    Again and again, the job that can reach the highest ratio of its efficiency s(k)/k to its
    remaining time x/s(k) gets the k servers that this takes, until all jobs are served once or all
    servers are handed out. Servers are whole. With k^p and p < 1/2 every job gets one; otherwise
    the smallest gets them all. ``leftover`` says what happens to servers that nobody was given.
    """

    leftover: Leftover = "idle"

    def __post_init__(self) -> None:
        check_leftover_rule(self.leftover)

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        left, held = servers, list[float]()
        while len(held) < jobs and left > 0:
            wanted = most_efficient(speedup, left)
            # The choice stays the same as long as there is enough for it.
            times = min(max(int(left // wanted), 1), jobs - len(held))
            held += [wanted] * times
            left -= wanted * times
        row = np.zeros(jobs if self.leftover == "equal" else len(held))
        row[: len(held)] = held
        row = assign_leftover(row, servers, self.leftover)
        return round_fairly(row, servers) if whole else row

    def constant_from(self, servers: float, speedup: Speedup, whole: bool) -> int | None:
        if self.leftover == "equal":
            return None
        left, jobs = servers, 0
        while left > 0:
            wanted = most_efficient(speedup, left)
            times = max(int(left // wanted), 1)
            left, jobs = left - wanted * times, jobs + times
        return jobs

    def __call__(self, state: State) -> FloatArray:
        if state.speedups.shared is not None:
            return super().__call__(state)
        left, held = state.servers, np.zeros(len(state))
        waiting = list(range(len(state)))
        order = []
        while waiting and left > 0:
            wanted = {job: most_efficient(state.speedups[job], left) for job in waiting}
            best = max(
                waiting,
                key=lambda job: (
                    float(state.speedups[job](wanted[job])) ** 2
                    / wanted[job]
                    / state.remaining[job]
                ),
            )
            held[best] = wanted[best]
            left -= wanted[best]
            waiting.remove(best)
            order.append(best)
        order += waiting
        held[order] = assign_leftover(held[order], state.servers, self.leftover)
        return held


def most_efficient(speedup: Speedup, servers: float) -> float:
    """Return the whole number of servers, of so many, that maximises s(k)²/k; all but a part of 1.

    Of equally good ones the most are taken.
    """
    if servers <= 1:
        return servers
    if isinstance(speedup, PowerLaw):
        return 1.0 if speedup.p < 0.5 else servers
    coarse = np.unique(np.rint(np.geomspace(1, servers, 2000)))
    best = _best(speedup, coarse)
    place = int(np.searchsorted(coarse, best))
    low, high = coarse[max(place - 1, 0)], coarse[min(place + 1, len(coarse) - 1)]
    fine = (
        np.arange(low, high + 1) if high - low < 10_000 else np.rint(np.linspace(low, high, 10_000))
    )
    return min(_best(speedup, fine), servers)


def _best(speedup: Speedup, servers: FloatArray) -> float:
    ratio = speedup.rate(servers) ** 2 / servers
    return float(servers[np.flatnonzero(ratio >= ratio.max() * (1 - 1e-12))[-1]])
