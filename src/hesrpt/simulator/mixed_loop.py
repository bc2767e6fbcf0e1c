"""What the compiled event loop for jobs that differ needs: the rule of a policy and the jobs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.objectives import weight_of_each_job
from hesrpt.optimal.recursion_kernel import EXACT
from hesrpt.optimal.response_kernel import COLUMNS
from hesrpt.policies import Rule, RuleKind
from hesrpt.policies.optimal import MAX_VALUED
from hesrpt.policies.pricing import estimate_gains
from hesrpt.policies.sharing import usable_servers
from hesrpt.simulator import mixed_kernel, mixed_kernel_data
from hesrpt.simulator.calibration_kernel_data import create_calibration
from hesrpt.simulator.kernel_data import Jobs, Phases, create_record
from hesrpt.simulator.mixed_kernel_data import (
    Decisions,
    MixedJobs,
    PriceSearch,
    RuleSettings,
    Values,
    Workspace,
)
from hesrpt.speedups import SpeedupVector

_CODES = {kind: getattr(mixed_kernel_data, kind.name) for kind in RuleKind}
# Rules of these kinds round shares of servers that could be divided.
_ROUNDED = RuleKind.EQUAL, RuleKind.CLOSED_FORM
_PLANNED = RuleKind.PRICE, RuleKind.VALUE


@dataclass(frozen=True)
class MixedLoop:
    """The loop with all that it needs apart from the state that all loops have."""

    decisions: Decisions

    def run(self, jobs: Jobs, phases: Phases, state: Any, settings: Any) -> int:
        """Run until there is a reason to return, and return that reason."""
        return mixed_kernel.run(jobs, self.decisions, phases, state, settings)


def create_mixed_loop(
    rule: Rule,
    speedups: SpeedupVector,
    servers: float,
    whole: bool,
    sizes: FloatArray,
    weights: FloatArray,
    by_arrival: IntArray,
) -> MixedLoop:
    """Return the loop for jobs with these speedups, sizes (as the policy sees them) and weights."""
    jobs = len(sizes)
    deciding = speedups.on_whole_servers() if whole and rule.kind not in _ROUNDED else speedups
    usable = usable_servers(deciding, servers, jobs)
    arrival_rank = np.empty(jobs, dtype=np.int64)
    arrival_rank[by_arrival] = np.arange(jobs)
    # Arrays that this rule does not use take no space.
    planned = jobs if rule.kind in _PLANNED else 0
    shapes = speedups.shapes(servers)
    shared = deciding.shared

    def numbers() -> FloatArray:
        return np.empty(planned)

    def places(count: int = jobs) -> IntArray:
        return np.empty(count, dtype=np.int64)

    decisions = Decisions(
        jobs=MixedJobs(
            usable=usable,
            weight=np.array(weight_of_each_job(rule.objective, sizes, weights)),
            gain=estimate_gains(speedups) if planned else numbers(),
            fastest=deciding.rate(usable) if planned else numbers(),
            arrival_rank=arrival_rank,
            key=np.empty(jobs),
            held=np.empty(jobs),
            order=places(),
            planned=places(),
        ),
        shapes=shapes,
        deciding=deciding.shapes(servers, tabulated=True) if planned else shapes,
        work=Workspace(np.empty(jobs), np.empty(jobs), places(), places()),
        search=PriceSearch(
            np.zeros(2), numbers(), numbers(), numbers(), numbers(), places(planned)
        ),
        values=Values(
            line=np.empty((planned, COLUMNS)),
            listed=places(planned),
            known=np.zeros(1, dtype=np.int64),
            price_by_weight=np.zeros(planned),
            held=numbers(),
            rates=numbers(),
        ),
        calibration=create_calibration(jobs if rule.focus is None else 0, 1),
        rule=create_record(
            RuleSettings,
            kind=_CODES[rule.kind],
            is_whole=whole,
            is_calibrated=rule.focus is None,
            shares_speedup=shared is not None,
            max_valued=MAX_VALUED,
            exponent=rule.exponent or 0.0,
            focus=1.0 if rule.focus is None else rule.focus,
            servers=servers,
            max_slope=np.inf if shared is None else shared.max_slope(),
            close=EXACT.close,
            exact=EXACT.exact,
        ),
    )
    return MixedLoop(decisions)
