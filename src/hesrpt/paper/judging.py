"""Claims of the paper, what was computed, and the rules by which the two are judged.

A verdict is never written down: it follows from numbers by one of the rules below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import wraps
from math import log10
from typing import Any, ParamSpec

P = ParamSpec("P")


class Verdict(StrEnum):
    """What became of a claim."""

    HOLDS = "holds"
    ROUGHLY = "holds roughly"
    DIFFERS = "differs"


#: The rules, for the reader.
RULES = {
    "exact": "the greatest deviation over all cases (relative; of shares, as a part of the "
    "system): up to the tolerance in claims.json, at most 0.001, it holds, up to 0.01 roughly, "
    "beyond that it differs",
    "always": "the number of cases that go against it: none, it holds; up to one in a hundred, "
    "roughly; more, it differs",
    "printed": "a number as printed: within half of its last digit it holds, within 10% roughly, "
    "beyond that it differs",
    "about": "a number said to be about right: within 10% of it the claim holds, within 25% "
    "roughly, beyond that it differs",
    "excess": "so many percent worse: if that percentage is within a fifth of the one stated it "
    "holds, within a half of it roughly, beyond that it differs",
    "magnitude": "an order of magnitude: within a factor of 3.2 it holds, within 5.6 roughly, "
    "beyond that it differs",
    "close": "'close to' or 'nearly' optimal: a mean flow time up to 5% above the optimum holds, "
    "up to 10% roughly, beyond that it differs",
    "at least": "a least value: reached, it holds; 90% of it, roughly; less, it differs",
    "which": "a statement about which one or how many: as the row says it holds, in the weaker "
    "sense that the row says, roughly; otherwise it differs",
}


@dataclass(frozen=True)
class Finding:
    """What was computed, and how it was judged."""

    computed: str
    verdict: Verdict
    rule: str
    values: Mapping[str, float]
    why: str = ""  # the likeliest reason, if it does not hold


@dataclass(frozen=True)
class Claim(Finding):
    """One statement of the paper, judged."""

    name: str = ""
    where: str = ""
    says: str = ""

    @property
    def reason(self) -> str:
        """Why it does not simply hold, likeliest; empty if it does."""
        return "" if self.verdict is Verdict.HOLDS else self.why

    def as_json(self) -> dict[str, Any]:
        """Return the claim as JSON values."""
        return {
            "name": self.name,
            "where": self.where,
            "says": self.says,
            "computed": self.computed,
            "verdict": str(self.verdict),
            "rule": self.rule,
            "values": dict(self.values),
            "reason": self.reason,
        }


def states(where: str) -> Callable[[Callable[P, Finding]], Callable[P, Claim]]:
    """Make claims of a function that checks what its docstring says the paper states."""

    def decorate(check: Callable[P, Finding]) -> Callable[P, Claim]:
        says = " ".join((check.__doc__ or "").split())

        @wraps(check)
        def judged(*args: P.args, **options: P.kwargs) -> Claim:
            found = check(*args, **options)
            return Claim(
                found.computed, found.verdict, found.rule, found.values, found.why,
                check.__name__, where, says,
            )  # fmt: skip

        return judged

    return decorate


def equality(deviations: Sequence[float], tolerance: float, what: str) -> Finding:
    """Return what was found about things that must be equal; nothing compared proves nothing."""
    worst = max(deviations, default=float("nan"))
    return Finding(
        f"{what}, {len(deviations):,} compared: deviations {within(worst)}",
        exact(worst, tolerance),
        "exact",
        {"deviation": worst, "tolerance": tolerance, "compared": len(deviations)},
    )


def no_exception(against: int, cases: int, what: str) -> Finding:
    """Return what was found about something that must always be so."""
    return Finding(
        f"{what}: {against} of {cases:,} go against it",
        always(against, cases) if cases else Verdict.DIFFERS,
        "always",
        {"against": against, "cases": cases},
    )


def summary(claims: Sequence[Claim]) -> str:
    """Return how many claims got which verdict."""
    count = Counter(claim.verdict for claim in claims)
    return f"{len(claims)} claims: " + ", ".join(
        f"{count[verdict]} {verdict if count[verdict] == 1 else plural}"
        for verdict, plural in _PLURAL.items()
    )


_PLURAL = {Verdict.HOLDS: "hold", Verdict.ROUGHLY: "hold roughly", Verdict.DIFFERS: "differ"}


def exact(deviation: float, tolerance: float) -> Verdict:
    """Judge a deviation from what must be equal (NaN differs)."""
    return _judge(deviation, tolerance, max(tolerance, 0.01))


def always(against: int, cases: int) -> Verdict:
    """Judge how many cases go against a claim."""
    return _judge(against / cases, 0.0, 0.01)


def printed(ours: float, theirs: float, digits: int) -> Verdict:
    """Judge a number that is printed with so many digits after the point."""
    return _judge(abs(ours - theirs), 0.5 * 10.0**-digits, 0.1 * abs(theirs))


def about(ours: float, theirs: float) -> Verdict:
    """Judge a number that is said to be about right."""
    return _judge(abs(ours / theirs - 1), 0.1, 0.25)


def excess(ours: float, theirs: float) -> Verdict:
    """Judge how much above 1 a ratio is."""
    return _judge(abs((ours - 1) / (theirs - 1) - 1), 0.2, 0.5)


def magnitude(ours: float, theirs: float) -> Verdict:
    """Judge an order of magnitude."""
    return _judge(abs(log10(ours / theirs)), 0.5, 0.75)


def close(ratio: float) -> Verdict:
    """Judge a ratio to the optimum that is said to be close to 1."""
    return _judge(ratio - 1, 0.05, 0.10)


def at_least(ours: float, theirs: float) -> Verdict:
    """Judge a least value."""
    return _judge(-ours, -theirs, -0.9 * theirs)


def which(strictly: bool, weakly: bool) -> Verdict:
    """Judge a statement that is true as it stands, or in a weaker sense."""
    return Verdict.HOLDS if strictly else Verdict.ROUGHLY if weakly else Verdict.DIFFERS


def _judge(badness: float, holds: float, roughly: float) -> Verdict:
    if badness <= holds:
        return Verdict.HOLDS
    return Verdict.ROUGHLY if badness <= roughly else Verdict.DIFFERS


def within(deviation: float) -> str:
    """Return a deviation as the power of ten that it is below: its digits are noise."""
    if not deviation < 1:
        return f"{deviation:.3g}"
    steps = next((n for n in range(1, 14) if deviation > 10.0**-n), 14)
    return f"below 1e-{steps - 1}" if steps > 1 else f"{deviation:.2g}"
