"""What the engine and its agents on Dask workers send each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from hesrpt.engines.engine import CommandTask, FinishedItems, Outcome


class AgentOptions(NamedTuple):
    """What an agent has to know before its first batch."""

    engine: str  # the engine that it works for
    servers: int  # how many items it may run at a time
    run: str  # the state directory of the run; empty if it has none


class CallBatch(NamedTuple):
    """Calls of one function: an argument for each item."""

    function: int  # its number
    items: Sequence[int]
    arguments: Sequence[Any]  # each is short and plain, or pickled, or None if it is a result
    results: Sequence[int]  # which arguments are results that other calls have left in the cluster
    timeout: float | None
    keep_results: bool


class BatchRequest(NamedTuple):
    """A batch to run."""

    agent: AgentOptions
    process: str  # the worker process that is to run it, and no other
    key: str  # of the Dask task
    number: int
    job: str
    servers: int
    work: CallBatch | Mapping[int, CommandTask]
    with_output: bool
    forgotten: Sequence[int] = ()  # the numbers of functions that are not needed any more


@dataclass(frozen=True)
class BatchReport:
    """What has become of a batch since the last report."""

    outcomes: Sequence[Outcome | FinishedItems] = ()
    outputs: Mapping[int, bytes] = field(default_factory=dict)  # what items printed
    gone: Sequence[int] = ()  # items that were stopped, and whose processes are gone
    is_last: bool = True  # whether nothing of the batch is left
    was_refused: bool = False  # whether it was withdrawn, and never started
    other_process: str | None = None  # which process this is, if not the one it was meant for
