"""Independent pieces of work, on all cores."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Mapping
from concurrent.futures import as_completed
from types import TracebackType
from typing import Any, Self, TypeVar

from hesrpt.validation import check_whole_number

Key = TypeVar("Key", bound=Hashable)
Result = TypeVar("Result")


class Workers:
    """Processes that do pieces of work; with one core, none are needed."""

    def __init__(self, cores: int | None = None) -> None:
        if cores is not None:
            cores = check_whole_number("cores", cores, minimum=1)
        self.cores = cores or os.cpu_count() or 1
        self._processes: Any = None

    def run_all(
        self,
        tasks: Mapping[Key, Callable[[], Result]],
        done: Callable[[Key], None] = lambda key: None,
    ) -> dict[Key, Result]:
        """Return the result of each task; ``done`` is called as they end.

        They should begin with the longest, so that no core is left waiting for it in the end.
        """
        results: dict[Key, Result] = {}
        if self.cores == 1:
            for key, task in tasks.items():
                results[key] = task()
                done(key)
            return results
        if self._processes is None:
            from loky import ProcessPoolExecutor

            self._processes = ProcessPoolExecutor(self.cores, timeout=None)
        with warnings.catch_warnings():
            # A worker that has grown is replaced, which loses nothing.
            warnings.filterwarnings("ignore", message="A worker stopped", category=UserWarning)
            futures = {self._processes.submit(task): key for key, task in tasks.items()}
            for future in as_completed(futures):
                key = futures[future]
                results[key] = future.result()
                done(key)
        return {key: results[key] for key in tasks}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._processes is not None:
            self._processes.shutdown(wait=kind is None, kill_workers=kind is not None)
