"""Fingerprints: equal for what is equal in any process, different for what is different."""

from __future__ import annotations

import enum
import functools
import json
import math
import os
import pickle
import random
import subprocess
import sys
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import ModuleType, SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt.runtime.commands.command_template import CommandTemplate
from hesrpt.runtime.identity.fingerprints import (
    fingerprint_command,
    fingerprint_command_items,
    fingerprint_function,
    fingerprint_item,
)

# --- items ------------------------------------------------------------------------------------

scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.complex_numbers()
    | st.text()
    | st.binary()
)
hashables = st.recursive(
    scalars, lambda inner: st.tuples(inner, inner) | st.frozensets(inner), max_leaves=4
)
values = st.recursive(
    hashables,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.tuples(inner, inner)
        | st.dictionaries(hashables, inner, max_size=4)
        | st.sets(hashables, max_size=4)
    ),
    max_leaves=12,
)


def describe(value: Any) -> str:
    """Return a text that is the same for equal values only: the order of sets does not count."""
    kind = type(value).__name__
    if isinstance(value, list | tuple):
        return f"{kind}[{','.join(map(describe, value))}]"
    if isinstance(value, set | frozenset):
        return f"{kind}[{','.join(sorted(map(describe, value)))}]"
    if isinstance(value, dict):
        pairs = sorted(f"{describe(key)}:{describe(each)}" for key, each in value.items())
        return f"{kind}[{','.join(pairs)}]"
    return f"{kind} {value!r}"


@given(values, values)
def test_values_have_the_same_fingerprint_if_and_only_if_they_are_equal(
    first: Any, second: Any
) -> None:
    assert (describe(first) == describe(second)) == (
        fingerprint_item(first) == fingerprint_item(second)
    )


@given(values)
def test_copies_have_the_same_fingerprint(value: Any) -> None:
    copy = pickle.loads(pickle.dumps(value))
    assert fingerprint_item([value, value]) == fingerprint_item([value, copy])


class Colour(enum.Enum):
    RED = 1
    BLUE = 2


class Pair(NamedTuple):
    x: Any
    y: Any


@dataclass
class Point:
    x: Any
    y: Any = None
    others: list[Any] = field(default_factory=list)


class Names(set[str]):
    pass


class Node:
    def __init__(self, label: str) -> None:
        self.label = label
        self.others: list[Node] = []


def make_ring(*labels: str) -> Node:
    nodes = [Node(label) for label in labels]
    for node, other in zip(nodes, nodes[1:] + nodes[:1], strict=True):
        node.others.append(other)
    return nodes[0]


def make_nested_list(*values: Any) -> list[Any]:
    nested: list[Any] = list(values)
    nested.append(nested)
    return nested


def share(is_shared: bool) -> list[Any]:
    part = [[1, 2], {"a": {3}}]
    return [part, part if is_shared else pickle.loads(pickle.dumps(part))]


def double(x: Any) -> Any:
    return 2 * x


def triple(x: Any) -> Any:
    return 3 * x


