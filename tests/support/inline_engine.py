"""An engine that calls functions at once in the scheduler's thread, for quick tests of results."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import cloudpickle

from hesrpt.engines.engine import Outcome, PythonTask, Task
from hesrpt.engines.fake import FakeEngine
from hesrpt.engines.item_reports import report_exception


class InlineEngine(FakeEngine):
    """Pretends to take time for items, but really computes their results."""

    def __init__(self, servers: int = 2) -> None:
        super().__init__(servers, lambda job, item, width: 0.01)
        self.calls = 0
        self._tasks: dict[tuple[str, int], Task] = {}

    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        self._tasks |= {(job, item): task for item, task in tasks.items()}
        super().start(job, tasks, servers)

    def wait_for_outcomes(self, timeout: float) -> list[Outcome]:
        return [self._call(outcome) for outcome in super().wait_for_outcomes(timeout)]

    def _call(self, outcome: Outcome) -> Outcome:
        task = self._tasks.pop((outcome.job, outcome.item))
        assert isinstance(task, PythonTask)
        self.calls += 1
        try:
            return replace(outcome, result=cloudpickle.dumps(task.function(task.argument)))
        except Exception as error:
            summary, details = report_exception(error)
            return replace(outcome, error=summary, details=details)
