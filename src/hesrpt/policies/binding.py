"""Binding a policy to the jobs that it will serve: the one step between choosing and using it.

Some policies have parameters that depend on the jobs, such as heSRPT's p. Binding fills in those
that the user did not set, and refuses jobs that the policy cannot serve. The simulator binds once
for a workload; the live scheduler binds before each decision, since its jobs come and go.
"""

from __future__ import annotations

from dataclasses import dataclass, is_dataclass, replace
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.policy import Policy
from hesrpt.policies.registry import POLICIES, PolicyLike, get_policy, list_malleable_policies
from hesrpt.policies.rigid import RigidDiscipline
from hesrpt.speedups import SpeedupVector

if TYPE_CHECKING:
    from hesrpt.workload import Workload

AnyPolicy = TypeVar("AnyPolicy", Policy, RigidDiscipline)


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadFacts:
    """What a policy may learn about the jobs and the system before it decides."""

    sizes: FloatArray
    speedups: SpeedupVector
    servers: float
    whole: bool = False  # whether jobs get only whole servers
    requested: FloatArray | None = None  # the servers that each job asks for
    names: tuple[str, ...] = ()
    #: The p of a power law that is close to all speedups, for jobs that do not share one. Without
    #: it, a policy that needs a power law refuses such jobs.
    approximate_p: float | None = None


def describe_workload(
    workload: Workload, servers: float, whole: bool = False, approximate_p: float | None = None
) -> WorkloadFacts:
    """Return the facts about a workload."""
    return WorkloadFacts(
        sizes=workload.sizes,
        speedups=workload.speedups,
        servers=servers,
        whole=whole,
        requested=workload.requested,
        names=workload.names,
        approximate_p=approximate_p,
    )


def bind_policy(policy: AnyPolicy, facts: WorkloadFacts) -> AnyPolicy:
    """Return the policy ready to serve these jobs; raise an InputError if it cannot.

    >>> from hesrpt import PowerLaw, Workload
    >>> from hesrpt.policies import HeSrpt
    >>> workload = Workload([9, 4, 1], PowerLaw(0.5))
    >>> bind_policy(HeSrpt(), describe_workload(workload, servers=10))
    HeSrpt(p=0.5, objective='flow')
    """
    return policy.bind(facts)


class PolicyBinder:
    """Binds one policy repeatedly, as the jobs that it serves change."""

    def __init__(self, policy: Policy) -> None:
        self.policy = self._bound = policy

    def bind(self, facts: WorkloadFacts) -> Policy:
        """Return the policy bound to these jobs.

        While the parameters stay the same, this is the same object, so its cached results are kept.
        """
        bound = bind_policy(self.policy, facts)
        if bound is not self._bound and bound != self._bound:
            self._bound = bound
        return self._bound


def get_malleable_policy(policy: PolicyLike) -> Policy:
    """Return a policy that shares servers between running jobs; refuse rigid disciplines."""
    is_unknown = isinstance(policy, str) and policy not in POLICIES
    found = get_policy(policy, list_malleable_policies() if is_unknown else ())
    if isinstance(found, RigidDiscipline):
        raise InputError(
            f"policy {found.name} cannot share servers between running jobs: it gives each job the "
            "servers it requests, from start to end. Choose one of: "
            f"{', '.join(list_malleable_policies())}"
        )
    return found


def respect_weights(policy: Policy, weights: FloatArray) -> Policy:
    """Return the policy that counts weights, if those of the jobs differ.

    That is the same policy with the objective "weighted" instead of "flow". Policies without an
    objective ignore weights.

    >>> import numpy as np
    >>> from hesrpt.policies import Equi, HeSrpt
    >>> respect_weights(HeSrpt(0.5), np.array([1.0, 10.0]))
    HeSrpt(p=0.5, objective='weighted')
    >>> respect_weights(HeSrpt(0.5), np.array([2.0, 2.0]))
    HeSrpt(p=0.5, objective='flow')
    >>> respect_weights(Equi(), np.array([1.0, 10.0]))
    Equi()
    """
    counts_jobs = is_dataclass(policy) and getattr(policy, "objective", None) == "flow"
    if not counts_jobs or len(weights) == 0 or np.all(weights == weights[0]):
        return policy
    return replace(policy, objective="weighted")  # type: ignore[type-var]


def approximate_exponent(speedups: SpeedupVector, sizes: FloatArray) -> float:
    """Return one p for jobs whose speedups differ: the mean, weighted by the work of each job.

    >>> import numpy as np
    >>> from hesrpt import PowerLaw
    >>> speedups = SpeedupVector.create([PowerLaw(0.5), PowerLaw(0.8)])
    >>> round(approximate_exponent(speedups, np.array([2.0, 1.0])), 6)
    0.6
    """
    mean = float(speedups.closest_exponents() @ sizes / sizes.sum())
    return min(max(mean, 0.01), 0.99)
