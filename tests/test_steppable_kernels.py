"""Every kernel also runs as plain Python, so that a debugger can step through it."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import FrameType

import numpy as np

import hesrpt
from hesrpt import Amdahl, Measured, PowerLaw, Speedup, Workload, lower_bound, plan, simulate
from hesrpt import verify as verify_plan
from hesrpt.optimal.recursion import compute_job_values
from hesrpt.policies import Adaptive, Optimal, PolicyLike, State
from hesrpt.simulator.simulation import run_simulation
from hesrpt.speedups import SpeedupVector

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
        pair = Workload([2, 1], _OWN[1:] if name == "many" else speedup, arrivals=[0, 0.1])
        results[f"{name}, bound"] = [lower_bound(pair, 4).mean]
    knee = simulate(Workload(_SIZES, _OWN), 4, "knee", size_error=0.2)
    results["knee"] = knee.completion_times.tolist()
    rigid = simulate(Workload(_SIZES, PowerLaw(0.6), requested=[1, 2, 3]), 4, "moldable")
    results["moldable"] = rigid.completion_times.tolist()
    return results | compute_results_of_more_jobs()


def compute_results_of_more_jobs() -> dict[str, list[float]]:
    """Return numbers of cases in which other kernels are called."""
    six, at, weights = [3, 2.6, 2, 1.4, 1, 0.5], np.arange(6) / 10, [1, 3, 1, 2, 0.2, 1]
    narrow = [speedup.limited(1 + i / 2) for i, speedup in enumerate(_OWN * 2)]
    power = PowerLaw(0.6)
    rigid = Workload(six, power, requested=[3, 2, 3, 3, 1, 2])
    counted = run_simulation(Workload(_SIZES, _OWN), 4, "equi", tallying=True)
    results = {
        "easy": simulate(rigid, 4, "easy"),
        "fifo": simulate(Workload(six, _OWN * 2), 4, "fifo"),
        "limited": simulate(Workload(six, narrow), 8, "equi"),
        "srpt": simulate(Workload(six, power, arrivals=at), 4, "srpt", resize_cost=0.01),
        "power laws": plan(Workload(six, power, weights=weights), 4, objective="weighted"),
        "six that differ": plan(Workload(six, _OWN * 2), 4),
        "one Amdahl's law": plan(Workload(np.linspace(3, 1, 70), Amdahl(0.9)), 40),
        "limited Amdahl's law": plan(Workload(np.linspace(3, 1, 40), Amdahl(0.9).limited(2)), 50),
        "tallied": counted,
    }
    found = {name: result.completion_times.tolist() for name, result in results.items()}
    jobs, speedups = np.arange(66), SpeedupVector.create(_OWN * 22)
    sizes, ones = np.linspace(3, 1, 66), np.ones(66)
    found["values"] = compute_job_values(speedups, 40.0, ones).values.tolist()
    corners = SpeedupVector.create(_OWN[2:] * 65 + _OWN[:1])
    for name, each in (("66 that differ", speedups), ("66 with corners", corners)):
        state = State(0.0, 100.0, False, jobs, sizes, sizes, np.zeros(66), ones, each)
        found[name] = Optimal()(state).tolist()
    return found


def find_kernels() -> set[tuple[str, str]]:
    """Return the files and names of all compiled functions."""
    return {
        (str(path), node.name)
        for path in Path(hesrpt.__file__).parent.rglob("*kernel*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
        for decorator in node.decorator_list
        if re.match(r"(compiled|inlined)\b", ast.unparse(decorator))
    }


def compute_and_list_missed() -> tuple[dict[str, list[float]], list[str]]:
    """Return the results, and the names of the kernels that were not called."""
    missed = find_kernels()

    def note(frame: FrameType, event: str, argument: object) -> None:
        missed.discard((frame.f_code.co_filename, frame.f_code.co_name))

    sys.setprofile(note)
    threading.setprofile(note)
    results = compute_results()
    sys.setprofile(None)
    return results, [name for _, name in missed]


def test_kernels_run_without_compilation() -> None:
    program = f"import json, {__name__} as m; print(json.dumps(m.compute_and_list_missed()))"
    path = os.pathsep.join(entry for entry in sys.path if entry)
    printed = subprocess.run(
        [sys.executable, "-c", program],
        env={**os.environ, "NUMBA_DISABLE_JIT": "1", "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    (plain, missed), compiled = json.loads(printed), compute_results()
    assert missed == ["_sort_nearly_sorted"]  # called only after rounding errors
    assert list(plain) == list(compiled)
    for case, numbers in compiled.items():
        np.testing.assert_allclose(plain[case], numbers, rtol=1e-9, err_msg=case)
