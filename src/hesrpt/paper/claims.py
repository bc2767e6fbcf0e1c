"""Claims of the paper, what we computed for each, and the rules that turn numbers into verdicts.

No verdict is written by hand: each follows from numbers by one of the rules below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import wraps
from math import inf, log10
from typing import Any, NamedTuple, ParamSpec, TypeAlias, TypeVar

import numpy as np

from hesrpt.arrays import FloatArray
from hesrpt.paper.reference_optimiser import Case, generate_cases

P = ParamSpec("P")
Found = TypeVar("Found")
CheckOfCase: TypeAlias = Callable[[Case, np.random.Generator], Found]
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
    where: str, cases: int, max_jobs: int, tolerance: float, what: str
) -> Callable[[CheckOfCase[Iterable[float]]], Check]:
    """Decorate a function that yields deviations in a random case, so that it tries many cases."""

    def decorate(check: CheckOfCase[Iterable[float]]) -> Check:
        @claim_of(where)
        @wraps(check)
        def try_cases(seed: int) -> Claim:
            drawn = generate_cases(seed, cases, max_jobs)
            deviations = [deviation for case, rng in drawn for deviation in check(case, rng)]
            return summarise_deviations(deviations, tolerance, what)

        return try_cases

    return decorate


def holds_always(
    where: str, cases: int, max_jobs: int, what: str
) -> Callable[[CheckOfCase[bool | None]], Check]:
    """Decorate a function that says whether a random case is as stated; None if it cannot tell."""

    def decorate(check: CheckOfCase[bool | None]) -> Check:
        @claim_of(where)
        @wraps(check)
        def try_cases(seed: int) -> Claim:
            found = [check(case, rng) for case, rng in generate_cases(seed, cases, max_jobs)]
            clear = [holds for holds in found if holds is not None]
            return summarise_exceptions(clear.count(False), len(clear), what)

        return try_cases

    return decorate


def list_checks(module: Mapping[str, Any]) -> list[Callable[..., Claim]]:
    """Return the checks among the names of a module, in the order of their definitions."""
    return [check for name, check in module.items() if name.startswith("check_")]


def get_deviation(ours: FloatArray | float, theirs: FloatArray | float) -> float:
    """Return the largest relative deviation between two arrays."""
    return float(np.max(np.abs(np.asarray(ours) / np.asarray(theirs) - 1)))


def summarise_deviations(deviations: Sequence[float], tolerance: float, what: str) -> Claim:
    """Return the claim about quantities that must be equal. Without cases, it is DIFFERS."""
    largest = max(deviations, default=float("nan"))
    return Claim(
        computed=f"{what}: {len(deviations):,} cases, deviations {format_deviation(largest)}",
        judgement=judge_exact(largest, tolerance),
        values={"deviation": largest, "tolerance": tolerance, "compared": len(deviations)},
    )


def summarise_exceptions(exceptions: int, cases: int, what: str) -> Claim:
    """Return the claim about a statement on all cases. Without cases, it is DIFFERS."""
    return Claim(
        computed=f"{what}: {exceptions} exceptions in {cases:,} cases",
        judgement=judge_always(exceptions, cases),
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


def judge_always(exceptions: int, cases: int) -> Judgement:
    """Judge the number of exceptions to a statement about all cases (without cases, it differs)."""
    return _judge("always", exceptions / cases if cases else inf, 0.0, 0.01)


def judge_printed(ours: float, theirs: float, digits: int) -> Judgement:
    """Judge a number that is printed with some digits after the point."""
    return _judge("printed", abs(ours - theirs), 0.5 * 10.0**-digits, 0.1 * abs(theirs))


def judge_about(ours: float, theirs: float) -> Judgement:
    """Judge an approximate number."""
    return _judge("about", abs(ours / theirs - 1), 0.1, 0.25)


def judge_excess(ours: float, theirs: float) -> Judgement:
    """Judge by how much a ratio exceeds 1."""
    return _judge("excess", abs((ours - 1) / (theirs - 1) - 1), 0.2, 0.5)


def judge_magnitude(ours: float, theirs: float) -> Judgement:
    """Judge an order of magnitude."""
    return _judge("magnitude", abs(log10(ours / theirs)), 0.5, 0.75)


def judge_close(ratio: float) -> Judgement:
    """Judge a ratio to the optimum that is said to be close to 1."""
    return _judge("close", ratio - 1, 0.05, 0.10)


def judge_at_least(ours: float, theirs: float) -> Judgement:
    """Judge a lower bound."""
    return _judge("at least", -ours, -theirs, -0.9 * theirs)


def judge_which(strictly: bool, weakly: bool) -> Judgement:
    """Judge a statement that is true as it stands, or in a weaker sense."""
    return _judge("which", 0 if strictly else 1 if weakly else 2, 0, 1)


def _judge(rule: str, badness: float, holds: float, roughly: float) -> Judgement:
    """Judge by the limits up to which a statement holds, and holds roughly."""
    if badness <= holds:
        return Judgement(rule, Verdict.HOLDS)
    return Judgement(rule, Verdict.ROUGHLY if badness <= roughly else Verdict.DIFFERS)


def format_deviation(deviation: float) -> str:
    """Return a power of ten that a deviation is below: its digits are noise."""
    if not deviation < 1:
        return f"{deviation:.3g}"
    steps = next((n for n in range(1, 14) if deviation > 10.0**-n), 14)
    return f"below 1e-{steps - 1}" if steps > 1 else f"{deviation:.2g}"
