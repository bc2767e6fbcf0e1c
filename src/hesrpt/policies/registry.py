"""The names of the policies, and how figures and tables show them.

To add a policy, write a file with its class and add one line to :data:`POLICIES`. The command line,
the figures, the documentation and the contract tests read this table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, TypeAlias

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.policy import Policy, State
from hesrpt.policies.rigid import RigidDiscipline

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
