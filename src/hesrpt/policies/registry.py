"""The names of the policies, how figures and tables show them, and binding them to jobs.

To add a policy, write a file with its class and add one line to :data:`POLICIES`. The command line,
the figures, the documentation and the contract tests read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeAlias

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.policy import Policy, State, WorkloadFacts
from hesrpt.policies.rigid import RigidDiscipline
from hesrpt.speedups import SpeedupVector

if TYPE_CHECKING:
    from hesrpt.workload import Workload

PolicyLike: TypeAlias = str | Policy | RigidDiscipline | Callable[[State], FloatArray]


@dataclass(frozen=True)
class PolicyEntry:
    """A registered policy: where its class is, and how to show it in figures and tables."""

    location: str  # the module in this package and the class, such as "equi:Equi"
    title: str  # for people, as the literature writes it
    colour: str  # one for each policy, the same in all figures
    marker: str
    line: str = "-"  # lines that coincide stay visible if one of them is dashed
    parameters: Mapping[str, Any] = field(default_factory=dict)

    def create(self) -> Policy | RigidDiscipline:
        """Return a new policy.

        >>> POLICIES["equi"].create()
        Equi()
        """
        module, class_name = self.location.split(":")
        policy_class = getattr(import_module(f"hesrpt.policies.{module}"), class_name)
        policy: Policy | RigidDiscipline = policy_class(**self.parameters)
        return policy


_FOR_SLOWDOWN = {"objective": "slowdown"}
_WITH_WEIGHTS = {"objective": "weighted"}

# The first colours are those of Okabe and Ito, which colour-blind readers can tell apart.
POLICIES: dict[str, PolicyEntry] = {
    "hesrpt": PolicyEntry("hesrpt:HeSrpt", "heSRPT", "#0072B2", "o"),
    "hesrpt-slowdown": PolicyEntry(
        "hesrpt:HeSrpt", "heSRPT for slowdown", "#56B4E9", "d", parameters=_FOR_SLOWDOWN
    ),
    "hesrpt-weighted": PolicyEntry(
        "hesrpt:HeSrpt", "heSRPT with weights", "#332288", "D", parameters=_WITH_WEIGHTS
    ),
    "adaptive": PolicyEntry("adaptive:Adaptive", "adaptive", "#C1003F", ">"),
    "optimal": PolicyEntry("optimal:Optimal", "optimal for a batch", "#000000", "*", "--"),
    "equi": PolicyEntry("equi:Equi", "EQUI", "#E69F00", "^"),
    "srpt": PolicyEntry("srpt:Srpt", "SRPT", "#009E73", "s"),
    "hell": PolicyEntry("hell:Hell", "HELL", "#D55E00", "x", "--"),
    "knee": PolicyEntry("knee:Knee", "KNEE", "#CC79A7", "v"),
    "helrpt": PolicyEntry("helrpt:HeLrpt", "heLRPT", "#882255", "P"),
    "fifo": PolicyEntry("fifo:Fifo", "FIFO", "#999999", "<"),
    "fcfs": PolicyEntry("rigid:Fcfs", "FCFS (rigid)", "#8C6BB1", "h"),
    "easy": PolicyEntry("rigid:Easy", "EASY (rigid)", "#8C2D04", "p"),
    "moldable": PolicyEntry("rigid:Moldable", "moldable", "#006D2C", "1"),
}


class _CallablePolicy(Policy):
    """A user's function as a policy."""

    def __init__(self, function: Callable[[State], FloatArray]) -> None:
        self.function = function
        self.review_every = getattr(function, "review_every", None)

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, state: State) -> FloatArray:
        return self.function(state)


def get_title(policy: str) -> str:
    """Return the title of a policy in figures and tables; an unregistered policy keeps its name.

    >>> get_title("hesrpt"), get_title("my own policy")
    ('heSRPT', 'my own policy')
    """
    return POLICIES[policy].title if policy in POLICIES else policy


def list_malleable_policies() -> list[str]:
    """Return the names of the policies that resize running jobs: all but the rigid disciplines."""
    return [
        name for name, entry in POLICIES.items() if not isinstance(entry.create(), RigidDiscipline)
    ]


def get_policy(policy: PolicyLike, choices: Iterable[str] = POLICIES) -> Policy | RigidDiscipline:
    """Return the policy of this name; wrap a callable that is not a policy yet.

    If there is no such policy, the error lists ``choices``.

    >>> get_policy("equi")
    Equi()
    """
    if isinstance(policy, Policy | RigidDiscipline):
        return policy
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise InputError(f"no policy named {policy!r}; choose one of: {', '.join(choices)}")
        return POLICIES[policy].create()
    if isinstance(policy, type):
        raise InputError(f"a policy must be an instance: {policy.__name__}(), not the class")
    if callable(policy):
        return _CallablePolicy(policy)
    raise InputError(f"a policy must be a name or a callable, got {policy!r}")


# --- binding: the one step between choosing a policy and using it ---------------------------------
#
# Some policies have parameters that depend on the jobs, such as heSRPT's p. Binding fills in those
# that the user did not set, and refuses jobs that the policy cannot serve. The simulator binds once
# for a workload; the live scheduler binds before each decision, since its jobs come and go.


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


class PolicyBinder:
    """Binds one policy repeatedly, as the jobs that it serves change."""

    def __init__(self, policy: Policy) -> None:
        self.policy = self._bound = policy

    def bind(self, facts: WorkloadFacts) -> Policy:
        """Return the policy bound to these jobs.

        While the parameters stay the same, this is the same object, so its cached results are kept.
        """
        bound = self.policy.bind(facts)
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


def respect_weights(policy: Policy) -> Policy:
    """Return the policy with the objective "weighted" instead of "flow".

    Policies without an objective ignore weights.

    >>> from hesrpt.policies import Equi, HeSrpt
    >>> respect_weights(HeSrpt(0.5)), respect_weights(Equi())
    (HeSrpt(p=0.5, objective='weighted'), Equi())
    """
    if not is_dataclass(policy) or getattr(policy, "objective", None) != "flow":
        return policy
    return replace(policy, objective="weighted")


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
