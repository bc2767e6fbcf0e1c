"""A batch in an agent: what has become of its items, and what is reported of that."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import cloudpickle

from hesrpt.engines.dask.batch_messages import BatchReport, BatchRequest, CallBatch
from hesrpt.engines.engine import FinishedItems, Outcome
from hesrpt.engines.local.output import read_end
from hesrpt.storage.logs import LogPaths

# Of an item's output, at most this many bytes are sent back: the last ones.
_OUTPUT_BYTES = 2**20


class AgentBatch:
    """A batch that an agent runs."""

    def __init__(self, request: BatchRequest, logs: str) -> None:
        self.job, self.number = request.job, request.number
        self.left = set(request.work.items if isinstance(request.work, CallBatch) else request.work)
        self.ending: set[int] = set()  # items that were stopped, and may not be gone yet
        self.logs = LogPaths(logs, ".log") if request.with_output else None
        self._outcomes: list[Outcome | FinishedItems] = []
        self._outputs: dict[int, bytes] = {}
        self._gone: list[int] = []

    @property
    def has_ended(self) -> bool:
        return not self.left

    def record(self, outcome: Outcome | FinishedItems) -> None:
        """Record how items have ended; those that were stopped may be done nevertheless."""
        items = outcome.items if isinstance(outcome, FinishedItems) else (outcome.item,)
        self._outcomes.append(_replace_results(outcome))
        self._remove(items)

    def record_gone(self) -> list[int]:
        """Record that no process of items that were stopped is left, and return these items."""
        gone = sorted(self.left & self.ending)
        self._remove(gone)
        return gone

    def _remove(self, items: Iterable[int]) -> None:
        self.left.difference_update(items)
        self._gone += self.ending.intersection(items)
        if self.logs is not None:
            self._outputs |= _read_outputs(self.logs, items)

    def take_report(self, *, is_last: bool = False) -> BatchReport:
        """Return what was recorded since the last report."""
        report = BatchReport(self._outcomes, self._outputs, self._gone, is_last)
        self._outcomes, self._outputs, self._gone = [], {}, []
        return report


def strip_results(report: BatchReport) -> BatchReport:
    """Return a report without the results, which stay in the cluster."""
    return replace(report, outcomes=[_replace_results(each, b"") for each in report.outcomes])


def load_result(report: BatchReport, item: int) -> Any:
    """Return the result of an item."""
    for outcome in report.outcomes:
        if isinstance(outcome, Outcome) and outcome.item == item:
            return cloudpickle.loads(outcome.result)
        if isinstance(outcome, FinishedItems) and item in outcome.items:
            return cloudpickle.loads(outcome.results[outcome.items.index(item)])
    raise KeyError(item)


def _read_outputs(logs: LogPaths, items: Iterable[int]) -> dict[int, bytes]:
    """Return what items have printed, if they have, and remove their logs."""
    outputs = {}
    for item in items:
        log = logs.get(item)
        with contextlib.suppress(FileNotFoundError), log.open("rb") as file:
            outputs[item] = read_end(file, _OUTPUT_BYTES)
            log.unlink()
    return outputs


def _replace_results(
    outcome: Outcome | FinishedItems, result: bytes | None = None
) -> Outcome | FinishedItems:
    """Return an outcome with copies of its results, which may be in files, or another result."""
    if isinstance(outcome, FinishedItems):
        results = [bytes(each) if result is None else result for each in outcome.results]
        return outcome._replace(
            items=list(outcome.items), seconds=list(outcome.seconds), results=results
        )
    return replace(outcome, result=bytes(outcome.result) if result is None else result)
