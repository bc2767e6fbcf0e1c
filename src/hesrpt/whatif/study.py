"""Replaying the jobs of a trace under rigid and malleable policies."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies import Moldable, RigidDiscipline, get_policy
from hesrpt.simulator.replications import Replication, run_with_bounds
from hesrpt.traces import Trace
from hesrpt.traces.trace import RECORDED
from hesrpt.validation import check_choice, check_flag, check_whole_number
from hesrpt.whatif.assumptions import Assumption, assume_speedup
from hesrpt.whatif.extrapolation import (
    OTHER_LIMITS,
    OtherLimit,
    list_other_limits,
    measure_extrapolation,
)
from hesrpt.whatif.headline import choose_headline
from hesrpt.whatif.malleability import (
    Malleability,
    describe_malleable_jobs,
    parse_malleability,
)
from hesrpt.whatif.notes import (
    describe_curves,
    describe_estimates,
    describe_options,
    describe_overload,
)
from hesrpt.whatif.recorded import build_recorded_run, describe_recorded
from hesrpt.whatif.request_limits import ServerLimit
from hesrpt.whatif.selection import select_jobs
from hesrpt.whatif.study_jobs import build_jobs
from hesrpt.whatif.study_results import Study
from hesrpt.workload import Workload

#: The policies of a study by default.
DEFAULT_POLICIES = (
    "fcfs",
    "easy",
    "moldable",
    "equi",
    "srpt",
    "adaptive",
    "hesrpt",
    "hesrpt-slowdown",
    "optimal",
)
# Other limits on servers are tried with these policies.
_COMPARED_UNDER_OTHER_LIMITS = ("equi", "adaptive")
#: What malleable policies know of sizes.
SIZES = ("exact", "estimates")


def run_study(
    trace: Trace,
    servers: int | None = None,
    assumption: Assumption | float | str = 0.7,
    *,
    policies: Sequence[str] | None = None,
    malleable: float | str | Malleability | None = None,
    window: str | None = None,
    min_runtime: float = 0.0,
    load: float | None = None,
    strict: bool = False,
    bound: bool = False,
    resize_cost: float = 0.0,
    size_error: float = 0.0,
    sizes: str = "exact",
    other_limits: bool = True,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> Study:
    """Simulate the jobs of a trace under several policies.

    A job that ran for r seconds on q servers has size r·s(q), so that on q servers it takes r
    seconds again. Malleable policies allocate whole servers, and no more to a job than the limit of
    the assumption.

    Parameters
    ----------
    trace
        The trace, from :func:`hesrpt.traces.read_trace`.
    servers
        The servers of the machine; by default, the number that the trace states.
    assumption
        How jobs speed up: the p of k^p, or an assumption from :func:`assume_speedup`.
    policies
        Names of policies. The rigid ones, "fcfs" and "easy", give jobs the servers they asked for.
        With "moldable", jobs choose their servers once, when they start.
        By default all of :data:`DEFAULT_POLICIES`.
    malleable
        Which jobs are malleable, or moldable: all by default; a fraction such as 0.3 of the jobs,
        "0.3 of users" or "0.3 of server-hours", drawn at random with the seed; or those that meet a
        condition such as "servers >= 8 and user != 'ann'", or for which a column says true. The
        others stay rigid under EASY (:mod:`hesrpt.simulator.beside_rigid`).
    window
        Study only the jobs submitted in this part of the trace, such as "10d..40d".
    min_runtime
        Drop jobs that ran for fewer seconds.
    load
        Stretch the submission times so that users ask for this fraction of all server-seconds.
    strict
        Raise an error if a job asked for more servers than there are, instead of dropping it.
    bound
        Also bound the mean flow time of all schedules (:func:`hesrpt.lower_bound`): takes long.
    resize_cost, size_error, seed
        As for :func:`hesrpt.simulate`.
    sizes
        What malleable policies know of sizes: "exact", or "estimates" for sizes that follow from
        the users' estimates of run times. What fraction of a job is done counts as known.
    other_limits
        Whether to replay EQUI and adaptive under other limits too, to see what the result owes to
        servers beyond those that jobs asked for.
    progress
        Called with the number of steps done and the total number: each simulation is a step, and
        the bound takes several.
    """
    machine = trace.machine_servers if servers is None else servers
    if machine is None:
        raise InputError(
            f"must be given: {trace.source} does not say how many servers the machine has",
            argument="servers",
        )
    machine = check_whole_number("servers", machine, 1)
    if not isinstance(assumption, Assumption):
        assumption = assume_speedup(assumption)
    used = select_jobs(
        trace, machine, window=window, min_runtime=min_runtime, load=load, strict=strict
    )
    check_choice("sizes", sizes, SIZES)
    chosen_jobs = parse_malleability(malleable)
    is_malleable = chosen_jobs.select(used, seed)
    jobs = build_jobs(used, machine, assumption, seed, is_malleable)
    as_rigid, as_malleable = jobs.build_rigid(), jobs.build_malleable()
    if policies is None:
        policies = DEFAULT_POLICIES
    if not policies:
        raise InputError("must name at least one policy", argument="policies")
    options: dict[str, Any] = {
        "whole": True,
        "resize_cost": resize_cost,
        "size_error": size_error,
        "seed": seed,
        "approximate_p": assumption.p,
    }
    if sizes == "estimates":
        options["relative_sizes"] = _relate_estimates(used)

    def replicate(policy: str, workload: Workload, tallying: bool = False) -> Replication:
        chosen = get_policy(policy)
        is_rigid = isinstance(chosen, RigidDiscipline) and not isinstance(chosen, Moldable)
        served = as_rigid if is_rigid else workload
        return Replication(served, float(machine), chosen, options, tallying)

    replications: dict[tuple[str, ServerLimit | None], Replication] = {
        (policy, None): replicate(policy, as_malleable, tallying=True) for policy in policies
    }
    for limit in list_other_limits(jobs) if other_limits else ():
        limited = jobs.build_malleable(limit)
        for policy in _choose_compared(policies):
            replications[policy, limit] = replicate(policy, limited)
    simulations, bounds = run_with_bounds(
        replications,
        [jobs.build_least_limited()] if check_flag("bound", bound) else [],
        float(machine),
        True,
        progress,
    )
    recorded = build_recorded_run(used, as_rigid, machine)
    runs = {} if recorded is None else {RECORDED: recorded}
    runs |= {policy: simulations[policy, None] for policy in policies}
    others: dict[ServerLimit, dict[str, float]] = {}
    for (policy, other), simulation in simulations.items():
        if other is not None:
            others.setdefault(other, {})[policy] = simulation.mean_flow_time
    notes = [
        *used.notes,
        *describe_malleable_jobs(used, chosen_jobs, is_malleable, seed),
        *describe_options(resize_cost, size_error, seed, load),
        *describe_estimates(used, sizes),
        *describe_curves(jobs),
        *describe_recorded(used, window is not None or min_runtime > 0),
        *describe_overload(used, machine),
    ]
    return Study(
        trace=used,
        servers=machine,
        assumption=assumption,
        runs=runs,
        is_malleable=is_malleable,
        malleability=chosen_jobs,
        sizes=sizes,
        size_error=float(size_error),
        resize_cost=float(resize_cost),
        notes=tuple(notes),
        bound=bounds[0] if bounds else None,
        extrapolation=measure_extrapolation(
            used,
            {policy: runs[policy] for policy in choose_headline(runs).malleable},
            tuple(OtherLimit(OTHER_LIMITS[limit], means) for limit, means in others.items()),
        ),
    )


def _choose_compared(policies: Sequence[str]) -> list[str]:
    """Return the policies to replay under other limits: the usual ones, or else all malleable."""
    usual = [policy for policy in _COMPARED_UNDER_OTHER_LIMITS if policy in policies]
    if usual:
        return usual
    return [name for name in policies if not isinstance(get_policy(name), RigidDiscipline)]


def _relate_estimates(trace: Trace) -> FloatArray:
    """Return the sizes that follow from the users' estimates, relative to the true sizes."""
    known = np.isfinite(trace.estimates)
    if not known.any():
        raise InputError(
            f"cannot be 'estimates': {trace.source} has no users' estimates of run times",
            argument="sizes",
        )
    return np.where(known, trace.estimates / trace.runtimes, 1.0)
