"""The most servers that a malleable job gets, whatever the policy.

A trace shows how long a job ran on the servers that it asked for. The further a study moves from
that number, the more of the result is assumption: if p is wrong by 0.2, a job on 4 times its
servers is wrong by 4^0.2, a third; on 1,000 times, by a factor of 4. So by default no job gets more
than 4 times what it asked for, nor more than the largest request in the trace.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.traces import Trace
from hesrpt.units import format_count

_FACTOR = re.compile(r"(\d+\.?\d*|\.\d+)\s*x")
_OWN_FACTOR = re.compile(r"(\d+\.?\d*|\.\d+)\s*x?", re.ASCII)
_COLUMN = re.compile(r"per-job\s*=\s*(\S.*)", re.IGNORECASE)
_NUMBER = re.compile(r"\d+\.?\d*|\.\d+")


@dataclass(frozen=True)
class ServerLimit:
    """The least of up to four limits on the servers of each job; without any, all servers."""

    servers: float | None = None  # the same number for all jobs
    factor: float | None = None  # times what the job asked for
    largest: bool = False  # the largest request of any job
    column: str | None = None  # of the trace, with each job's own factor

    def __post_init__(self) -> None:
        if self.servers is not None and not 1 <= self.servers < np.inf:
            raise InputError(f"must be at least 1, got {self.servers:g}", argument="max_servers")
        if self.factor is not None and not 0 < self.factor < np.inf:
            raise InputError(
                f"must be a multiple greater than 0, got {self.factor:g}x", argument="max_servers"
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns that must be read as labels."""
        return () if self.column is None else (self.column,)

    def compute_for(self, trace: Trace, machine: float) -> FloatArray:
        """Return the limit of each job of a trace: whole numbers of at least 1."""
        limits = self.compute(trace.servers, machine)
        if self.column is None:
            return limits
        own: FloatArray = np.floor(_read_factors(trace, self.column) * trace.servers)
        return np.maximum(np.minimum(limits, own), 1.0)

    def compute(self, requested: FloatArray, machine: float) -> FloatArray:
        """Return the limits that follow from what jobs asked for: whole numbers of at least 1."""
        limits = np.full(len(requested), machine)
        if self.servers is not None:
            limits = np.minimum(limits, self.servers)
        if self.factor is not None:
            limits = np.minimum(limits, self.factor * requested)
        if self.largest:
            limits = np.minimum(limits, requested.max())
        whole: FloatArray = np.maximum(np.floor(limits), 1.0)
        return whole

    @property
    def text(self) -> str:
        """The limit in words, such as "on at most 32 servers"; empty if there is none."""
        parts = []
        if self.servers is not None:
            parts.append(format_count(self.servers, "server"))
        if self.factor == 1:
            parts.append("what the job asked for")
        elif self.factor is not None:
            parts.append(f"{self.factor:g} times what the job asked for")
        if self.column is not None:
            parts.append(f"the multiple of what the job asked for in column {self.column!r}")
        if self.largest:
            parts.append("the largest request of any job")
        return f"on at most {' and '.join(parts)}" if parts else ""


#: The limit unless another one is given.
DEFAULT_LIMIT = ServerLimit(factor=4.0, largest=True)


def parse_limit(limit: float | str | ServerLimit | None) -> ServerLimit:
    """Return a limit from a number, or from a text such as "32", "4x", "largest" or "none".

    "per-job=COLUMN" names a column of the trace with a multiple for each job. Several limits,
    separated by commas, apply together. None stands for the default.

    >>> parse_limit("4x,largest") == parse_limit(None) == DEFAULT_LIMIT
    True
    >>> parse_limit("none").text
    ''
    """
    if limit is None:
        return DEFAULT_LIMIT
    if isinstance(limit, ServerLimit):
        return limit
    if not isinstance(limit, str):
        return ServerLimit(servers=float(limit))
    if limit.strip().lower() == "none":
        return ServerLimit()
    servers, factor, column, largest = None, None, None, False
    for text in limit.split(","):
        part = text.strip().lower()
        if (own := _COLUMN.fullmatch(text.strip())) and column is None:
            column = own[1]
        elif part == "largest" and not largest:
            largest = True
        elif (match := _FACTOR.fullmatch(part)) and factor is None:
            factor = float(match[1])
        elif _NUMBER.fullmatch(part) and servers is None:
            servers = float(part)
        else:
            raise InputError(
                "must be a number of servers (32), a multiple of what each job asked for (4x), "
                "largest (the largest request), a column of the trace with a multiple for each job "
                "(per-job=COLUMN), several of these with commas between them, or "
                f"none; got {limit!r}",
                argument="max_servers",
            )
    return ServerLimit(servers=servers, factor=factor, largest=largest, column=column)


def _read_factors(trace: Trace, column: str) -> FloatArray:
    """Return each job's own factor; without one, that of the default."""
    if column not in trace.labels:
        raise InputError(
            f"names the column {column!r}, which was not read from {trace.source}: read the trace "
            f"with labels={[column]!r}",
            argument="max_servers",
        )
    texts = [text.strip().lower() for text in trace.labels[column].tolist()]
    known = {text: _parse_factor(text) for text in set(texts)}
    for job, text in enumerate(texts):
        if not 0 < known[text] < np.inf:
            raise InputError(
                f"needs a multiple greater than 0 in column {column!r} for each job, such as 2 or "
                f"2x, or nothing for {DEFAULT_LIMIT.factor:g}x; job {trace.names[job]} of "
                f"{trace.source} has {str(trace.labels[column][job])!r}",
                argument="max_servers",
            )
    return np.array([known[text] for text in texts])


def _parse_factor(text: str) -> float:
    if not text:
        assert DEFAULT_LIMIT.factor is not None
        return DEFAULT_LIMIT.factor
    match = _OWN_FACTOR.fullmatch(text)
    return float(match[1]) if match else np.nan