#: Values that all differ from one another.
DIFFERENT: list[Callable[[], Any]] = [
    lambda: None,
    lambda: 0,
    lambda: 1,
    lambda: 0.0,
    lambda: -0.0,
    lambda: 1.0,
    lambda: math.nan,
    lambda: math.inf,
    lambda: False,
    lambda: True,
    lambda: 1j,
    lambda: 2**80,
    lambda: "",
    lambda: "1",
    lambda: "\udcff",
    lambda: b"1",
    lambda: bytearray(b"1"),
    lambda: ...,
    list,
    lambda: (),
    dict,
    lambda: set(),
    lambda: frozenset(),
    lambda: [1],
    lambda: (1,),
    lambda: [[1]],
    lambda: [[1], 2],
    lambda: [[1, 2]],
    lambda: {"a": 1, "b": [2]},
    lambda: {"a": [2], "b": 1},
    lambda: {"a": "b", "c": "d"},
    lambda: {"a": "d", "c": "b"},
    lambda: {1: 2},
    lambda: {1.0: 2},
    lambda: {"a", "b", "c"},
    lambda: {"a", "b", ("c",)},
    lambda: Names({"a", "b", "c"}),
    lambda: OrderedDict(a=1, b=2),
    lambda: OrderedDict(b=2, a=1),
    lambda: defaultdict(list, a=[1]),
    lambda: Counter("aab"),
    lambda: deque([1, 2]),
    lambda: deque([1, 2], maxlen=2),
    lambda: range(3),
    lambda: range(4),
    lambda: slice(1, 2),
    lambda: Path("a/b"),
    lambda: Path("a/c"),
    lambda: PurePosixPath("a/b"),
    lambda: date(2026, 1, 2),
    lambda: datetime(2026, 1, 2),
    lambda: datetime(2026, 1, 2, tzinfo=UTC),
    lambda: timedelta(seconds=5),
    lambda: Decimal("1.0"),
    lambda: Decimal("1.00"),
    lambda: Fraction(1, 3),
    lambda: Colour.RED,
    lambda: Colour.BLUE,
    lambda: Pair(1, 2),
    lambda: Pair(1, [2]),
    lambda: Point(1),
    lambda: Point(1.0),
    lambda: Point(1, others=[1]),
    lambda: SimpleNamespace(x=1),
    lambda: Point,
    lambda: Pair,
    lambda: double,
    lambda: triple,
    lambda: len,
    lambda: math.sqrt,
    lambda: math.sin,
    lambda: np.sin,
    lambda: np.cos,
    lambda: functools.partial(double, 1),
    lambda: functools.partial(double, 2),
    lambda: functools.partial(triple, 1),
    lambda: functools.partial(double, x=1),
    lambda: "a".upper,
    lambda: "b".upper,
    lambda: "a".lower,
    lambda: Point(1).__eq__,
    lambda: Point(2).__eq__,
    lambda: lambda x: x + 1,
    lambda: lambda x: x + 2,
    lambda: lambda x, y=1: x + 2,
    lambda: np.arange(6),
    lambda: np.arange(6.0),
    lambda: np.arange(6).reshape(2, 3),
    lambda: np.arange(6).reshape(3, 2),
    lambda: np.arange(6).astype(object),
    lambda: np.array([1, "a", None], dtype=object),
    lambda: np.array([(1, 2.0)], dtype=[("a", "i1"), ("b", "f8")]),
    lambda: np.array([(1, 2.0)], dtype=[("a", "i1"), ("c", "f8")]),
    lambda: np.array(["2026-01-01"], dtype="M8[D]"),
    lambda: np.array(["2026-01-01"], dtype="M8[s]"),
    lambda: np.float64(1),
    lambda: np.float32(1),
    lambda: np.array(1.0),
    lambda: np.dtype("f8"),
    lambda: np.ma.masked_array([1, 2], mask=[True, False]),
    lambda: make_nested_list(1),
    lambda: make_nested_list(2),
    lambda: [make_nested_list(1)],
    lambda: make_ring("a"),
    lambda: make_ring("a", "b"),
    lambda: make_ring("a", "c"),
    lambda: json.JSONDecodeError("a", "b", 1),
]


def test_different_values_have_different_fingerprints() -> None:
    found: dict[bytes, Any] = {}
    for create in DIFFERENT:
        value, again = create(), create()
        fingerprint = fingerprint_item(value)
        assert fingerprint == fingerprint_item(again), value
        assert fingerprint not in found, (value, found.get(fingerprint))
        found[fingerprint] = value


def test_references_in_recursive_structures_count() -> None:
    """Two nodes refer to each other's ring, or each to its own: these are different values."""

    def build(is_crossed: bool) -> list[list[Any]]:
        inner: list[Any] = []
        other: list[Any] = []
        first: list[Any] = ["a", inner]
        second: list[Any] = ["b", inner if is_crossed else other]
        inner.append(first)
        other.append(second)
        return [first, second]

    assert fingerprint_item(build(True)) == fingerprint_item(build(True))
    assert fingerprint_item(build(True)) != fingerprint_item(build(False))


