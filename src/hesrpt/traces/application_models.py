"""Application models of ElastiSim: how long jobs take to wait and to compute.

A model has phases of tasks. Their loads and iterations are numbers or formulas of the arguments of
a job and its number of nodes.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hesrpt.traces.json_jobs import get_number

_WAITING = ("busy_wait", "idle")
_TRANSFERS = ("pfs_read", "pfs_write", "bb_read", "bb_write")
_SHARED = ("total", "all_ranks")  # the load is divided among the nodes
_MAX_BYTES = 10_000_000
_MAX_FORMULA = 200
_MAX_DEPTH = 20  # of sequences in sequences
_OPERATORS: dict[type[ast.AST], Callable[[float, float], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}


def read_model(directory: Path, path: str) -> Any:
    """Return an application model, or None if it cannot be read.

    Workloads are often moved: the file is looked for where the workload says, relative to the
    workload's directory, and in that directory.
    """
    for candidate in (directory / path, directory / Path(path).name):
        try:
            if candidate.is_file() and candidate.stat().st_size <= _MAX_BYTES:
                return json.loads(candidate.read_bytes())
        except (OSError, ValueError, RecursionError):
            continue
    return None


def compute_duration(
    model: Any, values: Mapping[str, Any], speed: float = math.nan
) -> tuple[float, bool]:
    """Return the seconds that a model takes, and whether something was left out.

    Tasks that wait take their delays, and tasks that compute their flops divided by the speed of a
    node. Communication, input and output are left out. The seconds are NaN if nothing remains, or
    if a task needs a speed that is unknown.

    >>> phase = {"iterations": "steps", "tasks": [{"type": "idle", "delay": "x / num_nodes^0.5"}]}
    >>> compute_duration({"phases": [phase]}, {"steps": 10, "x": 6, "num_nodes": 4})
    (30.0, False)
    """
    phases = model.get("phases") if isinstance(model, dict) else None
    if not isinstance(phases, list):
        return math.nan, False
    first = [] if model.get("on_init") is None else [model["on_init"]]
    clock = _Clock(values, speed)
    seconds = math.fsum(clock.measure_group(phase) for phase in (*first, *phases))
    return seconds if seconds > 0 or not clock.has_left_out else math.nan, clock.has_left_out


@dataclass
class _Clock:
    """Measures how long tasks take for one job."""

    values: Mapping[str, Any]  # arguments and the numbers of nodes and GPUs
    speed: float  # flops per second of a node
    has_left_out: bool = False

    def measure_group(self, group: Any, depth: int = 0) -> float:
        """Return the seconds that a phase or a sequence of tasks takes."""
        tasks = group.get("tasks") if isinstance(group, dict) else None
        if not isinstance(tasks, list) or depth > _MAX_DEPTH:
            return math.nan
        once = math.fsum(self._measure_task(task, depth) for task in tasks)
        return once * evaluate(group.get("iterations", 1), self.values)

    def _measure_task(self, task: Any, depth: int) -> float:
        kind = str(task.get("type")).lower() if isinstance(task, dict) else ""
        if kind == "sequence":
            return self.measure_group(task, depth + 1)
        iterations = evaluate(task.get("iterations", 1), self.values) if kind else math.nan
        if kind in _WAITING:
            return iterations * self._share(task, "delay", "pattern")
        if kind == "cpu" or kind in _TRANSFERS:
            self.has_left_out |= task.get("bytes") is not None
            if task.get("flops") is None:
                return 0.0
            return iterations * self._share(task, "flops", "computation_pattern") / self.speed
        return math.nan

    def _share(self, task: Mapping[str, Any], load: str, pattern: str) -> float:
        """Return the load of the node that has most of it."""
        value = task.get(load)
        if isinstance(value, list):  # one for each node
            return max((evaluate(each, self.values) for each in value), default=math.nan)
        is_shared = str(task.get(pattern)).lower() in _SHARED
        nodes = get_number(self.values.get("num_nodes")) if is_shared else 1.0
        return evaluate(value, self.values) / nodes if nodes else math.nan


def evaluate(formula: Any, values: Mapping[str, Any]) -> float:
    """Return the value of a number or of a formula with + - * / ^, or NaN if it has none.

    >>> evaluate("2 * x^2 - 1", {"x": 3}), evaluate("f(x)", {"x": 3})
    (17.0, nan)
    """
    if not isinstance(formula, str):
        return get_number(formula)
    if len(formula) > _MAX_FORMULA:
        return math.nan
    try:
        tree = ast.parse(formula.replace("^", "**").strip(), mode="eval")
        result = _evaluate_node(tree.body, values)
    except (SyntaxError, ValueError, ArithmeticError, RecursionError, MemoryError):
        return math.nan
    return get_number(result)  # a negative number to the power of 0.5 is complex


def _evaluate_node(node: ast.expr, values: Mapping[str, Any]) -> Any:
    if isinstance(node, ast.Constant):
        return get_number(node.value)
    if isinstance(node, ast.Name):
        value = values.get(node.id)
        return float(value) if isinstance(value, str) else get_number(value)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate_node(node.operand, values)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        left, right = _evaluate_node(node.left, values), _evaluate_node(node.right, values)
        return _OPERATORS[type(node.op)](left, right)
    raise ValueError
