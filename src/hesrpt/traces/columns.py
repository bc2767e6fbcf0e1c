"""Which columns of a table are meant, from their names or from what the user says."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

from hesrpt.errors import InputError

OURS = ("submit", "runtime", "servers", "start", "end", "wait", "estimate", "name")


def plain(name: str) -> str:
    """Return a column's name without what tells spellings apart.

    >>> plain(" Submit_Time"), plain("submit time"), plain("SubmitTime")
    ('submittime', 'submittime', 'submittime')
    """
    return re.sub(r"[\s_-]+", "", name).lower()


def check_columns(columns: Mapping[str, str]) -> None:
    """Check that the user's names for columns are given for columns that there can be."""
    for ours in columns:
        if ours not in OURS:
            raise InputError(f"columns: unknown {ours!r}; ours are: {', '.join(OURS)}")


def find_columns(
    place: str,
    header: Sequence[str],
    known: Mapping[str, Sequence[str]],
    columns: Mapping[str, str],
    ranked: Collection[str],
) -> dict[str, int]:
    """Return where our columns stand in the header.

    Of several columns that could be meant, the one named first in ``known`` is taken if ours is one
    of the ``ranked``; otherwise that is an error. ``columns`` are what the user says.
    """
    spelled = [plain(name) for name in header]
    found = {ours: _named(place, header, spelled, theirs) for ours, theirs in columns.items()}
    taken = set(found.values())
    for ours, names in known.items():
        if ours in found:
            continue
        free = [k for name in names for k, s in enumerate(spelled) if s == name and k not in taken]
        if len(free) > 1 and ours not in ranked:
            choices = " or ".join(repr(header[k]) for k in sorted(free))
            raise InputError(
                f"{place}: is {ours} in column {choices}? Say it: columns={{{ours!r}: ...}}"
            )
        if free:
            found[ours] = free[0]
    _check_enough(place, header, known, found)
    return found


def _named(place: str, header: Sequence[str], spelled: Sequence[str], name: str) -> int:
    exact = [k for k, theirs in enumerate(header) if theirs == name]
    found = exact or [k for k, theirs in enumerate(spelled) if theirs == plain(name)]
    if len(found) != 1:
        trouble = "stands twice" if found else "is not there"
        raise InputError(f"{place}: column {name!r} {trouble}; columns are: {_listed(header)}")
    return found[0]


def _check_enough(
    place: str, header: Sequence[str], known: Mapping[str, Sequence[str]], found: Collection[str]
) -> None:
    timed = "end" in found and ("start" in found or "wait" in found)
    for ours in ("submit", "runtime", "servers"):
        if ours not in found and not (ours == "runtime" and timed):
            raise InputError(
                f"{place}: no column for {ours} ({', '.join(known[ours])}); "
                f"columns are: {_listed(header)}. Say which it is: columns={{{ours!r}: ...}}"
            )


def _listed(header: Sequence[str], most: int = 300) -> str:
    text = ", ".join(header)
    text = text if len(text) <= most else text[: most - 1] + "…"
    return text if text.isprintable() else repr(text)
