"""Fingerprints: what identifies an item, a function or a command, in this process and in others.

A result belongs to an item and to a function or command. When a run is resumed, their fingerprints
say whether they are still the same. Equal values have equal encodings in every process. See
:mod:`~hesrpt.jobs.function_encoding` for functions.

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
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import is_dataclass
from hashlib import blake2b
from typing import Any

import cloudpickle
import numpy as np

from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.function_encoding import Scope, encode_by_name, encode_code, get_root_scope

#: The length of a fingerprint in bytes.
FINGERPRINT_BYTES = 16


def fingerprint_item(item: Any) -> bytes:
    """Return the fingerprint of an item.

    An item that cannot be identified, because it cannot be pickled, gets a new one each time.
    """
    try:
        return _hash(encode_value(item))
    except EncodingError:
        return os.urandom(FINGERPRINT_BYTES)


def fingerprint_function(function: Callable[..., Any]) -> bytes:
    """Return the fingerprint of a function or another callable: of what it does."""
    try:
        return _hash(encode_value(function, get_root_scope(function)))
    except EncodingError:
        return os.urandom(FINGERPRINT_BYTES)


def fingerprint_command(template: CommandTemplate) -> bytes:
    """Return the fingerprint of a command, without its items."""
    return fingerprint_item(
        (
            template.command,
            template.directory,
            template.cwd,
            sorted(template.env.items()),
            template.stdin,
            template.stdin_file,
            template.shell,
            # The name of the job counts only if the command contains it.
            template.job if "job" in template.placeholders else None,
            template.items is not None,
        )
    )


def fingerprint_command_items(template: CommandTemplate) -> Sequence[bytes]:
    """Return the fingerprints of the items of a command."""
    if template.items is None:
        return [fingerprint_item(None)]
    # The position of an item counts only if the command contains it.
    if "index" in template.placeholders:
        return [fingerprint_item(item) for item in enumerate(template.items)]
    return [fingerprint_item(item) for item in template.items]


def _hash(encoding: bytes) -> bytes:
    return blake2b(encoding, digest_size=FINGERPRINT_BYTES).digest()


# --- values as bytes ----------------------------------------------------------------------------

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
        for encode in (encode_code, _encode_array):
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
            reduce = _REDUCERS.get(type(value)) or copyreg.dispatch_table.get(type(value))
            reduced = value.__reduce_ex__(4) if reduce is None else reduce(value)
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
        parts = [encode_by_name(self, create), self.encode(arguments)]
        parts.append(self.encode(state))
        if members is not None:
            parts.append(self.combine("members", self.encode_all(members)))
        if isinstance(value, OrderedDict):
            parts.append(self.combine("pairs", self.encode_all(map(tuple, pairs or ()))))
        elif pairs is not None:
            parts.append(self.encode_mapping(pairs))
        return self.combine("instance", parts)


def _is_plain(kind: type) -> bool:
    package, _, module = kind.__module__.partition(".")
    if module.startswith("random"):
        return False  # the state of a generator of random numbers
    return is_dataclass(kind) or package in _PLAIN_PACKAGES


# --- NumPy arrays and pandas tables: by their contents, however they are stored -----------------


def _encode_array(encoder: Encoder, value: Any) -> bytes | None:
    """Return the encoding of an array or a table; None if the value is neither."""
    if type(value) is np.ndarray:
        return _encode_numpy(encoder, value)
    if isinstance(value, np.generic):
        return encoder.combine("number", [_encode_numpy(encoder, np.asarray(value))])
    if isinstance(value, np.dtype):
        return encoder.combine("dtype", [encoder.encode(repr(value))])
    if "pandas" in sys.modules and any(
        kind.__module__.startswith("pandas.") for kind in type(value).__mro__
    ):
        return _encode_pandas(encoder, value, sys.modules["pandas"])
    return None


def _encode_numpy(encoder: Encoder, array: np.ndarray[Any, Any]) -> bytes:
    dtype = array.dtype
    head = [
        encoder.encode(dtype.str if dtype.isbuiltin else repr(dtype)),
        encoder.encode(array.shape),
    ]
    if dtype.names is not None:  # between the fields there may be bytes without a meaning
        return encoder.combine(
            "record", [*head, *(_encode_numpy(encoder, array[name]) for name in dtype.names)]
        )
    if dtype.hasobject or dtype.kind == "T":
        return encoder.combine("objects", [*head, encoder.encode(array.ravel().tolist())])
    return encoder.combine("array", [*head, array.tobytes()])


def _encode_pandas(encoder: Encoder, value: Any, pandas: Any) -> bytes | None:
    if isinstance(value, pandas.DataFrame):
        columns = [value.iloc[:, number].array for number in range(value.shape[1])]
        parts = [value.columns, value.index, value.attrs, *columns]
    elif isinstance(value, pandas.Series):
        parts = [value.name, value.index, value.attrs, value.array]
    elif isinstance(value, pandas.Index):
        parts = [list(value.names), str(value.dtype), value.tolist()]
    elif isinstance(value, pandas.api.extensions.ExtensionArray):
        if isinstance(value.dtype, pandas.api.extensions.ExtensionDtype):
            parts = [value.dtype, value.to_numpy(dtype=object)]
        else:
            parts = [value.to_numpy()]
    else:
        return None
    return encoder.combine("table", encoder.encode_all([type(value), *parts]))
