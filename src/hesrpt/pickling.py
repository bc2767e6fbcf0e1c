"""Pickling for other processes: quickly for plain values, with cloudpickle for everything else.

This module runs in workers, which must start quickly, so it imports nothing else of the project.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Sequence
from typing import Any, TypeAlias

import cloudpickle

#: A pickled value, in memory of this process or in a file that it has mapped.
Pickled: TypeAlias = bytes | memoryview

_dump_plain, _PROTOCOL = pickle.dumps, pickle.HIGHEST_PROTOCOL
_NUMBERS = frozenset({int, float, bool})
_PLAIN = _NUMBERS | {str, bytes, type(None)}
# Those that may be large, and how long they must be to be worth the cost of a pickler.
_SIZED, _LONG = frozenset({str, bytes}), 2**16
# Classes of the standard library whose instances can be unpickled without running other code.
_HARMLESS = {
    "builtins": {"range", "complex"},
    "datetime": {"date", "datetime", "timedelta"},
    "pathlib": {"PosixPath", "PurePosixPath"},
}


def is_short_and_plain(value: Any) -> bool:
    """Return whether pickling a value together with others is as good, and much quicker.

    Nobody can tell whether two such values are one object, and they take up little memory. Bytes
    are not among them, so they can stand for pickled values.
    """
    kind = type(value)
    return kind in _NUMBERS or value is None or (kind is str and len(value) < _LONG)


def dump(value: Any, pickler: type[cloudpickle.Pickler] = cloudpickle.Pickler) -> bytes:
    """Return a pickled value; functions and classes that cannot be imported go by value."""
    if type(value) in _PLAIN:  # the same bytes, without the cost of creating a pickler
        return pickle.dumps(value, pickle.HIGHEST_PROTOCOL)
    return b"".join(dump_pieces(value, pickler))


def dump_pieces(
    value: Any, pickler: type[cloudpickle.Pickler] = cloudpickle.Pickler
) -> list[Pickled]:
    """Return a pickled value in pieces: large ones are parts of the value itself, not copies."""
    kind = type(value)
    if kind in _NUMBERS or (kind in _PLAIN and (kind not in _SIZED or len(value) < _LONG)):
        return [_dump_plain(value, _PROTOCOL)]
    pieces = _Pieces()
    pickler(pieces).dump(value)
    return pieces


def dump_arguments(packed: Sequence[Any]) -> bytes:
    """Return the arguments of items for a worker; each is pickled, or short and plain."""
    if len(packed) > 1:
        return pickle.dumps(list(packed), pickle.HIGHEST_PROTOCOL)
    (argument,) = packed
    if type(argument) is bytes:
        return argument
    return pickle.dumps(argument, pickle.HIGHEST_PROTOCOL)


class _Pieces(list[Pickled]):
    """What a pickler has written, as to a file."""

    def write(self, piece: bytes | bytearray | pickle.PickleBuffer) -> None:
        """Add a piece, which may be a part of the value."""
        self.append(piece if isinstance(piece, bytes) else pickle.PickleBuffer(piece).raw())


class _HarmlessUnpickler(pickle.Unpickler):
    """Unpickles values that consist of the usual types, and refuses all others."""

    def find_class(self, module: str, name: str) -> Any:
        if name not in _HARMLESS.get(module, ()):
            raise pickle.UnpicklingError(f"unpickling {module}.{name} may run any code")
        return super().find_class(module, name)


def load_harmless(pickled: bytes) -> Any:
    """Return a pickled value, or raise an UnpicklingError if that may run code of others."""
    return _HarmlessUnpickler(io.BytesIO(pickled)).load()
