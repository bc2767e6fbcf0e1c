"""Encodes values as bytes, so that equal values have equal encodings in every process.

Pickles would not do: they depend on the order of sets and dictionaries, and on whether equal parts
of a value are one object. Here neither counts. Values of different types differ, and so do 0.0 and
-0.0, while NaN equals itself.

Numbers, strings, and lists and tuples of them, are marshalled, in a format without references.
Anything else becomes a digest of the encodings of its parts. Instances are taken apart as pickle
does it. If a value contains itself, an object that was met before is encoded as a reference.
"""

from __future__ import annotations

import copyreg
import enum
import marshal
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import is_dataclass
from hashlib import blake2b
from typing import Any

import cloudpickle

from hesrpt.jobs import array_encoding, function_encoding
from hesrpt.jobs.function_encoding import Scope

_SCALARS = frozenset({int, float, complex, bool, str, bytes, type(None)})
_STRING = frozenset({str})
# How to take instances apart that pickle cannot handle.
_REDUCERS: dict[type, Callable[[Any], Any]] = dict(cloudpickle.CloudPickler.dispatch_table)
# Global values of classes in these packages count; of others, only the class counts.
_PLAIN_PACKAGES = frozenset(
    {
        "builtins",
        "collections",
        "datetime",
        "decimal",
        "fractions",
        "functools",
        "ipaddress",
        "numpy",
        "operator",
        "pandas",
        "pathlib",
        "re",
        "types",
        "uuid",
        "zoneinfo",
    }
)


class EncodingError(Exception):
    """A value cannot be encoded."""


class _CycleError(Exception):
    """A value contains itself, so it must be encoded by reference."""


_ITEM = Scope()


def encode_value(value: Any, scope: Scope = _ITEM) -> bytes:
    """Return the encoding of a value."""
    if (encoding := _encode_flat(value)) is not None:
        return encoding
    try:
        try:
            return Encoder(scope).encode(value)
        except _CycleError:
            return Encoder(scope, by_reference=True).encode(value)
    except Exception as error:  # taking instances apart runs code of their classes
        raise EncodingError(f"{type(error).__name__}: {error}") from error


def _encode_flat(value: Any) -> bytes | None:
    """Return the encoding of a number, a string, or a container of these; otherwise None."""
    kind = type(value)
    if kind in _SCALARS:
        return marshal.dumps(value, 2)
    if kind is tuple or kind is list:
        return marshal.dumps(value, 2) if _SCALARS.issuperset(map(type, value)) else None
    if (
        kind is dict
        and _STRING.issuperset(map(type, value))
        and _SCALARS.issuperset(map(type, value.values()))
    ):
        return b"\x02" + marshal.dumps(sorted(value.items()), 2)  # keys differ, so they decide
    return None


