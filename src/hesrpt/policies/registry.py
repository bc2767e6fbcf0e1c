"""The names of the policies, and how figures and tables show them.

To add a policy, write a file with its class and add one line to :data:`POLICIES`. The command line,
the figures, the documentation and the contract tests read this table.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from hesrpt.arrays import FloatArray
from hesrpt.errors import InputError
from hesrpt.policies.equi import Equi
from hesrpt.policies.fifo import Fifo
from hesrpt.policies.hell import Hell
from hesrpt.policies.helrpt import HeLrpt
from hesrpt.policies.hesrpt import HeSrpt
from hesrpt.policies.knee import Knee
from hesrpt.policies.optimal import Optimal
from hesrpt.policies.policy import Policy, State
from hesrpt.policies.rigid import Easy, Fcfs, RigidDiscipline
from hesrpt.policies.srpt import Srpt

PolicyLike: TypeAlias = str | Policy | RigidDiscipline | Callable[[State], FloatArray]


@dataclass(frozen=True)
class PolicyEntry:
    """A registered policy: how to create it, and how to show it in figures and tables."""

    create: Callable[[], Policy | RigidDiscipline]
    title: str  # for people, as the literature writes it
    colour: str  # one for each policy, the same in all figures
    marker: str
    line: str = "-"  # lines that coincide stay visible if one of them is dashed


# The first colours are those of Okabe and Ito, which colour-blind readers can tell apart.
POLICIES: dict[str, PolicyEntry] = {
    "hesrpt": PolicyEntry(HeSrpt, "heSRPT", "#0072B2", "o"),
    "hesrpt-slowdown": PolicyEntry(
        lambda: HeSrpt(objective="slowdown"), "heSRPT for slowdown", "#56B4E9", "d"
    ),
    "hesrpt-weighted": PolicyEntry(
        lambda: HeSrpt(objective="weighted"), "heSRPT with weights", "#332288", "D"
    ),
    "optimal": PolicyEntry(Optimal, "optimal for a batch", "#000000", "*", "--"),
    "equi": PolicyEntry(Equi, "EQUI", "#E69F00", "^"),
    "srpt": PolicyEntry(Srpt, "SRPT", "#009E73", "s"),
    "hell": PolicyEntry(Hell, "HELL", "#D55E00", "x", "--"),
    "knee": PolicyEntry(Knee, "KNEE", "#CC79A7", "v"),
    "helrpt": PolicyEntry(HeLrpt, "heLRPT", "#882255", "P"),
    "fifo": PolicyEntry(Fifo, "FIFO", "#999999", "<"),
    "fcfs": PolicyEntry(Fcfs, "FCFS (rigid)", "#8C6BB1", "h"),
    "easy": PolicyEntry(Easy, "EASY (rigid)", "#8C2D04", "p"),
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


def get_policy(policy: PolicyLike) -> Policy | RigidDiscipline:
    """Return the policy of this name; wrap a callable that is not a policy yet.

    >>> get_policy("equi")
    Equi()
    """
    if isinstance(policy, Policy | RigidDiscipline):
        return policy
    if isinstance(policy, str):
        if policy not in POLICIES:
            raise InputError(f"no policy named {policy!r}; choose one of: {', '.join(POLICIES)}")
        return POLICIES[policy].create()
    if isinstance(policy, type):
        raise InputError(f"a policy must be an instance: {policy.__name__}(), not the class")
    if callable(policy):
        return _CallablePolicy(policy)
    raise InputError(f"a policy must be a name or a callable, got {policy!r}")
