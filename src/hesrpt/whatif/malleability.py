"""Which jobs of a trace are malleable: all, a fraction, or those that meet a condition.

Jobs or users are put into a random order, and the first ones are malleable. So a larger fraction
contains the jobs of a smaller one, and both can be compared.

Conditions such as ``servers >= 8 and user in ("ann", "bob")`` have the syntax of Python, but only
numbers, texts, names of columns, arithmetic, comparisons, and, or and not. They are read as a
syntax tree and never run as code.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn

import numpy as np

from hesrpt.arrays import BoolArray, FloatArray
from hesrpt.errors import InputError
from hesrpt.traces import Trace

#: What a fraction can be a fraction of.
COUNTED = ("jobs", "users", "server-hours")
_FRACTION = re.compile(r"(\d+\.?\d*|\.\d+)(%?)(?:\s+of\s+([a-z-]+))?")


@dataclass(frozen=True)
class Malleability:
    """Which jobs are malleable: a random fraction, or those that meet a condition."""

    fraction: float = 1.0
    counted: str = "jobs"  # one of COUNTED
    condition: JobCondition | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.fraction <= 1:
            raise InputError(
                f"must be a fraction between 0 and 1, got {self.fraction:g}", argument="malleable"
            )
        if self.counted not in COUNTED:
            raise InputError(
                f"must be a fraction of {', '.join(COUNTED[:-1])} or {COUNTED[-1]}, "
                f"got {self.counted!r}",
                argument="malleable",
            )

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns of the trace, other than the usual ones, that must be read."""
        return () if self.condition is None else self.condition.labels

    @property
    def is_everything(self) -> bool:
        """Whether all jobs are malleable."""
        return self.condition is None and self.fraction == 1

    def select(self, trace: Trace, seed: int) -> BoolArray:
        """Return which jobs are malleable."""
        if self.condition is not None:
            return self.condition.test(trace)
        unit_of_job = np.arange(len(trace))
        if self.counted == "users":
            if "user" not in trace.labels:
                raise InputError(
                    f"cannot be a fraction of users: {trace.source} does not say whose jobs they "
                    "are",
                    argument="malleable",
                )
            unit_of_job = np.unique(trace.labels["user"], return_inverse=True)[1]
        is_by_hours = self.counted == "server-hours"
        amounts = _server_hours(trace) if is_by_hours else np.ones(unit_of_job.max() + 1)
        order = np.random.default_rng(seed).permutation(len(amounts))
        # As many as have the sum nearest to the fraction of all.
        sums = np.concatenate(([0.0], np.cumsum(amounts[order])))
        count = int(np.argmin(np.abs(sums - self.fraction * sums[-1])))
        return np.isin(unit_of_job, order[:count])

    def describe(self) -> str:
        """Return which jobs are malleable, as the subject of a sentence."""
        if self.condition is not None:
            return f"the jobs with {self.condition.text}"
        if self.is_everything:
            return "all jobs"
        return f"{self.fraction:.3g} of the {self.counted}, drawn at random"


def parse_malleability(value: float | str | Malleability | None) -> Malleability:
    """Return which jobs are malleable: None for all, a fraction, or a text.

    >>> parse_malleability("0.3").fraction, parse_malleability("30% of users").counted
    (0.3, 'users')
    >>> parse_malleability("servers >= 8").condition.text
    'servers >= 8'
    """
    if value is None:
        return Malleability()
    if isinstance(value, Malleability):
        return value
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        refuse(str(value))
    if not isinstance(value, str):
        return Malleability(float(value))
    match = _FRACTION.fullmatch(value.strip().lower())
    if match is None:
        return Malleability(condition=JobCondition(value.strip()))
    fraction = float(match[1]) / (100 if match[2] else 1)
    return Malleability(fraction, match[3] or "jobs")


def measure_parts(trace: Trace, is_malleable: BoolArray) -> tuple[float, float]:
    """Return the malleable part of the jobs, and of the server-hours."""
    hours = _server_hours(trace)
    return float(is_malleable.mean()), float(hours[is_malleable].sum() / hours.sum())


def describe_malleable_jobs(
    trace: Trace, malleability: Malleability, is_malleable: BoolArray, seed: int
) -> list[str]:
    """Return sentences on which jobs are malleable, and what happens to the others."""
    if malleability.is_everything:
        return []
    jobs, hours = measure_parts(trace, is_malleable)
    seeded = f" (seed {seed})" if malleability.condition is None else ""
    return [
        f"malleable or moldable: {malleability.describe()}{seeded}; these are "
        f"{int(is_malleable.sum()):,} of {len(trace):,} jobs ({jobs:.0%}), with {hours:.0%} of the "
        "server-hours",
        "the others stay rigid under EASY, which treats them as if they were alone: malleable jobs "
        "give back at once whatever a rigid job needs",
    ]


def _server_hours(trace: Trace) -> FloatArray:
    return trace.servers * trace.runtimes / 3600