class Encoder:
    """Encodes the parts of one value."""

    def __init__(self, scope: Scope, by_reference: bool = False) -> None:
        self.scope = scope
        self._by_reference = by_reference
        self._encodings: dict[int, bytes] = {}  # of parts, by their ids
        self._numbers: dict[int, int] = {}  # of parts that were met before, by their ids
        self._parts: list[Any] = []  # kept alive, so that their ids are not used again

    def encode(self, value: Any) -> bytes:
        """Return the encoding of a part of the value."""
        if (encoding := _encode_flat(value)) is not None:
            return encoding
        identity = id(value)
        if (encoding := self._encodings.get(identity)) is not None:
            return encoding
        if (number := self._numbers.get(identity)) is not None:
            if not self._by_reference:
                raise _CycleError
            return self.combine("reference", [marshal.dumps(number, 2)])
        self._numbers[identity] = len(self._numbers)
        self._parts.append(value)
        encoding = self._encode_parts(value)
        if not self._by_reference:
            self._encodings[identity] = encoding
        return encoding

    def encode_all(self, values: Iterable[Any]) -> list[bytes]:
        """Return the encodings of several parts."""
        return [self.encode(value) for value in values]

    def encode_alone(self, value: Any) -> bytes:
        """Return an encoding that does not depend on which other parts were met before."""
        return encode_value(value, self.scope)

    def encode_mapping(self, mapping: Iterable[tuple[Any, Any]]) -> bytes:
        """Return the encoding of pairs whose order does not count."""
        pairs = sorted(
            ((self.encode_alone(key), value) for key, value in mapping), key=lambda pair: pair[0]
        )
        return self.combine(
            "mapping", [part for key, value in pairs for part in (key, self.encode(value))]
        )

    @staticmethod
    def combine(kind: str, encodings: Iterable[bytes]) -> bytes:
        """Return the encoding of something with these parts."""
        content = marshal.dumps(kind, 2) + b"".join(encodings)
        return b"\x01" + blake2b(content, digest_size=16).digest()

    def combine_texts(self, kind: str, *texts: str | None) -> bytes:
        """Return the encoding of something that a few texts identify."""
        return self.combine(kind, [marshal.dumps(texts, 2)])

    @contextmanager
    def within(self, scope: Scope) -> Iterator[None]:
        """Encode parts that are found elsewhere."""
        previous, self.scope = self.scope, scope
        try:
            yield
        finally:
            self.scope = previous

    def _encode_parts(self, value: Any) -> bytes:
        kind = type(value)
        if kind is tuple or kind is list:
            return self.combine(kind.__name__, self.encode_all(value))
        if kind is dict:
            return self.encode_mapping(value.items())
        if isinstance(value, set | frozenset):
            members = sorted(map(self.encode_alone, value))
            state = getattr(value, "__dict__", None)
            return self.combine("set", [self.encode(kind), self.encode(state), *members])
        if isinstance(value, enum.Enum):
            return self.combine("enum", self.encode_all((kind, value.name, value.value)))
        for encode in (function_encoding.encode_code, array_encoding.encode_array):
            if (encoding := encode(self, value)) is not None:
                return encoding
        if self.scope.is_in_function and kind.__module__ == "weakref":  # a cache
            return self.combine("opaque", [self.encode(kind)])
        if self.scope.is_global and not _is_plain(kind):
            return self.combine("global", [self.encode(kind)])
        return self._encode_instance(value)

    def _encode_instance(self, value: Any) -> bytes:
        """Take an instance apart as pickle does it."""
        try:
            reduced = _reduce(value)
        except RecursionError:
            raise
        except Exception:  # of the code of its class
            if not self.scope.is_in_function:
                raise
            return self.combine("opaque", [self.encode(type(value))])
        if isinstance(reduced, str):  # the name of a global variable
            return self.combine(
                "name", [self.encode(type(value)), self.encode(reduced.rpartition(".")[2])]
            )
        padded: list[Any] = [*reduced, None, None, None]
        create, arguments, state, members, pairs = padded[:5]
        parts = [function_encoding.encode_by_name(self, create), self.encode(arguments)]
        parts.append(self.encode(state))
        if members is not None:
            parts.append(self.combine("members", self.encode_all(members)))
        if isinstance(value, OrderedDict):
            parts.append(self.combine("pairs", self.encode_all(map(tuple, pairs or ()))))
        elif pairs is not None:
            parts.append(self.encode_mapping(pairs))
        return self.combine("instance", parts)


def _reduce(value: Any) -> Any:
    """Return the parts of an instance as pickle needs them."""
    reduce = _REDUCERS.get(type(value)) or copyreg.dispatch_table.get(type(value))
    return value.__reduce_ex__(4) if reduce is None else reduce(value)


def _is_plain(kind: type) -> bool:
    package, _, module = kind.__module__.partition(".")
    if module.startswith("random"):
        return False  # the state of a generator of random numbers
    return is_dataclass(kind) or package in _PLAIN_PACKAGES
