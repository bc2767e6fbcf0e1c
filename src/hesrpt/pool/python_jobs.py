"""Jobs that call Python functions: those of ``Pool.map`` and of executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sized
from typing import Any

from hesrpt.engines.engine import Engine
from hesrpt.errors import InputError
from hesrpt.jobs.fingerprints import fingerprint_function
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.schema import FUNCTION_FIELDS, read_job
from hesrpt.pool.job_handle import Job
from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.calls import Caller
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.python_source import PythonSource, ReadAhead
from hesrpt.validation import check_whole_number

# --- jobs that call Python functions ------------------------------------------------------------


def create_map_job(
    function: Callable[[Any], Any],
    items: Iterable[Any],
    fields: Mapping[str, object],
    *,
    engine: Engine,
    read_ahead: Callable[[], ReadAhead],
    keep: bool,
    has_journal: bool,
) -> LiveJob:
    """Create a job that calls a function with each item."""
    if not callable(function):
        raise InputError(f"must be callable, got {function!r}", argument="function")
    if not isinstance(items, Iterable):
        raise InputError(f"must be iterable, got {items!r}", argument="items")
    if keep and not engine.can_keep_results:
        raise InputError("keep=True needs a cluster, where the results can stay")
    values = _read_arguments(fields)
    source = PythonSource(
        engine.pack_function(function),
        items,
        pack_argument=engine.pack_argument,
        read_ahead=read_ahead,
        timeout=values.pop("timeout", None),
        keep_results=keep,
        has_journal=has_journal,
    )
    count = len(items) if isinstance(items, Sized) else None
    spec = JobSpec(**values, items=count, is_streamed=True)
    fingerprint = fingerprint_function(function) if has_journal else b""
    return LiveJob(spec=spec, source=source, fingerprint=fingerprint)


def create_executor_job(
    fields: Mapping[str, object],
    *,
    engine: Engine,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    max_tasks_per_child: int | None,
) -> tuple[LiveJob, CallSource]:
    """Create a job whose items are calls, and the source of these."""
    if initializer is not None and not callable(initializer):
        raise InputError(f"must be callable, got {initializer!r}", argument="initializer")
    if not isinstance(initargs, Iterable):
        raise InputError(f"must be a tuple, got {initargs!r}", argument="initargs")
    if max_tasks_per_child is not None:
        name = "max_tasks_per_child"
        max_tasks_per_child = check_whole_number(name, max_tasks_per_child, minimum=1)
        if not engine.can_replace_workers:
            raise InputError("needs the local engine: a cluster keeps its servers", argument=name)
    values = _read_arguments(fields)
    caller = Caller(initializer, tuple(initargs), max_tasks_per_child)
    source = CallSource(engine, caller, values.pop("timeout", None))
    spec = JobSpec(**values, retries=0, is_streamed=True, is_executor=True)
    return LiveJob(spec=spec, source=source, is_new=True), source


def _read_arguments(fields: Mapping[str, object]) -> dict[str, Any]:
    """Return what arguments of ``map`` and ``executor`` mean; None stands for a default."""
    given = {key: value for key, value in fields.items() if value is not None or key == "name"}
    after = given.get("after", ())
    if isinstance(after, Iterable) and not isinstance(after, str):
        given["after"] = [job.name if isinstance(job, Job) else job for job in after]
    elif isinstance(after, Job):
        given["after"] = after.name
    return read_job(given, FUNCTION_FIELDS, lambda _, error: error)