# The attributes of a trace that conditions name; other columns are labels (Trace.labels).
_ATTRIBUTES = {
    "servers": "servers",
    "runtime": "runtimes",
    "estimate": "estimates",
    "submit": "submit_times",
    "name": "names",
}
_TRUE, _FALSE = ("1", "true", "yes", "y", "t"), ("0", "false", "no", "n", "f", "")
_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}
_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class JobCondition:
    """A condition on jobs.

    >>> JobCondition("servers >= 8 and not elastic").labels
    ('elastic',)
    """

    text: str

    def __post_init__(self) -> None:
        if not all(isinstance(node, _ALLOWED) for node in ast.walk(self.tree)):
            refuse(self.text)

    @cached_property
    def tree(self) -> ast.expr:
        """The parsed text."""
        try:
            return ast.parse(self.text, mode="eval").body
        except (SyntaxError, ValueError):
            refuse(self.text)

    @property
    def labels(self) -> tuple[str, ...]:
        """The columns in the condition that must be read as labels; users always are."""
        names = [node.id for node in ast.walk(self.tree) if isinstance(node, ast.Name)]
        return tuple(name for name in dict.fromkeys(names) if name not in (*_ATTRIBUTES, "user"))

    def test(self, trace: Trace) -> BoolArray:
        """Return which jobs meet the condition."""
        return _Evaluator(self.text, trace).decide(self.tree)


_ALLOWED = (
    *(ast.BoolOp, ast.And, ast.Or, ast.UnaryOp, ast.Not, ast.USub, ast.Compare, ast.In, ast.NotIn),
    *(*_COMPARISONS, ast.BinOp, *_ARITHMETIC),
    *(ast.Name, ast.Load, ast.Constant, ast.Tuple, ast.List, ast.Set),
)


def refuse(text: str, reason: str = "") -> NoReturn:
    """Raise an error that says what was expected."""
    raise InputError(
        "must be a fraction (0.3), a fraction of jobs, users or server-hours (0.3 of users), a "
        "column, or a condition such as 'servers >= 8 and runtime > 3600'"
        f"; got {text!r}{reason and f': {reason}'}",
        argument="malleable",
    )


@dataclass
class _Evaluator:
    """Evaluates the parts of a condition for all jobs of a trace at once."""

    text: str
    trace: Trace

    def decide(self, node: ast.expr) -> BoolArray:
        """Return for which jobs a part of the condition is true."""
        if isinstance(node, ast.BoolOp):
            combine = np.logical_and if isinstance(node.op, ast.And) else np.logical_or
            decided: BoolArray = combine.reduce([self.decide(value) for value in node.values])
            return decided
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return ~self.decide(node.operand)
        if isinstance(node, ast.Compare):
            return self._compare(node)
        if isinstance(node, ast.Name):
            return self._read_flags(node.id)
        refuse(self.text, f"{ast.unparse(node)} is neither true nor false")

    def _compare(self, node: ast.Compare) -> BoolArray:
        result = np.ones(len(self.trace), dtype=np.bool_)
        left = node.left
        for comparison, right in zip(node.ops, node.comparators, strict=True):
            if isinstance(comparison, ast.In | ast.NotIn):
                if not isinstance(right, ast.Tuple | ast.List | ast.Set):
                    refuse(self.text, f"{ast.unparse(right)} is not a list")
                found = np.zeros(len(self.trace), dtype=np.bool_)
                for element in right.elts:
                    found |= self._apply(operator.eq, left, element)
                result &= found if isinstance(comparison, ast.In) else ~found
            else:
                result &= self._apply(_COMPARISONS[type(comparison)], left, right)
            left = right
        return result

    def _apply(self, compare: Callable[[Any, Any], Any], left: ast.expr, right: ast.expr) -> Any:
        first, second = self._evaluate(left), self._evaluate(right)
        if _is_text(first) != _is_text(second):
            # A label that is compared with a number must contain numbers.
            first, second = self._evaluate_number(left), self._evaluate_number(right)
        with np.errstate(invalid="ignore"):
            return np.broadcast_to(compare(first, second), len(self.trace))

    def _evaluate(self, node: ast.expr) -> Any:
        """Return numbers or texts: one for each job, or one for all."""
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float | str):
            return np.asarray(node.value)
        if isinstance(node, ast.Name):
            return self._read_column(node.id)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return -self._evaluate_number(node.operand)
        if isinstance(node, ast.BinOp):
            combine = _ARITHMETIC[type(node.op)]
            with np.errstate(divide="ignore", invalid="ignore"):
                return combine(self._evaluate_number(node.left), self._evaluate_number(node.right))
        refuse(self.text, f"{ast.unparse(node)} is not a number, a text or a column")

    def _evaluate_number(self, node: ast.expr) -> Any:
        """Return numbers; of texts, the numbers in them, NaN where they are empty."""
        value = self._evaluate(node)
        if not _is_text(value):
            return value
        try:
            return np.where(value == "", "nan", value).astype(np.float64)
        except ValueError:
            refuse(self.text, f"{ast.unparse(node)} does not contain numbers only")

    def _read_column(self, name: str) -> Any:
        trace = self.trace
        if name in _ATTRIBUTES:
            return np.asarray(getattr(trace, _ATTRIBUTES[name]))
        if name not in trace.labels:
            columns = ", ".join([*_ATTRIBUTES, *trace.labels])
            refuse(self.text, f"{trace.source} has no column {name!r} among {columns}")
        return trace.labels[name]

    def _read_flags(self, name: str) -> BoolArray:
        """Return the jobs for which a column says yes."""
        column = self._read_column(name)
        if not _is_text(column):
            refuse(self.text, f"{name} is a number, neither true nor false")
        flags = np.char.lower(column)
        is_true = np.isin(flags, _TRUE)
        unclear = ~is_true & ~np.isin(flags, _FALSE)
        if unclear.any():
            value = str(column[int(np.argmax(unclear))])
            refuse(self.text, f"the column {name} must have true or false, got {value!r}")
        return is_true


def _is_text(value: Any) -> bool:
    return bool(np.asarray(value).dtype.kind == "U")
