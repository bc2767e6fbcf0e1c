"""Application models of ElastiSim: how long a job takes whose tasks only wait.

A model has phases of tasks. Their delays and iterations are numbers or formulas of the arguments of
a job and its number of nodes. How long tasks take that compute or communicate depends on the
simulated machine.
"""

from __future__ import annotations

import ast
import json
import math
import operator
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from hesrpt.traces.json_jobs import get_number

_WAITING = ("busy_wait", "idle")
_SHARED = ("total", "all_ranks")  # the delay is divided among the nodes
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


def compute_duration(model: Any, values: Mapping[str, Any]) -> float:
    """Return the seconds that a model takes, or NaN if they depend on the simulated machine.

    >>> phase = {"iterations": "steps", "tasks": [{"type": "idle", "delay": "x / num_nodes^0.5"}]}
    >>> compute_duration({"phases": [phase]}, {"steps": 10, "x": 6, "num_nodes": 4})
    30.0
    """
    phases = model.get("phases") if isinstance(model, dict) else None
    if not isinstance(phases, list):
        return math.nan
    first = [] if model.get("on_init") is None else [model["on_init"]]
    return math.fsum(_compute_group(phase, values, 0) for phase in (*first, *phases))


def _compute_group(group: Any, values: Mapping[str, Any], depth: int) -> float:
    """Return the seconds that a phase or a sequence of tasks takes."""
    tasks = group.get("tasks") if isinstance(group, dict) else None
    if not isinstance(tasks, list) or depth > _MAX_DEPTH:
        return math.nan
    once = math.fsum(_compute_task(task, values, depth) for task in tasks)
    return once * evaluate(group.get("iterations", 1), values)


def _compute_task(task: Any, values: Mapping[str, Any], depth: int) -> float:
    kind = str(task.get("type")).lower() if isinstance(task, dict) else ""
    if kind == "sequence":
        return _compute_group(task, values, depth + 1)
    if kind not in _WAITING:
        return math.nan
    delay, pattern = task.get("delay"), str(task.get("pattern")).lower()
    if isinstance(delay, list):  # one for each node
        seconds = max((evaluate(value, values) for value in delay), default=math.nan)
    else:
        seconds = evaluate(delay, values)
    nodes = get_number(values.get("num_nodes")) if pattern in _SHARED else 1.0
    repeated = seconds * evaluate(task.get("iterations", 1), values)
    return repeated / nodes if nodes else math.nan


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
