"""What the policy has learned from the jobs of a run, kept from one plan to the next."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from hesrpt.policies import Calibration, Policy, State
from hesrpt.speedups import SpeedupVector


class Calibrator:
    """Advances the calibration of a policy. It stays None for a policy that learns nothing."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._before: State | None = None  # the state of the last plan, with its calibration

    @property
    def calibration(self) -> Calibration | None:
        """What the policy has learned so far."""
        return None if self._before is None else self._before.calibration

    def has_to_learn(self, jobs: Iterable[int]) -> bool:
        """Return whether jobs have come or gone since the last plan, given by their numbers."""
        if not self._policy.is_calibrated:
            return False
        known = [] if self._before is None else self._before.jobs.tolist()
        return list(jobs) != known

    def advance(self, state: State) -> None:
        """Learn from what has happened since the last plan; ``state`` has all jobs of the run."""
        state.calibration = self._policy.calibrate(self._before, state)
        self._before = state

    def to_json(self) -> dict[str, Any] | None:
        """Return what a later run should know as JSON values.

        The entries of jobs that have not ended are left out: when these jobs come back, they count
        as new ones.
        """
        if self.calibration is None:
            return None
        return self.calibration.take(np.zeros(0, dtype=np.int64)).as_json()

    def resume(self, calibration: Calibration) -> None:
        """Continue from what was learned elsewhere, without the jobs that were there."""
        nothing = np.zeros(0)
        self._before = State(
            time=0.0,
            servers=0.0,
            whole=True,
            jobs=np.zeros(0, dtype=np.int64),
            remaining=nothing,
            sizes=nothing,
            arrivals=nothing,
            weights=nothing,
            speedups=SpeedupVector.create([]),
            calibration=calibration.take(np.zeros(0, dtype=np.int64)),
        )
