"""What of a batch goes to the worker that is to run it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from distributed import Future

from hesrpt.engines.dask.batch_messages import CallBatch
from hesrpt.engines.dask.dask_connection import DaskFunction
from hesrpt.engines.dask.slots import Batch
from hesrpt.engines.engine import CommandTask, PythonTask, PythonTasks, Task


class PackedBatch(NamedTuple):
    """The items of a batch, and what Dask has to send with them."""

    work: CallBatch | Mapping[int, CommandTask]
    with_output: bool
    function: DaskFunction | None = None
    results: Sequence[Future] = ()  # of other calls, which are arguments


def pack_batch(batch: Batch) -> PackedBatch:
    """Return what is to be sent of a batch: all items that were not stopped."""
    items = [item for item in batch.tasks if item not in batch.stopped]
    first = batch.tasks[items[0]]  # all tasks of a batch have the same options
    with_output = first.log is not None
    if isinstance(first, CommandTask):
        tasks = ((item, batch.tasks[item]) for item in items)
        commands = {item: task for item, task in tasks if isinstance(task, CommandTask)}
        return PackedBatch(commands, with_output)
    arguments = _list_arguments(batch.tasks, items)
    places = [place for place, each in enumerate(arguments) if isinstance(each, Future)]
    results = [arguments[place] for place in places]
    for place in places:
        arguments[place] = None
    function = first.function
    work = CallBatch(function.number, items, arguments, places, first.timeout, first.keep_result)
    return PackedBatch(work, with_output, function, results)


def pick_tasks(tasks: Mapping[int, Task], items: list[int]) -> Mapping[int, Task]:
    """Return some of the tasks of a batch."""
    if isinstance(tasks, PythonTasks):
        return tasks.without(set(tasks) - set(items))
    return {item: tasks[item] for item in items}


def _list_arguments(tasks: Mapping[int, Task], items: list[int]) -> list[Any]:
    """Return the packed arguments of Python items."""
    if isinstance(tasks, PythonTasks):
        if len(items) == len(tasks):
            return list(tasks.arguments)
        wanted = set(items)
        pairs = zip(tasks.numbers, tasks.arguments, strict=True)
        return [argument for number, argument in pairs if number in wanted]
    chosen = (tasks[item] for item in items)
    return [task.argument for task in chosen if isinstance(task, PythonTask)]
