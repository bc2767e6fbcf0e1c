"""Independent pieces of work, on all cores."""

from __future__ import annotations

import os
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import as_completed
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


def run_all(
    tasks: Mapping[Key, Callable[[], Result]],
    cores: int | None = None,
    done: Callable[[Key], None] = lambda key: None,
) -> dict[Key, Result]:
    """Return the result of each task; ``done`` is called as they end. One core needs no processes.

    Tasks should begin with the longest, so that no core is left waiting for it in the end.
    """
    cores = cores or os.cpu_count() or 1
    results: dict[Key, Result] = {}
    if cores == 1 or len(tasks) < 2:
        for key, task in tasks.items():
            results[key] = task()
            done(key)
        return results

    from loky import get_reusable_executor

    processes = get_reusable_executor(max_workers=cores)
    try:
        futures = {processes.submit(task): key for key, task in tasks.items()}
        for future in as_completed(futures):
            key = futures[future]
            results[key] = future.result()
            done(key)
    except BaseException:
        processes.shutdown(wait=False, kill_workers=True)
        raise
    return {key: results[key] for key in tasks}
