"""The results of a study: metrics by policy and by group of jobs, and sentences about them.

One trace is one sample. To see how far its means can be trusted, the jobs are divided into batches
in the order of submission, and the means of the batches give a confidence interval. Policies are
compared batch by batch, since a busy week is busy under all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property
from math import ceil
from typing import Any, TypeAlias

import numpy as np

from hesrpt._version import __version__
from hesrpt.arrays import BoolArray, FloatArray, IntArray
from hesrpt.optimal.bounds import LowerBound
from hesrpt.policies.registry import get_title
from hesrpt.schedule import jain_index, summarise
from hesrpt.simulator.intervals import Difference, estimate_difference, estimate_mean
from hesrpt.simulator.simulation import Simulation
from hesrpt.traces import Trace
from hesrpt.traces.trace import RECORDED
from hesrpt.units import (
    HOUR,
    choose_time_unit,
    format_count,
    format_duration,
    format_duration_with_margin,
)
from hesrpt.whatif.assumptions import Assumption, ServerLimit
from hesrpt.whatif.malleability import measure_parts
from hesrpt.whatif.study_jobs import StudyJobs, StudyOptions, compute_offered_load

CONFIDENCE = 0.95
_MAX_BATCHES = 20
_MIN_BATCHES = 8
_MIN_JOBS_IN_BATCH = 20
#: Policies for jobs that are never resized.
RIGID = (RECORDED, "easy", "fcfs")
MOLDABLE = "moldable"
_MAX_SHOWN = 5


@dataclass(frozen=True, eq=False, kw_only=True)
class Study:
    """Simulations of the jobs of a trace under several policies."""

    trace: Trace  # the jobs that were simulated
    servers: int
    options: StudyOptions
    runs: dict[str, Simulation]  # by policy
    is_malleable: BoolArray  # the other jobs are rigid
    notes: tuple[str, ...] = ()  # sentences on options and on the trace
    bound: LowerBound | None = None  # on the flow time of all schedules, if it was asked for
    other_limits: tuple[OtherLimit, ...] = ()  # if they were asked for

    @property
    def assumption(self) -> Assumption:
        """How jobs speed up."""
        assert self.options.assumption is not None
        return self.options.assumption

    @cached_property
    def load(self) -> float:
        """The server-seconds that users asked for, divided by those available in that time."""
        return compute_offered_load(self.trace, self.servers)

    def slowdowns(self, policy: str) -> FloatArray:
        """Return each job's flow time divided by its run time in the trace."""
        return self.runs[policy].flow_times / self.trace.runtimes

    def rows(self) -> list[dict[str, Any]]:
        """Return a row of metrics for each policy."""
        return [
            {
                "policy": policy,
                **summarise("flow_time", run.flow_times),
                **summarise("slowdown", self.slowdowns(policy)),
                "makespan": run.makespan,
                "utilisation": run.utilisation,
                "overloaded": run.is_overloaded,
                "mean_flow_time_half_width": half_width(run),
                **_summarise_tally(run),
                **({} if self.bound is None else {"above_bound": self.bound.gap(run)}),
            }
            for policy, run in self.runs.items()
        ]

    @cached_property
    def groups(self) -> dict[str, list[dict[str, Any]]]:
        """Rows for groups of jobs by size, servers, kind and user, with means by policy."""
        kinds = [("malleable", self.is_malleable), ("rigid", ~self.is_malleable)]
        groups = {
            "size": group_by_size(self.trace),
            "servers": group_by_servers(self.trace),
            "kind": kinds if all(members.any() for _, members in kinds) else [],
            "user": group_by_user(self.trace),
        }
        used = self.trace.servers * self.trace.runtimes
        flow_times = {policy: run.flow_times for policy, run in self.runs.items()}
        slowdowns = {policy: self.slowdowns(policy) for policy in self.runs}

        def average(values: dict[str, FloatArray], members: BoolArray) -> dict[str, float]:
            return {policy: float(each[members].mean()) for policy, each in values.items()}

        return {
            name: [
                {
                    "group": title,
                    "jobs": int(members.sum()),
                    "server_hours": float(used[members].sum()) / HOUR,
                    "mean_flow_time": average(flow_times, members),
                    "mean_slowdown": average(slowdowns, members),
                }
                for title, members in of_name
            ]
            for name, of_name in groups.items()
        }

    def fairness(self) -> dict[str, dict[str, float]]:
        """Return how evenly each policy treats users; empty if the trace has no users.

        "jain_index" is that of the users' mean slowdowns. "worse_off" is the fraction of users
        whose mean flow time is more than 1% longer than under the rigid policy that others are
        compared with.
        """
        numbered = number_users(self.trace)
        if numbered is None:
            return {}
        _, user_of_job = numbered
        means = {
            policy: average_by_user(run.flow_times, user_of_job)
            for policy, run in self.runs.items()
        }
        rows = {}
        for policy, values in means.items():
            rows[policy] = {
                "jain_index": jain_index(average_by_user(self.slowdowns(policy), user_of_job))
            }
            if self.base is not None:
                rows[policy]["worse_off"] = float(np.mean(values > 1.01 * means[self.base]))
        return rows

    @cached_property
    def malleable_policies(self) -> list[str]:
        """The policies that resize jobs."""
        return [policy for policy in self.runs if policy not in (*RIGID, MOLDABLE)]

    @property
    def base(self) -> str | None:
        """The rigid policy that others are compared with."""
        return next((policy for policy in ("easy", "fcfs", RECORDED) if policy in self.runs), None)

    @property
    def headline_policy(self) -> str | None:
        """The policy that the conclusion is about: the best malleable one."""
        return min(self.malleable_policies, key=self._mean, default=None)

    def _mean(self, policy: str) -> float:
        return self.runs[policy].mean_flow_time

    @property
    def conclusion(self) -> str:
        """The result in a sentence, without an initial capital or a full stop."""
        which = "malleable jobs"
        if not self.options.malleable.is_everything:
            which = f"{measure_parts(self.trace, self.is_malleable)[0]:.0%} of the jobs malleable"
        assumed = f"with {which} and {self.assumption.text}"
        base, best, policies = self.base, self.headline_policy, len(self.malleable_policies)
        if best is None or base is None:
            shortest = min(self.runs, key=self._mean)
            return (
                f"{assumed}, mean flow time is shortest under {get_title(shortest)}: "
                f"{_format_mean(self.runs[shortest])}{self._describe_equi(shortest)}"
            )
        name = base if base == RECORDED else base.upper()
        before, after = self._mean(base), self._mean(best)
        which = f", the best of {policies} policies" if policies > 1 else ""
        if format_duration(before) == format_duration(after):
            return (
                f"{assumed}, {get_title(best)}{which and f'{which},'} would change nothing: "
                f"{format_duration(before)}, as under {name}"
            )
        difference = compare_runs(self.runs, best, base)
        is_unclear = difference is not None and not difference.is_clear
        return (
            f"{assumed}, mean flow time would {'fall' if after < before else 'rise'} from "
            f"{_format_mean(self.runs[base])} ({name}) to {_format_mean(self.runs[best])} under "
            f"{get_title(best)}{which}{', which is no clear difference' if is_unclear else ''}"
            f"{self._describe_equi(best)}"
        )

    def _describe_equi(self, best: str) -> str:
        """Return how equal shares compare with the best policy."""
        if best == "equi":
            return " (equal shares)" if len(self.malleable_policies) > 1 else ""
        if not {"equi", best} <= set(self.malleable_policies):
            return ""
        more = self._mean("equi") / self._mean(best) - 1
        difference = compare_runs(self.runs, "equi", best)
        text = f"; equal shares (EQUI) reach {_format_mean(self.runs['equi'])}"
        if difference is None:
            return f"{text}, {more:.1%} more"
        margin = difference.percentage_half_width
        if not difference.is_clear:
            return f"{text}, no clear difference ({more:+.1%} ± {margin:.1f}%)"
        return f"{text}, {more:.1%} ± {margin:.1f}% more"

    @cached_property
    def extrapolation(self) -> Extrapolation:
        """How far malleable policies went beyond the requests of the trace."""
        tallies = {
            policy: tally
            for policy in self.malleable_policies
            if (tally := self.runs[policy].tally) is not None
        }
        return Extrapolation(
            largest_request=float(self.trace.servers.max()),
            most_servers={
                policy: float(tally.most_servers.max()) for policy, tally in tallies.items()
            },
            beyond_request={
                policy: float(tally.server_seconds_beyond.sum() / tally.server_seconds.sum())
                for policy, tally in tallies.items()
            },
            other_limits=self.other_limits,
        )

    @property
    def shown_policies(self) -> list[str]:
        """The policies that figures and tables of groups show: more could not be told apart."""
        # The best malleable policy is the first of these.
        ranked = sorted(self.malleable_policies, key=self._mean)
        wanted = dict.fromkeys([RECORDED, self.base, MOLDABLE, "equi", *ranked, *self.runs])
        chosen = [policy for policy in wanted if policy in self.runs][:_MAX_SHOWN]
        return [policy for policy in self.runs if policy in chosen]

    @property
    def caveats(self) -> list[str]:
        """Sentences on what the conclusion rests on, about the policy that it names."""
        best = self.headline_policy
        if best is None:
            return []
        sentences = []
        if MOLDABLE in self.runs:
            more = self._mean(MOLDABLE) / self._mean(best) - 1
            sentences.append(
                "moldable jobs, which choose their servers once, when they start, would reach "
                f"{_format_mean(self.runs[MOLDABLE])} ({more:+.0%} compared with {get_title(best)})"
            )
        sentences += self.extrapolation.describe(best)
        resizes = _summarise_tally(self.runs[best])
        if resizes["resizes_per_job"] is not None:
            lost = (
                f", and {resizes['server_hours_lost']:,.0f} server-hours were lost to it, "
                f"{resizes['server_time_lost']:.1%} of those used"
            )
            sentences.append(
                f"under {get_title(best)}, a job was resized {resizes['resizes_per_job']:.1f} "
                f"times on average{lost if self.options.resize_cost > 0 else ', at no cost'}"
            )
        return sentences

    @property
    def distance(self) -> str | None:
        """How far the policy of the conclusion is from the bound, as a sentence like that."""
        if self.bound is None:
            return None
        policy = self.headline_policy or min(self.runs, key=self._mean)
        percentage = ceil(100 * self.bound.gap(self.runs[policy]))
        return (
            f"{get_title(policy)} is at most {percentage}% above what any scheduler could reach on "
            f"this log, a mean flow time of {format_duration(self.bound.mean)}"
        )

    def as_json(self) -> dict[str, Any]:
        """Return the study as JSON values."""
        return {
            "hesrpt": __version__,
            "trace": self.trace.source,
            "jobs": len(self.trace),
            "jobs_read": self.trace.jobs_read,
            "dropped": dict(self.trace.dropped),
            "servers": self.servers,
            "load": self.load if np.isfinite(self.load) else None,
            "assumption": self.assumption.text,
            "malleable_jobs": int(self.is_malleable.sum()),
            "notes": list(self.notes),
            "conclusion": self.conclusion,
            "best": self.headline_policy,
            "caveats": self.caveats,
            "extrapolation": asdict(self.extrapolation),
            "lower_bound": None if self.bound is None else self.bound.mean,
            "proof": None if self.bound is None else self.bound.proof,
            "policies": self.rows(),
            "groups": self.groups,
            "fairness": self.fairness(),
        }


