"""A policy takes the state of the jobs and returns the servers of each.

A policy does no I/O and keeps no clock. It knows neither the simulator nor the live scheduler, and
the same object drives both. A policy that learns keeps what it has learned in the states that it
sees: each state carries a calibration, which follows from the state before and its calibration.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

from hesrpt.arrays import FloatArray, IntArray
from hesrpt.speedups import SpeedupVector

if TYPE_CHECKING:
    from hesrpt.policies.binding import WorkloadFacts
    from hesrpt.policies.calibration import Calibration
    from hesrpt.policies.rules import Rule


@dataclass(slots=True)
class State:
    """What a policy sees: the jobs in the system, in the order of their arrival."""

    time: float
    servers: float
    whole: bool  # whether jobs get only whole servers
    jobs: IntArray  # their numbers in the workload
    remaining: FloatArray  # sizes that remain; estimates, if sizes are not known exactly
    sizes: FloatArray  # sizes at arrival; estimates, likewise
    arrivals: FloatArray
    weights: FloatArray
    speedups: SpeedupVector  # of these jobs
    calibration: Calibration | None = None  # what the policy has learned so far
    #: The weight of further jobs, which wait: :meth:`Policy.order` puts them after these. The
    #: servers are for the jobs of the state only.
    others: float = 0.0

    def __len__(self) -> int:
        return len(self.jobs)


class Policy(ABC):
    """Decides how many servers each job gets.

    Any callable that takes a :class:`State` and returns an array can be used as a policy. This
    class adds a name, and a step that binds the policy to the jobs it will serve.
    """

    #: Decide again after this many seconds, even if no job has arrived or ended.
    review_every: float | None = None
    #: Whether no server is idle that makes a job faster.
    uses_all_servers: bool = False

    @property
    def name(self) -> str:
        """The name of the policy in tables and messages."""
        return type(self).__name__.lower()

    @property
    def is_calibrated(self) -> bool:
        """Whether the policy learns from the jobs that it serves."""
        return False

    @abstractmethod
    def __call__(self, state: State) -> FloatArray:
        """Return the servers of each job in the state."""

    def order(self, state: State) -> IntArray | None:
        """Return the jobs in the order in which they get servers if most of them have to wait.

        If there are many more jobs than servers, the live scheduler then asks the policy about the
        first of them only. By default the result is None, and all jobs are in each state.
        """
        return None

    def calibrate(self, before: State | None, state: State) -> Calibration | None:
        """Return what the policy has learned by ``state``, which becomes its calibration.

        ``before`` is the state of the previous decision, with its calibration; None if there was
        none. By default policies learn nothing.
        """
        return None

    def state_rule(self, speedups: SpeedupVector, whole: bool) -> Rule | None:
        """Return the rule by which compiled code decides as this policy does, if there is one.

        It is for jobs with these speedups, on whole servers or not.
        """
        return None

    def bind(self, facts: WorkloadFacts) -> Self:
        """Return the policy ready to serve these jobs; raise an InputError if it cannot.

        A policy whose parameters depend on the jobs fills in those that are not set. A policy that
        caches results returns a copy, because several runs may share the original.
        """
        return self
