"""heSRPT for Ray Tune: the less work a trial has left, the more servers it gets.

This module reads the progress and the resources of the trials from Tune, and returns the resources
that a trial should have. :mod:`hesrpt.integrations.resizing` makes the decision, without Ray.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from hesrpt.errors import InputError
from hesrpt.integrations.resizing import ResizeSetting, choose_resize
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
    """How much work a trial has done so far, and how long it would have taken on one server."""

    last_remaining: float | None = None  # work that remained at the last report
    work_done: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True)
class _PendingResize:
    """A resize that Tune has not carried out yet."""

    servers: int
    decided_at: float


class HeSRPTAllocation:
    """Divides a cluster between Tune's trials: the less work a trial has left, the more servers.

    Pass an instance to ``ResourceChangingScheduler`` as ``resources_allocation_function``::

        tune.TuneConfig(
            scheduler=ResourceChangingScheduler(
                resources_allocation_function=HeSRPTAllocation()
            ),
            reuse_actors=False,
        )

    Every trial keeps at least the resources it started with. The rest of the cluster is divided to
    minimise the mean completion time of the trials, assuming that k servers make a trial k^p times
    as fast. To resize a trial, Tune saves a checkpoint, stops the trial and restarts it from there.
    So trainables must save and restore checkpoints, and a trial is resized only if that pays off.
    The shorter the trials are compared with a resize, the more equal their shares.

    While there are more trials than the cluster can run at once, no trial is resized.

    Parameters
    ----------
    remaining
        How much work a trial has left. By default, the iterations up to the ``training_iteration``
        of the stop criterion, multiplied by the time that an iteration of this trial has taken so
        far. A string names an entry of the trial's config that holds its number of iterations. A
        function takes the trial and its last result (flat, and empty before the first report), and
        returns the remaining size in a unit that all trials share; 0 means that the trial is about
        to end.
    p
        The exponent of the speedup. If you do not know it, 0.8 is a good guess: as long as the real
        one lies between 0.5 and 0.99, that costs up to about 6% of the mean completion time.
    bundle
        The resources of one server, such as ``{"CPU": 1}`` or ``{"CPU": 4, "GPU": 1}``. The
        resources that trials start with must contain at least one server.
    add_bundles
        Whether a trial grows by adding bundles to its placement group, for trials that start their
        own workers. By default its only bundle grows, and must fit on one node.
    reserve
        Resources to leave unused, such as ``{"CPU": 2}``.
    resize_cost
        An initial guess of how many seconds a resize pauses a trial. It is averaged with the pauses
        measured later. Trials that would gain less than the average are not resized.

    Examples
    --------
    >>> HeSRPTAllocation(remaining="epochs", p=0.9, bundle={"CPU": 2})
    HeSRPTAllocation(remaining='epochs', p=0.9, bundle={'CPU': 2.0}, add_bundles=False, reserve={},
    resize_cost=2.0)
    """

    # Tune sets these on every allocation function.
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
        self.bundle = _check_resources("bundle", {"CPU": 1} if bundle is None else bundle)
        for resource, amount in self.bundle.items():
            check_positive(f"bundle[{resource!r}]", amount)
        if not self.bundle:
            raise InputError("bundle must hold at least one resource, such as {'CPU': 1}, got {}")
        self.add_bundles = check_flag("add_bundles", add_bundles)
        self.reserve = _check_resources("reserve", {} if reserve is None else reserve)
        self.resize_cost = check_at_least("resize_cost", resize_cost, 0)
        self._resize_costs = [self.resize_cost]  # the guess, then the measured costs
        self._paces: dict[str, _Pace] = {}
        # Tune carries out a decision only after it has saved the trial.
        self._pending: dict[str, _PendingResize] = {}

    def __repr__(self) -> str:
        names = ("remaining", "p", "bundle", "add_bundles", "reserve", "resize_cost")
        return f"HeSRPTAllocation({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    @property
    def mean_resize_cost(self) -> float:
        """The mean number of seconds that a resize pauses a trial, as measured so far."""
        return sum(self._resize_costs) / len(self._resize_costs)

    def __call__(
        self, tune_controller: Any, trial: Any, result: dict[str, Any], scheduler: Any
    ) -> PlacementGroupFactory | None:
        """Return the resources that a trial should have from now on, or None for no change."""
        base = scheduler.base_trial_resources
        min_servers = self._count_base_servers(base)
        # Tune keeps trials in a set. Their ids are in the order of their creation.
        live = sorted(
            (each for each in tune_controller.get_live_trials() if not each.is_finished()),
            key=lambda each: str(each.trial_id),
        )
        self._forget_ended_trials({each.trial_id for each in live})
        seconds = float(result["time_this_iter_s"])
        if resize := self._pending.pop(trial.trial_id, None):
            self._resize_costs.append(max(time.monotonic() - resize.decided_at - seconds, 0.0))
        held = {each.trial_id: self._count_servers(each, base, min_servers) for each in live}
        remaining = {
            each.trial_id: self._compute_remaining(each, result if each is trial else None)
            for each in live
        }
        work = seconds * held[trial.trial_id] ** self.p
        self._record_pace(trial.trial_id, remaining[trial.trial_id], work)
        # Trials that are about to end keep what they have; the others share the rest.
        active = [name for name in remaining if remaining[name] > 0]
        paces = [self._compute_seconds_per_unit(name) for name in active]
        if trial.trial_id not in active or None in paces:
            return None
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        held_by_others = sum(held[name] for name in remaining if remaining[name] <= 0)
        new = choose_resize(
            active.index(trial.trial_id),
            np.array([remaining[name] for name in active]) * np.array(paces, dtype=np.float64),
            np.array([held[name] for name in active]),
            ResizeSetting(
                servers=self._count_all_servers(base, min_servers, len(live), nodes)
                - held_by_others,
                min_servers=min_servers,
                max_servers=self._count_max_servers(base, min_servers, nodes),
                p=self.p,
                resize_cost=self.mean_resize_cost,
            ),
        )
        if new is None:
            return None
        self._pending[trial.trial_id] = _PendingResize(new, time.monotonic())
        return self._build_resources(base, new - min_servers)

    # --- work ---------------------------------------------------------------------------------

    def _compute_remaining(self, trial: Any, result: dict[str, Any] | None) -> float:
        """Return the remaining size of a trial after a result; None means its last result."""
        if result is None:
            # Asking for the last result of a trial that has none would wait for the trial.
            has_reported = trial.has_reported_at_least_once
            result = dict(flatten_dict(trial.last_result)) if has_reported else {}
        if callable(self.remaining):
            return check_at_least(f"remaining of trial {trial}", self.remaining(trial, result), 0)
        name = self.remaining or _ITERATION
        if self.remaining is None:
            source, entries = "the stop criterion", trial.stopping_criterion
            advice = (
                "give one as in RunConfig(stop={'training_iteration': 100}), or "
                "HeSRPTAllocation(remaining=...)"
            )
        else:
            source, entries = "the config", trial.config
            advice = "remaining must be the name of an entry with its number of iterations"
        total = entries.get(name)
        if total is None:
            raise InputError(
                f"{source} of trial {trial} has no {name!r}, only {sorted(entries)}: {advice}"
            )
        total = check_at_least(f"{name} of trial {trial}", total, 0)
        return max(total - float(result.get(_ITERATION, 0)), 0.0)

    def _record_pace(self, trial_id: str, remaining: float, seconds: float) -> None:
        """Record how long the work between the last two reports of a trial took."""
        pace = self._paces.setdefault(trial_id, _Pace())
        if pace.last_remaining is None and not callable(self.remaining):
            pace.last_remaining = remaining + 1  # the iteration that has just ended
        if pace.last_remaining is not None and remaining < pace.last_remaining:
            pace.work_done += pace.last_remaining - remaining
            pace.seconds += seconds
        pace.last_remaining = remaining

    def _compute_seconds_per_unit(self, trial_id: str) -> float | None:
        """Return the seconds that a unit of a trial's work takes on one server, if known."""
        # Iterations differ in length between trials; the unit of a function does not.
        own = None if callable(self.remaining) else self._paces.get(trial_id)
        paces = [own] if own is not None and own.work_done else list(self._paces.values())
        work_done = sum(pace.work_done for pace in paces)
        return max(sum(pace.seconds for pace in paces) / work_done, 1e-9) if work_done else None

    # --- servers ------------------------------------------------------------------------------

    def _count_base_servers(self, base: Any) -> int:
        """Return how many servers trials start with."""
        if not isinstance(base, PlacementGroupFactory):
            raise InputError(f"trials must have a PlacementGroupFactory as resources, got {base!r}")
        if len(base.bundles) > 1 and not self.add_bundles:
            raise InputError(
                f"trials with {len(base.bundles)} bundles of resources cannot grow by enlarging "
                "one of them: use HeSRPTAllocation(add_bundles=True)"
            )
        servers = _count_fitting(base.required_resources, self.bundle)
        if servers < 1:
            raise InputError(
                f"bundle must fit into the resources trials start with, {base.required_resources}, "
                f"got {self.bundle}"
            )
        return servers

    def _count_servers(self, trial: Any, base: Any, min_servers: int) -> int:
        """Return the servers that a trial holds, waits for, or will get from a pending resize."""
        held = trial.placement_group_factory.required_resources
        more = _count_fitting(_subtract(held, base.required_resources), self.bundle)
        servers = min_servers + max(more, 0)
        pending = self._pending.get(trial.trial_id)
        return max(servers, pending.servers) if pending else servers

    def _count_all_servers(
        self, base: Any, min_servers: int, trials: int, nodes: list[dict[str, float]]
    ) -> int:
        """Return the servers of the whole cluster, for a number of trials.

        The resources that a trial starts with count as ``min_servers``, even if they are more.
        """
        base_total = {name: trials * each for name, each in base.required_resources.items()}
        available = _subtract(_add_up(nodes, self.bundle), self.reserve)
        return trials * min_servers + _count_fitting(_subtract(available, base_total), self.bundle)

    def _count_max_servers(self, base: Any, min_servers: int, nodes: list[dict[str, float]]) -> int:
        """Return the most servers that a trial can have: one bundle must fit on one node."""
        if self.add_bundles:
            nodes = [_add_up(nodes, self.bundle)]
        more = (
            _count_fitting(_subtract(node, base.required_resources), self.bundle) for node in nodes
        )
        return min_servers + max(0, max(more))

    def _build_resources(self, base: Any, more_servers: int) -> PlacementGroupFactory:
        """Return the resources that trials start with, enlarged by some servers."""
        bundles = base.bundles
        if self.add_bundles:
            bundles += [dict(self.bundle) for _ in range(more_servers)]
        else:
            for name, amount in self.bundle.items():
                bundles[0][name] = bundles[0].get(name, 0.0) + more_servers * amount
        if base.head_bundle_is_empty:
            bundles = [{}, *bundles]
        # Tune's own allocation functions copy these two attributes as well.
        return PlacementGroupFactory(bundles, base.strategy, *base._args, **base._kwargs)

    def _forget_ended_trials(self, live: set[str]) -> None:
        self._paces = {name: pace for name, pace in self._paces.items() if name in live}
        self._pending = {name: resize for name, resize in self._pending.items() if name in live}


def _check_resources(name: str, resources: object) -> dict[str, float]:
    if not isinstance(resources, Mapping) or not all(isinstance(key, str) for key in resources):
        raise InputError(
            f"{name} must map resources to amounts, such as {{'CPU': 1}}, got {resources!r}"
        )
    return {key: check_at_least(f"{name}[{key!r}]", each, 0) for key, each in resources.items()}


def _add_up(nodes: list[dict[str, float]], names: Mapping[str, float]) -> dict[str, float]:
    return {name: sum(node.get(name, 0.0) for node in nodes) for name in names}


def _subtract(resources: Mapping[str, float], others: Mapping[str, float]) -> dict[str, float]:
    return {name: amount - others.get(name, 0.0) for name, amount in resources.items()}


def _count_fitting(resources: Mapping[str, float], bundle: Mapping[str, float]) -> int:
    """Return how many bundles fit into some resources; negative if these are negative."""
    return min(
        math.floor(resources.get(name, 0.0) / each + _ROUNDING) for name, each in bundle.items()
    )
