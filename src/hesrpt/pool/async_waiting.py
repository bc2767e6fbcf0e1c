"""Waiting for jobs in an event loop of asyncio, without a thread for each job.

Importing asyncio takes a while, so it is imported when it is first needed.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from hesrpt.scheduler.driver import Driver, Watch
from hesrpt.scheduler.live_job import LiveJob

if TYPE_CHECKING:
    import asyncio

P = ParamSpec("P")
T = TypeVar("T")


async def wait_async(
    driver: Driver, job: LiveJob, is_ready: Callable[[], bool], timeout: float | None = None
) -> bool:
    """Wait until ``is_ready()``, which depends on a job, and return whether it is.

    If the task that waits is cancelled, the job goes on.
    """
    import asyncio

    loop = asyncio.get_running_loop()
    woken: asyncio.Future[None] = loop.create_future()

    def wake() -> None:
        """Wake the task, in the driver's thread."""
        with suppress(RuntimeError):  # the loop has been closed
            loop.call_soon_threadsafe(_finish, woken)

    watch = Watch(job, is_ready, wake)
    if driver.watch(watch):
        try:
            async with asyncio.timeout(timeout):
                await woken
        except TimeoutError:
            return is_ready()
        finally:
            driver.unwatch(watch)
    if not is_ready():
        driver.raise_failure()
    return is_ready()


def _finish(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def run_in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call a function that may have to wait for a disk or a cluster."""
    import asyncio

    return await asyncio.to_thread(function, *args, **kwargs)


async def pause(seconds: float) -> None:
    """Let other tasks run for some time."""
    import asyncio

    await asyncio.sleep(seconds)
