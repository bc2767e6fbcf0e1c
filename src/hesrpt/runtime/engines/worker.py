"""What happens in a worker process: one call at a time, its output kept apart."""

from __future__ import annotations

import contextlib
import os
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

import cloudpickle

T = TypeVar("T")


@lru_cache(maxsize=64)
def _function(pickled: bytes) -> Callable[[Any], Any]:
    function: Callable[[Any], Any] = cloudpickle.loads(pickled)
    return function


def call(pickled: bytes, argument: bytes, log: Path | None) -> tuple[float, bytes, str | None]:
    """Return how long a call took, and its result, pickled, or the error."""

    def work() -> bytes:
        return bytes(cloudpickle.dumps(_function(pickled)(cloudpickle.loads(argument))))

    seconds, result, error = timed(work, log)
    return seconds, result or b"", error


def timed(work: Callable[[], T], log: Path | None) -> tuple[float, T | None, str | None]:
    """Return how long something took, and its result or the error."""
    began = time.perf_counter()
    with _output_to(log):
        try:
            result = work()
            return time.perf_counter() - began, result, None
        except BaseException as error:  # also sys.exit(): a worker is not the item's to end
            seconds = time.perf_counter() - began
            if log is not None:
                traceback.print_exc()
            return seconds, None, _told(error)


def _told(error: BaseException) -> str:
    """Return an error with where it was raised, in the function and what it calls."""
    summary = "".join(traceback.format_exception_only(error)).strip()
    frames = traceback.extract_tb(error.__traceback__)[2:]
    where = "".join(traceback.format_list(frames[-5:])).rstrip()
    return f"{summary}\n{where}" if where else summary


@contextlib.contextmanager
def _output_to(log: Path | None) -> Iterator[None]:
    """Append what is printed, also by libraries and child processes, to a file."""
    if log is None:
        yield
        return
    saved = os.dup(1), os.dup(2)
    _flush()
    try:
        handle = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(handle, 1)
        os.dup2(handle, 2)
        os.close(handle)
        yield
    finally:
        _flush()
        for stream, number in zip(saved, (1, 2), strict=True):
            os.dup2(stream, number)
            os.close(stream)
        remove_if_empty(log)


def remove_if_empty(log: Path) -> None:
    """Remove the log of an item that had nothing to say."""
    with contextlib.suppress(OSError):
        if log.stat().st_size == 0:
            log.unlink()


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):
            stream.flush()
