"""How far a study goes beyond what the trace shows, and what is left of its result without that."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hesrpt.policies.registry import get_title
from hesrpt.simulator.simulation import Simulation
from hesrpt.traces import Trace
from hesrpt.units import choose_time_unit, format_count, format_duration
from hesrpt.whatif.request_limits import ServerLimit
from hesrpt.whatif.study_jobs import StudyJobs

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
    requested, machine = jobs.trace.servers, float(jobs.machine)
    used = [jobs.limits]
    others = []
    for limit in OTHER_LIMITS:
        limits = limit.compute(requested, machine)
        if not any(np.array_equal(limits, before) for before in used):
            used.append(limits)
            others.append(limit)
    return others


def measure_extrapolation(
    trace: Trace, runs: dict[str, Simulation], other_limits: tuple[OtherLimit, ...]
) -> Extrapolation:
    """Return how far malleable runs go beyond the requests of the trace."""
    tallies = {policy: run.tally for policy, run in runs.items() if run.tally is not None}
    return Extrapolation(
        largest_request=float(trace.servers.max()),
        most_servers={policy: float(tally.most_servers.max()) for policy, tally in tallies.items()},
        beyond_request={
            policy: float(tally.server_seconds_beyond.sum() / tally.server_seconds.sum())
            for policy, tally in tallies.items()
        },
        other_limits=other_limits,
    )
