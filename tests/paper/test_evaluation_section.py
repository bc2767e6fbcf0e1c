"""Verdicts on the sentences of the evaluation follow from the table of flow times."""

from __future__ import annotations

import numpy as np

from hesrpt.paper.claims import Verdict
from hesrpt.paper.exhibits import POWERS
from hesrpt.paper.figures import FlowTimeTable, System, judge_comparison

HOLDS, ROUGHLY, DIFFERS = Verdict.HOLDS, Verdict.ROUGHLY, Verdict.DIFFERS


def create_table(**ratios: tuple[float, ...]) -> FlowTimeTable:
    """Return a table of one set with these ratios to heSRPT."""
    by_policy = {"hesrpt": (1.0,) * len(POWERS), **ratios}
    return FlowTimeTable(
        System(1_000_000, False, range(1)),
        times={
            p: {policy: np.array([values[place]]) for policy, values in by_policy.items()}
            for place, p in enumerate(POWERS)
        },
        alphas={p: np.ones(1) for p in POWERS},
    )


def judge_sentences(table: FlowTimeTable) -> dict[str, Verdict]:
    return {claim.name: claim.verdict for claim in judge_comparison(table)}


def test_sentences_hold_on_the_numbers_that_the_paper_states() -> None:
    verdicts = judge_sentences(
        create_table(
            srpt=(10, 9, 8, 1.5, 1.02),
            equi=(1.01, 1.04, 1.4, 1.5, 1.95),
            hell=(1.5, 9, 8, 1.5, 1.02),
            knee=(1.005, 1.31, 1.3, 1.1, 1.001),
        )
    )
    assert verdicts.pop("knee_best") is ROUGHLY
    assert verdicts.pop("at_least_thirty_percent") is ROUGHLY
    assert set(verdicts.values()) == {HOLDS}


def test_sentences_differ_on_other_numbers() -> None:
    verdicts = judge_sentences(
        create_table(
            srpt=(100, 9, 8, 1.5, 1.2),
            equi=(1.2, 0.9, 1.1, 1.1, 1.1),
            hell=(5, 1, 1, 1.2, 1),
            knee=(1.1, 2.0, 2.1, 2.0, 1.2),
        )
    )
    assert set(verdicts.values()) == {DIFFERS}
