"""Matching the items of a job with the results of earlier runs."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hesrpt.jobs.fingerprints import fingerprint_item
from hesrpt.storage.earlier_items import EarlierItems, Matches, create_key, parse_key
from hesrpt.storage.journal_entries import NO_POSITION
from hesrpt.storage.logs import LogName

letters = st.sampled_from("abc")


def create_earlier(items: dict[int, str]) -> EarlierItems:
    """Return the results of items, by their positions."""
    return EarlierItems(
        sorted(
            (create_key(fingerprint_item(item), 0, position), position)
            for position, item in items.items()
        )
    )


def match_all(earlier: EarlierItems, items: str) -> Matches:
    return earlier.match_all([fingerprint_item(item) for item in items])


@given(st.dictionaries(st.integers(0, 12), letters, max_size=8), st.text("abc", max_size=12))
def test_each_result_belongs_to_one_equal_item(done: dict[int, str], items: str) -> None:
    matches = match_all(create_earlier(done), items)
    matched = [position for positions in matches.done for position in positions]
    assert matched == sorted(set(matched))
    # As many equal items are matched as there are results.
    expected = Counter(items) & Counter(done.values())
    assert Counter(items[position] for position in matched) == expected
    # Every result ends up at the position of an equal item, or is gone.
    origins = {create_key(fingerprint_item(item), 0, at): (at, item) for at, item in done.items()}
    moved = dict(matches.moved)
    assert len(moved) == len(matches.moved)
    for key, (at, item) in origins.items():
        position = moved.get(key, at)
        assert position == NO_POSITION or items[position] == item
    final_positions = [moved.get(key, at) for key, (at, _) in origins.items()]
    assert sorted(p for p in final_positions if p != NO_POSITION) == matched


@given(st.text("abc", max_size=12))
def test_nothing_moves_if_all_items_are_done_and_unchanged(items: str) -> None:
    assert match_all(create_earlier(dict(enumerate(items))), items).moved == []


def test_items_that_had_gone_are_found_again() -> None:
    key = create_key(fingerprint_item("a"), 0, 5)
    earlier = EarlierItems([(key, NO_POSITION)])
    matches = match_all(earlier, "ba")
    assert (matches.done, matches.moved) == ([range(1, 2)], [(key, 1)])
    assert matches.places.find(1) == (0, 5)  # where the journal has the result
    matches = match_all(EarlierItems([(key, NO_POSITION)]), "b")
    assert (matches.done, matches.moved) == ([], [])


def test_key_says_which_log_it_is() -> None:
    assert parse_key(create_key(fingerprint_item("a"), 3, 5)).log == LogName(item=5, run=3)


@pytest.mark.slow
def test_many_results_take_little_memory() -> None:
    count = 100_000

    def read() -> Iterator[tuple[bytes, int]]:
        for position in range(count):
            yield create_key(fingerprint_item(position), 0, position), position

    tracemalloc.start()
    try:
        earlier = EarlierItems(read())
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 45 * count
    matches = earlier.match_all(fingerprint_item(position) for position in range(count))
    assert (matches.done, matches.moved) == ([range(count)], [])
    assert matches.places.find(count - 1) == (0, count - 1)


def test_many_equal_items_are_matched_quickly() -> None:
    count = 20_000
    done = {2 * number: "a" for number in range(count)}
    matches = match_all(create_earlier(done), "a" * 2 * count)
    assert sum(map(len, matches.done)) == count
