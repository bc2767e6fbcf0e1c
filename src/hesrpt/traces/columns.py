"""Finding the columns of a table, by their usual names or by the user's mapping."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol

from hesrpt.errors import InputError

#: Our names for the columns of a trace.
COLUMNS = ("submit", "runtime", "servers", "start", "end", "wait", "estimate", "name", "user")


def normalise_name(name: str) -> str:
    """Return the name of a column without capitals, spaces, underscores and hyphens.

    >>> normalise_name(" Submit_Time"), normalise_name("submit time"), normalise_name("SubmitTime")
    ('submittime', 'submittime', 'submittime')
    """
    return re.sub(r"[\s_-]+", "", name).lower()


def check_columns(columns: Mapping[str, str]) -> None:
    """Check that all keys of the user's mapping are names of our columns."""
    for ours in columns:
        if ours not in COLUMNS:
            raise InputError(
                f"must map some of {', '.join(COLUMNS)} to columns of the trace, got {ours!r}",
                argument="columns",
            )


def refuse_columns(source: str, title: str, columns: Mapping[str, str]) -> None:
    """Raise an error if the user maps columns of a format that has none."""
    if columns:
        ours, theirs = next(iter(columns.items()))
        raise InputError(
            f"does not apply to {source}, got {ours}={theirs}: the columns of {title} "
            "have fixed meanings",
            argument="columns",
        )


class ColumnNames(Protocol):
    """What a kind of table calls our columns."""

    @property
    def known_names(self) -> Mapping[str, Sequence[str]]: ...

    @property
    def ranked(self) -> Collection[str]: ...

    @property
    def preferred(self) -> Mapping[str, Collection[str]]: ...


def find_columns(
    place: str,
    header: Sequence[str],
    names: ColumnNames,
    columns: Mapping[str, str],
    notes: list[str],
) -> dict[str, int]:
    """Return the positions of our columns in the header; columns that it lacks are left out.

    ``columns`` is the user's mapping. Each of our other columns may have any of the normalised
    names in ``known_names``. If the header has several of them, the first one listed is used for
    columns in ``ranked``. For others, preferred names are used, with a note; if that leaves
    several, the user must choose.
    """
    normalised = [normalise_name(name) for name in header]
    found = {
        ours: _find_mapped_column(place, header, normalised, theirs)
        for ours, theirs in columns.items()
    }
    taken = set(found.values())
    for ours, known in names.known_names.items():
        if ours in found:
            continue
        candidates = [
            position
            for name in known
            for position, theirs in enumerate(normalised)
            if theirs == name and position not in taken
        ]
        preferred = names.preferred.get(ours, ())
        best = [position for position in candidates if normalised[position] in preferred]
        if len(best) == 1 and len(candidates) > 1:
            others = [header[position] for position in sorted(candidates) if position != best[0]]
            notes.append(
                f"the {ours} of a job are in column {header[best[0]]!r}, not in "
                f"{' or '.join(map(repr, others))}"
            )
            candidates = best
        if len(candidates) > 1 and ours not in names.ranked:
            choices = " or ".join(repr(header[position]) for position in sorted(candidates))
            raise InputError(
                f"must say which column of {place} holds {ours!r}: {choices}; for example "
                f"{ours}={header[min(candidates)]}",
                argument="columns",
            )
        if candidates:
            found[ours] = candidates[0]
    _check_required(place, header, names.known_names, found)
    return found


def find_kept_columns(place: str, header: Sequence[str], kept: Sequence[str]) -> dict[str, int]:
    """Return the positions of other columns, given by their names in the file."""
    positions = {}
    for name in kept:
        if name not in header:
            raise InputError(
                f"{place}: has no column {name!r}; its columns are: {_list_names(header)}"
            )
        positions[name] = header.index(name)
    return positions


def _find_mapped_column(
    place: str, header: Sequence[str], normalised: Sequence[str], name: str
) -> int:
    exact = [position for position, theirs in enumerate(header) if theirs == name]
    found = exact or [
        position for position, theirs in enumerate(normalised) if theirs == normalise_name(name)
    ]
    if len(found) != 1:
        problem = "appears more than once" if found else "does not exist"
        raise InputError(
            f"names the column {name!r}, which {problem} in {place}; "
            f"its columns are: {_list_names(header)}",
            argument="columns",
        )
    return found[0]


def _check_required(
    place: str,
    header: Sequence[str],
    known_names: Mapping[str, Sequence[str]],
    found: Collection[str],
) -> None:
    has_runtime = "runtime" in found or ("end" in found and ("start" in found or "wait" in found))
    for ours in ("submit", "runtime", "servers"):
        if ours not in found and not (ours == "runtime" and has_runtime):
            raise InputError(
                f"must say which column of {place} holds {ours!r}: none has a usual name "
                f"({', '.join(known_names[ours])}); its columns are: {_list_names(header)}",
                argument="columns",
            )


def _list_names(header: Sequence[str], longest: int = 300) -> str:
    text = ", ".join(header)
    text = text if len(text) <= longest else text[: longest - 1] + "…"
    return text if text.isprintable() else repr(text)