def _summarise_tally(run: Simulation) -> dict[str, float | None]:
    """Return the mean number of resizes of a job, and the server time that they cost."""
    tally = run.tally
    if tally is None:
        return {"resizes_per_job": None, "server_hours_lost": None, "server_time_lost": None}
    lost = float(tally.server_seconds_lost.sum())
    return {
        "resizes_per_job": float(tally.resizes.mean()),
        "server_hours_lost": lost / HOUR,
        "server_time_lost": lost / float(tally.server_seconds.sum()),
    }


def half_width(run: Simulation) -> float | None:
    """Return the half width of the confidence interval of a mean flow time, if it is known."""
    means = _average_batches(run.flow_times)
    return None if means is None else estimate_mean(means, CONFIDENCE).half_width


def _format_mean(run: Simulation) -> str:
    margin = half_width(run)
    if margin is None:
        return format_duration(run.mean_flow_time)
    return format_duration_with_margin(run.mean_flow_time, margin)


def compare_runs(runs: Mapping[str, Simulation], policy: str, other: str) -> Difference | None:
    """Return the difference between the mean flow times of two policies; None if jobs are few."""
    means, others = (_average_batches(runs[name].flow_times) for name in (policy, other))
    if means is None or others is None:
        return None
    return estimate_difference(
        get_title(policy), get_title(other), "mean_flow_time", means, others, CONFIDENCE
    )


