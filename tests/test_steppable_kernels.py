"""Every kernel also runs as plain Python, so that a debugger can step through it."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import numpy as np

from hesrpt import Amdahl, Measured, PowerLaw, Speedup, Workload, lower_bound, plan, simulate
from hesrpt import verify as verify_plan
from hesrpt.policies import Adaptive, PolicyLike

_SIZES, _ARRIVALS = [2.5, 2.0, 1.0], [0.0, 0.1, 0.1]
_OWN = [PowerLaw(0.5), Amdahl(0.9), Measured([1, 2, 4], [1, 1.7, 2.5])]
_SPEEDUPS: dict[str, Speedup | list[Speedup]] = {"one": PowerLaw(0.6), "many": _OWN}
_POLICIES: list[PolicyLike] = ["adaptive", "optimal", "equi", Adaptive(objective="weighted")]


def compute_results() -> dict[str, list[float]]:
    """Return numbers of plans, certificates, bounds and simulations of a few small cases."""
    results = {}
    for name, speedup in _SPEEDUPS.items():
        batch = Workload(_SIZES, speedup)
        stream = Workload(_SIZES, speedup, arrivals=_ARRIVALS, weights=[1, 2, 1])
        for whole in (False, True):
            best = plan(batch, 4, whole=whole)
            proof = best.certificate
            results[f"{name}, {whole}, plan"] = [best.total_flow_time, *proof.job_values.tolist()]
            results[f"{name}, {whole}, proof"] = [proof.lower_bound, 1 + verify_plan(best)]
            for policy in _POLICIES:
                run = simulate(stream, 4, policy, whole=whole, resize_cost=0.01 * whole)
                results[f"{name}, {whole}, {policy}"] = run.completion_times.tolist()
        results[f"{name}, bound"] = [lower_bound(stream, 4).mean]
    knee = simulate(Workload(_SIZES, _OWN), 4, "knee", size_error=0.2)
    results["knee"] = knee.completion_times.tolist()
    rigid = simulate(Workload(_SIZES, PowerLaw(0.6), requested=[1, 2, 3]), 4, "moldable")
    results["moldable"] = rigid.completion_times.tolist()
    return results


def test_kernels_run_without_compilation() -> None:
    program = f"import json, {__name__} as m; print(json.dumps(m.compute_results()))"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    plain, compiled = json.loads(printed), compute_results()
    assert list(plain) == list(compiled)
    for case, numbers in compiled.items():
        np.testing.assert_allclose(plain[case], numbers, rtol=1e-9, err_msg=case)
