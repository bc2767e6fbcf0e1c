"""The same jobs as users had them run, and as the system would have."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies import HeSrpt, Policy, PolicyLike, Rigid, State, get_policy
from hesrpt.schedule import summarise
from hesrpt.simulator.replications import run_all
from hesrpt.simulator.simulation import Simulation, kept
from hesrpt.traces import Log
from hesrpt.traces.trace import RECORDED
from hesrpt.units import format_duration
from hesrpt.validation import check_whole_number
from hesrpt.whatif.assumptions import Assumption, assumption
from hesrpt.whatif.selection import offered_load, selected
from hesrpt.workload import Workload

POLICIES = ("fcfs", "easy", "equi", "srpt", "hesrpt", "hesrpt-slowdown", "optimal")
# Of fewer jobs than this, a load says nothing.
_FEW = 200
# The planner's rule for jobs that speed up differently is computed anew at each event.
_MANY = 1000
#: Jobs by the server-seconds that they took: which part of them, and what it is called.
CLASSES = (
    ("the smallest half", 0.0, 0.5), ("the next 40%", 0.5, 0.9), ("the next 9%", 0.9, 0.99),
    ("the largest 1%", 0.99, 1.0),
)  # fmt: skip


@dataclass(frozen=True)
class _Rounded(Policy):
    """heSRPT for slowdown in whole servers, by rounding: planning them exactly takes long."""

    base: HeSrpt

    @property
    def name(self) -> str:
        return self.base.name

    def __call__(self, state: State) -> FloatArray:
        return self.base(replace(state, whole=False))


@dataclass(frozen=True, eq=False)
class WhatIf:
    """What would have come of a log under several policies."""

    log: Log  # of the jobs that were used
    servers: int
    assumed: Assumption
    runs: dict[str, Simulation]  # by policy, rigid ones first
    notes: tuple[str, ...] = ()  # what else is to be known

    @cached_property
    def load(self) -> float:
        """The server-seconds that users asked for, for each that there was."""
        return offered_load(self.log, self.servers)

    def slowdowns(self, policy: str) -> FloatArray:
        """Return each job's flow time for each second that it ran by the log."""
        return self.runs[policy].flow_times / self.log.runtime

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each policy, with all that is measured."""
        rows = []
        for policy, run in self.runs.items():
            rows.append(
                {
                    "policy": policy,
                    **summarise("flow_time", run.flow_times),
                    **summarise("slowdown", self.slowdowns(policy)),
                    "makespan": run.makespan,
                    "utilisation": run.utilisation,
                    "overloaded": run.overloaded,
                }
            )
        return rows

    def by_class(self) -> list[dict[str, Any]]:
        """Return mean flow times by how large jobs are: whether the large ones pay for it."""
        rank = np.empty(len(self.log))
        rank[np.argsort(self.log.servers * self.log.runtime, kind="stable")] = np.arange(
            len(self.log)
        )
        rows = []
        for name, low, high in CLASSES:
            members = (rank >= low * len(rank)) & (rank < high * len(rank))
            if members.any():
                means = {
                    policy: float(run.flow_times[members].mean())
                    for policy, run in self.runs.items()
                }
                rows.append({"class": name, "jobs": int(members.sum()), **means})
        return rows

    @property
    def sentence(self) -> str:
        """What it comes to."""
        base = next((one for one in ("easy", "fcfs", RECORDED) if one in self.runs), None)
        assumed = f"with malleable jobs and {self.assumed.text}"
        means = {policy: run.mean_flow_time for policy, run in self.runs.items()}
        shown = {policy: format_duration(mean) for policy, mean in means.items()}
        if base is None or "hesrpt" not in self.runs:
            best = min(means, key=means.__getitem__)
            return f"{assumed}, mean flow time is least under {best}: {shown[best]}"
        name = base if base == RECORDED else base.upper()
        if shown[base] == shown["hesrpt"]:
            return f"{assumed}, heSRPT would change nothing: {shown[base]}, as under {name}"
        verb = "cut" if means["hesrpt"] < means[base] else "raise"
        return (
            f"{assumed}, heSRPT would {verb} mean flow time from {shown[base]} ({name}) to "
            f"{shown['hesrpt']}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return all of it, for programs."""
        return {
            "log": self.log.place, "jobs": len(self.log), "read": self.log.read,
            "dropped": dict(self.log.dropped), "servers": self.servers,
            "load": self.load if np.isfinite(self.load) else None,
            "assumed": self.assumed.text, "notes": list(self.notes), "sentence": self.sentence,
            "policies": self.rows(), "by_class": self.by_class(),
        }  # fmt: skip


