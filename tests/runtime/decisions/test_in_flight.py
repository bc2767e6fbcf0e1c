"""Items in flight are kept in runs, and behave like a dictionary of items."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt.runtime.decisions.in_flight import BatchInFlight, ItemsInFlight
from hesrpt.runtime.item_runs import find_runs, join_items

RANGES = st.builds(
    lambda start, length: range(start, start + length), st.integers(0, 40), st.integers(1, 15)
)


@given(st.lists(st.tuples(st.booleans(), RANGES)))
def test_runs_behave_like_a_dictionary(steps: list[tuple[bool, range]]) -> None:
    items, model = ItemsInFlight(), dict[int, BatchInFlight]()
    for is_added, run in steps:
        if is_added:
            new = tuple(item for item in run if item not in model)
            batch = BatchInFlight(0.0, 1, 1)
            items.add(new, batch)
            model |= dict.fromkeys(new, batch)
        else:
            removed = items.remove(run)
            expected = [model.pop(item) for item in run if item in model]
            assert removed.total() == len(expected)
            assert all(removed[batch] == expected.count(batch) for batch in set(expected))
        assert dict(items) == model
        assert list(items) == sorted(model)
        assert len(items) == len(model)
        assert [item for run in items.list_runs() for item in run] == sorted(model)


def test_items_that_are_not_in_flight_are_not_found() -> None:
    items = ItemsInFlight()
    items.add(range(3, 6), BatchInFlight(0.0, 1, 1))
    assert 2 not in items
    with pytest.raises(KeyError):
        items[6]


@given(st.lists(st.integers(0, 300), unique=True, max_size=200))
def test_runs_are_joined_to_the_same_items(items: list[int]) -> None:
    assert list(join_items(find_runs(items))) == items
