"""The recursion for few jobs on few whole servers, without compiled code.

On whole servers, what n servers can earn is a sum: of the n largest gains v_i (s_i(j+1) − s_i(j))
of any job from any further server. So the value of job k is a minimum over N numbers,

    v_k = min over n in 1 … N of (W_k − U_{k−1}(N − n)) / s_k(n),

and an allocation gives each server where it gains the most. A live run usually has few jobs at a
time. For these, loading the general recursion (:mod:`hesrpt.optimal.recursion`) would take longer
than all decisions together, and compiling it takes seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.speedups import SpeedupVector

# Above one of these, the general recursion is faster.
_MAX_JOBS = 16
_MAX_SERVERS = 256
# A job with a weight below this fraction of the total weight up to it waits for another job to end.
_NEGLIGIBLE = 1e-12
# Gains whose logarithms differ by less than this are tied, whatever rounding says.
_TIED = 1e-9


@dataclass(frozen=True)
class WholeValues:
    """The value of each job's work, and its gain from each further server.

    Jobs are listed from the last to end to the first.
    """

    values: FloatArray
    gains: FloatArray  # a row for each job

    def allocate(self, jobs: int) -> tuple[int, FloatArray]:
        """Return the allocation when only the first ``jobs`` jobs are present.

        The result is the first job that holds servers, and the servers of all jobs from it on. Of
        tied jobs, those that end first are served first.
        """
        servers = self.gains.shape[1]
        gains = self.gains[jobs - 1 :: -1].ravel() if jobs > 0 else np.empty(0)
        useful = np.flatnonzero(gains > 0)
        keys = np.round(np.log(gains[useful]) / _TIED)
        chosen = useful[np.argsort(-keys, kind="stable")[:servers]]
        held = np.bincount(jobs - 1 - chosen // servers, minlength=jobs).astype(np.float64)
        start = int(np.argmax(held > 0))
        return start, held[start:]


def can_be_listed(jobs: int, servers: float) -> bool:
    """Return whether jobs and servers are so few that all gains can be listed quickly."""
    return jobs <= _MAX_JOBS and 1 <= servers <= _MAX_SERVERS and servers == int(servers)


def compute_whole_values(speedups: SpeedupVector, servers: int, weights: FloatArray) -> WholeValues:
    """Return the values of jobs listed from the last to end to the first.

    ``speedups`` are those on whole servers.

    >>> from hesrpt import PowerLaw
    >>> speedups = SpeedupVector.repeat(PowerLaw(0.5).on_whole_servers(), 2)
    >>> found = compute_whole_values(speedups, 10, np.ones(2))
    >>> found.allocate(2)
    (0, array([2., 8.]))
    """
    numbers = np.arange(servers + 1.0)
    values = np.empty(len(weights))
    gains = np.empty((len(weights), servers))
    earnings = np.zeros(servers + 1)  # of the jobs so far, on 0, 1, 2 … servers
    largest = np.empty(0)  # of their gains
    cost = 0.0
    shared = speedups.shared
    rates = np.empty(0) if shared is None else shared.rate(numbers)
    for job, weight in enumerate(weights.tolist()):
        cost += weight
        if shared is None:
            rates = speedups[job].rate(numbers)
        values[job] = float(np.min((cost - earnings[:servers][::-1]) / rates[1:]))
        if weight < _NEGLIGIBLE * cost:
            values[job] = weight / float(rates[-1])
        gains[job] = values[job] * np.diff(rates)
        largest = np.sort(np.concatenate((largest, gains[job])))[::-1][:servers]
        earnings[1:] = np.cumsum(largest)
    return WholeValues(values, gains)
