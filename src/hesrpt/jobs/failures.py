"""Items that have failed: what each raised, as users see it after the item's process is gone."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, TypeAlias

import cloudpickle

from hesrpt.errors import JobError
from hesrpt.units import format_count

#: What a job does when an item has failed too often: it fails, or the other items go on.
OnError: TypeAlias = Literal["raise", "keep"]


class RemoteTraceback(Exception):  # noqa: N818 - that is what it is
    """The traceback of an exception in another process, shown as its cause."""

    def __str__(self) -> str:
        return f'\n"""\n{self.args[0]}"""'


@dataclass(frozen=True, kw_only=True)
class FailedItem:
    """What is shown of an item that has failed: it runs again only if its job is retried."""

    item: int  # its index in the job's items
    value: str = ""  # the item itself as a short text; empty if that is not known
    attempts: int = 1  # how often it was tried
    error: str  # what went wrong the last time, in short
    traceback: str = field(default="", repr=False)  # where it was raised, with its causes

    def describe(self) -> str:
        """Return the item and what went wrong, in short."""
        return f"{describe_item(self.item, self.value)}: {self.error}"

    def to_json_value(self) -> dict[str, Any]:
        """Return the item as JSON values."""
        return {name: getattr(self, name) for name in FailedItem.__dataclass_fields__}


@dataclass(frozen=True, kw_only=True)
class ItemFailure(FailedItem):
    """An item that has failed, with what it raised."""

    pickled_exception: bytes = field(default=b"", repr=False)  # empty if there is none

    @cached_property
    def exception(self) -> BaseException:
        """What the item raised the last time. Its cause shows the traceback in its process.

        It is a PicklingError if the argument, the result or the exception itself cannot be pickled,
        a TimeoutError if the item exceeded its time limit, and a JobError if its process ended.
        """
        exception: BaseException = JobError(self.describe())
        if self.pickled_exception:
            try:
                exception = cloudpickle.loads(self.pickled_exception)
            except BaseException as error:  # unpickling runs the user's code
                problem = f"{type(error).__name__}: {error}"
                exception = pickle.UnpicklingError(f"{self.error} (cannot be unpickled: {problem})")
        # Packages such as Dask pickle tracebacks too. Their frames would hold on to our caller's.
        exception.__traceback__ = None
        if self.traceback:
            exception.__cause__ = RemoteTraceback(self.traceback)
        return exception


def describe_losses(losses: int) -> str:
    """Return what went wrong if an item's server was lost too often."""
    return f"its server was lost {format_count(losses, 'time')}"


def describe_item(item: int, value: str) -> str:
    """Return the number of an item, and its value if that says more."""
    says_more = value not in ("", str(item), repr(str(item)))
    return f"item {item} ({value})" if says_more else f"item {item}"
