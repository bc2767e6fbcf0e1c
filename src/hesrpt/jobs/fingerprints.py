"""Fingerprints: what identifies an item, a function or a command, in this process and in others.

A result belongs to an item and to a function or command. When a run is resumed, their fingerprints
say whether they are still the same. Equal values have equal encodings in every process.

Pickles would not do: they depend on the order of sets and dictionaries, and on whether equal parts
of a value are one object. Here neither counts. Values of different types differ, and so do 0.0 and
-0.0, while NaN equals itself.

Numbers, strings, and lists and tuples of them, are marshalled, in a format without references.
Anything else becomes a digest of the encodings of its parts. Instances are taken apart as pickle
does it. If a value contains itself, an object that was met before is encoded as a reference.
"""

from __future__ import annotations

import copyreg
import dis
import enum
import functools
import inspect
import marshal
import os
import sys
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, is_dataclass, replace
from hashlib import blake2b
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import cloudpickle
import numpy as np

from hesrpt.jobs.command_template import CommandTemplate

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
        return _hash(encode_value(function, _get_root_scope(function)))
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


@dataclass(frozen=True)
class Scope:
    """Where a value was found."""

    #: Modules whose functions and classes count by what they do, not by their names.
    modules: frozenset[str] = frozenset()
    #: Whether the value belongs to a function. What cannot be encoded then counts by its class.
    is_in_function: bool = False
    #: Whether it is the value of a global variable. Only plain values then count as such.
    is_global: bool = False


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
        for encode in (_encode_code, _encode_array):
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
        parts = [_encode_by_name(self, create), self.encode(arguments)]
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


# --- functions: by what they do, which is their code and the values that it uses ------------------
#
# What counts: the code, but not its line numbers, file, comments or docstrings; default values; the
# values of a closure; and what it reads from its own module, which is the code of other functions
# and classes, and plain values. What does not count: functions of other modules, which are known by
# their names only; global objects other than plain values, known by their classes; files; the
# environment.
#
# In modules of the standard library and of installed packages, global values do not count: they
# include caches.

# Attributes of a class that Python derives from its definition, or that do not change what it does.
_IGNORED_ATTRIBUTES = frozenset(
    {
        "__doc__",
        "__module__",
        "__dict__",
        "__weakref__",
        "__qualname__",
        "__annotations__",
        "__annotate__",
        "__annotate_func__",
        "__annotations_cache__",
        "__firstlineno__",
        "__static_attributes__",
        "__abstractmethods__",
        "_abc_impl",
        "__dataclass_fields__",
        "__orig_bases__",
        "__parameters__",
        "__slotnames__",  # a cache of pickle
    }
)
# How a function takes its arguments, and whether it is a generator or a coroutine.
_COUNTED_FLAGS = (
    inspect.CO_VARARGS
    | inspect.CO_VARKEYWORDS
    | inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ITERABLE_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
)


def _get_root_scope(function: Callable[..., Any]) -> Scope:
    """Return the scope of the function of a job."""
    kind = function if isinstance(function, type) else type(function)
    modules = frozenset() if _is_installed(kind.__module__) else frozenset({kind.__module__})
    return Scope(modules, is_in_function=True)


def _encode_code(encoder: Encoder, value: Any) -> bytes | None:
    """Return the encoding of a function, class, method or module; None for any other value."""
    if isinstance(value, FunctionType):
        if encoder.scope.is_global and not _is_local(encoder, value) and _is_importable(value):
            return encoder.combine_texts("function", value.__module__, value.__qualname__)
        return _encode_function(encoder, value)
    if isinstance(value, type):
        if not _is_local(encoder, value) and _is_importable(value):
            return encoder.combine_texts("class", value.__module__, value.__qualname__)
        return _encode_class(encoder, value)
    if isinstance(value, ModuleType):
        return encoder.combine_texts("module", value.__name__)
    if isinstance(value, MethodType | BuiltinFunctionType):
        return _encode_method(encoder, value)
    if isinstance(value, CodeType):
        return _encode_code_object(encoder, value)
    if isinstance(value, staticmethod | classmethod):
        return encoder.combine(type(value).__name__, [encoder.encode(value.__func__)])
    if isinstance(value, property):
        functions = (value.fget, value.fset, value.fdel)
        return encoder.combine("property", encoder.encode_all(functions))
    if (wrapped := _get_wrapped(value)) is not None:
        return encoder.combine("wrapper", [encoder.encode(type(value)), encoder.encode(wrapped)])
    return None


def _encode_by_name(encoder: Encoder, function: Any) -> bytes:
    """Return the encoding of a function that reconstructs an instance."""
    if isinstance(function, FunctionType) and _is_importable(function):
        return encoder.combine_texts("function", function.__module__, function.__qualname__)
    return encoder.encode(function)


def _encode_function(encoder: Encoder, function: FunctionType) -> bytes:
    scope = encoder.scope
    modules = _get_modules(function)
    with encoder.within(replace(scope, modules=modules, is_in_function=True)):
        parts = [
            _encode_code_object(encoder, function.__code__),
            encoder.encode(function.__defaults__),
            encoder.encode(function.__kwdefaults__),
        ]
        for cell in function.__closure__ or ():
            try:
                parts.append(encoder.encode(cell.cell_contents))
            except ValueError:  # the variable has no value yet
                parts.append(encoder.combine_texts("empty"))
    with encoder.within(replace(scope, modules=modules, is_in_function=True, is_global=True)):
        for name in sorted(_find_global_names(function.__code__)):
            parts += [encoder.encode(name), _encode_global(encoder, function, name)]
    return encoder.combine("code", parts)


