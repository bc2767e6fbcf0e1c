"""HELL: the highest ratio of efficiency to remaining time first."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies.policy import RankedPolicy, State
from hesrpt.policies.sharing import Leftover, assign_leftover, check_leftover_rule, round_fairly
from hesrpt.speedups import PowerLaw, Speedup


@dataclass(frozen=True)
class Hell(RankedPolicy):
    """The job with the greatest (s(k)/k) / (x/s(k)) is served next, with the k that gives it.

    That is the ratio of the efficiency s(k)/k to the remaining time x/s(k). Servers are assigned in
    this way until each job has been served once or no server is left. k is a whole number. Under
    k^p with p < 1/2 every job gets one server; otherwise the smallest job gets them all.
    ``leftover`` says what happens to servers that are not assigned.
    """

    serves_first_only = True

    leftover: Leftover = "idle"

    def __post_init__(self) -> None:
        check_leftover_rule(self.leftover)

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        free, held = servers, list[float]()
        while len(held) < jobs and free > 0:
            best = most_efficient(speedup, free)
            # The same k stays the best one as long as that many servers are free.
            times = min(max(int(free // best), 1), jobs - len(held))
            held += [best] * times
            free -= best * times
        row = np.zeros(jobs if self.leftover == "equal" else len(held))
        row[: len(held)] = held
        row = assign_leftover(row, servers, self.leftover)
        return round_fairly(row, servers) if whole else row

    def __call__(self, state: State) -> FloatArray:
        if state.speedups.shared is not None:
            return super().__call__(state)
        free, held = state.servers, np.zeros(len(state))
        waiting, served = list(range(len(state))), list[int]()
        while waiting and free > 0:
            best = {job: most_efficient(state.speedups[job], free) for job in waiting}

            def ratio(job: int, best: dict[int, float] = best) -> float:
                rate = float(state.speedups[job](best[job]))
                return rate**2 / best[job] / float(state.remaining[job])

            job = max(waiting, key=ratio)
            held[job] = best[job]
            free -= best[job]
            waiting.remove(job)
            served.append(job)
        order = served + waiting
        held[order] = assign_leftover(held[order], state.servers, self.leftover)
        return held


def most_efficient(speedup: Speedup, servers: float) -> float:
    """Return the whole number k up to ``servers`` that maximises s(k)²/k, the largest of ties.

    If ``servers`` is at most 1, the result is ``servers``.
    """
    if servers <= 1:
        return servers
    if isinstance(speedup, PowerLaw):
        return 1.0 if speedup.p < 0.5 else servers
    # Search a coarse grid first, then all whole numbers around the best one.
    coarse = np.unique(np.rint(np.geomspace(1, servers, 2000)))
    place = int(np.searchsorted(coarse, _best_of(speedup, coarse)))
    low, high = coarse[max(place - 1, 0)], coarse[min(place + 1, len(coarse) - 1)]
    is_narrow = high - low < 10_000
    fine = np.arange(low, high + 1) if is_narrow else np.rint(np.linspace(low, high, 10_000))
    return min(_best_of(speedup, fine), servers)


def _best_of(speedup: Speedup, servers: FloatArray) -> float:
    ratio = speedup.rate(servers) ** 2 / servers
    return float(servers[np.flatnonzero(ratio >= ratio.max() * (1 - 1e-12))[-1]])
