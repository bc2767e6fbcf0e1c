"""The latest part of a run that has not ended: what to compare policies on while it goes on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path

from hesrpt.jobs.groups import Group, read_groups
from hesrpt.reports.counterfactuals import MAX_JOBS, describe_obstacle
from hesrpt.reports.run_history import POLICY_CHANGED, RunHistory
from hesrpt.scheduler.live_job import MAX_TIMED_ITEMS, ItemTiming
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import WHOLE_POOL, Holding, JobRecord


def read_recent_history(directory: Path, most: int = MAX_JOBS) -> RunHistory | None:
    """Return what happened to the latest jobs that are done and can be replayed; None if none can.

    All other jobs count as given: the servers that they held are not there.
    """
    with closing(Journal.read(directory)) as journal:
        groups = journal.get_value("groups", {}, parse=read_groups)
        records = choose_recent(journal.read_records(), groups, most)
        if not records:
            return None
        return RunHistory(
            policy=str(journal.get_value("policy")),
            servers=int(journal.get_value("servers")),
            first_start=min(record.arrived for record in records),
            records=records,
            holdings=subtract_others(
                journal.read_holdings(), {record.number for record in records}
            ),
            timings={
                record.number: [ItemTiming(*row) for row in journal.read_timings(record.number)]
                for record in records
                if record.done <= MAX_TIMED_ITEMS
            },
            groups=groups,
            obstacle=POLICY_CHANGED if journal.get_value("policy_changed", 0) else None,
        )


def choose_recent(
    records: Sequence[JobRecord], groups: Mapping[str, Group], most: int
) -> list[JobRecord]:
    """Return the jobs that ended last and can be replayed, in order of arrival."""
    fit = [
        record
        for record in records
        if record.ended is not None
        and describe_obstacle(record, groups) is None
        and not record.spec.after
        and not record.spec.resources
    ]
    latest = sorted(fit, key=lambda record: record.ended or 0.0)[-most:]
    return sorted(latest, key=lambda record: (record.arrived, record.number))


def subtract_others(holdings: Sequence[Holding], numbers: set[int]) -> list[Holding]:
    """Return the servers that some jobs held, and the servers that all others left for them."""
    kept: list[Holding] = []
    total = others = 0
    held: dict[int, int] = {}
    for time, job, servers in holdings:
        if job in numbers:
            kept.append(Holding(time, job, servers))
            continue
        if job == WHOLE_POOL:
            total = servers
        else:
            others += servers - held.get(job, 0)
            held[job] = servers
        kept.append(Holding(time, WHOLE_POOL, max(total - others, 0)))
    return kept
