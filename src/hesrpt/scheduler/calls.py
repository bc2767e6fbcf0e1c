"""What a worker does with a call that was submitted to an executor.

Errors keep their type, and their cause is the traceback in the worker, as with the standard
library's ``ProcessPoolExecutor``. These functions are pickled by value, so that workers need not
import the project, which takes long.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures._base import LOGGER
from concurrent.futures.process import _ExceptionWithTraceback
from functools import partial
from types import FunctionType, MethodType, TracebackType
from typing import Any, Literal, TypeAlias, cast

import cloudpickle

#: A function, its arguments and its named arguments.
Call: TypeAlias = tuple[Callable[..., Any], tuple[Any, ...], Mapping[str, Any]]
#: How a call ended: "broken" if it was not made, because the initializer has raised an error.
CallEnd: TypeAlias = Literal["returned", "raised", "broken"]


class Caller:
    """Makes the calls of one executor in a worker, after the initializer."""

    def __init__(
        self,
        initializer: Callable[..., object] | None = None,
        initargs: tuple[Any, ...] = (),
        max_calls: int | None = None,
    ) -> None:
        self.initializer, self.initargs = initializer, initargs
        self.remaining_calls = max_calls
        self.has_failed = False
        self.globals: dict[str, Any] = {}  # of the module of the initializer
        self.changes: dict[str, Any] = {}  # those that it has set, with their present values

    @property
    def needs_new_worker(self) -> bool:
        """Whether this process is to be replaced; the worker asks after each call."""
        return self.has_failed or self.remaining_calls == 0

    def __repr__(self) -> str:
        return f"initializer {self.initializer!r} with the arguments {self.initargs!r}"

    def __call__(self, call: Call | None) -> tuple[bytes, CallEnd]:
        """Make a call; return its pickled result or error, and which of them it is.

        None stands for a call that was cancelled.
        """
        if call is None:
            return cloudpickle.dumps(None), "returned"
        if self.initializer is not None:
            try:
                self._initialize(self.initializer)
            except BaseException as error:
                LOGGER.critical("Exception in initializer:", exc_info=True)
                self.has_failed = True
                return _pickle_error(error), "broken"
            self.initializer, self.initargs = None, ()
        if self.remaining_calls is not None:
            self.remaining_calls -= 1
        copies = self._find_copied_globals(call) if self.changes else []
        for variables in copies:
            variables.update(self.changes)
        outcome = make_call(call)
        for variables in copies:
            self.changes = {name: variables.get(name) for name in self.changes}
        return outcome

    def _initialize(self, initializer: Callable[..., object]) -> None:
        """Run the initializer, and note which global variables it sets."""
        self.globals = _get_globals(initializer)
        before = dict(self.globals)
        initializer(*self.initargs)
        self.changes = {
            name: value
            for name, value in self.globals.items()
            if name not in before or before[name] is not value
        }

    def _find_copied_globals(self, call: Call) -> list[dict[str, Any]]:
        """Return copies of the initializer's global variables that a call uses.

        Functions that cannot be imported, for example those of a script, come with such copies.
        """
        function, args, _ = call
        module = self.globals.get("__name__")
        found = map(_get_globals, (function, *args))
        return [
            variables
            for variables in found
            if variables is not self.globals and variables.get("__name__") == module
        ]


def _get_globals(value: object) -> dict[str, Any]:
    """Return the global variables that a callable uses; none for other values."""
    while isinstance(value, partial):
        value = value.func
    if isinstance(value, MethodType):
        value = value.__func__
    for candidate in (value, getattr(type(value), "__call__", None)):  # noqa: B004
        if isinstance(candidate, FunctionType):
            return candidate.__globals__
    return {}


def make_call(call: Call) -> tuple[bytes, CallEnd]:
    """Make a call; return its pickled result or error."""
    try:
        function, args, kwargs = call
        return cloudpickle.dumps(function(*args, **kwargs)), "returned"
    except BaseException as error:  # even sys.exit(): the caller decides what that means
        return _pickle_error(error), "raised"


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
