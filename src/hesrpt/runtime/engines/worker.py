"""Code that runs in worker processes: calls one function at a time and redirects its output."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import cloudpickle

from hesrpt.runtime.logs import open_log

T = TypeVar("T")


class CallReport(NamedTuple, Generic[T]):
    """How a call went: its duration, and its result or its error."""

    seconds: float
    result: T | None
    error: str | None


@lru_cache(maxsize=64)
def _load_function(pickled: bytes) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = cloudpickle.loads(pickled)
    return function


def call_pickled(function: bytes, argument: bytes, log: Path | None) -> CallReport[bytes]:
    """Call a pickled function with a pickled argument; report the pickled result."""

    def work() -> bytes:
        return bytes(cloudpickle.dumps(_load_function(function)(cloudpickle.loads(argument))))

    return run_and_report(work, log)


def run_and_report(work: Callable[[], T], log: Path | None) -> CallReport[T]:
    """Call ``work`` with its output redirected to a log, and time it."""
    start = time.perf_counter()
    with _redirect_output(log):
        try:
            result = work()
            return CallReport(time.perf_counter() - start, result, None)
        except BaseException as error:  # even sys.exit(): an item must not end its worker
            seconds = time.perf_counter() - start
            if log is not None:
                traceback.print_exc()
            return CallReport(seconds, None, _describe_error(error))


def _describe_error(error: BaseException) -> str:
    """Return an error and the last lines of its traceback, without the frames of this module."""
    summary = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)[2:]
    location = "".join(traceback.format_list(frames[-5:])).rstrip()
    return f"{summary}\n{location}" if location else summary


@contextlib.contextmanager
def _redirect_output(log: Path | None) -> Iterator[None]:
    """Append all output to a file, including that of C libraries and child processes."""
    if log is None:
        yield
        return
    saved = os.dup(1), os.dup(2)
    _flush()
    try:
        handle = open_log(log)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(handle)
        yield
    finally:
        _flush()
        for original, standard in zip(saved, (1, 2), strict=True):
            os.dup2(original, standard)
            os.close(original)
        remove_if_empty(log)


def remove_if_empty(log: Path) -> None:
    """Remove the log of an item that printed nothing."""
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
