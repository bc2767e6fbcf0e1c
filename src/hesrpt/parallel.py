"""Running independent tasks on all cores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Collection, Hashable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextvars import ContextVar
from threading import Event
from typing import TypeVar

from hesrpt.validation import check_whole_number

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")

_stop: ContextVar[Event | None] = ContextVar("stop", default=None)


class Stopped(Exception):  # noqa: N818 (not an error: the caller asked for it)
    """Ends a task in a thread early."""


def stop_if_requested() -> None:
    """Raise :class:`Stopped` if this task runs in a thread and its results are no longer needed.

    A thread cannot be killed, so long tasks should call this now and then.
    """
    if (stop := _stop.get()) is not None and stop.is_set():
        raise Stopped


def run_tasks(
    tasks: Mapping[Key, Callable[[], Result]],
    *,
    in_threads: Collection[Key] = (),
    cores: int | None = None,
    on_done: Callable[[Key], None] = lambda key: None,
) -> dict[Key, Result]:
    """Run tasks on all cores, and return the result of each.

    Tasks run in processes, which need no main guard and accept lambdas. The tasks in ``in_threads``
    run in threads of this process instead, which suits tasks that release the interpreter's lock.
    With one core, tasks run one after the other. If one fails, or on Ctrl-C, the others are
    stopped.

    List the longest tasks first, so that all cores finish at about the same time. ``on_done`` is
    called with the key of each task that ends.

    >>> run_tasks({"a": lambda: 1 + 1, "b": lambda: 2 + 2}, in_threads=["a", "b"])
    {'a': 2, 'b': 4}
    """
    cores = os.cpu_count() or 1 if cores is None else check_whole_number("cores", cores, minimum=1)
    results: dict[Key, Result] = {}
    if cores == 1 or len(tasks) == 1:
        for key, task in tasks.items():
            results[key] = task()
            on_done(key)
        return results
    stop, processes = Event(), None
    with warnings.catch_warnings(), ThreadPoolExecutor(cores) as threads:
        # loky warns when it replaces a worker whose memory has grown. That is harmless.
        warnings.filterwarnings("ignore", message="A worker stopped", category=UserWarning)
        try:
            futures: dict[Future[Result], Key] = {}
            for key, task in tasks.items():
                if key in in_threads:
                    futures[threads.submit(_run_in_thread, task, stop)] = key
                else:
                    from loky import get_reusable_executor

                    processes = get_reusable_executor(max_workers=min(cores, len(tasks)))
                    futures[processes.submit(task)] = key
            for future in as_completed(futures):
                results[futures[future]] = future.result()
                on_done(futures[future])
        except BaseException:
            stop.set()
            threads.shutdown(wait=False, cancel_futures=True)
            if processes is not None:
                processes.shutdown(wait=False, kill_workers=True)
            raise
    return {key: results[key] for key in tasks}


def _run_in_thread(task: Callable[[], Result], stop: Event) -> Result:
    _stop.set(stop)
    return task()
