"""The output of ``sacct --noheader``: which column is which, as far as the values tell.

Dates are in the order submission, start, end. The elapsed time is the one from start to end. A
column of whole numbers holds the servers if it is the only one. Whatever remains open is the
user's to say, by the numbers of columns.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.traces.cells import TimeKind, parse_durations, parse_times
from hesrpt.traces.slurm_states import is_state

# The part of jobs whose elapsed time is the time from start to end: the others were suspended.
_USUALLY = 0.9
_Columns = dict[int, FloatArray]  # by number


def guess_columns(
    place: str, rows: Sequence[Sequence[str]], columns: Mapping[str, str]
) -> dict[str, str]:
    """Return the numbers of our columns, from 1, in rows of jobs; ``columns`` is what is known.

    >>> job = "7|2024-05-01T10:00:00|2024-05-01T10:01:00|2024-05-01T10:02:00|COMPLETED|16"
    >>> guess_columns("trace:1", [job.split("|")], {})
    {'submit': '2', 'start': '3', 'end': '4', 'servers': '6', 'state': '5', 'name': '1'}
    """
    taken = set(columns.values())
    free = {
        number: [row[number - 1].strip() for row in rows]
        for number in range(2, len(rows[0]) + 1)
        if str(number) not in taken
    }
    found = _find_times(_select(free, _parse_dates), _select(free, _parse_durations))
    numbers = _select(free, _parse_whole_numbers)
    if len(numbers) == 1:
        found["servers"] = next(iter(numbers))
    states = [number for number, cells in free.items() if all(map(is_state, cells))]
    if len(states) == 1:
        found["state"] = states[0]
    guesses = {ours: str(number) for ours, number in (found | {"name": 1}).items()}
    known = {ours: number for ours, number in guesses.items() if ours not in columns}
    known |= columns
    missing = [ours for ours in ("submit", "servers") if ours not in known]
    if "runtime" not in known and not {"start", "end"} <= set(known):
        missing.append("runtime")
    if missing:
        raise InputError(
            f"must say which columns of {place} hold {' and '.join(missing)}, by number, such as "
            f"{missing[0]}=5: sacct printed no header (--noheader), and the values of columns 2 to "
            f"{len(rows[0])} do not tell; the first row is {'|'.join(rows[0])[:200]!r}",
            argument="columns",
        )
    return known


def _select(
    columns: Mapping[int, Sequence[str]], parse: Callable[[Sequence[str]], FloatArray | None]
) -> _Columns:
    parsed = {number: parse(cells) for number, cells in columns.items()}
    return {number: values for number, values in parsed.items() if values is not None}


def _parse_dates(cells: Sequence[str]) -> FloatArray | None:
    times, kinds = parse_times(cells)
    is_date = kinds != TimeKind.NUMBER
    # The start of a job that never started is "Unknown" or "None".
    return times if is_date.any() and (is_date | np.isnan(times)).all() else None


def _parse_durations(cells: Sequence[str]) -> FloatArray | None:
    """Return the durations in a column such as Elapsed; exit codes (0:0) are none."""
    durations = parse_durations(cells)
    has_clock = all(cell.count(":") == 2 for cell in cells)
    return durations if has_clock and np.isfinite(durations).all() else None


def _parse_whole_numbers(cells: Sequence[str]) -> FloatArray | None:
    is_whole = all(cell.isascii() and cell.isdigit() and len(cell) < 16 for cell in cells)
    return np.array([float(cell) for cell in cells]) if is_whole else None


def _find_times(dates: _Columns, durations: _Columns) -> dict[str, int]:
    """Return which columns hold the submission, the start, the end and the elapsed time."""
    has_all = np.all([np.isfinite(times) for times in dates.values()], axis=0)
    if not dates or not has_all.any():
        return {}
    order = sorted(dates, key=lambda number: float(dates[number][has_all].mean()))
    submit, start, end = order[0], order[-2:][0], order[-1]  # Eligible may be in between
    matching = [
        number
        for number, values in durations.items()
        if np.mean((values == dates[end] - dates[start])[has_all]) > _USUALLY
    ]
    if len(order) >= 3 and (matching or not durations):
        times = {"submit": submit, "start": start, "end": end}
        return times | ({"runtime": matching[0]} if matching else {})
    if len(order) == 2 and matching:
        return {}  # submission and end of jobs that never waited, or start and end
    return {"submit": submit} | ({"runtime": next(iter(durations))} if len(durations) == 1 else {})
