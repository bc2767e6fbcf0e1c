"""What is shown of a run while it goes on: read without a lock, so that it is always quick."""

from __future__ import annotations

from collections.abc import Mapping

from hesrpt.display.console import escape
from hesrpt.display.overview import JobOverview, RunOverview
from hesrpt.jobs.item_resources import describe_shortage
from hesrpt.scheduler.driver import Driver
from hesrpt.scheduler.live_job import LiveJob

# How many jobs the ``repr`` of a pool lists.
_MAX_LINES = 30


def describe_job(
    driver: Driver, job: LiveJob, ends: Mapping[str, float] | None = None
) -> JobOverview:
    """Return what is shown of a job, given when jobs will end if that is known."""
    end = (driver.recall_ends() if ends is None else ends).get(job.name)
    now, state = driver.now, job.state
    because = ""
    if state == "waiting" and job.spec.resources:
        free = {kind: free for kind, (_, free) in driver.core.stock.describe().items()}
        because = describe_shortage(job.spec.resources, free, "free")
    flow_time = 0.0 if job.arrived is None else (job.ended or now) - job.arrived
    return JobOverview(
        name=job.name,
        state=state,
        done=job.reported_done,
        items=job.items,
        failures=len(job.failures),
        servers=job.servers,
        planned=job.planned,
        flow_time=flow_time,
        eta=None if end is None or job.has_ended else max(end - now, 0.0),
        error=job.error,
        group=job.spec.group,
        waits_for=driver.core.predecessors.list_unfinished(job.name),
        waits_because=because,
    )


def describe_run(driver: Driver) -> RunOverview:
    """Return what is shown of a run."""
    ends = driver.recall_ends()
    return RunOverview(
        servers=driver.core.servers,
        policy=driver.core.allocator.policy.name,
        jobs=[describe_job(driver, job, ends) for job in list(driver.jobs.values())],
        note=driver.describe_end(),
    )


def write_run(run: RunOverview) -> str:
    """Return a run as text: a line for the pool, and one for each job."""
    jobs, others = run.select(_MAX_LINES)
    lines = [run.describe(), *(f"{job.name}: {job.describe()}" for job in jobs)]
    return "\n  ".join(map(escape, [*lines, others] if others else lines))
