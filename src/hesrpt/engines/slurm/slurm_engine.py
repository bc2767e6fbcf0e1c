"""The engine that runs items in Slurm jobs of its own: pilots, which are workers of a Dask cluster.

Slurm decides when and where a pilot starts. hesrpt decides how many pilots it asks for, and which
items run in them, as on any Dask cluster.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path

from hesrpt.engines.dask.dask_engine import DaskEngine
from hesrpt.engines.dask.slots import Batch, Worker
from hesrpt.engines.engine import FinishedItems, Outcome
from hesrpt.engines.slurm.pilot_cluster import PilotCluster
from hesrpt.engines.slurm.pilot_options import PilotOptions
from hesrpt.engines.slurm.pilots import MAX_FAILED_STARTS, PilotTable
from hesrpt.errors import InputError

# Seconds between two decisions about pilots.
_DECIDE_SECONDS = 0.5


class SlurmEngine(DaskEngine):
    """Runs items in pilots: Slurm jobs that are submitted when jobs need them.

    Parameters
    ----------
    servers
        The most servers to use. A server is a core of a pilot.
    max_pilots
        The most pilots at a time, counting those that wait in Slurm's queue. Default: as many as
        ``servers`` needs.
    cores
        The cores of each pilot. A command can use at most this many servers.
    walltime
        How long a pilot may run, such as "2h" or "1-12:00:00". A pilot starts no items that would
        probably not end in time, and is replaced.
    partition, account, qos, memory
        As in sbatch; ``memory`` is that of a pilot, such as "16GB". Default: Slurm's own.
    sbatch
        Further options of sbatch, such as ["--gres=gpu:1", "--constraint=fast"].
    setup
        Lines for the shell before a pilot starts, such as ["module load python"].
    interface
        The network interface on which pilots reach this machine, such as "ib0".
    directory
        Where to keep the keys of the connections, and what pilots print. All nodes must see it.
        Default: ``.hesrpt`` in the home directory.
    idle
        How long a pilot that is not needed stays, such as "1m".
    poll
        How often to look at Slurm's queue, such as "10s".
    """

    def __init__(
        self,
        servers: int | None = None,
        *,
        max_pilots: int | None = None,
        cores: int = 1,
        walltime: str = "1h",
        partition: str | None = None,
        account: str | None = None,
        qos: str | None = None,
        memory: str | None = None,
        sbatch: str | Sequence[str] = (),
        setup: str | Sequence[str] = (),
        interface: str | None = None,
        directory: str | Path | None = None,
        idle: str | float = "1m",
        poll: str | float = "10s",
    ) -> None:
        options = PilotOptions(
            servers=servers,
            max_pilots=max_pilots,
            cores=cores,
            walltime=walltime,
            partition=partition,
            account=account,
            qos=qos,
            memory=memory,
            sbatch=sbatch,
            setup=setup,
            interface=interface,
            directory=directory,
            idle=idle,
            poll=poll,
        )
        self.pilots = PilotTable(options.settings)
        self._ended: set[str] = set()  # pilots that we have ended; Dask may still list them
        self._decided_at = 0.0
        self._cores = cores
        self._longest: dict[str, float] = {}  # item of each job so far, in seconds
        self.cluster = PilotCluster(options, self.wake)
        try:
            super().__init__(options.max_servers, cluster=self.cluster.client)
            self.table.outlasts = self._outlasts
        except BaseException:
            self.cluster.close()
            raise

    def max_command_width(self) -> float:
        return min(self._cores, self.max_capacity())

    def wait_for_outcomes(self, timeout: float) -> list[Outcome | FinishedItems]:
        outcomes = super().wait_for_outcomes(timeout)
        now = time.monotonic()
        if now - self._decided_at >= _DECIDE_SECONDS:
            self._decided_at = now
            self._look_after_pilots(now)
        return outcomes

    def close(self) -> list[Outcome | FinishedItems]:
        try:
            return super().close()
        finally:
            self.cluster.close(keep_logs=self.pilots.failed_starts > 0)

    def _look_after_pilots(self, now: float) -> None:
        busy = {str(worker.name): len(worker.batches) for worker in self.table.workers.values()}
        self.pilots.observe_workers(busy, now)
        gone = self.pilots.observe_jobs(self.cluster.take_states(), now)
        if self.pilots.failed_starts >= MAX_FAILED_STARTS:
            raise InputError(
                f"{MAX_FAILED_STARTS} pilots in a row have ended before they had connected; "
                f"{self.cluster.describe_failure()}"
            )
        waiting = [self._estimate_seconds(batch) for batch in self.ledger.waiting]
        idle = {str(worker.name) for worker in self.table.workers.values() if worker.free > 0}
        draining = self.pilots.drain(waiting, idle, now)
        changes = self.pilots.decide(self._useful_servers, now)
        self._ended = (self._ended & set(busy)) | set(changes.end)
        self.table.drain(draining | self._ended)
        for name in changes.end:
            del self.pilots.pilots[name]
        changes = changes._replace(end=(*changes.end, *gone))
        for name in self.cluster.change(changes):
            self.pilots.add(name, now)

    def _estimate_seconds(self, batch: Batch) -> float:
        """Return how long a batch may take: as if all items were as long as the longest so far."""
        return self._longest.get(batch.job, 0.0) * len(batch.tasks)

    def _outlasts(self, worker: Worker, batch: Batch) -> bool:
        seconds = self._estimate_seconds(batch)
        return self.pilots.outlasts(str(worker.name), seconds, time.monotonic())

    def _observe(self, job: str, seconds: float) -> None:
        self._longest[job] = max(self._longest.get(job, 0.0), seconds)
        super()._observe(job, seconds)