def test_order_and_identity_of_parts_do_not_count() -> None:
    names = [f"name {number}" for number in range(50)]
    assert fingerprint_item(dict.fromkeys(names)) == fingerprint_item(dict.fromkeys(names[::-1]))
    assert fingerprint_item({name: [1] for name in names}) == fingerprint_item(
        {name: [1] for name in reversed(names)}
    )
    assert fingerprint_item(set(names)) == fingerprint_item({*reversed(names)})
    assert fingerprint_item(Names(names)) == fingerprint_item(Names(names[::-1]))
    assert fingerprint_item(share(True)) == fingerprint_item(share(False))
    text = "".join(["equal ", "texts"])
    assert fingerprint_item([{text}, {text}]) == fingerprint_item([{"equal texts"}, {text}])
    grid = np.arange(6).reshape(2, 3)
    assert fingerprint_item(grid) == fingerprint_item(np.asfortranarray(grid))
    wide = np.arange(12).reshape(2, 6)[:, ::2]
    assert fingerprint_item(wide) == fingerprint_item(wide.copy())


def test_bytes_between_the_fields_of_an_array_do_not_count() -> None:
    kind = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    ones, zeros = (np.full(16, byte, np.uint8).view(kind) for byte in (1, 0))
    for name in ("a", "b"):
        ones[name] = zeros[name]
    assert ones.tobytes() != zeros.tobytes()
    assert fingerprint_item(ones) == fingerprint_item(zeros)


def test_pandas_tables_are_compared_by_content() -> None:
    pandas = pytest.importorskip("pandas")

    def build(**columns: Any) -> Any:
        return pandas.DataFrame({"a": [1, 2], "b": ["x", None], "c": [0.5, 1.5]} | columns)

    in_parts = pandas.DataFrame({"a": [1, 2]})
    in_parts["b"], in_parts["c"] = ["x", None], [0.5, 1.5]
    assert fingerprint_item(build()) == fingerprint_item(in_parts)
    assert fingerprint_item(build()) == fingerprint_item(pickle.loads(pickle.dumps(build())))
    different = [
        build(),
        build(a=[1, 3]),
        build(a=[1.0, 2.0]),
        build(b=["x", "y"]),
        build(b=pandas.Categorical(["x", None])),
        build(b=pandas.Categorical(["x", None], ["x", "y"])),
        build(a=pandas.array([1, None], dtype="Int64")),
        build(a=pandas.to_datetime(["2026-01-01", "2026-01-02"])),
        build(a=pandas.to_datetime(["2026-01-01", "2026-01-02"], utc=True)),
        build().rename(columns={"a": "d"}),
        build().set_index("a"),
        build().set_index(["a", "b"]),
        build()["a"],
        build()["c"],
        build()["c"].rename("d"),
        build().index,
        build().columns,
        pandas.Timestamp("2026-01-01"),
        pandas.NaT,
        pandas.NA,
    ]
    assert len({fingerprint_item(value) for value in different}) == len(different)


def test_item_that_cannot_be_identified_gets_a_new_fingerprint_each_time() -> None:
    class Rude:
        def __reduce__(self) -> str:
            raise RuntimeError("leave me alone")

    deep: list[Any] = []
    for _ in range(5000):
        deep = [deep]
    for value in (threading.Lock(), [threading.Lock()], Rude(), (x for x in "ab"), deep):
        assert len(fingerprint_item(value)) == 16
        assert fingerprint_item(value) != fingerprint_item(value)


def test_local_classes_are_told_apart_by_what_they_do() -> None:
    def create(factor: int, text: str = "a") -> Any:
        class Local:
            title = text

            def scale(self, x: int) -> int:
                return x * factor

        return Local()

    assert fingerprint_item(create(1)) == fingerprint_item(create(1))
    assert fingerprint_item(create(1)) != fingerprint_item(create(2))
    assert fingerprint_item(create(1)) != fingerprint_item(create(1, "b"))


_IN_ANOTHER_PROCESS = """
import sys
sys.path[:0] = {path!r}
import random
import runtime.identity.test_fingerprints as tests
from hesrpt.runtime.identity.fingerprints import fingerprint_function, fingerprint_item
letters = [f"{{number}}" for number in range(100)]
more = [set(letters), dict.fromkeys(set(letters)), frozenset((x, x) for x in letters)]
for value in [create() for create in tests.DIFFERENT] + more:
    print(fingerprint_item(value).hex())
for function in tests.list_functions():
    print(fingerprint_function(function).hex())
"""


