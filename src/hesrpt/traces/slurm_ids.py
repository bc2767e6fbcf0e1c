"""Slurm's names of jobs, tasks of arrays, components of heterogeneous jobs, and job steps."""

from __future__ import annotations

import re
from typing import NamedTuple

_ID = re.compile(r"(\d+)(?:_(\d+|\[[^\]]*\]?))?(?:\+(\d+))?(\..+)?", re.ASCII)
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?", re.ASCII)
_MAX_TASKS = 4_000_001  # the longest array that Slurm accepts


class SlurmId(NamedTuple):
    """What a JobID of sacct stands for."""

    job: str  # without the component and the step
    is_component: bool = False  # of a heterogeneous job
    is_step: bool = False
    tasks: int = 1  # more than one for the tasks of an array that have not started


def parse_id(text: str) -> SlurmId | None:
    """Return what an id stands for, or None if it is not one of Slurm's.

    >>> parse_id("123_4.batch")
    SlurmId(job='123_4', is_component=False, is_step=True, tasks=1)
    >>> parse_id("123+1")
    SlurmId(job='123', is_component=True, is_step=False, tasks=1)
    >>> parse_id("123_[1-5,9%2]").tasks  # at most two of them at a time
    6
    """
    text = text.strip()
    match = _ID.fullmatch(text)
    if match is None:
        return None
    number, task, component, step = match.groups()
    job = number if task is None else f"{number}_{task}"
    tasks = count_tasks(task.strip("[]")) if task and task[0] == "[" else 1
    return SlurmId(job, component is not None, step is not None, tasks)


def count_tasks(ranges: str) -> int:
    """Return the number of tasks in a list of ranges; 1 if it cannot be understood.

    >>> count_tasks("1-5"), count_tasks("0-10:5,12"), count_tasks("1,3,...")
    (5, 4, 1)
    """
    total = 0
    for part in ranges.partition("%")[0].split(","):
        match = _RANGE.fullmatch(part.strip())
        if match is None or len(part) > 30:
            return 1
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if last < first or step < 1:
            return 1
        total += (last - first) // step + 1
    return total if total <= _MAX_TASKS else 1
