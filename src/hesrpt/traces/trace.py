"""What is left of a log once it is read: the jobs, and how many could not be used and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import compress

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError

#: The name of the schedule that a trace records, where it stands beside those of policies.
RECORDED = "as recorded"


@dataclass(frozen=True, eq=False)
class Log:
    """What the log of a cluster says of its jobs, as they were submitted."""

    #: The file, or "standard input".
    place: str
    #: Seconds since the first submission of a job that could be used, in ascending order.
    submit: FloatArray
    #: Seconds, greater than 0.
    runtime: FloatArray
    #: Whole numbers of at least 1.
    servers: FloatArray
    #: By the same clock as ``submit``; NaN where the log does not say.
    start: FloatArray
    #: Of the run time, by the user, in seconds; NaN where the log does not say.
    estimate: FloatArray
    #: The numbers or ids of the jobs.
    names: tuple[str, ...]
    #: How many servers the log says that there are.
    machine: int | None
    #: The date of time 0, where it is known; with a time zone if the log gives one.
    began: datetime | None
    #: How many jobs the log holds.
    read: int
    #: Why jobs could not be used, and how many for each reason.
    dropped: Mapping[str, int]

    def __len__(self) -> int:
        return len(self.submit)

    @property
    def told(self) -> str:
        """How many jobs are used, and why the others are not, in words."""
        return told(len(self), self.read, self.dropped)

    def select(self, keep: BoolArray, reason: str) -> Log:
        """Return a log of some of the jobs; the others are counted under that reason.

        Submissions stay on the same clock, so the first one need no longer be at time 0.
        """
        chosen = np.asarray(keep)
        if chosen.dtype != np.bool_ or chosen.shape != self.submit.shape:
            raise InputError(
                f"keep must have one truth value per job: {len(self)} expected, "
                f"got {chosen.size} of type {chosen.dtype}"
            )
        left_out = int(np.count_nonzero(~chosen))
        dropped = dict(self.dropped)
        if left_out:
            dropped[reason] = dropped.get(reason, 0) + left_out
        if left_out == len(self):
            raise InputError(f"{self.place}: no job is left: {told(0, self.read, dropped)}")
        return replace(
            self,
            submit=self.submit[chosen],
            runtime=self.runtime[chosen],
            servers=self.servers[chosen],
            start=self.start[chosen],
            estimate=self.estimate[chosen],
            names=tuple(compress(self.names, chosen)),
            dropped=dropped,
        )


def told(used: int, read: int, dropped: Mapping[str, int]) -> str:
    """Return in words how many jobs are used, and why the others are not.

    >>> told(18_066, 18_239, {"had run time 0": 171, "line could not be read": 2})
    '18,066 of 18,239 jobs used; 171 had run time 0; 2 lines could not be read'
    """
    parts = [f"{used:,} of {read:,} job{'' if read == 1 else 's'} used"]
    for reason, count in dropped.items():
        several = reason.startswith("line ") and count != 1
        parts.append(f"{count:,} {'lines' + reason[4:] if several else reason}")
    return "; ".join(parts)
