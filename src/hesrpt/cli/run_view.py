"""A run as commands show it, wherever it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from hesrpt.display.overview import RunOverview


@dataclass(frozen=True, kw_only=True)
class RunView:
    """The jobs of a run at one moment."""

    overview: RunOverview
    content: dict[str, Any]  # for JSON


class AddedJobs(NamedTuple):
    """Jobs that were added to a run."""

    names: Sequence[str]
    note: str = ""  # when they start, if not now


class EndedJob(NamedTuple):
    """A job that was waited for."""

    name: str
    state: str
    error: str | None
