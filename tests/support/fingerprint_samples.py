"""Values and functions that all have different fingerprints."""

from __future__ import annotations

import enum
import functools
import json
import math
import pickle
import random
import subprocess
import threading
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from fractions import Fraction
from pathlib import Path, PurePosixPath
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np


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
