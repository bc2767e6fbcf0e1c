"""Pickling for other processes: quickly for plain values, with cloudpickle for everything else.

This module runs in workers, which must start quickly, so it imports nothing else of the project.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle

_PLAIN = frozenset({int, float, bool, str, bytes, type(None)})
# Classes of the standard library whose instances can be unpickled without running other code.
_HARMLESS = {
    "builtins": {"range", "complex"},
    "datetime": {"date", "datetime", "timedelta"},
    "pathlib": {"PosixPath", "PurePosixPath"},
}


def dump(value: Any, pickler: type[cloudpickle.Pickler] = cloudpickle.Pickler) -> bytes:
    """Return a pickled value; functions and classes that cannot be imported go by value."""
    if type(value) in _PLAIN:  # the same bytes, without the cost of creating a pickler
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    file = io.BytesIO()
    pickler(file).dump(value)
    return file.getvalue()


class _HarmlessUnpickler(pickle.Unpickler):
    """Unpickles values that consist of the usual types, and refuses all others."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _HARMLESS.get(module, ()):
            raise pickle.UnpicklingError(f"unpickling {module}.{name} may run any code")
        return super().find_class(module, name)


def load_harmless(pickled: bytes) -> Any:
    """Return a pickled value, or raise an UnpicklingError if that may run code of others."""
    return _HarmlessUnpickler(io.BytesIO(pickled)).load()
