"""The jobs of a cluster's trace, with a count of the jobs that were dropped and why."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import compress

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray, TextArray
from hesrpt.errors import InputError
from hesrpt.speedups import Measured
from hesrpt.units import format_count

#: The name of the schedule that the trace itself records, next to the names of policies.
RECORDED = "as recorded"
_ARRAYS = ("submit_times", "runtimes", "servers", "start_times", "estimates")


@dataclass(frozen=True, eq=False, kw_only=True)
class Trace:
    """The usable jobs of a trace, in order of submission; one entry per job in each array."""

    #: The path of the file, or "standard input".
    source: str
    #: Seconds since the first submission of a usable job, in ascending order.
    submit_times: FloatArray
    #: Seconds, greater than 0.
    runtimes: FloatArray
    #: Whole numbers of at least 1.
    servers: FloatArray
    #: On the same clock as ``submit_times``; NaN if unknown.
    start_times: FloatArray
    #: The users' estimates of the run times in seconds; NaN if unknown.
    estimates: FloatArray
    #: Job numbers or ids.
    names: tuple[str, ...]
    #: Other columns as text: "user" if the trace has users, and those that were asked for.
    labels: Mapping[str, TextArray] = field(default_factory=dict)
    #: Measured speedups of the jobs; empty if the trace does not record them, as most do not.
    speedups: tuple[Measured, ...] = ()
    #: The number of servers of the machine, if the trace states it.
    machine_servers: int | None = None
    #: The date of time 0, if it is known; with a time zone if the trace has one.
    start_date: datetime | None = None
    #: The number of jobs in the file, usable or not.
    jobs_read: int
    #: The number of dropped jobs for each reason.
    dropped: Mapping[str, int]
    #: Sentences on what the reader assumed.
    notes: tuple[str, ...] = ()
    #: The SHA-256 digest of the file that was read, after decompression; empty if there was none.
    sha256: str = ""

    def __len__(self) -> int:
        return len(self.submit_times)

    @property
    def summary(self) -> str:
        """A sentence on how many jobs are used, and why the others are not."""
        return summarise_jobs(len(self), self.jobs_read, self.dropped)

    def select(self, keep: BoolArray, reason: str) -> Trace:
        """Return a trace of the jobs to keep; the others count as dropped for this reason.

        Submission times stay on the same clock, so the first one may be later than 0.
        """
        mask = np.asarray(keep)
        if mask.dtype != np.bool_ or mask.shape != self.submit_times.shape:
            raise InputError(
                f"must have True or False for each of {format_count(len(self), 'job')}, "
                f"got {format_count(mask.size, 'value')} of type {mask.dtype}",
                argument="keep",
            )
        removed = int(np.count_nonzero(~mask))
        dropped = dict(self.dropped)
        if removed:
            dropped[reason] = dropped.get(reason, 0) + removed
        if removed == len(self):
            counts = summarise_jobs(0, self.jobs_read, dropped)
            raise InputError(f"{self.source}: no job remains: {counts}")
        return replace(
            self,
            **{name: getattr(self, name)[mask] for name in _ARRAYS},
            names=tuple(compress(self.names, mask)),
            labels={name: values[mask] for name, values in self.labels.items()},
            speedups=tuple(compress(self.speedups, mask)),
            dropped=dropped,
        )


def summarise_jobs(used: int, jobs_read: int, dropped: Mapping[str, int]) -> str:
    """Return a sentence on how many jobs are used, and why the others are not.

    >>> summarise_jobs(18_066, 18_239, {"had run time 0": 171, "line could not be read": 2})
    '18,066 of 18,239 jobs used; 171 had run time 0; 2 lines could not be read'
    """
    parts = [f"{used:,} of {format_count(jobs_read, 'job')} used"]
    for reason, count in dropped.items():
        is_plural = reason.startswith("line ") and count != 1
        parts.append(f"{count:,} {'lines' + reason[4:] if is_plural else reason}")
    return "; ".join(parts)
