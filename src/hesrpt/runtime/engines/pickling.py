"""Pickling for other processes: quickly for plain values, with cloudpickle for everything else.

This module runs in workers, which must start quickly, so it imports nothing else of the project.
"""

from __future__ import annotations

import io
import pickle
from typing import Any

import cloudpickle

_PLAIN = frozenset({int, float, bool, str, bytes, type(None)})


def dump(value: Any, pickler: type[cloudpickle.Pickler] = cloudpickle.Pickler) -> bytes:
    """Return a pickled value; functions and classes that cannot be imported go by value."""
    if type(value) in _PLAIN:  # the same bytes, without the cost of creating a pickler
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    file = io.BytesIO()
    pickler(file).dump(value)
    return file.getvalue()
