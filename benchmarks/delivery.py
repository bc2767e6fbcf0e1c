"""Real runs compared with what was predicted for them: by plans, by simulations and by replays.

Other programs on the machine delay items, so these figures need a quiet machine.
"""

from __future__ import annotations

import runpy
import time
from pathlib import Path

from rich.console import Console

from benchmarks.ratios import Ratio, at_most
from hesrpt import Pool

_EXAMPLE = Path(__file__).parent.parent / "examples" / "predicted_and_measured.py"
_ATTEMPTS = 3


def compare_with_predictions(console: Console) -> list[Ratio]:
    """Compare mean flow times of items that follow k^p exactly with those predicted."""
    example = runpy.run_path(str(_EXAMPLE))
    items = {"large": 96, "medium": 48, "small": 20}
    setting = example["Setting"](items, seconds=0.1, p=0.7, servers=16)
    ratios = []
    for policy in ("hesrpt", "equi", "fifo"):
        predicted = example["predict"](policy, setting)
        # Noise only adds time.
        measured = min(example["measure"](policy, setting) for _ in range(_ATTEMPTS))
        console.print(f"{policy}: measured {measured:.2f} s, predicted {predicted:.2f} s")
        ratios.append(
            at_most(f"mean flow time, {policy}, measured / predicted", measured / predicted, 1.1)
        )
    return ratios


def compare_replays(console: Console) -> list[Ratio]:
    """Compare replays of a real run with the run, and with what FIFO must have made of it.

    FIFO ends the jobs after 3, 5 and 6 rounds of items; the shortest job first, after 1, 3 and 6.
    """
    errors, others = [], []
    for _ in range(_ATTEMPTS):
        with Pool(4) as pool:
            for name, items in (("large", 12), ("medium", 8), ("small", 4)):
                pool.map(time.sleep, [0.3] * items, name=name, size=0.3 * items)
        comparison = pool.compare_policies()
        means = {
            each.policy: each.mean_flow_time - pool.first_start for each in comparison.simulated
        }
        own = means["adaptive"] / (comparison.mean_flow_time - pool.first_start)
        fifo = means["fifo"] / means["adaptive"] / ((3 + 5 + 6) / (1 + 3 + 6))
        console.print(f"replayed / measured: {own:.3f}; FIFO's replay / expected: {fifo:.3f}")
        errors.append(max(own, 1 / own))
        others.append(max(fifo, 1 / fifo))
    return [
        at_most("mean flow time, replayed / measured, or its inverse", min(errors), 1.2),
        at_most("mean flow time, FIFO replayed / expected, or its inverse", min(others), 1.15),
    ]
