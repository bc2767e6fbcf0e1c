"""A call on its way to a worker and back: its arguments, its result and the error that it raised.

Errors keep their type, and their cause is the traceback in the worker, as with the standard
library's ``ProcessPoolExecutor``. Workers import this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures.process import BrokenProcessPool, _ExceptionWithTraceback
from types import TracebackType
from typing import Any, NamedTuple, cast

import cloudpickle

from hesrpt.errors import JobError


class LostCallError(JobError, BrokenProcessPool):
    """A call neither returned nor raised an error, for example because its process was killed.

    Code for ``ProcessPoolExecutor`` expects a ``BrokenProcessPool`` then. Here, other calls are not
    affected.
    """


class Call(NamedTuple):
    """A function and its arguments."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


class CallOutcome(NamedTuple):
    """What a call returned or raised, pickled."""

    pickled: bytes
    is_error: bool = False


def make_call(call: Call | None) -> CallOutcome:
    """Make a call in a worker. None stands for a call that was cancelled."""
    try:
        result = None if call is None else call.function(*call.args, **call.kwargs)
        return CallOutcome(cloudpickle.dumps(result))
    except BaseException as error:  # even sys.exit(): the caller decides what that means
        return CallOutcome(_pickle_error(error), is_error=True)


def _pickle_error(error: BaseException) -> bytes:
    # This drops the frames, which hold the arguments, and keeps the text of the traceback.
    carrier = _ExceptionWithTraceback(error, cast(TracebackType, error.__traceback__))
    try:
        pickled = bytes(cloudpickle.dumps(carrier))
        cloudpickle.loads(pickled)
        return pickled
    except Exception:  # this kind of error cannot be pickled
        summary = f"{type(error).__name__}: {error}{carrier.tb}"
        return bytes(cloudpickle.dumps(JobError(summary)))


def call_with_each(function: Callable[..., Any], arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
    """Make several calls of a function."""
    return [function(*args) for args in arguments]


def read_result(outcome: bytes) -> Any:
    """Return the result of a call, or raise its error."""
    try:
        pickled, is_error = cloudpickle.loads(outcome)
        value = cloudpickle.loads(pickled)
    except BaseException as problem:  # unpickling runs the user's code
        raise LostCallError(
            f"the result cannot be unpickled: {type(problem).__name__}: {problem}"
        ) from problem
    if is_error:
        raise value
    return value
