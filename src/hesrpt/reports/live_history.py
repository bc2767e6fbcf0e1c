"""What happened in the run of a pool: read from its journal or, without one, from memory."""

from __future__ import annotations

from dataclasses import replace

from hesrpt.reports.inspection import read_report
from hesrpt.reports.run_history import RunHistory
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import MAX_TIMED_ITEMS


def describe_history(driver: Driver) -> RunHistory:
    """Return what happened in a run whose jobs have ended."""
    policy = driver.core.allocator.policy
    if driver.journal is not None:
        return replace(read_report(driver.journal.directory).history, policy=policy)
    with driver.condition:
        jobs = list(driver.jobs.values())
        return RunHistory(
            policy=policy,
            servers=driver.peak_servers,
            first_start=driver.first_start or 0.0,
            records=[job.to_record() for job in jobs],
            resources=driver.engine.resource_totals(),
            groups=driver.list_groups(),
            holdings=driver.holdings.copy(),
            timings={
                job.number: sorted(job.timings)
                for job in jobs
                if len(job.timings) <= MAX_TIMED_ITEMS
            },
        )
