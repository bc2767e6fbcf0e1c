"""The data of a calibration in the compiled event loop."""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.policies import calibration
from hesrpt.simulator.kernel_data import create_record


class CalibrationSettings(Protocol):
    """Settings, which stay the same during a run: see :mod:`hesrpt.policies.calibration`."""

    levels: int
    levels_squared: float
    min_focus: float
    memory: float
    usual_memory: float
    least_share: float  # of the last arrival in the usual number of jobs
    patience: float
    prior_focus: float
    prior_weight: float
    size_power: float
    max_size_weight: float


class CalibrationState(Protocol):
    """The calibration, apart from the sums of each job."""

    level: int
    is_stream: bool
    arrival_times: int
    ended_since: int
    focus_dividend: float  # the focus when jobs last arrived, as a fraction
    focus_divisor: float
    numerator: float
    denominator: float
    log_sizes: float
    usual: float


class CalibrationData(NamedTuple):
    """All of a calibration; state and settings are arrays with one record."""

    samples: FloatArray  # of each job: spread, lean and height, and what a unit of work counts
    log_rank: FloatArray  # ln 0 (unused), ln 1, ln 2, …: one for each row of a level
    state: Any
    settings: Any

    @property
    def level(self) -> int:
        """The present level."""
        return int(self.state["level"][0])

    def with_room(self, room: int) -> CalibrationData:
        """Return the same calibration for a table with room for this many rows at each level."""
        if room == len(self.log_rank):
            return self
        return self._replace(log_rank=_list_logarithms(room))


def create_calibration(jobs: int, room: int) -> CalibrationData:
    """Return the calibration at the start of a run, with the sums of this many jobs."""
    return CalibrationData(
        samples=np.zeros((jobs, 4)),
        log_rank=_list_logarithms(room),
        state=create_record(
            CalibrationState,
            level=calibration.LEVELS,
            focus_dividend=1.0,
            focus_divisor=1.0,
            numerator=calibration.BATCH_WEIGHT,
            denominator=calibration.BATCH_WEIGHT,
        ),
        settings=create_record(
            CalibrationSettings,
            levels=calibration.LEVELS,
            levels_squared=calibration.LEVELS**2,
            min_focus=calibration.focus_of_level(calibration.MIN_LEVEL),
            memory=calibration.MEMORY,
            usual_memory=calibration.USUAL_MEMORY,
            least_share=1 / calibration.USUAL_MEMORY,
            patience=calibration.PATIENCE,
            prior_focus=calibration.PRIOR_FOCUS,
            prior_weight=calibration.PRIOR_WEIGHT,
            size_power=calibration.SIZE_POWER,
            max_size_weight=calibration.MAX_SIZE_WEIGHT,
        ),
    )


def _list_logarithms(room: int) -> FloatArray:
    return np.log(np.maximum(np.arange(room), 1.0))
