"""Fingerprints of items: equal for equal values, different for different ones."""

from __future__ import annotations

import pickle
import threading
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.fingerprint_samples import (
    DIFFERENT,
    Names,
    share,
)

from hesrpt.jobs.fingerprints import (
    fingerprint_item,
)

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