def _average_batches(flow_times: FloatArray) -> FloatArray | None:
    """Return the mean flow times of batches of jobs; None if there are too few jobs."""
    batches = min(_MAX_BATCHES, len(flow_times) // _MIN_JOBS_IN_BATCH)
    if batches < _MIN_BATCHES:
        return None
    return np.array([batch.mean() for batch in np.array_split(flow_times, batches)])


#: Other limits to try: each job's own request, and the largest request of the trace.
OTHER_LIMITS = {
    ServerLimit(factor=1.0): "if no job got more than it asked for",
    ServerLimit(largest=True): "if no job got more than the largest request",
}


@dataclass(frozen=True)
class OtherLimit:
    """Mean flow times if jobs had another limit."""

    text: str
    flow_times: dict[str, float]  # by policy


@dataclass(frozen=True)
class Extrapolation:
    """How many servers jobs got beyond those that they, or any other jobs, asked for."""

    largest_request: float
    most_servers: dict[str, float]  # that any job got, by malleable policy
    beyond_request: dict[str, float]  # part of the server time beyond what the job asked for
    other_limits: tuple[OtherLimit, ...]

    def describe(self, policy: str) -> list[str]:
        """Return sentences about one policy."""
        if policy not in self.most_servers:
            return []
        most, largest = self.most_servers[policy], self.largest_request
        times = most / largest
        compared = (
            f"{times:,.3g} times the largest request of {largest:,.0f}"
            if times > 1
            else f"where the largest request was {largest:,.0f}"
        )
        sentences = [
            f"under {get_title(policy)}, a job got up to {format_count(most, 'server')}, "
            f"{compared}; {self.beyond_request[policy]:.0%} of server time was on servers beyond "
            "what the jobs had asked for"
        ]
        for other in self.other_limits:
            unit = choose_time_unit(max(other.flow_times.values()))
            means = " and ".join(
                f"{format_duration(mean, unit)} under {get_title(name)}"
                for name, mean in other.flow_times.items()
            )
            sentences.append(f"{other.text}, mean flow time would be {means}")
        return sentences


def list_other_limits(jobs: StudyJobs) -> list[ServerLimit]:
    """Return the other limits that differ from that of the study."""
    used = [jobs.limits]
    others = []
    for limit in OTHER_LIMITS:
        limits = limit.compute(jobs.trace, float(jobs.machine))
        if not any(np.array_equal(limits, before) for before in used):
            used.append(limits)
            others.append(limit)
    return others


#: Titles, and the jobs that belong to each.
JobGroups: TypeAlias = list[tuple[str, BoolArray]]
#: Users with a row of their own, at most.
MAX_USERS = 10


#: Jobs between two quantiles of the server-seconds used, given as fractions.
SIZE_CLASSES = {
    "the smallest half": (0.0, 0.5),
    "the next 40%": (0.5, 0.9),
    "the next 9%": (0.9, 0.99),
    "the largest 1%": (0.99, 1.0),
}


def group_by_size(trace: Trace) -> JobGroups:
    """Return classes of jobs by the server-seconds that they used."""
    jobs = len(trace)
    ranks = np.empty(jobs)
    ranks[np.argsort(trace.servers * trace.runtimes, kind="stable")] = np.arange(jobs)
    return _drop_empty(
        [
            (title, (ranks >= low * jobs) & (ranks < high * jobs))
            for title, (low, high) in SIZE_CLASSES.items()
        ]
    )


def group_by_servers(trace: Trace) -> JobGroups:
    """Return classes of jobs by the servers that they asked for: 1, 2 to 8, 9 to 64, and so on."""
    groups: JobGroups = [("1 server", trace.servers == 1)]
    low, largest = 2, int(trace.servers.max())
    while low <= largest:
        high = min((low - 1) * 8, largest)
        title = f"{low:,} servers" if low == high else f"{low:,} to {high:,} servers"
        groups.append((title, (trace.servers >= low) & (trace.servers <= high)))
        low = high + 1
    return _drop_empty(groups)


def group_by_user(trace: Trace) -> JobGroups:
    """Return the jobs of the users with the most server-hours, and those of all other users."""
    numbered = number_users(trace)
    if numbered is None:
        return []
    users, user_of_job = numbered
    hours = np.bincount(user_of_job, weights=trace.servers * trace.runtimes)
    order = np.argsort(-hours, kind="stable")
    shown = order if len(users) <= MAX_USERS + 1 else order[:MAX_USERS]
    groups = [(f"user {users[user]}", user_of_job == user) for user in shown.tolist()]
    others = ~np.isin(user_of_job, shown)
    if others.any():
        groups.append((f"{len(users) - len(shown):,} other users", others))
    return groups


def number_users(trace: Trace) -> tuple[list[str], IntArray] | None:
    """Return the users and the number of each job's user; None if the trace has fewer than two.

    Jobs whose user is unknown count as those of one user, "unknown".
    """
    if "user" not in trace.labels:
        return None
    names, user_of_job = np.unique(trace.labels["user"], return_inverse=True)
    if len(names) < 2:
        return None
    return [name or "unknown" for name in names.tolist()], user_of_job


def average_by_user(values: FloatArray, user_of_job: IntArray) -> FloatArray:
    """Return the mean of each user's values."""
    return np.bincount(user_of_job, weights=values) / np.bincount(user_of_job)


def _drop_empty(groups: JobGroups) -> JobGroups:
    return [(title, members) for title, members in groups if members.any()]