def test_fingerprints_are_the_same_in_other_processes() -> None:
    source = _IN_ANOTHER_PROCESS.format(path=[str(Path(__file__).parents[2])])
    printed = {
        subprocess.run(
            [sys.executable, *options, "-c", source],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, options in enumerate([[], ["-B", "-X", "no_debug_ranges"]])
    }
    assert len(printed) == 1
    assert len(printed.pop().split()) == len(DIFFERENT) + 3 + len(list_functions())


# --- functions --------------------------------------------------------------------------------


def count_down(x: int) -> Any:
    return x if x <= 0 else count_down_by_two(x - 1)


def count_down_by_two(x: int) -> Any:
    return count_down(x - 2)


WORDS = {"some", "global", "words"}
TABLE = {"double": double, "triple": triple}


@functools.wraps(double)
def wrapper(x: Any) -> Any:
    return [double(x), x in WORDS, TABLE["triple"](x), random.random()]


@functools.lru_cache
def cached(x: int) -> int:
    return x


@functools.singledispatch
def negate(x: Any) -> Any:
    return -x


@negate.register
def _(x: str) -> str:
    return x[::-1]


class Access(enum.Flag):
    READ = 1
    WRITE = 2


GENERATORS: dict[str, Any] = {"python": random.Random(), "numpy": np.random.default_rng()}
LOCK = threading.Lock()


def use_state(x: int) -> Any:
    with LOCK:
        cached(x)
        negate(x)
        numbers = [GENERATORS["python"].random(), GENERATORS["numpy"].random()]
        return numbers, Access.READ | Access.WRITE


class Scale:
    def __init__(self, factor: int) -> None:
        self.factor = factor

    def __call__(self, x: int) -> int:
        return self.factor * x

    def shift(self, x: int) -> int:
        return self.factor + x


def list_functions() -> list[Callable[..., Any]]:
    """Return functions that all differ from one another."""
    return [
        double,
        triple,
        count_down,
        count_down_by_two,
        wrapper,
        cached,
        negate,
        use_state,
        len,
        np.sin,
        np.mean,
        np.vectorize(double),
        np.vectorize(triple),
        random.random,
        random.randint,
        json.dumps,
        json.loads,
        subprocess.run,
        str.upper,
        "a".join,
        "b".join,
        Scale,
        Scale(1),
        Scale(2),
        Scale(1).shift,
        Scale(2).shift,
        functools.partial(double),
        functools.partial(Scale(1).shift, 2),
        lambda x: (x, 1),
        lambda x: (x, 2),
        lambda x: {"words": WORDS, "more": ((x,), (x,))},
    ]


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


# --- commands ---------------------------------------------------------------------------------


def create_template(**changes: Any) -> CommandTemplate:
    options: dict[str, Any] = {"job": "a", "command": "echo {item}", "items": ("1", "2")}
    return CommandTemplate(**(options | {"directory": "/"} | changes))


def test_command_and_directory_count_but_not_items_name_and_timeout() -> None:
    base = fingerprint_command(create_template())
    unimportant: list[dict[str, Any]] = [{"job": "b"}, {"items": ("3",)}, {"timeout": 5.0}]
    for same in unimportant:
        assert fingerprint_command(create_template(**same)) == base
    different: list[dict[str, Any]] = [
        {"command": "echo -n {item}"},
        {"command": ("echo", "{item}")},
        {"directory": "/tmp"},
        {"items": None},
        {"command": "echo {item} {job}"},
        {"command": "echo {item} {job}", "job": "b"},
    ]
    found = {fingerprint_command(create_template(**changes)) for changes in different}
    assert len(found | {base}) == len(different) + 1


def test_position_of_an_item_counts_only_if_the_command_contains_it() -> None:
    first, second = fingerprint_command_items(create_template())
    assert first != second
    assert fingerprint_command_items(create_template(items=("2", "1"))) == [second, first]
    numbered: dict[str, Any] = {"command": "echo {item} {index}"}
    assert not {*fingerprint_command_items(create_template(**numbered))} & {
        *fingerprint_command_items(create_template(**numbered, items=("2", "1")))
    }
    assert len(fingerprint_command_items(create_template(items=None))) == 1
