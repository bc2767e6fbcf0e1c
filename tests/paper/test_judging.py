"""Verdicts follow from numbers by the rules."""

from __future__ import annotations

import pytest

from hesrpt.paper import judging
from hesrpt.paper.judging import Verdict

HOLDS, ROUGHLY, DIFFERS = Verdict.HOLDS, Verdict.ROUGHLY, Verdict.DIFFERS


@pytest.mark.parametrize(
    ("verdict", "expected"),
    [
        (judging.judge_exact(1e-9, 1e-6), HOLDS),
        (judging.judge_exact(1e-3, 1e-6), ROUGHLY),
        (judging.judge_exact(0.02, 1e-6), DIFFERS),
        (judging.judge_exact(float("nan"), 1e-6), DIFFERS),
        (judging.judge_always(0, 1000), HOLDS),
        (judging.judge_always(10, 1000), ROUGHLY),
        (judging.judge_always(11, 1000), DIFFERS),
        (judging.judge_printed(63.54, 63.5, 1), HOLDS),
        (judging.judge_printed(64.0, 63.5, 1), ROUGHLY),
        (judging.judge_printed(71.07, 63.5, 1), DIFFERS),
        (judging.judge_about(1.9, 2.0), HOLDS),
        (judging.judge_about(1.6, 2.0), ROUGHLY),
        (judging.judge_about(1.4, 2.0), DIFFERS),
        (judging.judge_excess(1.56, 1.5), HOLDS),
        (judging.judge_excess(1.7, 1.5), ROUGHLY),
        (judging.judge_excess(1.0, 1.3), DIFFERS),
        (judging.judge_magnitude(30.0, 10.0), HOLDS),
        (judging.judge_magnitude(50.0, 10.0), ROUGHLY),
        (judging.judge_magnitude(103.0, 10.0), DIFFERS),
        (judging.judge_close(1.04), HOLDS),
        (judging.judge_close(1.09), ROUGHLY),
        (judging.judge_close(1.2), DIFFERS),
        (judging.judge_at_least(0.35, 0.3), HOLDS),
        (judging.judge_at_least(0.28, 0.3), ROUGHLY),
        (judging.judge_at_least(0.2, 0.3), DIFFERS),
        (judging.judge_which(True, True), HOLDS),
        (judging.judge_which(False, True), ROUGHLY),
        (judging.judge_which(False, False), DIFFERS),
    ],
)
def test_verdicts_follow_from_numbers(verdict: Verdict, expected: Verdict) -> None:
    assert verdict is expected


def test_deviations_are_printed_as_powers_of_ten() -> None:
    assert judging.format_deviation(3e-10) == "below 1e-9"
    assert judging.format_deviation(0.0) == "below 1e-13"
    assert judging.format_deviation(0.3) == "0.3"
    assert judging.format_deviation(float("inf")) == "inf"


def test_claim_without_cases_does_not_hold() -> None:
    assert judging.find_equality([], 1.0, "nothing").verdict is DIFFERS
    assert judging.find_exceptions(0, 0, "nothing").verdict is DIFFERS
