"""Rigid policies: each job runs on the servers that its user has asked for, from start to end."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.policy import Policy, State

if TYPE_CHECKING:
    from hesrpt.workload import Workload


@dataclass(frozen=True)
class Rigid(Policy):
    """Decides when jobs start, not on how many servers: a job is never resized, nor stopped."""

    def __call__(self, state: State) -> FloatArray:
        raise InputError(
            f"policy {self.name} keeps servers for whole jobs: it can be simulated, but not be "
            "asked to share servers"
        )

    def prepare(self, workload: Workload, servers: float, whole: bool) -> Policy:
        requested = workload.requested
        if requested is None:
            raise InputError(
                f"policy {self.name} needs to know how many servers each job asks for: "
                "Workload(..., requested=...)"
            )
        if requested.max() > servers:
            job = int(np.argmax(requested))
            raise InputError(
                f"job {workload.names[job]} asks for {requested[job]:g} servers, and there are "
                f"{servers:g}: it would never start"
            )
        return self


class Fcfs(Rigid):
    """First come, first served: no job starts before one that was submitted earlier."""


class Easy(Rigid):
    """EASY backfilling: a job may overtake if that does not delay the first one that waits.

    For that one, servers are kept from the time on when there will be enough of them, as far as
    estimates tell.
    """
