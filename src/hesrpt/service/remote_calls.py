"""Python functions that came over HTTP, as workers call them. The service itself unpickles nothing.

Workers import this module, so it imports little.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import cloudpickle


@dataclass(frozen=True)
class RemoteItem:
    """An item as the client has pickled it, and what to call it."""

    pickled: bytes
    label: str

    def __repr__(self) -> str:
        return self.label


class RemoteFunction:
    """A function as the client has pickled it; a worker unpickles it when it first calls it."""

    def __init__(self, pickled: bytes) -> None:
        self.pickled = pickled
        self._function: Callable[[Any], Any] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {"pickled": self.pickled, "_function": None}

    def __call__(self, item: RemoteItem) -> Any:
        """Call the function with an item."""
        if self._function is None:
            self._function = cloudpickle.loads(self.pickled)
        return self._function(cloudpickle.loads(item.pickled))
