"""The timeline of a plan in closed form: allocations are computed from a formula on demand."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.optimal.closed_form_batch import (
    ClosedFormOptimum,
    compute_shares,
    log_ratio_before,
    own_share,
    power_of_ratio,
)
from hesrpt.schedule import Timeline
from hesrpt.workload import Workload


class ClosedFormTimeline(Timeline):
    """The timeline of heSRPT. Phase j starts when j jobs have ended; shares depend on j alone."""

    def __init__(
        self, servers: float, p: float, weights: FloatArray | None, optimum: ClosedFormOptimum
    ) -> None:
        self.total, self.p, self.weights = servers, p, weights
        self.first_to_last, self.ends = optimum.first_to_last, optimum.ends

    def _weights_present(self, phase: int) -> FloatArray:
        """Return the weights of the jobs of a phase, from the last to end to the first."""
        present = self.first_to_last[phase:][::-1]
        return np.ones(len(present)) if self.weights is None else self.weights[present]

    @property
    def prices(self) -> FloatArray:
        """The price of a server in each phase, p W/N, where W is the weight of the jobs present."""
        return self.p / self.total * np.cumsum(self._weights_present(0))[::-1]

    def servers(self, phase: int) -> FloatArray:
        held = self.total * compute_shares(self._weights_present(phase), self.p)
        return self._in_given_order(phase, held[::-1])

    def _in_given_order(self, phase: int, values: FloatArray) -> FloatArray:
        result = np.zeros(len(self.ends))
        result[self.first_to_last[phase:]] = values
        return result

    def servers_of(self, job: int) -> FloatArray:
        place = int(np.flatnonzero(self.first_to_last == job)[0])
        weights = self._weights_present(0)[::-1]
        up_to = np.append(np.cumsum(weights[::-1])[::-1], 0.0)
        these = slice(place, place + 1)
        # Of the servers that it and all later jobs hold, the job's share never changes.
        later = up_to[place + 1 : place + 2]
        own = own_share(log_ratio_before(weights[these], up_to[these], later), self.p)
        held_by_these = power_of_ratio(up_to[these], up_to[: place + 1], 1 / (1 - self.p))
        held = np.zeros(len(self.ends))
        held[: place + 1] = self.total * own * held_by_these
        return held

    def server_seconds(self) -> float:
        return self.total * float(self.ends[-1])

    def remaining(self, workload: Workload, times: FloatArray) -> Iterator[FloatArray]:
        for time in times:
            phase = int(np.searchsorted(self.ends, time, side="right"))
            if phase == len(self.ends):
                yield np.zeros(len(self.ends))
                continue
            shares = compute_shares(self._weights_present(phase), self.p)[::-1]
            start, done = 0.0, np.zeros(len(shares))
            if phase:
                # The ratio of two jobs' rates is constant while both run. So the size of the job
                # that ended last gives the work that the others had done by then.
                start = float(self.ends[phase - 1])
                before = compute_shares(self._weights_present(phase - 1), self.p)[::-1]
                last_ended = workload.sizes[self.first_to_last[phase - 1]]
                done = last_ended * (before[1:] / before[0]) ** self.p
            done += (time - start) * (self.total * shares) ** self.p
            remaining = workload.sizes[self.first_to_last[phase:]] - done
            yield self._in_given_order(phase, np.maximum(remaining, 0.0))
