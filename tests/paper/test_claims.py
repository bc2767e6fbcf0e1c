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
        (claims.judge_always(0, 1000), HOLDS),
        (claims.judge_always(10, 1000), ROUGHLY),
        (claims.judge_always(11, 1000), DIFFERS),
        (claims.judge_printed(63.54, 63.5, 1), HOLDS),
        (claims.judge_printed(64.0, 63.5, 1), ROUGHLY),
        (claims.judge_printed(71.07, 63.5, 1), DIFFERS),
        (claims.judge_about(1.9, 2.0), HOLDS),
        (claims.judge_about(1.6, 2.0), ROUGHLY),
        (claims.judge_about(1.4, 2.0), DIFFERS),
        (claims.judge_excess(1.56, 1.5), HOLDS),
        (claims.judge_excess(1.7, 1.5), ROUGHLY),
        (claims.judge_excess(1.0, 1.3), DIFFERS),
        (claims.judge_magnitude(30.0, 10.0), HOLDS),
        (claims.judge_magnitude(50.0, 10.0), ROUGHLY),
        (claims.judge_magnitude(103.0, 10.0), DIFFERS),
        (claims.judge_close(1.04), HOLDS),
        (claims.judge_close(1.09), ROUGHLY),
        (claims.judge_close(1.2), DIFFERS),
        (claims.judge_at_least(0.35, 0.3), HOLDS),
        (claims.judge_at_least(0.28, 0.3), ROUGHLY),
        (claims.judge_at_least(0.2, 0.3), DIFFERS),
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
    assert claims.summarise_exceptions(0, 0, "nothing").verdict is DIFFERS
