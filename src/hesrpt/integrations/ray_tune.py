"""heSRPT for Ray Tune: trials get servers by how much work they have left.

This module reads what Tune knows of its trials, and writes what Tune should give them. What they
should get is decided in :mod:`hesrpt.integrations.resizing`, which knows nothing of Ray.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hesrpt.errors import InputError
from hesrpt.integrations.resizing import Setting, resized
from hesrpt.speedups import PowerLaw
from hesrpt.validation import check_at_least, check_flag, check_positive

try:
    import ray
    from ray.tune import PlacementGroupFactory
    from ray.tune.utils import flatten_dict
except ImportError as missing:
    raise ImportError(
        "hesrpt.integrations.ray_tune needs Ray Tune: pip install 'hesrpt[tune]'"
    ) from missing

__all__ = ["HeSRPTAllocation"]

_ITERATION = "training_iteration"
# Sums of fractions like 0.1 GPU may miss a whole number by this much.
_ROUNDING = 1e-9


@dataclass
class _Pace:
    """How long a trial's work has taken so far, as seconds on one server."""

    left: float | None = None  # at the last report
    units: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class _Promise:
    servers: int
    made_at: float


class HeSRPTAllocation:
    """Shares of the cluster for Tune's trials: the less work a trial has left, the more servers.

    An instance is what ``ResourceChangingScheduler`` takes as ``resources_allocation_function``::

        tune.TuneConfig(
            scheduler=ResourceChangingScheduler(
                resources_allocation_function=HeSRPTAllocation()
            ),
            reuse_actors=False,
        )

    Each trial keeps at least what it was started with. What is left over is shared so that the mean
    completion time of the trials is least, if k servers make a trial k^p times as fast. A trial is
    resized only if that pays: Tune saves a checkpoint, stops the trial, and starts it anew from
    there, so trainables must save and restore checkpoints. The shorter trials are compared with
    what that takes, the nearer to equal the shares.

    While more trials wait than the cluster can start, there is nothing to share and all run with
    what they were started with.

    Parameters
    ----------
    remaining
        How much work a trial has left. By default, its iterations up to the ``training_iteration``
        of the stop criterion, times what an iteration of this trial has taken so far. The name of
        an entry of the trial's config: that entry is its number of iterations, instead. A function
        of the trial and its last result (flat, and empty before the first report): it returns the
        work that is left, in a unit that all trials have in common; 0 means about to end.
    p
        The power of the speedup. If unknown, 0.8 is a good guess: as long as the real one lies
        between 0.5 and 0.99, that costs up to about 6% of the mean completion time.
    bundle
        The resources of one server, such as ``{"CPU": 1}`` or ``{"CPU": 4, "GPU": 1}``. What
        trials are started with must contain at least one.
    add_bundles
        Whether servers become further bundles of the trial's placement group, for trials that
        start workers of their own. By default its only bundle grows, which must fit on one node.
    reserve
        Resources that are not handed out, such as ``{"CPU": 2}``.
    resize_cost
        For how many seconds a trial stands still when it is resized, as a first guess: it counts
        like one measurement among those that follow. Trials that gain less are not resized.

    Examples
    --------
    >>> HeSRPTAllocation(remaining="epochs", p=0.9, bundle={"CPU": 2})
    HeSRPTAllocation(remaining='epochs', p=0.9, bundle={'CPU': 2.0}, add_bundles=False, reserve={},
    resize_cost=2.0)
    """

    # Ray sets these on whatever it calls.
    metric: str | None = None
    mode: str | None = None

    def __init__(
        self,
        *,
        remaining: Callable[[Any, dict[str, Any]], float] | str | None = None,
        p: float = 0.8,
        bundle: Mapping[str, float] | None = None,
        add_bundles: bool = False,
        reserve: Mapping[str, float] | None = None,
        resize_cost: float = 2.0,
    ) -> None:
        if not (remaining is None or isinstance(remaining, str) or callable(remaining)):
            raise InputError(
                "remaining must be a function of a trial and its result, or the name of an entry "
                f"of its config, got {remaining!r}"
            )
        self.remaining = remaining
        self.p = PowerLaw(p).p
        self.bundle = _resources("bundle", {"CPU": 1} if bundle is None else bundle)
        for resource, amount in self.bundle.items():
            check_positive(f"bundle[{resource!r}]", amount)
        if not self.bundle:
            raise InputError("bundle must hold at least one resource, such as {'CPU': 1}, got {}")
        self.add_bundles = check_flag("add_bundles", add_bundles)
        self.reserve = _resources("reserve", {} if reserve is None else reserve)
        self.resize_cost = check_at_least("resize_cost", resize_cost, 0)
        self._paces: dict[str, _Pace] = {}
        self._costs = [self.resize_cost]
        # Tune carries out a decision a while after it was made, when the trial has been saved.
        self._promised: dict[str, _Promise] = {}

    def __repr__(self) -> str:
        names = ("remaining", "p", "bundle", "add_bundles", "reserve", "resize_cost")
        return f"HeSRPTAllocation({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    def __call__(
        self, tune_controller: Any, trial: Any, result: dict[str, Any], scheduler: Any
    ) -> PlacementGroupFactory | None:
        """Return the resources that a trial should have from now on, or None for no change."""
        base = scheduler.base_trial_resources
        fewest = self._fewest(base)
        # By their ids they are in the order in which they were made; Tune keeps them in a set.
        live = sorted(
            (each for each in tune_controller.get_live_trials() if not each.is_finished()),
            key=lambda each: str(each.trial_id),
        )
        self._forget_all_but({each.trial_id for each in live})
        seconds = float(result["time_this_iter_s"])
        if kept := self._promised.pop(trial.trial_id, None):
            self._costs.append(max(time.monotonic() - kept.made_at - seconds, 0.0))
        held = {each.trial_id: self._held(each, base, fewest) for each in live}
        left = {each.trial_id: self._left(each, result if each is trial else None) for each in live}
        work = seconds * held[trial.trial_id] ** self.p
        self._learn(trial.trial_id, left[trial.trial_id], work)
        # Trials that are about to end keep what they have; the others share the rest.
        active = [each.trial_id for each in live if left[each.trial_id] > 0]
        paces = [self._seconds_per_unit(each) for each in active]
        if trial.trial_id not in active or None in paces:
            return None
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        others = sum(held[each.trial_id] for each in live if left[each.trial_id] <= 0)
        new = resized(
            active.index(trial.trial_id),
            np.array([left[each] for each in active]) * np.array(paces, dtype=np.float64),
            np.array([held[each] for each in active]),
            Setting(
                servers=self._all_servers(base, fewest, len(live), nodes) - others,
                base=fewest,
                most=self._most(base, fewest, nodes),
                p=self.p,
                resize_cost=sum(self._costs) / len(self._costs),
            ),
        )
        if new is None:
            return None
        self._promised[trial.trial_id] = _Promise(new, time.monotonic())
        return self._grown(base, new - fewest)

    # --- work ---------------------------------------------------------------------------------

    def _left(self, trial: Any, result: dict[str, Any] | None) -> float:
        """Return the work that a trial has left, in its unit; without a result, by its last one."""
        if result is None:
            # Asking for the last result of a trial that has none would wait for the trial.
            reported = trial.has_reported_at_least_once
            result = dict(flatten_dict(trial.last_result)) if reported else {}
        if callable(self.remaining):
            return check_at_least(f"remaining of trial {trial}", self.remaining(trial, result), 0)
        if self.remaining is None:
            where, known = "the stop criterion", trial.stopping_criterion
            total = known.get(_ITERATION)
            advice = (
                "give one as in RunConfig(stop={'training_iteration': 100}), or "
                "HeSRPTAllocation(remaining=...)"
            )
        else:
            where, known = "the config", trial.config
            total = known.get(self.remaining)
            advice = "remaining must be the name of an entry with its number of iterations"
        if total is None:
            wanted = self.remaining or _ITERATION
            raise InputError(
                f"{where} of trial {trial} has no {wanted!r}, only {sorted(known)}: {advice}"
            )
        total = check_at_least(f"{self.remaining or _ITERATION} of trial {trial}", total, 0)
        return max(total - float(result.get(_ITERATION, 0)), 0.0)

    def _learn(self, trial_id: str, left: float, seconds: float) -> None:
        """Note how long the work between the last two reports of a trial has taken."""
        pace = self._paces.setdefault(trial_id, _Pace())
        if pace.left is None and not callable(self.remaining):
            pace.left = left + 1  # the iteration that has just ended
        if pace.left is not None and left < pace.left:
            pace.units += pace.left - left
            pace.seconds += seconds
        pace.left = left

    def _seconds_per_unit(self, trial_id: str) -> float | None:
        """Return how long a unit of a trial's work takes on one server, if that is known."""
        # Iterations of one trial may take longer than those of another; a common unit does not.
        own = None if callable(self.remaining) else self._paces.get(trial_id)
        measured = [own] if own is not None and own.units else list(self._paces.values())
        units = sum(pace.units for pace in measured)
        return max(sum(pace.seconds for pace in measured) / units, 1e-9) if units else None

    # --- servers ------------------------------------------------------------------------------

    def _fewest(self, base: Any) -> int:
        """Return how many servers trials are started with."""
        if not isinstance(base, PlacementGroupFactory):
            raise InputError(f"trials must have a PlacementGroupFactory as resources, got {base!r}")
        if len(base.bundles) > 1 and not self.add_bundles:
            raise InputError(
                f"trials with {len(base.bundles)} bundles of resources cannot grow by enlarging "
                "one of them: use HeSRPTAllocation(add_bundles=True)"
            )
        fewest = _fitting(base.required_resources, self.bundle)
        if fewest < 1:
            raise InputError(
                f"bundle must fit into what trials are started with, {base.required_resources}, "
                f"got {self.bundle}"
            )
        return fewest

    def _held(self, trial: Any, base: Any, fewest: int) -> int:
        """Return the servers of a trial, or those it waits for; promises count from the start."""
        has = _minus(trial.placement_group_factory.required_resources, base.required_resources)
        held = fewest + max(_fitting(has, self.bundle), 0)
        promise = self._promised.get(trial.trial_id)
        return max(held, promise.servers) if promise else held

    def _all_servers(
        self, base: Any, fewest: int, trials: int, nodes: list[dict[str, float]]
    ) -> int:
        """Return the servers of the cluster, counting what trials are started with as servers."""
        started = {name: trials * each for name, each in base.required_resources.items()}
        total = {name: sum(node.get(name, 0.0) for node in nodes) for name in self.bundle}
        return trials * fewest + _fitting(_minus(_minus(total, self.reserve), started), self.bundle)

    def _most(self, base: Any, fewest: int, nodes: list[dict[str, float]]) -> int:
        """Return the most servers of a trial: a bundle cannot be larger than a node."""
        if self.add_bundles:
            nodes = [{name: sum(node.get(name, 0.0) for node in nodes) for name in self.bundle}]
        room = (_fitting(_minus(node, base.required_resources), self.bundle) for node in nodes)
        return fewest + max(0, max(room))

    def _grown(self, base: Any, servers: int) -> PlacementGroupFactory:
        """Return what trials are started with, and so many servers more."""
        bundles = base.bundles
        if self.add_bundles:
            bundles += [dict(self.bundle) for _ in range(servers)]
        else:
            for name, amount in self.bundle.items():
                bundles[0][name] = bundles[0].get(name, 0.0) + servers * amount
        if base.head_bundle_is_empty:
            bundles = [{}, *bundles]
        return PlacementGroupFactory(bundles, base.strategy, *base._args, **base._kwargs)

    def _forget_all_but(self, trials: set[str]) -> None:
        self._paces = {name: each for name, each in self._paces.items() if name in trials}
        self._promised = {name: each for name, each in self._promised.items() if name in trials}


def _resources(name: str, given: object) -> dict[str, float]:
    if not isinstance(given, Mapping) or not all(isinstance(key, str) for key in given):
        raise InputError(
            f"{name} must be amounts of resources, such as {{'CPU': 1}}, got {given!r}"
        )
    return {key: check_at_least(f"{name}[{key!r}]", amount, 0) for key, amount in given.items()}


def _minus(resources: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {name: amount - others.get(name, 0.0) for name, amount in resources.items()}


def _fitting(resources: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    """Return how many bundles there are in some resources; fewer than 0 if these are negative."""
    return min(
        math.floor(resources.get(name, 0.0) / each + _ROUNDING) for name, each in bundle.items()
    )
