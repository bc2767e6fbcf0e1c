"""The policies, one small file each, and the names they are known by.

To add one: a file with a class that derives from :class:`Policy` or :class:`ByRank`, and a line
here. The tests of all policies then run on it too.
"""

from __future__ import annotations

from collections.abc import Callable
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
from hesrpt.policies.policy import ByRank, Policy, State, looked_up, rounded_fairly
from hesrpt.policies.rigid import Easy, Fcfs, Rigid
from hesrpt.policies.srpt import Srpt

__all__ = [
    "NAMES",
    "RIGID",
    "ByRank",
    "Easy",
    "Equi",
    "Fcfs",
    "Fifo",
    "HeLrpt",
    "HeSrpt",
    "Hell",
    "Knee",
    "Optimal",
    "Policy",
    "PolicyLike",
    "Rigid",
    "Srpt",
    "State",
    "looked_up",
    "named",
    "rounded_fairly",
]

PolicyLike: TypeAlias = str | Policy | Callable[[State], FloatArray]

NAMES: dict[str, Callable[[], Policy]] = {
    "hesrpt": HeSrpt,
    "hesrpt-slowdown": lambda: HeSrpt(objective="slowdown"),
    "hesrpt-weighted": lambda: HeSrpt(objective="weighted"),
    "helrpt": HeLrpt,
    "srpt": Srpt,
    "equi": Equi,
    "fifo": Fifo,
    "hell": Hell,
    "knee": Knee,
    "optimal": Optimal,
}
#: Those that cannot share servers; they need to know how many each job asks for.
RIGID: dict[str, Callable[[], Policy]] = {"fcfs": Fcfs, "easy": Easy}


class _Plain(Policy):
    """A callable of the user's as a policy."""

    def __init__(self, function: Callable[[State], FloatArray]) -> None:
        self.function = function
        self.review_every = getattr(function, "review_every", None)

    @property
    def name(self) -> str:
        return str(getattr(self.function, "__name__", type(self.function).__name__))

    def __call__(self, state: State) -> FloatArray:
        return self.function(state)


def named(policy: PolicyLike) -> Policy:
    """Return the policy of a name, a policy as it is, and wrap any other callable."""
    if isinstance(policy, Policy):
        return policy
    if isinstance(policy, str):
        known = NAMES | RIGID
        if policy not in known:
            raise InputError(f"no policy named {policy!r}; there are: {', '.join(known)}")
        return known[policy]()
    if isinstance(policy, type):
        raise InputError(f"a policy is wanted, not its class: {policy.__name__}()")
    if callable(policy):
        return _Plain(policy)
    raise InputError(f"a policy must be a name or a callable, got {policy!r}")