def _encode_global(encoder: Encoder, function: FunctionType, name: str) -> bytes:
    """Return the encoding of a global variable that a function reads."""
    if name.startswith("__") or name not in function.__globals__:
        return encoder.combine_texts("builtin")
    value = function.__globals__[name]
    if _is_installed(str(function.__globals__.get("__name__"))) and not callable(value):
        return encoder.combine_texts("global")
    return encoder.encode(value)


def _encode_code_object(encoder: Encoder, code: CodeType) -> bytes:
    constants = list(code.co_consts)
    if _has_docstring(code):
        constants[0] = None
    layout = (
        code.co_code,
        code.co_argcount,
        code.co_posonlyargcount,
        code.co_kwonlyargcount,
        code.co_flags & _COUNTED_FLAGS,
        code.co_exceptiontable,
    )
    names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
    return encoder.combine(
        "instructions",
        [
            marshal.dumps(layout, 2),
            *(marshal.dumps(each, 2) for each in names),
            # Whether equal constants are one object depends on how the module was loaded.
            *(encoder.encode_alone(constant) for constant in constants),
        ],
    )


def _encode_class(encoder: Encoder, kind: type) -> bytes:
    modules = encoder.scope.modules | {kind.__module__}
    scope = replace(encoder.scope, modules=modules, is_in_function=True)
    with encoder.within(scope):
        parts = [encoder.encode(kind.__name__), encoder.encode(type(kind))]
        parts += encoder.encode_all(kind.__bases__)
    with encoder.within(replace(scope, is_global=True)):
        for name, value in sorted(vars(kind).items()):
            if not _is_ignored(kind, name):
                parts += [encoder.encode(name), encoder.encode(value)]
    return encoder.combine("definition", parts)


def _is_ignored(kind: type, name: str) -> bool:
    # Names like _this_ in an enumeration belong to Python, and include caches.
    is_internal = issubclass(kind, enum.Enum) and name.startswith("_") and name.endswith("_")
    return name in _IGNORED_ATTRIBUTES or (is_internal and not name.startswith("__"))


def _encode_method(encoder: Encoder, method: MethodType | BuiltinFunctionType) -> bytes:
    owner = method.__self__
    name: str = method.__name__
    if owner is None or isinstance(owner, ModuleType):
        return encoder.combine_texts("function", method.__module__, name)
    # random.random, for instance, belongs to an object whose state differs in each process.
    module = type(owner).__module__
    found = getattr(sys.modules.get(module), name, None)
    if isinstance(found, MethodType | BuiltinFunctionType) and found == method:
        return encoder.combine_texts("function", module, name)
    if isinstance(method, BuiltinFunctionType):
        return encoder.combine("method", [encoder.encode(name), encoder.encode(owner)])
    function = method.__func__
    modules = _get_modules(function)
    with encoder.within(replace(encoder.scope, modules=modules, is_in_function=True)):
        return encoder.combine("method", [encoder.encode(function), encoder.encode(owner)])


def _get_wrapped(value: Any) -> Callable[..., Any] | None:
    """Return the function of a cache or a compiled function."""
    if isinstance(value, functools._lru_cache_wrapper):
        return value.__wrapped__
    if type(value).__module__.startswith("numba."):
        function = getattr(value, "py_func", None)
        return function if isinstance(function, FunctionType) else None
    return None


def _has_docstring(code: CodeType) -> bool:
    if sys.version_info >= (3, 14):
        return bool(code.co_flags & 0x4000000)  # CO_HAS_DOCSTRING
    # A function without a docstring has None instead; comprehensions have neither.
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED) and not code.co_name.startswith("<")
    return is_function and isinstance(next(iter(code.co_consts), None), str)


def _find_global_names(code: CodeType) -> set[str]:
    """Return the names of the global variables that a function reads, directly or inside it."""
    names = {
        str(instruction.argval)
        for instruction in dis.get_instructions(code)
        if instruction.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS")
    }
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            names |= _find_global_names(constant)
    return names


def _get_modules(function: Any) -> frozenset[str]:
    """Return the modules that a function belongs to; for a decorated one there may be two."""
    names = {getattr(function, "__module__", None)}
    if isinstance(function, FunctionType):
        names.add(function.__globals__.get("__name__"))
    return frozenset(name for name in names if isinstance(name, str))


def _is_local(encoder: Encoder, value: Any) -> bool:
    """Return whether a function or class belongs to the module of the function being encoded."""
    return not encoder.scope.modules.isdisjoint(_get_modules(value))


def _is_importable(value: Any) -> bool:
    """Return whether a function or class can be found by its name in its module."""
    found: Any = sys.modules.get(value.__module__)
    for name in value.__qualname__.split("."):
        found = getattr(found, name, None)
    return found is value


@functools.cache
def _is_installed(module: str) -> bool:
    """Return whether a module is part of Python or of an installed package."""
    if module.partition(".")[0] in sys.stdlib_module_names:
        return module != "__main__"
    file = getattr(sys.modules.get(module), "__file__", None)
    folders = Path(file or "").parts
    return "site-packages" in folders or "dist-packages" in folders
