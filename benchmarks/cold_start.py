"""The first call after an installation, which compiles, and the first call of later processes."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time

from rich.console import Console

from benchmarks.ratios import Ratio, at_most

_CALLS = {
    "one speedup, heSRPT": "simulate(Workload([3, 2, 1], PowerLaw(0.5)), 4, 'hesrpt')",
    "jobs that differ, optimal": (
        "simulate(Workload([3, 2, 1], [PowerLaw(0.5), PowerLaw(0.6), Amdahl(0.9)]), 4, 'optimal')"
    ),
    "plan": "plan(Workload([3, 2, 1], Amdahl(0.9)), 4)",
}


def _measure_process(code: str, cache: str) -> float:
    """Return how long a new Python process takes, with a directory for compiled code."""
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", code], check=True, env={**os.environ, "NUMBA_CACHE_DIR": cache}
    )
    return time.perf_counter() - start


def measure_cold_starts(console: Console) -> list[Ratio]:
    """Show what compilation costs once, and compare later processes with the least use of numba."""
    ratios = []
    with tempfile.TemporaryDirectory() as cache:
        least = "import numba, scipy; numba.njit(lambda n: n + 1)(1)"
        numba = min(_measure_process(least, cache) for _ in range(3))
        for name, call in _CALLS.items():
            code = f"from hesrpt import Amdahl, PowerLaw, Workload, plan, simulate; {call}"
            first = _measure_process(code, cache)
            later = min(_measure_process(code, cache) for _ in range(3))
            console.print(
                f"{name}: {first:.1f} s in the first process after the installation, {later:.1f} s "
                f"in later ones; {numba:.1f} s to import numba and scipy and to add one to a number"
            )
            ratios.append(at_most(f"a later process, {name} / starting numba", later / numba, 4))
    return ratios
