"""The example that compares the live scheduler with its plan; `make bench` says how close it is."""

from __future__ import annotations

import runpy

import pytest
from support.paths import EXAMPLES


@pytest.mark.slow
def test_no_run_is_faster_than_the_plan() -> None:
    example = runpy.run_path(str(EXAMPLES / "predicted_and_measured.py"))
    items = {"large": 40, "medium": 20, "small": 8}
    setting = example["Setting"](items, seconds=0.1, p=0.7, servers=8)
    assert example["measure"]("hesrpt", setting) > 0.9 * example["predict"]("hesrpt", setting)
