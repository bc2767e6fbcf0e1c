"""Jobs that call Python functions: those of ``Pool.map`` and of executors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import replace
from typing import Any, get_args

from hesrpt.engines.engine import Engine
from hesrpt.errors import InputError
from hesrpt.jobs.failures import OnError
from hesrpt.jobs.fingerprints import fingerprint_function
from hesrpt.jobs.groups import check_group_name
from hesrpt.jobs.hooks import check_hooks
from hesrpt.jobs.item_resources import check_resources
from hesrpt.jobs.job_order import check_after
from hesrpt.jobs.job_spec import AfterFailure, JobSpec
from hesrpt.jobs.server_limits import ServerLimits
from hesrpt.pool.job_handle import Job
from hesrpt.scheduler.call_source import CallSource
from hesrpt.scheduler.calls import Caller
from hesrpt.scheduler.live_job import LiveJob
from hesrpt.scheduler.python_source import PythonSource, ReadAhead
from hesrpt.speedups import PowerLaw, Speedup, as_speedup
from hesrpt.validation import check_positive, check_whole_number
from hesrpt.workload import SpeedupLike


def create_python_spec(
    *,
    name: str,
    kind: str | None,
    size: float | None,
    speedup: SpeedupLike | float | None,
    weight: float,
    limits: ServerLimits,
    group: str = "",
    resources: Mapping[str, float | str] | None = None,
) -> JobSpec:
    """Create the spec of a job from the arguments that ``map`` and ``executor`` share."""
    if not isinstance(name, str) or not name:
        raise InputError(f"must be a non-empty string, got {name!r}", argument="name")
    if kind is not None and (not isinstance(kind, str) or not kind):
        raise InputError(f"must be a non-empty string, got {kind!r}", argument="kind")
    return JobSpec(
        name=name,
        kind=kind or "",
        size=None if size is None else check_positive("size", size),
        speedup=None if speedup is None else _to_speedup(speedup),
        weight=check_positive("weight", weight),
        **limits._asdict(),
        group=check_group_name(group),
        resources=check_resources(resources or {}),
        is_streamed=True,
    )


def order_job(
    spec: JobSpec,
    *,
    after: str | Job[Any] | Iterable[str | Job[Any]],
    after_failure: AfterFailure,
    on_end: str | Sequence[str],
) -> JobSpec:
    """Return the spec of a job that waits for others, and says when it has ended."""
    if after_failure not in get_args(AfterFailure):
        raise InputError(
            f"must be 'cancel' or 'release', got {after_failure!r}", argument="after_failure"
        )
    listed = [after] if isinstance(after, str | Job) else after
    if not isinstance(listed, Iterable):
        raise InputError(f"must be a list of jobs, got {listed!r}", argument="after")
    names = [each.name if isinstance(each, Job) else each for each in listed]
    return replace(
        spec,
        after=check_after(names),
        after_failure=after_failure,
        on_end=check_hooks(on_end) if on_end else (),
    )


def create_map_job(
    spec: JobSpec,
    function: Callable[[Any], Any],
    items: Iterable[Any],
    *,
    engine: Engine,
    read_ahead: Callable[[], ReadAhead],
    retries: int,
    on_error: OnError,
    timeout: float | None,
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
    if on_error not in get_args(OnError):
        raise InputError(f"must be 'raise' or 'keep', got {on_error!r}", argument="on_error")
    retries = check_whole_number("retries", retries, minimum=0)
    spec = replace(
        spec,
        items=len(items) if isinstance(items, Sized) else None,
        retries=retries,
        on_error=on_error,
    )
    time_limit = None if timeout is None else check_positive("timeout", timeout)
    source = PythonSource(
        engine.pack_function(function),
        items,
        pack_argument=engine.pack_argument,
        read_ahead=read_ahead,
        timeout=time_limit,
        keep_results=keep,
        has_journal=has_journal,
    )
    fingerprint = fingerprint_function(function) if has_journal else b""
    return LiveJob(spec=spec, source=source, fingerprint=fingerprint)


def create_call_source(
    engine: Engine,
    *,
    timeout: float | None,
    initializer: Callable[..., object] | None,
    initargs: tuple[Any, ...],
    max_tasks_per_child: int | None,
) -> CallSource:
    """Create the source of an executor's job."""
    time_limit = None if timeout is None else check_positive("timeout", timeout)
    if initializer is not None and not callable(initializer):
        raise InputError(f"must be callable, got {initializer!r}", argument="initializer")
    if not isinstance(initargs, Iterable):
        raise InputError(f"must be a tuple, got {initargs!r}", argument="initargs")
    if max_tasks_per_child is not None:
        name = "max_tasks_per_child"
        max_tasks_per_child = check_whole_number(name, max_tasks_per_child, minimum=1)
        if not engine.can_replace_workers:
            raise InputError("needs the local engine: a cluster keeps its servers", argument=name)
    caller = Caller(initializer, tuple(initargs), max_tasks_per_child)
    return CallSource(engine, caller, time_limit)


def create_executor_job(spec: JobSpec, source: CallSource) -> LiveJob:
    """Create a job whose items are calls."""
    return LiveJob(spec=replace(spec, retries=0, is_executor=True), source=source, is_new=True)


def _to_speedup(speedup: SpeedupLike | float) -> Speedup:
    if not isinstance(speedup, int | float):
        return as_speedup(speedup)
    try:
        return PowerLaw(speedup)
    except InputError as error:  # about p
        raise InputError(error.problem, argument="speedup") from None
