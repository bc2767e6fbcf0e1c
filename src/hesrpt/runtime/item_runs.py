"""Runs of consecutive items. A job may have millions of items, so they are handled in runs."""

from __future__ import annotations

from collections.abc import Sequence

# So many items at least are looked through by NumPy.
_MANY = 64


def find_runs(items: Sequence[int]) -> list[range]:
    """Return the runs of consecutive items among items in any order.

    >>> find_runs((3, 4, 5, 9, 1))
    [range(3, 6), range(9, 10), range(1, 2)]
    """
    if isinstance(items, range) and items.step == 1:
        return [items] if items else []
    if len(items) >= _MANY:
        import numpy as np  # here, because workers must start quickly

        numbers = np.asarray(items)
        breaks = np.flatnonzero(np.diff(numbers) != 1) + 1
        starts = numbers[np.concatenate(([0], breaks))]
        stops = numbers[np.concatenate((breaks - 1, [-1]))] + 1
        return list(map(range, starts.tolist(), stops.tolist()))
    runs: list[range] = []
    start = stop = -1
    for item in items:
        if item != stop:
            if stop > start:
                runs.append(range(start, stop))
            start = item
        stop = item + 1
    if stop > start:
        runs.append(range(start, stop))
    return runs


def join_items(runs: Sequence[range]) -> Sequence[int]:
    """Return the items of runs in their order: a range, if there is only one run.

    >>> join_items([range(3, 6)]), join_items([range(3, 5), range(9, 10)])
    (range(3, 6), (3, 4, 9))
    """
    if len(runs) == 1:
        return runs[0]
    return tuple(item for run in runs for item in run)
