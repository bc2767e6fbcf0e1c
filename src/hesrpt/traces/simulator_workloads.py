"""Workloads of the simulators Batsim and ElastiSim, in JSON.

Batsim's workloads have ``jobs``, ``profiles`` and ``nb_res``. A profile says what a job does. Run
times follow from profiles that wait: delays, and sequences of them. How long other profiles take
depends on the simulated machine.

ElastiSim's workloads have ``jobs`` that refer to application models. Servers are nodes. A job that
can use several numbers of nodes counts as asking for the most. Run times follow from application
models and the platform, if these files are next to the workload. A model has phases of tasks. Their
loads and iterations are numbers or formulas of the arguments of a job and its number of nodes. A
platform of SimGrid says how fast the nodes are, and how many.
"""

from __future__ import annotations

import ast
import json
import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hesrpt.traces.building import TraceBuilder
from hesrpt.traces.cells import count_tasks
from hesrpt.traces.json_jobs import JsonJob, add_jobs, get_first_job, get_number
from hesrpt.traces.trace import Trace
from hesrpt.units import format_count


def _add_workload(
    builder: TraceBuilder,
    jobs: Any,
    submit: str,
    get_servers: Callable[[Mapping[str, Any]], Any],
    compute_runtime: Callable[[Mapping[str, Any]], float],
) -> None:
    """Add the jobs of a workload, whose times are seconds.

    ``submit`` is the simulator's name of the submission time. ``compute_runtime`` returns NaN if
    the run time of a job is unknown, because it depends on the simulated machine. Then the walltime
    stands for it, and the trace has a note.
    """
    unknown = 0

    def describe(job: Mapping[str, Any]) -> JsonJob:
        nonlocal unknown
        walltime = get_number(job.get("walltime"))
        has_walltime = walltime > 0  # simulators write 0 or -1 if there is none
        runtime = compute_runtime(job)
        if math.isnan(runtime) and has_walltime:
            runtime = walltime
            unknown += 1
        elif has_walltime:
            runtime = min(runtime, walltime)  # simulators kill jobs at their walltimes
        return JsonJob(
            name=job.get("id"),
            submit=job.get(submit),
            servers=get_servers(job),
            runtime=None if math.isnan(runtime) else runtime,
            estimate=walltime if has_walltime else None,
        )

    add_jobs(builder, jobs, describe)
    if unknown:
        builder.notes.append(
            f"the walltime stands for the run time of {format_count(unknown, 'job')}, which the "
            "workload does not say: how long a job computes depends on the simulated machine"
        )


# --- Batsim ----------------------------------------------------------------------------------

# Of Batsim 5, and of earlier versions.
_DELAYS = ("DelayProfile", "delay")
_SEQUENCES = ("SequentialCompositionProfile", "composed")
_MAX_PROFILES = 100  # inside each other


def is_batsim(document: Any) -> bool:
    """Return whether a JSON document is a workload of Batsim."""
    return isinstance(document, dict) and (
        isinstance(document.get("profiles"), dict) or "subtime" in get_first_job(document)
    )


def read_batsim(document: Any, builder: TraceBuilder) -> Trace:
    """Read a workload of Batsim."""
    delays = _Delays(document.get("profiles"))
    builder.expected["runtime"] = "a walltime, or a profile that is a delay or a sequence of delays"
    _add_workload(
        builder,
        document.get("jobs"),
        submit="subtime",
        get_servers=lambda job: job.get("res"),
        compute_runtime=lambda job: delays.compute(job.get("profile")),
    )
    machine = document.get("nb_res")
    is_size = isinstance(machine, int) and not isinstance(machine, bool) and machine >= 1
    return builder.build(machine_servers=machine if is_size else None)


class _Delays:
    """The seconds that profiles wait; NaN for those that do anything else."""

    def __init__(self, profiles: Any) -> None:
        self._profiles = profiles if isinstance(profiles, dict) else {}
        self._known: dict[str, float] = {}

    def compute(self, name: Any, depth: int = 0) -> float:
        if not isinstance(name, str) or depth > _MAX_PROFILES:
            return math.nan
        if name not in self._known:
            self._known[name] = math.nan  # in case that the profile contains itself
            self._known[name] = self._compute(self._profiles.get(name), depth)
        return self._known[name]

    def _compute(self, profile: Any, depth: int) -> float:
        if not isinstance(profile, dict):
            return math.nan
        if profile.get("type") in _DELAYS:
            return get_number(profile.get("delay"))
        parts = profile.get("seq")
        if profile.get("type") in _SEQUENCES and isinstance(parts, list):
            repeats = get_number(profile.get("repeat", profile.get("nb", 1)))
            return repeats * math.fsum(self.compute(part, depth + 1) for part in parts)
        return math.nan


