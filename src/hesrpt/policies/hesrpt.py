"""heSRPT: the optimum of the paper, in closed form."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.errors import InputError
from hesrpt.objectives import FlowObjective, check_flow_objective, weight_of_each_job
from hesrpt.optimal.closed_form import compute_shares, compute_shares_smallest_first
from hesrpt.policies.optimal import Optimal
from hesrpt.policies.policy import RankedPolicy, Rule, RuleKind, State, WorkloadFacts
from hesrpt.policies.sharing import redistribute_excess, round_fairly, usable_servers
from hesrpt.speedups import PowerLaw, Speedup, SpeedupVector


@dataclass(frozen=True)
class HeSrpt(RankedPolicy):
    """The i-th largest of m jobs gets (i/m)^c − ((i−1)/m)^c of the servers, c = 1/(1 − p).

    With ``objective`` "slowdown" or "weighted", sums of weights take the place of i and m. If ``p``
    is None, binding takes it from the jobs' speedup. Servers that a job cannot use go to others.

    Whole servers are assigned by :class:`~hesrpt.policies.Optimal`, which is optimal too.
    """

    uses_all_servers = True

    p: float | None = None
    objective: FlowObjective = "flow"
    _whole: Optimal = field(default_factory=Optimal, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_flow_objective(self.objective)
        if self.p is not None:
            object.__setattr__(self, "p", PowerLaw(self.p).p)
        object.__setattr__(self, "_whole", Optimal(self.objective))

    def bind(self, facts: WorkloadFacts) -> HeSrpt:
        p = self.p
        if p is None and facts.speedups.exponent is None:
            p = facts.approximate_p
        # A copy, so that runs do not share a cache.
        return replace(self, p=self._get_exponent(facts.speedups) if p is None else p)

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        if whole:
            return self._whole.row(jobs, servers, speedup, whole)
        held = servers * compute_shares_smallest_first(jobs, self._get_exponent(speedup))
        if isinstance(speedup, PowerLaw):
            return held
        held = np.concatenate((held, np.zeros(jobs - len(held))))
        return redistribute_excess(held, usable_servers(speedup, servers, jobs))

    def share_exponent(self, speedup: PowerLaw) -> float:
        return self._get_exponent(speedup)

    def state_rule(self, speedups: SpeedupVector, whole: bool) -> Rule | None:
        if whole and speedups.shared is not None:
            return self._whole.state_rule(speedups, whole)
        p = speedups.exponent if self.p is None else self.p
        return Rule(RuleKind.CLOSED_FORM, self.objective, p)

    def __call__(self, state: State) -> FloatArray:
        if state.whole and state.speedups.shared is not None:
            return self._whole(state)
        weights = weight_of_each_job(self.objective, state.sizes, state.weights)
        smallest_first = self.order(state)
        listed = weights[smallest_first[::-1]]
        if state.others > 0:  # one job can stand in for all those whose shares do not matter
            listed = np.concatenate(([state.others], listed))
        shares = compute_shares(listed, self._get_exponent(state.speedups))
        shares = shares[len(shares) - len(state) :][::-1]
        if state.others > 0 and shares.sum() > 0:
            shares = shares / shares.sum()
        usable = usable_servers(state.speedups, state.servers, len(state))
        held = np.empty(len(state))
        held[smallest_first] = redistribute_excess(state.servers * shares, usable[smallest_first])
        return round_fairly(held, state.servers) if state.whole else held

    def order(self, state: State) -> IntArray:
        weights = weight_of_each_job(self.objective, state.sizes, state.weights)
        return np.argsort(state.remaining / weights, kind="stable")

    def _get_exponent(self, speedups: Speedup | SpeedupVector) -> float:
        """Return ``p``; if it is None, return the exponent that all jobs have in common."""
        p = speedups.exponent if self.p is None else self.p
        if p is None:
            raise InputError(
                f"policy {self.name} needs one power law k^p for all jobs: use policy optimal, "
                "which takes any speedups"
            )
        return p
