"""What a scheduler plans and predicts, which it tells other processes once a second."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class RunProgress:
    """A run at one moment. Jobs are given by their numbers; those that have ended are left out."""

    time: float = 0.0  # seconds since the run began
    servers: int = 0  # how many there are
    planned: Mapping[int, int] = field(default_factory=dict)  # servers that the policy gives jobs
    ends: Mapping[int, float] = field(default_factory=dict)  # when jobs will end, where known
    #: Of each kind of resource besides servers, how much there is, and how much is free.
    resources: Mapping[str, tuple[float, float]] = field(default_factory=dict)

    def to_json(self) -> str:
        """Return these values as text."""
        jobs = [[job, servers, self.ends.get(job)] for job, servers in self.planned.items()]
        return json.dumps([self.time, self.servers, jobs, dict(self.resources)])

    @classmethod
    def from_json(cls, text: str) -> RunProgress:
        """Return the values that :meth:`to_json` wrote."""
        time, servers, jobs, resources = json.loads(text)
        return cls(
            time=time,
            servers=servers,
            planned={job: planned for job, planned, _ in jobs},
            ends={job: end for job, _, end in jobs if end is not None},
            resources={kind: (total, free) for kind, (total, free) in resources.items()},
        )


#: The progress of a run that has not reported any.
NO_PROGRESS = RunProgress()