# --- ElastiSim -------------------------------------------------------------------------------


def is_elastisim(document: Any) -> bool:
    """Return whether a JSON document is a workload of ElastiSim."""
    first = get_first_job(document)
    return isinstance(document, dict) and (
        "application_model" in first or ("submit_time" in first and "type" in first)
    )


def read_elastisim(document: Any, builder: TraceBuilder) -> Trace:
    """Read a workload of ElastiSim."""
    directory = Path(builder.source).parent
    platform = find_platform(directory)
    models: dict[str, Any] = {}
    partial = 0

    def compute_runtime(job: Mapping[str, Any]) -> float:
        nonlocal partial
        path = job.get("application_model")
        if not isinstance(path, str):
            return math.nan
        if path not in models:
            models[path] = read_model(directory, path)
        arguments = job.get("arguments")
        values = dict(arguments) if isinstance(arguments, dict) else {}
        nodes = get_number(_get_nodes(job))
        gpus = get_number(job.get("num_gpus_per_node", job.get("num_gpus_per_node_max", 0)))
        values |= {"num_nodes": nodes, "num_gpus_per_node": gpus, "num_gpus": nodes * gpus}
        speed = platform.speed if platform else math.nan
        seconds, has_left_out = compute_duration(models[path], values, speed)
        partial += has_left_out and not math.isnan(seconds)
        return seconds

    builder.expected["runtime"] = (
        "a walltime, or an application model that waits, or that computes on a platform; these "
        "files must be next to the workload"
    )
    _add_workload(builder, document.get("jobs"), "submit_time", _get_nodes, compute_runtime)
    if partial:
        builder.notes.append(
            f"the run times of {format_count(partial, 'job')} leave out communication, input and "
            "output, which depend on the simulated network"
        )
    return builder.build(machine_servers=platform.nodes if platform else None)


def _get_nodes(job: Mapping[str, Any]) -> Any:
    return job.get("num_nodes", job.get("num_nodes_max"))


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


_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NODES = re.compile(r"<(cluster|host)\b([^>]*)>")
_SPEED = re.compile(r"""\bspeed\s*=\s*["']\s*([0-9.eE+]+)\s*([kMGTPE]?)f?\s*["']""")
_RADICAL = re.compile(r"""\bradical\s*=\s*["']([^"']*)["']""")
_UNITS = {unit: 1000.0**power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))}


@dataclass(frozen=True)
class Platform:
    """The compute nodes of a simulated machine."""

    speed: float  # flops per second of a node; NaN if nodes differ
    nodes: int


def find_platform(directory: Path) -> Platform | None:
    """Return the platform in a directory, or None unless it contains exactly one."""
    texts = []
    try:
        for path in directory.glob("*.xml"):
            if path.is_file() and path.stat().st_size <= _MAX_BYTES:
                text = path.read_text(errors="replace")
                if "<platform" in text:
                    texts.append(text)
    except OSError:
        return None
    return parse_platform(texts[0]) if len(texts) == 1 else None


def parse_platform(text: str) -> Platform | None:
    """Return the platform in an XML text. Hosts with speed 0 are not compute nodes.

    >>> parse_platform('<cluster radical="0-127" speed="100Gf"/><host id="disk" speed="0f"/>')
    Platform(speed=100000000000.0, nodes=128)
    """
    nodes: dict[float, int] = {}
    for kind, attributes in _NODES.findall(_COMMENT.sub("", text)):
        match, radical = _SPEED.search(attributes), _RADICAL.search(attributes)
        try:
            speed = float(match[1]) * _UNITS[match[2]] if match else 0.0
        except ValueError:
            return None
        if speed > 0:
            number = count_tasks(radical[1]) if kind == "cluster" and radical else 1
            nodes[speed] = nodes.get(speed, 0) + number
    if not nodes:
        return None
    return Platform(next(iter(nodes)) if len(nodes) == 1 else math.nan, sum(nodes.values()))
