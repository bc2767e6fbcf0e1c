"""An engine that reports items which end together as one outcome, as the local engine does."""

from __future__ import annotations

import pickle
from array import array
from itertools import groupby

from hesrpt.runtime.engines.engine import FinishedItems, Outcome
from hesrpt.runtime.engines.packed_results import INTEGERS, PackedResults
from hesrpt.runtime.item_runs import find_runs
from support.inline_engine import InlineEngine


class ChunkEngine(InlineEngine):
    """Runs batches of up to 20 items at once in the scheduler's thread."""

    batch_seconds = 0.2

    def wait_for_outcomes(self, timeout: float) -> list[Outcome | FinishedItems]:  # type: ignore[override]
        reports: list[Outcome | FinishedItems] = []
        outcomes = super().wait_for_outcomes(timeout)
        for (job, is_done), group in groupby(outcomes, key=lambda each: (each.job, each.is_done)):
            members = {each.item: each for each in group}
            for run in find_runs(tuple(members)):
                chunk = [members[item] for item in run]
                if is_done and len(chunk) > 1:
                    seconds = [each.seconds for each in chunk]
                    reports.append(FinishedItems(job, run, seconds, _pack(chunk)))
                else:
                    reports += chunk
        return reports


def _pack(chunk: list[Outcome]) -> PackedResults:
    values = [pickle.loads(each.result) for each in chunk]
    if all(type(value) is int and -(2**63) <= value < 2**63 for value in values):
        return PackedResults(INTEGERS, array("q", values).tobytes())
    return PackedResults.from_pickled([each.result for each in chunk])
