"""Claims of the paper, what we computed for each, and the rules that turn numbers into verdicts.

No verdict is written by hand: each follows from numbers by one of the rules below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial, wraps
from itertools import chain
from math import floor, inf, log10
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.paper.reference_optimiser import Case, generate_cases

P = ParamSpec("P")
Found = TypeVar("Found")
Check: TypeAlias = Callable[[int], "Claim"]  # called with a seed


class Verdict(StrEnum):
    """How a claim compares with our numbers."""

    HOLDS = "holds"
    ROUGHLY = "holds roughly"
    DIFFERS = "differs"


_PLURALS = {Verdict.HOLDS: "hold", Verdict.ROUGHLY: "hold roughly", Verdict.DIFFERS: "differ"}

#: The rules in words.
RULES = {
    "exact": "two computations must agree. The largest deviation over all cases counts (relative, "
    "or for shares as a fraction of the system). It holds up to the tolerance in claims.json, at "
    "most 0.001, and roughly up to 0.01",
    "always": "a statement about all cases. It holds if there is no exception, and roughly if at "
    "most one case in a hundred is an exception",
    "printed": "a printed number. It holds within half a unit of the last printed digit, and "
    "roughly within 10%",
    "about": "an approximate number. It holds within 10%, and roughly within 25%",
    "excess": "a policy is worse by a percentage. It holds if our percentage differs from the "
    "stated one by at most a fifth of it, and roughly if it differs by at most half of it",
    "magnitude": "an order of magnitude. It holds within a factor of 3.2, and roughly within 5.6",
    "close": "'close to optimal' or 'nearly optimal'. It holds if the mean flow time is at most 5% "
    "above the optimum, and roughly if it is at most 10% above",
    "at least": "a lower bound. It holds if our number reaches the bound, and roughly if it "
    "reaches 90% of the bound",
    "which": "a statement that names one of several, or counts them. The row says when it holds "
    "and when it holds roughly",
}


class Judgement(NamedTuple):
    """A verdict, and the rule that it follows from."""

    rule: str
    verdict: Verdict


@dataclass(frozen=True)
class Claim:
    """What we computed for a statement of the paper, and the verdict that follows from it."""

    computed: str
    judgement: Judgement
    values: Mapping[str, float]
    possible_reason: str = ""  # the likeliest reason for a difference
    # The statement, from the decorator of the check.
    name: str = ""
    where: str = ""
    says: str = ""

    @property
    def verdict(self) -> Verdict:
        """How the claim compares with our numbers."""
        return self.judgement.verdict

    @property
    def rule(self) -> str:
        """The rule that the verdict follows from, one of :data:`RULES`."""
        return self.judgement.rule

    @property
    def reason(self) -> str:
        """The likeliest reason why the claim does not hold; empty if it holds."""
        return "" if self.verdict is Verdict.HOLDS else self.possible_reason

    def as_json(self) -> dict[str, Any]:
        """Return the claim as JSON values."""
        shown = ("name", "where", "says", "computed", "verdict", "rule", "values", "reason")
        return {name: getattr(self, name) for name in shown}


def claim_of(where: str) -> Callable[[Callable[P, Claim]], Callable[P, Claim]]:
    """Decorate a function that checks a statement of the paper, to add the statement to its claim.

    ``where`` is the statement's place in the paper. The statement itself is the docstring of the
    function, and the claim's name is that of the function without ``check_``.
    """

    def decorate(check: Callable[P, Claim]) -> Callable[P, Claim]:
        name = check.__name__.removeprefix("check_")
        says = " ".join((check.__doc__ or "").split())

        @wraps(check)
        def check_claim(*args: P.args, **options: P.kwargs) -> Claim:
            return replace(check(*args, **options), name=name, where=where, says=says)

        return check_claim

    return decorate


def agrees(
    where: str, what: str, max_jobs: int = 4, cases: int = 25, tolerance: float = 1e-5
) -> Callable[[Callable[[Case], Iterator[float]]], Check]:
    """Decorate a function that yields deviations in a random case, so that it tries many cases.

    The defaults suit checks that run the optimiser: near a flat optimum, shares and lengths of
    phases are less certain than the cost.
    """

    def summarise(found: Iterable[Iterator[float]]) -> Claim:
        return summarise_deviations(chain.from_iterable(found), tolerance, what)

    return _try_cases(where, cases, max_jobs, summarise)


def holds_always(
    where: str, what: str, max_jobs: int, cases: int = 1000
) -> Callable[[Callable[[Case], bool | None]], Check]:
    """Decorate a function that says whether a random case is as stated; None if it cannot tell."""
    return _try_cases(where, cases, max_jobs, partial(summarise_exceptions, what=what))


#: For formulas, which take little time and have only rounding errors.
formula_agrees = partial(agrees, cases=1000, tolerance=1e-9)


def _try_cases(
    where: str, cases: int, max_jobs: int, summarise: Callable[[Iterable[Found]], Claim]
) -> Callable[[Callable[[Case], Found]], Check]:
    def decorate(check: Callable[[Case], Found]) -> Check:
        @claim_of(where)
        @wraps(check)
        def try_cases(seed: int) -> Claim:
            return summarise(check(case) for case in generate_cases(seed, cases, max_jobs))

        return try_cases

    return decorate


def list_checks(module: Mapping[str, Any]) -> list[Callable[..., Claim]]:
    """Return the checks among the names of a module, in the order of their definitions."""
    return [check for name, check in module.items() if name.startswith("check_")]


def get_deviation(ours: FloatArray | float, theirs: FloatArray | float) -> float:
    """Return the largest relative deviation between two arrays."""
    return float(np.max(np.abs(np.asarray(ours) / np.asarray(theirs) - 1)))


def summarise_deviations(found: Iterable[float], tolerance: float, what: str) -> Claim:
    """Return the claim about quantities that must be equal. Without cases, it is DIFFERS."""
    deviations = list(found)
    largest = max(deviations, default=float("nan"))
    return Claim(
        computed=f"{what}: {len(deviations):,} cases, deviations {format_deviation(largest)}",
        judgement=judge_exact(largest, tolerance),
        values={"deviation": largest, "tolerance": tolerance, "compared": len(deviations)},
    )


def summarise_exceptions(found: Iterable[bool | None], what: str) -> Claim:
    """Return the claim about all cases, by whether each is as stated (None: it cannot tell).

    Without cases, it is DIFFERS.
    """
    clear = [is_as_stated for is_as_stated in found if is_as_stated is not None]
    exceptions, cases = clear.count(False), len(clear)
    return Claim(
        computed=f"{what}: {exceptions} exceptions in {cases:,} cases",
        judgement=_judge("always", exceptions / cases if cases else inf, 0.0, 0.01),
        values={"exceptions": exceptions, "cases": cases},
    )


def count_verdicts(claims: Sequence[Claim]) -> str:
    """Return in words how many claims have each verdict."""
    counts = Counter(claim.verdict for claim in claims)
    return f"{len(claims)} claims: " + ", ".join(
        f"{counts[verdict]} {verdict if counts[verdict] == 1 else plural}"
        for verdict, plural in _PLURALS.items()
    )


def judge_exact(deviation: float, tolerance: float) -> Judgement:
    """Judge a deviation between quantities that must be equal (NaN differs)."""
    return _judge("exact", deviation, tolerance, max(tolerance, 0.01))


def judge_printed(ours: float, theirs: float, digits: int) -> Judgement:
    """Judge a number that is printed with some digits after the point."""
    return _judge("printed", abs(ours - theirs), 0.5 * 10.0**-digits, 0.1 * abs(theirs))


def judge_which(strictly: bool, weakly: bool) -> Judgement:
    """Judge a statement that is true as it stands, or in a weaker sense."""
    return _judge("which", 0 if strictly else 1 if weakly else 2, 0, 1)


# How far our number is from theirs, and up to where this holds, and holds roughly.
_COMPARISONS: dict[str, tuple[Callable[[float, float], float], float, float]] = {
    "about": (lambda ours, theirs: abs(ours / theirs - 1), 0.1, 0.25),
    "excess": (lambda ours, theirs: abs((ours - 1) / (theirs - 1) - 1), 0.2, 0.5),
    "magnitude": (lambda ours, theirs: abs(log10(ours / theirs)), 0.5, 0.75),
    "close": (lambda ours, optimum: ours / optimum - 1, 0.05, 0.10),
    "at least": (lambda ours, bound: 1 - ours / bound, 0.0, 0.1),
}


def judge(rule: str, ours: float, theirs: float = 1.0) -> Judgement:
    """Judge a number next to the paper's by one of the rules that compare two numbers."""
    compare, holds, roughly = _COMPARISONS[rule]
    return _judge(rule, compare(ours, theirs), holds, roughly)


def _judge(rule: str, badness: float, holds: float, roughly: float) -> Judgement:
    """Judge by the limits up to which a statement holds, and holds roughly."""
    if badness <= holds:
        return Judgement(rule, Verdict.HOLDS)
    return Judgement(rule, Verdict.ROUGHLY if badness <= roughly else Verdict.DIFFERS)


def format_deviation(deviation: float) -> str:
    """Return a power of ten that a deviation is below: its digits are noise."""
    digits = floor(-log10(max(deviation, 1e-13))) if deviation < 1 else 0
    return f"below 1e-{digits}" if digits else f"{deviation:.3g}"
