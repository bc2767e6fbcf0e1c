"""Names of jobs: which one a job gets if another has it, and which ones a user may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Protocol

from hesrpt.jobs.job_spec import JobSpec
from hesrpt.storage.journal_entries import Request

# How many names to list at most.
_MAX_LISTED = 10
# How similar to a wrong name another one must be to be suggested, between 0 and 1.
_SIMILARITY_CUTOFF = 0.7


def describe_names(names: Iterable[str], wrong: str = "") -> str:
    """Return which jobs there are, as the end of a message; of many, those like a wrong name.

    >>> describe_names(["big", "small"], "large")
    'jobs are: big, small'
    >>> describe_names([f"job {number}" for number in range(300)], "jbo 17")
    'jobs with such a name are: job 17, job 217, job 197'
    >>> describe_names([f"report {number}" for number in range(300)] + ["report"], "prep")[:15]
    'the latest jobs'
    """
    known = list(names)
    if len(known) <= _MAX_LISTED:
        return f"jobs are: {', '.join(known) or 'none'}"
    if close := difflib.get_close_matches(wrong, known, cutoff=_SIMILARITY_CUTOFF):
        return f"jobs with such a name are: {', '.join(close)}"
    latest = ", ".join(known[-_MAX_LISTED:])
    return f"the latest jobs are: {latest}; there are {len(known) - _MAX_LISTED:,} others"


def choose_free_name(name: str, is_taken: Callable[[str], bool], count: int = 1) -> tuple[str, int]:
    """Return a name that no other job has, and the number in it; ``count`` is the last one given.

    >>> choose_free_name("rep", {"rep", "rep (2)"}.__contains__)
    ('rep (3)', 3)
    """
    free = name
    while is_taken(free):
        count += 1
        free = f"{name} ({count})"
    return free, count


class _Recorded(Protocol):
    """A job that is there, in the journal or in memory."""

    @property
    def spec(self) -> JobSpec:
        """The job as it was asked for."""


def name_submitted(requests: Iterable[Request], records: Iterable[_Recorded]) -> list[Request]:
    """Return requests with the names that submitted jobs will get besides jobs that are there.

    Those whose job is there by now are left out.
    """
    taken, added = set(), set()
    for record in records:
        taken.add(record.spec.name)
        added.add(record.spec.submission)
    named = []
    for request in requests:
        if request.spec is not None:
            if request.number in added:
                continue
            name, _ = choose_free_name(request.spec.name, taken.__contains__)
            taken.add(name)
            request = replace(request, spec=replace(request.spec, name=name))
        named.append(request)
    return named
