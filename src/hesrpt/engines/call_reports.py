"""What a process reports about the call of a function: how long it took, and its result or error.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Generic, NamedTuple, TypeVar

from hesrpt.engines.error_details import NO_DETAILS, ErrorDetails, report_exception
from hesrpt.engines.local.output import redirect_output

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
    work: Callable[[], T], describe_item: Callable[[], str], log: str | Path
) -> CallReport[T]:
    """Call ``work`` like :func:`time_call`, with its output redirected to a log."""
    try:
        with redirect_output(log):
            return time_call(work, describe_item, is_logged=True)
    except OSError as error:
        return report_unwritable_output(error)


def time_call(
    work: Callable[[], T], describe_item: Callable[[], str], *, is_logged: bool
) -> CallReport[T]:
    """Call ``work``, and time it. What it prints may still be buffered afterwards.

    If it fails, the report says which item it was. If its output ``is_logged``, the traceback is
    part of the output.
    """
    started = read_clock()
    try:
        result = work()
        return CallReport(read_clock() - started, result)
    except BaseException as error:  # even sys.exit(): an item must not end its worker
        seconds = read_clock() - started
        return _report_error(error, seconds, describe_item, is_logged=is_logged)


def _report_error(
    error: BaseException, seconds: float, describe_item: Callable[[], str], *, is_logged: bool
) -> CallReport[Any]:
    """Report the exception that a call has raised."""
    item = ""
    with contextlib.suppress(BaseException):  # this runs the user's code
        item = describe_item()
    report = report_exception(error, item)
    if is_logged:
        sys.stderr.write(report.details.traceback)
    return CallReport(seconds, None, *report)


def report_unwritable_output(error: OSError) -> CallReport[Any]:
    """Report that a call counts as failed, because its output cannot be written."""
    return CallReport(0.0, None, f"its output cannot be written: {error}")
