"""Decisions about pilots: when they are submitted, drained and ended."""

from __future__ import annotations

from math import inf

import pytest

from hesrpt.engines.slurm.pilots import (
    PilotChanges,
    PilotTable,
    SlurmState,
)

NOTHING = PilotChanges()


def create_empty_table() -> PilotTable:
    return PilotTable(max_pilots=3, cores=2, walltime=1000.0, idle_seconds=60.0)


def create_table(*names: str) -> PilotTable:
    """Return a table of pilots that were submitted and have connected at time 0."""
    table = create_empty_table()
    for name in names:
        table.add(name, 0.0)
    table.observe_workers(dict.fromkeys(names, 1), 0.0)
    table.observe_jobs(dict.fromkeys(names, (SlurmState.RUNNING, 1000.0)), 0.0)
    return table


@pytest.mark.parametrize(("demand", "pilots"), [(0, 0), (1, 1), (2, 1), (3, 2), (6, 3), (100, 3)])
def test_pilots_follow_demand(demand: int, pilots: int) -> None:
    assert create_empty_table().decide(demand, 0.0) == PilotChanges(pilots)


def test_pilots_that_wait_are_not_submitted_again() -> None:
    table = create_empty_table()
    table.add("a", 0.0)
    table.add("b", 0.0)
    assert table.decide(6, 5.0) == PilotChanges(1)


def test_idle_pilot_ends_after_a_while_if_it_is_not_needed() -> None:
    table = create_table("a", "b")
    table.observe_workers({"a": 1, "b": 0}, 10.0)
    assert table.decide(2, 69.0) == NOTHING
    assert table.decide(2, 70.0) == PilotChanges(end=("b",))
    assert table.decide(3, 70.0) == NOTHING


def test_busy_pilot_stays_even_if_it_is_not_needed() -> None:
    assert create_table("a", "b").decide(0, 500.0) == NOTHING


def test_pilots_in_the_queue_are_withdrawn_first() -> None:
    table = create_table("a")
    table.add("b", 10.0)
    table.observe_workers({"a": 0}, 10.0)
    assert table.decide(1, 200.0) == PilotChanges(end=("b",))


def test_items_start_only_where_they_end_in_time() -> None:
    table = create_table("a")
    table.observe_jobs({"a": (SlurmState.RUNNING, 200.0)}, 100.0)
    assert table.outlasts("a", 150.0, 100.0)  # 1.1 · 150 + 30 < 200
    assert not table.outlasts("a", 160.0, 100.0)
    assert not table.outlasts("a", 150.0, 110.0)


def test_pilot_that_keeps_an_item_waiting_is_drained_and_replaced() -> None:
    table = create_table("a", "b")
    table.observe_jobs({"a": (SlurmState.RUNNING, 200.0)}, 100.0)
    assert table.drain([5.0], {"a", "b"}, 100.0) == set()
    assert table.drain([5.0, 160.0], {"b"}, 100.0) == set()  # all servers of a are in use
    assert table.drain([5.0, 160.0], {"a", "b"}, 100.0) == {"a"}
    assert table.decide(4, 100.0) == PilotChanges(submit=1)
    table.add("c", 100.0)
    table.observe_workers({"a": 0, "b": 1}, 150.0)
    assert table.decide(4, 150.0) == PilotChanges(end=("a",))


def test_draining_pilots_count_towards_the_most() -> None:
    table = create_table("a", "b", "c")
    table.observe_jobs({"a": (SlurmState.RUNNING, 5.0)}, 900.0)
    assert table.drain([], (), 900.0) == {"a"}
    assert table.decide(6, 900.0) == NOTHING
    table.observe_workers({"a": 0, "b": 1, "c": 1}, 901.0)
    assert table.decide(6, 901.0) == PilotChanges(submit=1, end=("a",))


def test_new_pilots_are_usable_however_long_items_are() -> None:
    table = create_table("a")
    assert table.outlasts("a", 5000.0, 10.0)
    assert not table.outlasts("a", 5000.0, 60.0)


def test_pilot_without_a_walltime_is_never_drained() -> None:
    table = create_table("a")
    table.observe_jobs({"a": (SlurmState.RUNNING, inf)}, 0.0)
    assert table.drain([1e9], {"a"}, 1e6) == set()


def test_pilot_that_is_gone_is_replaced() -> None:
    table = create_table("a", "b")
    assert table.observe_jobs({"a": (SlurmState.GONE, 0.0)}, 5.0) == ["a"]
    assert table.failed_starts == 0
    assert table.decide(4, 5.0) == PilotChanges(submit=1)


def test_pilot_whose_worker_stays_away_is_replaced() -> None:
    table = create_table("a")
    table.observe_workers({}, 10.0)
    assert table.decide(2, 30.0) == NOTHING  # its nanny may bring the worker back
    assert table.decide(2, 41.0) == PilotChanges(submit=1, end=("a",))
    table.observe_workers({"a": 1}, 42.0)
    assert table.decide(2, 43.0) == NOTHING


def test_starts_that_fail_are_counted_until_one_succeeds() -> None:
    table = create_empty_table()
    for name in ("a", "b"):
        table.add(name, 0.0)
        table.observe_jobs({name: (SlurmState.GONE, 0.0)}, 1.0)
    assert table.failed_starts == 2
    table.add("c", 2.0)
    table.observe_workers({"c": 0}, 3.0)
    assert table.failed_starts == 0
