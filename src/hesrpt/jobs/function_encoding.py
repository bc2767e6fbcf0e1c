"""Encodes functions by what they do: their code, and the values that it uses.

What counts: the code, but not its line numbers, file, comments or docstrings; default values; the
values of a closure; and what it reads from its own module, which is the code of other functions and
classes, and plain values. What does not count: functions of other modules, which are known by their
names only; global objects other than plain values, known by their classes; files; the environment.

In modules of the standard library and of installed packages, global values do not count: they
include caches.
"""

from __future__ import annotations

import dis
import enum
import functools
import inspect
import marshal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from hesrpt.jobs.fingerprints import Encoder

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


@dataclass(frozen=True)
class Scope:
    """Where a value was found."""

    #: Modules whose functions and classes count by what they do, not by their names.
    modules: frozenset[str] = frozenset()
    #: Whether the value belongs to a function. What cannot be encoded then counts by its class.
    is_in_function: bool = False
    #: Whether it is the value of a global variable. Only plain values then count as such.
    is_global: bool = False


def get_root_scope(function: Callable[..., Any]) -> Scope:
    """Return the scope of the function of a job."""
    kind = function if isinstance(function, type) else type(function)
    modules = frozenset() if _is_installed(kind.__module__) else frozenset({kind.__module__})
    return Scope(modules, is_in_function=True)


def encode_code(encoder: Encoder, value: Any) -> bytes | None:
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


def encode_by_name(encoder: Encoder, function: Any) -> bytes:
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
