"""When schedulers end: once nobody refers to their pool, and at interpreter exit.

A forked process inherits schedulers without their threads. It lets go of them.
"""

from __future__ import annotations

import atexit
import logging
import multiprocessing
import os
import sys
import weakref
from multiprocessing.util import Finalize

from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.driver import Driver

_LOG = logging.getLogger("hesrpt")

_running: set[Driver] = set()


class Lease:
    """Keeps a scheduler running. Its pool, executors and handles of jobs hold it.

    Once the last of them has gone, nobody can get the results of jobs, so these are stopped. The
    futures of submitted calls may still be in use, so the calls end first.
    """

    def __init__(self, driver: Driver) -> None:
        self.driver = driver
        weakref.finalize(self, driver.drain).atexit = False


def start_driver(driver: Driver) -> None:
    """Start a scheduler that ends with its lease, or with the interpreter."""
    _running.add(driver)
    try:
        driver.start(on_end=_running.discard)
    except RuntimeError:  # the system allows no more threads
        _running.discard(driver)
        raise
    # Register again: what is registered last runs first. Ray, for one, must shut down after us.
    atexit.unregister(_end_all)
    atexit.register(_end_all)
    if multiprocessing.parent_process() is not None:
        # Processes of multiprocessing end without calling what atexit knows.
        Finalize(None, _end_all, exitpriority=0)


def _end_all() -> None:
    """At interpreter exit, let submitted calls end as ``concurrent.futures`` does; stop jobs."""
    drivers = _running.copy()
    try:
        if _was_interrupted():
            raise KeyboardInterrupt
        for driver in drivers:
            _warn_of_stopped_jobs(driver)
            driver.drain()
        for driver in drivers:
            driver.join()
    except KeyboardInterrupt:
        for driver in drivers:
            driver.close()
    for driver in drivers:
        driver.callbacks.join()
        for job in list(driver.jobs.values()):
            if isinstance(job.source, CallSource):
                job.source.resolver.join()


def _was_interrupted() -> bool:
    """Return whether Ctrl-C has ended the script."""
    is_interactive = hasattr(sys, "ps1")  # then it has only ended one of many statements
    return not is_interactive and isinstance(getattr(sys, "last_value", None), KeyboardInterrupt)


def _warn_of_stopped_jobs(driver: Driver) -> None:
    """Warn of jobs that the end of the script stops, unless an error has ended it."""
    if hasattr(sys, "last_value"):
        return
    for job in list(driver.jobs.values()):
        if not job.has_ended and not isinstance(job.source, CallSource):
            _LOG.warning(
                "hesrpt: the script has ended before job %r, which was stopped after %d items; "
                "call pool.wait() to let it end",
                job.name,
                job.done,
            )


def _abandon_all() -> None:
    """In a forked process, let go of the parent's schedulers."""
    for driver in _running:
        driver.close_after_fork()
    _running.clear()


if hasattr(os, "register_at_fork"):  # not on Windows, where pools are refused
    os.register_at_fork(after_in_child=_abandon_all)
