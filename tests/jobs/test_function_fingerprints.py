"""Fingerprints of functions: equal as long as the function does the same."""

from __future__ import annotations

import random
import sys
import threading
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from support.fingerprint_samples import (
    cached,
    double,
    list_functions,
    negate,
    triple,
    use_state,
)

from hesrpt.jobs.fingerprints import (
    fingerprint_function,
)


def test_different_functions_have_different_fingerprints() -> None:
    functions = list_functions()
    found = {fingerprint_function(function) for function in functions}
    assert len(found) == len(functions)
    assert found == {fingerprint_function(function) for function in list_functions()}


BASE = """
import math
from dataclasses import dataclass
from enum import Enum

LIMIT = 10
SETTINGS = {"depth": [1, 2]}

def helper(x):
    return inner(x) + LIMIT

def inner(x):
    return math.sqrt(x)

def unused(x):
    return 5

@dataclass
class Config:
    depth: int = 3

CONFIG = Config()

class Colour(Enum):
    RED = 1

class Model:
    rate = 0.5

    @property
    def size(self):
        return 3

    @staticmethod
    def make():
        return Model()

    def apply(self, x):
        return helper(x) * self.rate

def decorate(function):
    def wrapped(*args):
        return function(*args)
    return wrapped

@decorate
def decorated(x):
    return x + 1

def work(x, scale=2, *, offset=0):
    model = Model.make()
    names = [name for name in SETTINGS["depth"]]
    try:
        value = model.apply(x) * scale
    except ValueError:
        value = decorated(x)
    return value + offset + CONFIG.depth + len(names) + Colour.RED.value
"""


def load_work(source: str) -> Callable[..., Any]:
    module = ModuleType("laboratory")
    sys.modules["laboratory"] = module
    try:
        exec(compile(source, "laboratory.py", "exec"), module.__dict__)
    finally:
        del sys.modules["laboratory"]
    function: Callable[..., Any] = module.work
    return function


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("def work(x, scale=2", "# a comment\n\n\ndef work(x, scale=2"),
        ("    model = Model.make()", "    # make a model\n\n    model = Model.make()"),
        ("def helper(x):", 'def helper(x):\n    """Add the limit."""'),
        ("    return 5", "    return 6"),  # not used
        ("def helper(x):", "def helper(x: int) -> float:"),
        ("import math", "import math\nimport json\nOTHER = 3"),
    ],
)
def test_edits_that_do_not_change_what_a_function_does(before: str, after: str) -> None:
    edited = BASE.replace(before, after)
    assert edited != BASE
    assert fingerprint_function(load_work(BASE)) == fingerprint_function(load_work(edited))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("value = model.apply(x) * scale", "value = model.apply(x) + scale"),
        ("offset=0", "offset=1"),
        ("scale=2", "scale=3"),
        ("except ValueError", "except TypeError"),
        ("LIMIT = 10", "LIMIT = 11"),
        ("LIMIT = 10", "LIMIT = 10.0"),
        ('{"depth": [1, 2]}', '{"depth": [1, 3]}'),
        ("math.sqrt", "math.exp"),
        ("return inner(x) + LIMIT", "return inner(x) - LIMIT"),
        ("rate = 0.5", "rate = 0.6"),
        ("RED = 1", "RED = 2"),
        ("return 3", "return 4"),
        ("return Model()", "return object()"),
        ("return helper(x) * self.rate", "return helper(x) / self.rate"),
        ("    return x + 1", "    return x + 2"),
        ("return function(*args)", "return -function(*args)"),
        ("depth: int = 3", "depth: int = 4"),
        ("CONFIG = Config()", "CONFIG = Config(5)"),
        ("[name for name in SETTINGS", "[-name for name in SETTINGS"),
    ],
)
def test_edits_that_change_what_a_function_does(before: str, after: str) -> None:
    edited = BASE.replace(before, after)
    assert edited != BASE
    assert fingerprint_function(load_work(BASE)) != fingerprint_function(load_work(edited))


def test_values_of_a_closure_count() -> None:
    def scale_by(factor: Any) -> Callable[[Any], Any]:
        return lambda x: x * factor

    assert fingerprint_function(scale_by(2)) == fingerprint_function(scale_by(2))
    assert fingerprint_function(scale_by(2)) != fingerprint_function(scale_by(2.0))
    assert fingerprint_function(scale_by({"a": {1}})) != fingerprint_function(scale_by({"a": {2}}))
    assert fingerprint_function(scale_by(double)) != fingerprint_function(scale_by(triple))


def test_function_with_an_object_that_cannot_be_pickled_has_a_fingerprint() -> None:
    def guard(lock: Any, result: int) -> Callable[[Any], Any]:
        return lambda x: (lock, result)

    first, same, other = (guard(threading.Lock(), result) for result in (1, 1, 2))
    assert fingerprint_function(first) == fingerprint_function(same)
    assert fingerprint_function(first) != fingerprint_function(other)


def test_state_that_changes_as_a_function_is_used_does_not_count() -> None:
    for function in (use_state, negate, cached):
        before = fingerprint_function(function)
        function(random.randrange(10**9))
        assert fingerprint_function(function) == before


def test_many_functions_that_call_each_other_are_quick() -> None:
    names = [f"f{number}" for number in range(60)]
    calls = ", ".join(f"{name}(x)" for name in names)
    source = "".join(f"def {name}(x):\n    return [{calls}]\n" for name in names)
    source += "def work(x):\n    return f0(x)\n"
    assert fingerprint_function(load_work(source)) == fingerprint_function(load_work(source))
