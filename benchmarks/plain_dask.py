"""Dask without hesrpt, to compare with."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from distributed import Client, LocalCluster, as_completed

from benchmarks.cluster_overhead import run_item
from hesrpt import Pool
from hesrpt.engines import DaskEngine


class PlainDask:
    """A Dask cluster that runs items by ``client.map``."""

    name = "Dask"
    method = "client.map"

    def __init__(self, client: Client) -> None:
        self._client = client

    def open_pool(self, policy: str = "adaptive") -> Pool:
        return Pool(policy=policy, engine=DaskEngine(cluster=self._client))

    def run_items(self, items: int) -> None:
        self._client.gather(self._client.map(run_item, range(items), pure=False))

    def run_jobs(self, jobs: dict[str, int], order: list[str]) -> Iterator[str]:
        futures = {
            future: name
            for name in order
            for future in self._client.map(run_item, range(jobs[name]), pure=False)
        }
        for future in as_completed(list(futures), loop=self._client.loop):
            yield futures[future]


@contextmanager
def start_dask(servers: int) -> Iterator[PlainDask]:
    """Start a cluster of processes with one thread each."""
    with (
        LocalCluster(
            n_workers=servers, threads_per_worker=1, dashboard_address="127.0.0.1:0"
        ) as cluster,
        Client(cluster, set_as_default=False) as client,
    ):
        client.wait_for_workers(servers)
        yield PlainDask(client)
