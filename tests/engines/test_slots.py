"""Which worker of a Dask cluster runs which batch."""

from __future__ import annotations

from math import inf

from hesrpt.engines import CommandTask
from hesrpt.engines.dask.slots import Batch, WorkerInfo, WorkerTable


def create_table(*threads: int, servers: float = inf) -> WorkerTable:
    table = WorkerTable(servers, {})
    table.update({f"w{n}": WorkerInfo(n, each, {}, True) for n, each in enumerate(threads)})
    for worker in table.workers.values():
        worker.process = "process"
    return table


def create_batch(servers: int = 1) -> Batch:
    return Batch(0, "a", {0: CommandTask("true")}, servers)


def assign(table: WorkerTable, *batches: Batch) -> list[str]:
    """Return the workers that batches are sent to."""
    return [worker.address for worker, _ in table.assign(batches, lambda batch: False)]


def test_batches_go_where_most_servers_are_free_and_the_others_wait() -> None:
    table = create_table(1, 2)
    batches = [create_batch() for _ in range(4)]
    assert assign(table, *batches) == ["w1", "w0", "w1"]
    assert batches[3].worker is None


def test_worker_is_reserved_for_a_wide_command() -> None:
    table = create_table(2)
    (running,) = [create_batch()]
    assert assign(table, running) == ["w0"]
    wide, narrow = create_batch(2), create_batch()
    assert assign(table, wide, narrow) == []
    table.workers["w0"].batches.remove(running)
    assert assign(table, wide, narrow) == ["w0"]
    assert assign(table, create_batch(3)) == []


def test_servers_follow_workers_that_come_go_pause_and_drain() -> None:
    table = create_table(2, 2, servers=3)
    assert (table.capacity, table.widest) == (3, 2)
    seen = {f"w{n}": WorkerInfo(n, 2, {}, n != 0) for n in range(3)}
    new, gone = table.update(seen)
    assert [worker.address for worker in new] == ["w2"]
    assert gone == []
    assert [worker.usable for worker in table.workers.values()] == [0, 2, 1]
    table.drain([1])
    assert [worker.usable for worker in table.workers.values()] == [0, 0, 2]
    _, gone = table.update({"w2": seen["w2"]})
    assert {worker.address for worker in gone} == {"w0", "w1"}
    assert table.capacity == 2


def test_server_may_be_a_share_of_a_workers_resources() -> None:
    table = WorkerTable(inf, {"GPU": 0.5})
    infos = [WorkerInfo("a", 8, {"GPU": 2}, True), WorkerInfo("b", 1, {"GPU": 2}, True)]
    table.update({info.name: info for info in [*infos, WorkerInfo("c", 8, {}, True)]})
    assert [worker.slots for worker in table.workers.values()] == [4, 1, 0]
