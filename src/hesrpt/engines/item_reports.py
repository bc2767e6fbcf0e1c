"""What a process reports about an item: how long its call took, and its result or its error.

An error is a short text, the traceback, and the exception itself.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import contextlib
import pickle
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

import cloudpickle

from hesrpt.engines.local.output import redirect_output
from hesrpt.pickling import dump, dump_pieces

# The longest traceback, in characters, and the longest message of an exception.
_MAX_TRACEBACK, _MAX_SUMMARY = 50_000, 5_000
# The largest pickled exception, in bytes.
_MAX_PICKLED = 2**20
# Of the first frames, those of these files, and of Ray between them, are not shown.
_ENGINES = str(Path(__file__).parent)
_MAX_OWN_FRAMES = 4


class ErrorDetails(NamedTuple):
    """What is known about an error, besides its short text."""

    traceback: str = ""  # with those of its causes; empty if no exception was raised
    pickled_exception: bytes = b""
    value: str = ""  # the item as a short text, if its process knew it


NO_DETAILS = ErrorDetails()


class ErrorReport(NamedTuple):
    """An exception, described in the process in which it was raised."""

    summary: str
    details: ErrorDetails


def report_exception(error: BaseException, value: str = "") -> ErrorReport:
    """Describe an exception that an item has raised."""
    frames = frame = error.__traceback__
    for _ in range(_MAX_OWN_FRAMES):
        if frame is not None:
            is_ours = frame.tb_frame.f_code.co_filename.startswith(_ENGINES)
            frame = frame.tb_next
            frames = frame if is_ours else frames
    text = "".join(traceback.format_exception(type(error), error, frames))
    details = ErrorDetails(_shorten(text, _MAX_TRACEBACK), _pickle(error), value)
    return ErrorReport(_summarise(error), details)


def create_timeout_report(timeout: float) -> ErrorReport:
    """Describe that an item took longer than it may."""
    summary = f"exceeded its time limit of {timeout:g} s (timeout={timeout:g})"
    return ErrorReport(summary, ErrorDetails(pickled_exception=dump(TimeoutError(summary))))


def describe_pickling_problem(role: str, value: Any, error: BaseException) -> str:
    """Return that a value of an item cannot be pickled, and why; ``role`` is what it is."""
    kind = type(value).__name__
    article = "an" if kind[0].lower() in "aeiou" else "a"
    return f"its {role}, {article} {kind}, cannot be pickled: {type(error).__name__}: {error}"


class Refusal:
    """Is pickled in place of an argument that cannot be: unpickling it raises an error."""

    def __init__(self, problem: str) -> None:
        self.problem = problem

    def __reduce__(self) -> tuple[Any, ...]:
        def refuse(problem: str) -> None:  # a local function is pickled by value
            import pickle

            raise pickle.PicklingError(problem)

        return refuse, (self.problem,)


def dump_result_pieces(result: Any) -> list[bytes | memoryview]:
    """Pickle what an item returned, in pieces: large parts of it are not copied."""
    try:
        return dump_pieces(result)
    except Exception as error:
        raise pickle.PicklingError(describe_pickling_problem("result", result, error)) from error


def _summarise(error: BaseException) -> str:
    """Return an exception in short, without the frames in which it was raised."""
    text = "".join(traceback.format_exception_only(error)).strip()
    if isinstance(error, pickle.PicklingError):
        text = str(error)  # it says what kind of error it is
    elif isinstance(error, SyntaxError):  # what Python prints begins with the file
        text = f"{type(error).__name__}: {error}"
    return _shorten(text, _MAX_SUMMARY)


def _shorten(text: str, limit: int) -> str:
    half = limit // 2
    return text if len(text) <= limit else f"{text[:half]}\n[…]\n{text[-half:]}"


def _pickle(error: BaseException) -> bytes:
    """Pickle an exception; if that is not possible, another one that says so."""
    try:
        pickled = dump(error)
        cloudpickle.loads(pickled)
        if len(pickled) <= _MAX_PICKLED:
            return pickled
        problem = f"{len(pickled):,} bytes are too many"
    except Exception as obstacle:
        problem = f"{type(obstacle).__name__}: {obstacle}"
    kind = type(error).__name__
    return dump(pickle.PicklingError(f"{_summarise(error)} ({kind} cannot be pickled: {problem})"))


# --- calls --------------------------------------------------------------------------------------

A = TypeVar("A")
T = TypeVar("T")

# Items may replace the functions of the module, to test how something behaves over time.
read_clock = time.monotonic


class CallReport(NamedTuple, Generic[T]):
    """How a call went: its duration, and its result or its error."""

    seconds: float
    result: T | None
    error: str | None = None
    details: ErrorDetails = NO_DETAILS


def call_with_log(
    work: Callable[[A], T], argument: A, describe: Callable[[A], str], log: Path
) -> CallReport[T]:
    """Call ``work`` like :func:`time_call`, with its output redirected to a log."""
    try:
        with redirect_output(log):
            return time_call(work, argument, describe, is_logged=True)
    except OSError as error:
        return report_unwritable_output(error)


def time_call(
    work: Callable[[A], T], argument: A, describe: Callable[[A], str], *, is_logged: bool
) -> CallReport[T]:
    """Call ``work`` with an argument, and time it. What it prints may still be buffered afterwards.

    If it fails, the report describes the argument. If its output ``is_logged``, the traceback is
    part of the output.
    """
    started = read_clock()
    try:
        result = work(argument)
        return CallReport(read_clock() - started, result)
    except BaseException as error:  # even sys.exit(): an item must not end its worker
        seconds = read_clock() - started
        item = ""
        with contextlib.suppress(BaseException):  # this runs the user's code
            item = describe(argument)
        report = report_exception(error, item)
        if is_logged:
            sys.stderr.write(report.details.traceback)
        return CallReport(seconds, None, *report)


def report_unwritable_output(error: OSError) -> CallReport[Any]:
    """Report that a call counts as failed, because its output cannot be written."""
    return CallReport(0.0, None, f"its output cannot be written: {error}")
