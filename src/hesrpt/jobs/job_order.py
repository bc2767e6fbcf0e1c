"""In which order jobs may start: the names that a job waits for, and what they mean for others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from hesrpt.errors import InputError
from hesrpt.validation import shorten


def check_after(value: object) -> tuple[str, ...]:
    """Return the names of the jobs that a job waits for, each once.

    >>> check_after(["fetch", "clean", "fetch"])
    ('fetch', 'clean')
    """
    names = [value] if isinstance(value, str) else value
    if not isinstance(names, Iterable):
        raise InputError(f"must be a list of names of jobs, got {shorten(value)}", argument="after")
    names = list(names)
    if not all(isinstance(name, str) and name for name in names):
        raise InputError(f"must be a list of names of jobs, got {shorten(value)}", argument="after")
    return tuple(dict.fromkeys(names))


def find_cycle(after: Mapping[str, Sequence[str]]) -> list[str]:
    """Return jobs that wait for each other in a circle, the first one again at the end.

    The result is empty if there are none. Names that are not in ``after`` wait for nothing.

    >>> find_cycle({"a": ["b"], "b": ["c"], "c": ["b"]})
    ['b', 'c', 'b']
    """
    finished: set[str] = set()
    for start in after:
        # Without recursion: a chain may have thousands of jobs.
        path: dict[str, None] = {}
        to_visit = [(start, False)]
        while to_visit:
            name, is_left = to_visit.pop()
            if is_left:
                path.pop(name)
                finished.add(name)
            elif name in path:
                names = list(path)
                return [*names[names.index(name) :], name]
            elif name not in finished:
                path[name] = None
                to_visit.append((name, True))
                to_visit += [(each, False) for each in reversed(after.get(name, ()))]
    return []


def sort_by_order(after: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the names of jobs, each after those that it waits for; otherwise as they are given.

    Names that are not keys of ``after`` are left out. There must be no cycle.

    >>> sort_by_order({"report": ["train"], "other": [], "train": ["fetch"]})
    ['train', 'report', 'other']
    """
    order: dict[str, None] = {}
    for start in after:
        to_visit = [(start, False)]
        while to_visit:
            name, is_left = to_visit.pop()
            if is_left:
                order[name] = None
            elif name in after and name not in order:
                to_visit.append((name, True))
                to_visit += [(each, False) for each in reversed(after[name])]
    return list(order)


def describe_cycle(cycle: Sequence[str]) -> str:
    """Say which jobs wait for each other.

    >>> describe_cycle(["a", "b", "a"])
    "jobs wait for each other: 'a' waits for 'b', which waits for 'a'"
    """
    first, *others = map(repr, cycle)
    return f"jobs wait for each other: {first} waits for {', which waits for '.join(others)}"


def explain_useless_retry(name: str, state: str) -> str:
    """Say why a job cannot be retried alone: a job that it waits for has not ended well.

    >>> explain_useless_retry("fetch", "failed")
    "waits for 'fetch', which has failed; retry that one"
    """
    what = "has failed" if state == "failed" else "was cancelled"
    return f"waits for {name!r}, which {what}; retry that one"
