"""Judges a trial by the evidence that its items left, and by what was reported to the user."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.items import get_events_path

#: What a campaign counts; none of it may happen.
FAULTS = (
    "lost",
    "another's result",
    "second copies",
    "orphans",
    "hangs",
    "refused resumes",
    "failed runs",
    "wrong statuses",
    "slow answers",
)


@dataclass
class Findings:
    """The faults that a trial has found, by kind, with a line about each."""

    lines: dict[str, list[str]] = field(default_factory=lambda: {kind: [] for kind in FAULTS})

    def add(self, kind: str, line: str) -> None:
        self.lines[kind].append(line)

    def count(self, kind: str) -> int:
        return len(self.lines[kind])

    @property
    def total(self) -> int:
        return sum(map(len, self.lines.values()))


def read_events(directory: Path) -> list[list[str]]:
    """Return the starts and ends of items, as lists of words."""
    with suppress(FileNotFoundError):
        return [line.split() for line in get_events_path(directory).read_text().splitlines()]
    return []


def check_copies(directory: Path, findings: Findings) -> None:
    """Look for items that ran twice at the same time."""
    for words in read_events(directory):
        if words[0] == "second":
            findings.add("second copies", " ".join(words))


def check_items_ran(directory: Path, keys: Iterable[str], findings: Findings) -> None:
    """Look for items of jobs reported done that never ran to their end."""
    ended = {words[1] for words in read_events(directory) if words[0] == "end"}
    for key in keys:
        if key not in ended:
            findings.add("lost", f"{key} never ran to its end")


def check_report(
    directory: Path, report: Path, orders: Mapping[int, list[list[str]]], findings: Findings
) -> None:
    """Compare the results that a script got with those it had to get.

    ``orders`` has, for each life of the scheduler, the keys of each job's items in their order.
    """
    reported_at: dict[str, float] = {}  # by key of the item
    for entry in read_report(report):
        if "wrong call" in entry:
            findings.add("another's result", f"call {entry['wrong call']}")
        if "results" not in entry:
            continue
        expected, found = orders[entry["life"]][entry["job"]], entry["results"]
        where = f"job {entry['job']} in life {entry['life']}"
        if len(found) < len(expected):
            findings.add("lost", f"{where}: {len(found)} of {len(expected)} results")
        for position, (key, result) in enumerate(zip(expected, found, strict=False)):
            if key != result:
                findings.add("another's result", f"{where}: {result} at {position}, not {key}")
                break
        for key in expected:
            reported_at.setdefault(key, entry["time"])
    for words in read_events(directory):
        if words[0] == "start" and float(words[3]) > reported_at.get(words[1], float("inf")):
            findings.add("lost", f"{words[1]} ran again after its job was reported done")


def read_report(report: Path) -> list[dict[str, Any]]:
    """Return what a script has reported."""
    with suppress(FileNotFoundError):
        return [json.loads(line) for line in report.read_text().splitlines()]
    return []