def whatif(
    log: Log,
    servers: int | None = None,
    assumed: Assumption | float | str = 0.7,
    *,
    policies: Sequence[str] | None = None,
    window: str | None = None,
    min_runtime: float = 0.0,
    load: float | None = None,
    strict: bool = False,
    resize_cost: float = 0.0,
    size_error: float = 0.0,
    seed: int = 0,
    progress: Callable[[int, int], None] | None = None,
) -> WhatIf:
    """Return what would have come of the jobs of a log under several policies.

    A job that ran for r seconds on q servers has size r·s(q), so that on its own q servers it takes
    as long as it did. Malleable policies hand out whole servers.

    Parameters
    ----------
    log
        What :func:`hesrpt.traces.read_log` has read.
    servers
        How many there are; as many as the log says by default.
    assumed
        How jobs speed up: a p, or what :func:`assumption` returns.
    policies
        By name; "fcfs" and "easy" give jobs what they asked for. All by default; without "optimal"
        where speedups differ and jobs are many, since that takes long.
    window
        The part of the log to look at, as in "10d..40d".
    min_runtime
        Jobs that ran for fewer seconds are left out.
    load
        Stretch or squeeze the submissions, so that users ask for this part of all server-seconds.
    strict
        Whether a job that asked for more servers than there are is an error, and not left out.
    resize_cost, size_error, seed
        As for :func:`hesrpt.simulate`.
    """
    machine = log.machine if servers is None else servers
    if machine is None:
        raise InputError(f"{log.place}: does not say how many servers there are: give servers")
    machine = check_whole_number("servers", machine, minimum=1)
    if not isinstance(assumed, Assumption):
        assumed = assumption(assumed)
    used = selected(log, machine, window=window, min_runtime=min_runtime, load=load, strict=strict)
    workload = as_workload(used, assumed, seed)
    if policies is None:
        slow = not assumed.shared and len(used) > _MANY
        policies = [policy for policy in POLICIES if not (slow and policy == "optimal")]
    options = {"whole": True, "resize_cost": resize_cost, "size_error": size_error, "seed": seed}
    tasks = {
        policy: (workload, float(machine), _made(policy, assumed, len(used)), options)
        for policy in policies
    }
    done: dict[str, Simulation] = {}
    for policy, run in run_all(tasks):
        done[policy] = run
        if progress is not None:
            progress(len(done), len(tasks))
    unknown = int(np.count_nonzero(np.isnan(used.start)))
    runs = {} if unknown else {RECORDED: recorded(used, workload, machine)}
    runs |= {policy: done[policy] for policy in policies}
    notes = [
        *_said(resize_cost, size_error, seed, load),
        *_of_the_record(unknown, used, window is not None or min_runtime > 0),
        *_of_the_load(used, machine),
    ]
    return WhatIf(used, machine, assumed, runs, tuple(notes))


def _said(resize_cost: float, size_error: float, seed: int, load: float | None) -> list[str]:
    """Return what else was assumed, since it was asked for."""
    notes = []
    if resize_cost > 0:
        notes.append(f"a malleable job stands still for {resize_cost:g} s when it is resized")
    if size_error > 0:
        notes.append(
            f"malleable policies see sizes times exp({size_error:g} Z), Z normal (seed {seed})"
        )
    if load is not None:
        notes.append(f"submissions were stretched or squeezed to a load of {load:g}")
    return notes


def _of_the_record(unknown: int, used: Log, is_part: bool) -> list[str]:
    """Return what is to be known of the recorded waits."""
    if 0 < unknown < len(used):
        return [f"as recorded is not shown: of {unknown:,} jobs the log does not say the start"]
    if unknown == 0 and is_part:
        return [
            "recorded waits are those of the whole log; all else starts on an empty machine, "
            "without the jobs that were left out"
        ]
    return []


def _of_the_load(used: Log, servers: int) -> list[str]:
    asked = offered_load(used, servers)
    if len(used) < _FEW or not 1 < asked < np.inf:
        return []
    return [
        f"users asked for {asked:.2f} times what {servers:,} servers can do while jobs were "
        "submitted: under rigid policies the queue grows and grows, and the averages depend on "
        "how long the log is"
    ]


def as_workload(log: Log, assumed: Assumption, seed: int) -> Workload:
    """Return the jobs of a log as malleable ones, which take as long on what users asked for."""
    speedup = assumed.drawn(len(log), seed)
    unit = Workload(np.ones(len(log)), speedup)
    estimates = np.fmax(log.estimate, log.runtime)  # where none is known, what it took
    return Workload(
        log.runtime * unit.speedups.rate(log.servers),
        speedup,
        arrivals=log.submit,
        names=log.names,
        requested=log.servers,
        estimates=estimates,
    )


def recorded(log: Log, workload: Workload, servers: int) -> Simulation:
    """Return what the log itself says: when jobs started, and how long they ran."""
    return kept(workload, float(servers), np.maximum(log.start, log.submit), RECORDED)


def _made(policy: str, assumed: Assumption, jobs: int) -> PolicyLike:
    made = get_policy(policy)
    if isinstance(made, Rigid):
        return policy
    if isinstance(made, HeSrpt):
        made = HeSrpt(assumed.p, made.objective)
        return made if made.objective == "flow" or jobs <= _MANY else _Rounded(made)
    return made
