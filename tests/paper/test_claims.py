"""Verdicts follow from numbers by the rules."""

from __future__ import annotations

import pytest

from hesrpt.paper import claims
from hesrpt.paper.claims import Verdict

HOLDS, ROUGHLY, DIFFERS = Verdict.HOLDS, Verdict.ROUGHLY, Verdict.DIFFERS


@pytest.mark.parametrize(
    ("judgement", "expected"),
    [
        (claims.judge_exact(1e-9, 1e-6), HOLDS),
        (claims.judge_exact(1e-3, 1e-6), ROUGHLY),
        (claims.judge_exact(0.02, 1e-6), DIFFERS),
        (claims.judge_exact(float("nan"), 1e-6), DIFFERS),
        (claims.summarise_exceptions([True] * 1000, "").judgement, HOLDS),
        (claims.summarise_exceptions([False] * 10 + [True] * 990, "").judgement, ROUGHLY),
        (claims.summarise_exceptions([False] * 11 + [True] * 989, "").judgement, DIFFERS),
        (claims.judge_printed(63.54, 63.5, 1), HOLDS),
        (claims.judge_printed(64.0, 63.5, 1), ROUGHLY),
        (claims.judge_printed(71.07, 63.5, 1), DIFFERS),
        (claims.judge("about", 1.9, 2.0), HOLDS),
        (claims.judge("about", 1.6, 2.0), ROUGHLY),
        (claims.judge("about", 1.4, 2.0), DIFFERS),
        (claims.judge("excess", 1.56, 1.5), HOLDS),
        (claims.judge("excess", 1.7, 1.5), ROUGHLY),
        (claims.judge("excess", 1.0, 1.3), DIFFERS),
        (claims.judge("magnitude", 30.0, 10.0), HOLDS),
        (claims.judge("magnitude", 50.0, 10.0), ROUGHLY),
        (claims.judge("magnitude", 103.0, 10.0), DIFFERS),
        (claims.judge("close", 1.04), HOLDS),
        (claims.judge("close", 1.09), ROUGHLY),
        (claims.judge("close", 1.2), DIFFERS),
        (claims.judge("at least", 0.35, 0.3), HOLDS),
        (claims.judge("at least", 0.28, 0.3), ROUGHLY),
        (claims.judge("at least", 0.2, 0.3), DIFFERS),
        (claims.judge_which(True, True), HOLDS),
        (claims.judge_which(False, True), ROUGHLY),
        (claims.judge_which(False, False), DIFFERS),
    ],
)
def test_verdicts_follow_from_numbers(judgement: claims.Judgement, expected: Verdict) -> None:
    assert judgement.verdict is expected
    assert judgement.rule in claims.RULES


def test_deviations_are_printed_as_powers_of_ten() -> None:
    assert claims.format_deviation(3e-10) == "below 1e-9"
    assert claims.format_deviation(0.0) == "below 1e-13"
    assert claims.format_deviation(0.3) == "0.3"
    assert claims.format_deviation(float("inf")) == "inf"


def test_claim_without_cases_does_not_hold() -> None:
    assert claims.summarise_deviations([], 1.0, "nothing").verdict is DIFFERS
    assert claims.summarise_exceptions([], "nothing").verdict is DIFFERS
