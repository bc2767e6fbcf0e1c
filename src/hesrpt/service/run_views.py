"""The run as a whole as JSON values: its servers, its policy, and what that has learned."""

from __future__ import annotations

from typing import Any

from hesrpt._version import __version__
from hesrpt.scheduler.driver import Driver
from hesrpt.service.auth import Access
from hesrpt.service.hook_views import describe_failed_hooks
from hesrpt.service.job_queue import JobQueue


def describe_servers(queue: JobQueue, access: Access) -> dict[str, Any]:
    """Return the servers, who holds them by which policy, and the time of the run's clock."""
    driver = queue.driver
    return {
        "servers": driver.core.servers,
        "held": driver.core.observed,
        "peak": driver.recorder.peak_servers,
        "engine": queue.options.engine,
        "policy": driver.core.allocator.policy.name,
        "resources": {
            kind: {"total": total, "free": free}
            for kind, (total, free) in driver.core.stock.describe().items()
        },
        "calibration": describe_calibration(driver),
        "version": __version__,
        "time": driver.now,
        "stopping": queue.is_stopping,
        "failed_hooks": describe_failed_hooks(queue.journal.hooks.read(), access),
        "access": access,
    }


def describe_calibration(driver: Driver) -> dict[str, Any] | None:
    """Return what the policy has learned from arrivals and ends; None if it learns nothing."""
    calibration = driver.core.allocator.calibrator.calibration
    if calibration is None:
        return None
    return {
        "focus": calibration.focus,
        "is_stream": calibration.is_stream,
        "jobs_seen": calibration.jobs_seen,
    }
