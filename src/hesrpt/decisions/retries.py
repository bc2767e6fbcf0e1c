"""When an item is tried again, when it has failed, and how failed items get another chance.

Plain functions of the core's jobs: they do no I/O.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from hesrpt.decisions.active_job import ActiveJob
from hesrpt.decisions.events import ItemFailed, ItemLost
from hesrpt.units import format_count

# An item that has lost its server more often than this is assumed to be the cause.
_MAX_LOSSES = 10


def try_again(event: ItemFailed | ItemLost, job: ActiveJob) -> str | None:
    """Queue an item that failed or lost its server; if that was too often, return the error."""
    if isinstance(event, ItemLost):
        losses = job.losses[event.item] = job.losses.get(event.item, 0) + event.was_started
        gives_up = losses > _MAX_LOSSES
        error = f"item {event.item}: its server was lost {format_count(losses, 'time')}"
    else:
        failures = job.failures[event.item] = job.failures.get(event.item, 0) + 1
        gives_up, error = failures > job.spec.retries, event.error
    if gives_up:
        return error
    if isinstance(event, ItemLost) and not event.was_started and job.is_bag:
        job.return_item(event.item)
    else:
        job.retry_queue.append(event.item)
    return None


def describe_failed_items(job: ActiveJob) -> str | None:
    """Return how many items of a job have failed, and the first of them; None if none has."""
    if not job.failed_items:
        return None
    count, error = len(job.failed_items), job.failed_items[min(job.failed_items)]
    if not job.is_bag or job.spec.on_error == "raise":
        return error
    first = "" if count == 1 else "; the first"
    # A job whose items are still being read does not know how many there are.
    items = f"{count:,} of {format_count(job.items, 'item')}" if job.items is not None else None
    return f"{items or format_count(count, 'item')} failed{first}: {error}"


def set_aside(job: ActiveJob) -> None:
    """Prepare a job that has ended to be retried: items that were stopped run again."""
    job.retry_queue.extend(job.in_flight)
    job.clear_in_flight()
    job.set_planned(0)


def requeue_failed_items(job: ActiveJob) -> None:
    """Let the failed items of a job run again, each as often as at first."""
    for item in sorted(job.failed_items):
        job.retry_queue.append(item)
        job.failures.pop(item, None)
        job.losses.pop(item, None)
    job.done_count -= len(job.failed_items)
    job.failed_items.clear()


def remove_queued_items(job: ActiveJob, items: Sequence[int]) -> int:
    """Do not run stopped items again that turn out to be done; return how many there were."""
    done = set(items).intersection(job.retry_queue)
    job.retry_queue = deque(item for item in job.retry_queue if item not in done)
    return len(done)
