"""An engine whose items slow each other down, in simulated time."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from hesrpt.engines.engine import Outcome, Task
from hesrpt.engines.fake import FakeEngine
from hesrpt.speedups import Speedup


class SharedSpeedEngine(FakeEngine):
    """With k items of a job in flight, each does s(k)/k seconds of its work in a second."""

    def __init__(
        self, servers: int, seconds: Mapping[str, Sequence[float]], speedups: Mapping[str, Speedup]
    ) -> None:
        super().__init__(servers)
        self.seconds, self.speedups = seconds, speedups
        self._left: dict[str, dict[int, float]] = {name: {} for name in seconds}  # by item
        self._started: dict[tuple[str, int], float] = {}

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        for item in tasks:
            self._left[job][item] = self.seconds[job][item]
            self._started[job, item] = self.time

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        rates = {
            name: float(self.speedups[name](len(left))) / len(left)
            for name, left in self._left.items()
            if left
        }
        ends = [min(self._left[name].values()) / rate for name, rate in rates.items()]
        step = min([timeout, *ends])
        self.time += step
        outcomes = []
        for name, rate in rates.items():
            for item, left in [*self._left[name].items()]:
                if left <= step * rate * (1 + 1e-12):
                    del self._left[name][item]
                    seconds = self.time - self._started.pop((name, item))
                    outcomes.append(Outcome(name, item, seconds))
                else:
                    self._left[name][item] = left - step * rate
        if not outcomes:
            time.sleep(0.0005)  # let other threads submit work
        return outcomes
