"""The adaptive policy: heSRPT for a batch, nearly equal shares when jobs keep arriving."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.objectives import (
    FlowObjective,
    check_flow_objective,
    has_equal_weights,
    needs_weights,
    weight_of_each_job,
)
from hesrpt.optimal.closed_form import compute_shares, compute_shares_smallest_first
from hesrpt.policies.calibration import Calibration
from hesrpt.policies.calibration_kernel import focus_of_level
from hesrpt.policies.lifetimes import expect_remaining, mean_size, record_lives
from hesrpt.policies.optimal import Optimal, order_by_time_alone
from hesrpt.policies.policy import RankedPolicy, Rule, RuleKind, State, WorkloadFacts
from hesrpt.policies.pricing import share_by_value
from hesrpt.policies.sharing import share_in_proportion
from hesrpt.speedups import PowerLaw, Speedup, SpeedupVector
from hesrpt.validation import check_between, check_choice

#: What is known of sizes. Estimates count as known.
Knowledge = Literal["known", "unknown"]
# Speedups that are closer to linear count as this power law if sizes are unknown.
_MAX_EXPONENT = 0.99
# Among jobs that differ, with a focus of 0, ties go to those that are worth more in a batch.
_TIE_FOCUS = 1e-7


@dataclass(frozen=True)
class Adaptive(RankedPolicy):
    """Between EQUI and heSRPT: the fewer jobs join those present, the more the small ones get.

    Of m jobs, the policy expects that m (i/m)^f are still there when the i-th largest ends. The
    value of a job's work is what it would be in a batch, when that many jobs are left. Servers go
    to the jobs by marginal value. With f = 1 this is heSRPT, which is optimal for a batch; with
    f = 0 all jobs are worth the same, and shares are equal.

    ``focus`` is f. If it is None, the policy learns f from the jobs that have ended
    (:mod:`hesrpt.policies.calibration`): f stays 1 for a batch, and falls as the load rises.

    With ``objective`` "slowdown" or "weighted", sums of weights take the place of i and m.

    If ``sizes`` is "unknown", the policy looks at the work that was done on each job, and learns
    from jobs that have ended how much is expected to remain (:mod:`hesrpt.policies.lifetimes`).
    Servers are shared as if prices would fall with a power f of that. While all expectations are
    equal, as they stay if sizes are exponential, so are shares; with objective "weighted" they are
    in proportion to weights.
    """

    uses_all_servers = True
    counts_resizes = True

    focus: float | None = None
    objective: FlowObjective = "flow"
    sizes: Knowledge = "known"
    # The policy whose values this one uses, if it differs only in its focus.
    _origin: Adaptive | None = field(default=None, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_flow_objective(self.objective)
        check_choice("sizes", self.sizes, get_args(Knowledge))
        if self.focus is not None:
            object.__setattr__(self, "focus", check_between("focus", self.focus, 0, 1))

    @cached_property
    def _batch(self) -> Optimal:
        """The same policy for a batch, which also keeps the values that rows follow from."""
        return Optimal(self.objective) if self._origin is None else self._origin._batch

    def bind(self, facts: WorkloadFacts) -> Adaptive:
        return replace(self)  # a copy, so that runs do not share a cache

    def without_sizes(self) -> Adaptive:
        return replace(self, sizes="unknown") if self.focus is None else self

    # --- learning -----------------------------------------------------------------------------

    @property
    def is_calibrated(self) -> bool:
        return self.focus is None or self.sizes == "unknown"

    def calibrate(self, before: State | None, state: State) -> Calibration | None:
        if not self.is_calibrated:
            return None
        log_jobs = float(np.log(self._weigh(state).sum())) if len(state) else 0.0
        differ = state.speedups.shared is None
        knows_sizes = self.sizes == "known"
        sizes = state.sizes if knows_sizes else np.ones(len(state))
        calibration = None if before is None else before.calibration
        if before is None or calibration is None or len(before) == 0:
            calibration = calibration or Calibration()
            return calibration.record_arrivals(state.jobs, sizes, log_jobs, differ)
        # Where jobs that stay were before, and where they are now; the others have ended.
        _, stays, places = np.intersect1d(before.jobs, state.jobs, True, return_indices=True)
        has_ended = np.ones(len(before), dtype=np.bool_)
        has_ended[stays] = False
        known_sizes = before.sizes[has_ended] if state.ended_sizes is None else state.ended_sizes

        weights = self._weigh(before)
        largest_first = self.order(before)[::-1] if knows_sizes else np.arange(len(before))
        ranks = np.empty(len(before))
        ranks[largest_first] = np.cumsum(weights[largest_first])
        total = float(ranks[largest_first[-1]])
        if knows_sizes:
            remaining = np.zeros(len(before))
            remaining[stays] = state.remaining[places]
            fractions = np.clip((before.remaining - remaining) / before.sizes, 0.0, 1.0)
            log_ranks = np.log(ranks)
            calibration = calibration.record_sizes(np.flatnonzero(has_ended), known_sizes)
        else:
            # The part that is expected to remain, relative to other jobs, takes the place of i/m.
            log_ranks = np.log(total * find_relative_prices(before))
            attained, now = find_attained(before), np.empty(len(before))
            now[stays], now[has_ended] = find_attained(state)[places], known_sizes
            ends, now = has_ended & np.isfinite(now), np.fmax(now, attained)
            lifetimes = record_lives(calibration.lifetimes, attained, now, ends)
            calibration = replace(calibration, lifetimes=lifetimes)
            fractions = (now - attained) / (mean_size(lifetimes) or 1.0)
        calibration = calibration.record_work(fractions, log_ranks, float(np.log(total)))
        ended = largest_first[::-1][has_ended[largest_first[::-1]]]
        if len(ended):
            left = total - (np.cumsum(weights[ended]) - weights[ended])
            calibration = calibration.record_ends(ended, np.log(np.maximum(left, weights[ended])))

        calibration = calibration.take(stays)
        new = np.setdiff1d(np.arange(len(state)), places)
        if len(new):
            calibration = calibration.record_arrivals(state.jobs[new], sizes[new], log_jobs, differ)
        return calibration.take(np.argsort(np.concatenate((places, new))))

    def _weigh(self, state: State) -> FloatArray:
        knows_only_weights = self.sizes == "unknown" and not needs_weights(self.objective)
        objective = "flow" if knows_only_weights else self.objective
        return weight_of_each_job(objective, state.sizes, state.weights)

    def _get_focus(self, state: State) -> float:
        if self.focus is not None:
            return self.focus
        calibration = state.calibration or Calibration()
        return calibration.focus if self.sizes == "known" else calibration.focus_if_unknown

    # --- unknown sizes --------------------------------------------------------------------------

    def _share_by_expectation(self, state: State) -> FloatArray:
        """Share servers if the price at the end of a job falls with the work expected to remain."""
        p = np.minimum(state.speedups.closest_exponents(), _MAX_EXPONENT)
        logs = self._get_focus(state) * p / (1 - p) * np.log(find_relative_prices(state))
        parts = self._weigh(state) * np.exp(logs - logs.max())
        return share_in_proportion(parts, state.servers, state.speedups, state.whole)

    # --- jobs that share one speedup ----------------------------------------------------------

    @property
    def is_ranked(self) -> bool:
        return super().is_ranked and self.sizes == "known"

    def at_level(self, level: int) -> Adaptive:
        return self._at_focus(focus_of_level(level))

    def _at_focus(self, focus: float) -> Adaptive:
        """Return the policy with a fixed focus and the same cached values."""
        if self.focus == focus:
            return self
        fixed = replace(self, focus=focus)
        object.__setattr__(fixed, "_origin", self)
        return fixed

    def row(self, jobs: int, servers: float, speedup: Speedup, whole: bool) -> FloatArray:
        focus = 1.0 if self.focus is None else self.focus
        if isinstance(speedup, PowerLaw) and not whole:
            return servers * compute_shares_smallest_first(jobs, self.share_exponent(speedup))
        if focus == 1:
            return self._batch.row(jobs, servers, speedup, whole)
        speedup = speedup.on_whole_servers() if whole else speedup
        batch = self._batch.cache.values_by_rank(jobs, speedup, servers, whole).values[:jobs]
        speedups, weights = SpeedupVector.repeat(speedup, jobs), np.ones(jobs)
        return share_by_value(speedups, servers, weights, focus, batch[::-1], whole)

    def share_exponent(self, speedup: PowerLaw) -> float:
        return effective_exponent(speedup.p, 1.0 if self.focus is None else self.focus)

    # --- any jobs -------------------------------------------------------------------------------

    def state_rule(self, speedups: SpeedupVector, whole: bool) -> Rule | None:
        if self.sizes == "unknown":
            return None
        if isinstance(speedups.shared, PowerLaw) and not whole:
            return Rule(RuleKind.CLOSED_FORM, self.objective, speedups.shared.p, self.focus)
        focus = None if self.focus is None else max(self.focus, _TIE_FOCUS)
        return Rule(RuleKind.VALUE, self.objective, focus=focus)

    def __call__(self, state: State) -> FloatArray:
        if self.sizes == "unknown":
            return self._share_by_expectation(state)
        focus = self._get_focus(state)
        shared = state.speedups.shared
        is_plain = state.others == 0 and state.resizes is None
        if is_plain and shared is not None and has_equal_weights(self.objective):
            row = self._at_focus(focus).row(len(state), state.servers, shared, state.whole)
            return self.assign_row(state, row)
        order = self.order(state)
        if is_plain and isinstance(shared, PowerLaw) and not state.whole:
            largest_first, held = order[::-1], np.empty(len(state))
            weights, exponent = self._weigh(state), effective_exponent(shared.p, focus)
            held[largest_first] = state.servers * compute_shares(weights[largest_first], exponent)
            return held
        return self._batch.share(state, order, max(focus, _TIE_FOCUS))

    def order(self, state: State) -> IntArray:
        if self.sizes == "unknown":
            return np.argsort(-find_relative_prices(state) * self._weigh(state), kind="stable")
        return order_by_time_alone(state, self._weigh(state))


def find_attained(state: State) -> FloatArray:
    """Return the work that was done on each job."""
    return state.sizes - state.remaining if state.attained is None else state.attained


def find_relative_prices(state: State) -> FloatArray:
    """Return the prices at the ends of jobs of unknown size with a focus of 1; about 1 in all.

    They are inverse to the work that is expected to remain.
    """
    lifetimes = np.zeros(0) if state.calibration is None else state.calibration.lifetimes
    logs = np.log(expect_remaining(lifetimes, find_attained(state)))
    prices: FloatArray = np.exp(logs.mean() - logs)
    return prices


def effective_exponent(p: float, focus: float) -> float:
    """Return the exponent with which heSRPT shares servers as this policy does.

    It is 1 − 1/c with c = 1 + f p/(1 − p).

    >>> effective_exponent(0.5, 1.0), effective_exponent(0.5, 0.0)
    (0.5, 0.0)
    """
    return p if focus == 1 else focus * p / (1 - p + focus * p)
