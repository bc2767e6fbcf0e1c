"""heSRPT: the optimum of the paper, in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.optimal.closed_form import shares_of, smallest_first_shares
from hesrpt.policies.optimal import Objective, Optimal, checked, weights_of
from hesrpt.policies.policy import Policy, State
from hesrpt.policies.ranked import RankedPolicy, RowFactors
from hesrpt.policies.sharing import redistribute_excess, round_fairly, usable_servers
from hesrpt.speedups import PowerLaw, Speedup, SpeedupVector

if TYPE_CHECKING:
    from hesrpt.workload import Workload


@dataclass(frozen=True)
class HeSrpt(RankedPolicy):
    """The i-th largest of m jobs gets (i/m)^c − ((i−1)/m)^c of the servers, c = 1/(1 − p).

    ``objective`` "slowdown" or "weighted" puts the jobs' weights in the place of their number.
    ``p`` is that of the jobs' speedup, unless it is given. What a job cannot use, the others share.

    Whole servers are handed out as :class:`~hesrpt.policies.Optimal` does, which is optimal too.
    """

    p: float | None = None
    objective: Objective = "flow"
    _whole: Optimal = field(default_factory=Optimal, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        checked(self.objective)
        if self.p is not None:
            object.__setattr__(self, "p", PowerLaw(self.p).p)
        object.__setattr__(self, "_whole", Optimal(self.objective))

    @property
    def name(self) -> str:
        return "hesrpt" if self.objective == "flow" else f"hesrpt-{self.objective}"

    @property
    def is_ranked(self) -> bool:
        return self.objective == "flow"

    def prepare(self, workload: Workload, servers: float, whole: bool) -> Policy:
        p = power_of(workload.speedups, self) if self.p is None else self.p
        return replace(self, p=p)  # with a memory of its own: several may run at a time

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        if whole:
            return self._whole.row(jobs, servers, speedup, whole)
        held = servers * smallest_first_shares(jobs, self._power(speedup))
        if isinstance(speedup, PowerLaw):
            return held
        held = np.concatenate((held, np.zeros(jobs - len(held))))
        return redistribute_excess(held, usable_servers(speedup, servers, jobs))

    def factors(self, jobs: int, servers: float, speedup: Speedup) -> RowFactors | None:
        if not isinstance(speedup, PowerLaw):
            return None
        c = 1 / (1 - self._power(speedup))
        m = np.arange(2, jobs + 1)
        held, rate = np.zeros(jobs + 1), np.zeros(jobs + 1)
        with np.errstate(over="ignore"):
            held[2:] = np.exp(-c * np.log1p(-1 / m))
            rate[2:] = np.exp(-c * speedup.p * np.log1p(-1 / m))
        return RowFactors(held, rate)

    def __call__(self, state: State) -> FloatArray:
        if state.whole and state.speedups.shared is not None:
            return self._whole(state)
        weights = weights_of(state, self.objective)
        smallest_first = np.argsort(state.remaining / weights, kind="stable")
        shares = shares_of(weights[smallest_first[::-1]], self._power(state.speedups))[::-1]
        most = usable_servers(state.speedups, state.servers, len(state))
        held = np.empty(len(state))
        held[smallest_first] = redistribute_excess(state.servers * shares, most[smallest_first])
        return round_fairly(held, state.servers) if state.whole else held

    def _power(self, speedup: Speedup | SpeedupVector) -> float:
        return power_of(speedup, self) if self.p is None else self.p


def power_of(speedup: Speedup | SpeedupVector, policy: Policy) -> float:
    """Return the p that all jobs have in common."""
    if (p := speedup.exponent) is not None:
        return p
    raise InputError(
        f"policy {policy.name} needs one power law k^p for all jobs: use policy optimal, or give "
        f"p as in policies.{type(policy).__name__}(p=0.5)"
    )
