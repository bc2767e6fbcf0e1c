"""Rules: how compiled code can decide as a policy does.

The simulator runs a policy compiled if it states its rule. The policy itself stays the reference:
tests compare the two, decision by decision.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from hesrpt.objectives import FlowObjective
from hesrpt.policies.policy import Policy
from hesrpt.policies.sharing import Leftover
from hesrpt.speedups import SpeedupVector


class RuleKind(Enum):
    """What decides how many servers a job gets."""

    EQUAL = auto()  # nothing: shares are equal
    FIRST_COME = auto()  # the first to arrive gets all it can use, the next one the rest
    SMALLEST_FIRST = auto()  # the same for the smallest
    CLOSED_FORM = auto()  # heSRPT's shares, by weight and rank
    PRICE = auto()  # the adaptive policy's price of a server
    VALUE = auto()  # the planner's value of the job's work
    KNEE = auto()  # the time that one more server saves


@dataclass(frozen=True)
class Rule:
    """What a policy decides by, with its parameters."""

    kind: RuleKind
    objective: FlowObjective = "flow"
    exponent: float | None = None  # the p of the closed form; None before binding
    focus: float | None = 1.0  # of the closed form or the price; None if it is calibrated
    alpha: float = 1.0  # of KNEE …
    leftover: Leftover = "idle"  # … and what it does with servers beyond all knees


def find_rule(policy: Policy, speedups: SpeedupVector, whole: bool) -> Rule | None:
    """Return the rule of a policy for jobs with these speedups, or None if it has none.

    A subclass that decides differently than the class that states the rule has none.
    """
    if policy.review_every is not None:
        return None
    defines_call = next(each for each in type(policy).__mro__ if "__call__" in vars(each))
    defines_rule = next(each for each in type(policy).__mro__ if "state_rule" in vars(each))
    return policy.state_rule(speedups, whole) if issubclass(defines_rule, defines_call) else None
