"""What can be read from the state directory of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hesrpt import InputError, Pool
from hesrpt.runtime.inspection import list_logs


def print_odd(x: int) -> None:
    if x % 2:
        print("odd", x)


def test_logs_are_read_and_unknown_items_refused(tmp_path: Path) -> None:
    with Pool(servers=1, state=tmp_path / "s") as pool:
        pool.map(print_odd, range(3), name="count")
        pool.map(print_odd, [], name="empty")
    (log,) = list_logs(tmp_path / "s", "count")
    assert (log.item, log.title, log.path.read_text()) == (1, "item 1", "odd 1\n")
    for job, item, message in (
        ("count", 2, "item 2 of job 'count' has printed nothing"),
        ("count", 99, "there is no item 99 in job 'count'; items are 0 to 2"),
        ("count", -1, "there is no item -1 in job 'count'; items are 0 to 2"),
        ("empty", 0, "there is no item 0 in job 'empty'; it has no items"),
    ):
        with pytest.raises(InputError, match=message):
            list_logs(tmp_path / "s", job, item)


def test_logs_follow_their_items(tmp_path: Path) -> None:
    def fail_at_7(x: int) -> None:
        print("item", x)
        assert x != 7

    for items in ([1, 2, 7], [2, 1, 7]):
        with Pool(servers=1, state=tmp_path / "s", resume=(tmp_path / "s").exists()) as pool:
            pool.map(fail_at_7, items, name="count", retries=0).wait()
    logs = {log.item: log.path.read_text() for log in list_logs(tmp_path / "s", "count")}
    assert {item: text.splitlines()[0] for item, text in logs.items()} == {
        0: "item 2",
        1: "item 1",
        2: "item 7",
    }
