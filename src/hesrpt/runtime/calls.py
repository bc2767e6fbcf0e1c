"""What a worker does with a call that was submitted to an executor.

Errors keep their type, and their cause is the traceback in the worker, as with the standard
library's ``ProcessPoolExecutor``. These functions are pickled by value, so that workers need not
import the project, which takes long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures.process import _ExceptionWithTraceback
from types import TracebackType
from typing import Any, TypeAlias, cast

import cloudpickle

#: A function, its arguments and its named arguments.
Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]


def make_call(call: Call | None) -> tuple[bytes, bool]:
    """Make a call; return its pickled result or error, and whether it is an error.

    None stands for a call that was cancelled.
    """
    try:
        if call is None:
            return cloudpickle.dumps(None), False
        function, args, kwargs = call
        return cloudpickle.dumps(function(*args, **kwargs)), False
    except BaseException as error:  # even sys.exit(): the caller decides what that means
        return _pickle_error(error), True


def call_with_each(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Make several calls of a function."""
    return [function(*args) for args in arguments]


def _pickle_error(error: BaseException) -> bytes:
    # This drops the frames, which hold the arguments, and keeps the text of the traceback.
    carrier = _ExceptionWithTraceback(error, cast(TracebackType, error.__traceback__))
    try:
        pickled = bytes(cloudpickle.dumps(carrier))
        cloudpickle.loads(pickled)
        return pickled
    except Exception:  # this kind of error cannot be pickled
        from hesrpt.errors import JobError

        return bytes(cloudpickle.dumps(JobError(f"{type(error).__name__}: {error}{carrier.tb}")))


cloudpickle.register_pickle_by_value(sys.modules[__name__])
