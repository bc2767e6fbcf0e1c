"""Jobs files: TOML files that list commands to run, fully checked before anything starts."""

from __future__ import annotations

import glob
import re
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar, get_args

from hesrpt.errors import InputError
from hesrpt.files import read_text
from hesrpt.policies import get_malleable_policy
from hesrpt.runtime.command_template import CommandTemplate, find_placeholders
from hesrpt.runtime.jobs import JobSpec, Resizing
from hesrpt.speedups import PowerLaw
from hesrpt.units import parse_duration

T = TypeVar("T")

_FILE_KEYS = ("servers", "policy", "job")
_JOB_KEYS = (
    "name",
    "command",
    "items",
    "size",
    "p",
    "weight",
    "retries",
    "timeout",
    "resize",
    "restart_cost",
)
_DURATION = 'a number of seconds, or a duration such as "90s", "15m", "2h" or "1d"'


@dataclass(frozen=True, kw_only=True)
class JobsFile:
    """The contents of a jobs file."""

    jobs: tuple[JobSpec, ...] = ()
    servers: int | None = None
    policy: str | None = None


def read_jobs_file(path: str | Path) -> JobsFile:
    """Read a jobs file; errors name the file and the line."""
    file = Path(path)
    return parse_jobs_file(read_text(file), str(file), file.parent.resolve())


def parse_jobs_file(text: str, file_name: str, directory: Path) -> JobsFile:
    """Return the contents of a jobs file; items and commands are relative to a directory."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r" \(at line (\d+), [^()]*\)$", str(error))
        line = found.group(1) if found else len(text.rstrip().split("\n"))  # the end of the file
        message = re.sub(r" \(at [^()]*\)$", "", str(error))
        raise InputError(f"{file_name}:{line}: {message}") from None
    lines = _Lines(text, file_name)
    top = _Table(content, lines, None)
    top.check_keys(_FILE_KEYS)
    servers = top.get("servers", "a whole number, at least 1", _to_whole_number(1), None)
    policy = top.get("policy", "the name of a policy", _to_string, None)
    if policy is not None:
        try:
            get_malleable_policy(policy)
        except InputError as error:
            raise top.create_error("policy", str(error)) from None
    tables = content.get("job")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{file_name}: has no jobs; start each one with a line [[job]]")
    jobs: list[JobSpec] = []
    for number, table in enumerate(tables):
        if not isinstance(table, dict):
            raise lines.create_error(number, "job", f"a job must be a table, got {table!r}")
        jobs.append(_parse_job(_Table(table, lines, number), directory))
    names = [job.name for job in jobs]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise lines.create_error(number, "name", f"there is already a job named {name!r}")
    return JobsFile(jobs=tuple(jobs), servers=servers, policy=policy)


class _Lines:
    """Finds the line of a key, which the TOML parser does not report."""

    def __init__(self, text: str, file_name: str) -> None:
        self.file_name = file_name
        self.lines = text.splitlines()
        self.job_starts = [
            number
            for number, line in enumerate(self.lines)
            if re.match(r"\s*\[\[\s*job\s*\]\]", line)
        ]

    def create_error(self, job: int | None, key: str, message: str) -> InputError:
        """Return an error about a key of a job, or of the file as a whole."""
        starts = self.job_starts
        first = starts[job] if job is not None and job < len(starts) else 0
        last = starts[job + 1] if job is not None and job + 1 < len(starts) else len(self.lines)
        assignment = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""")
        line = next((n for n in range(first, last) if assignment.match(self.lines[n])), first)
        return InputError(f"{self.file_name}:{line + 1}: {message}")


class _Table:
    """A table of the file; checks its values as they are read."""

    def __init__(self, values: dict[str, Any], lines: _Lines, job: int | None) -> None:
        self.values, self.lines, self.job = values, lines, job

    def create_error(self, key: str, message: str) -> InputError:
        return self.lines.create_error(self.job, key, message)

    def check_keys(self, keys: tuple[str, ...]) -> None:
        for key in self.values:
            if key not in keys:
                raise self.create_error(key, f"unknown key {key!r}; keys are: {', '.join(keys)}")

    def get(self, key: str, expected: str, convert: Callable[[Any], T | None], default: T) -> T:
        """Return the converted value of a key; ``convert`` returns None for a wrong value."""
        return self.require(key, expected, convert) if key in self.values else default

    def require(self, key: str, expected: str, convert: Callable[[Any], T | None]) -> T:
        """Return the converted value of a key that must be there."""
        converted = convert(self.values.get(key))
        if converted is None:
            raise self.create_value_error(key, expected)
        return converted

    def create_value_error(self, key: str, expected: str) -> InputError:
        if key not in self.values:
            return self.create_error(key, f"{key} is missing")
        return self.create_error(key, f"{key} must be {expected}, got {self.values[key]!r}")


def _parse_job(table: _Table, directory: Path) -> JobSpec:
    table.check_keys(_JOB_KEYS)
    name = table.require("name", "a non-empty string", _to_string)
    command = _to_command(table.values.get("command"))
    if command is None:
        raise table.create_value_error(
            "command", "a string for the shell, or a list of strings to run without a shell"
        )
    items = _parse_items(table, directory)
    size = _get_seconds(table, "size", None)
    p = table.get("p", "a number between 0 and 1", _to_fraction, None)
    weight = table.get("weight", "a number greater than 0", _to_positive, 1.0)
    retries = table.get("retries", "a whole number, at least 0", _to_whole_number(0), 1)
    timeout = _get_seconds(table, "timeout", None)
    restart_cost = _get_seconds(table, "restart_cost", 10.0)
    resizings = get_args(Resizing)
    resize: Resizing | None = table.get(
        "resize",
        f"one of {', '.join(resizings)}",
        lambda value: value if value in resizings else None,
        "never",
    )
    try:
        template = CommandTemplate(
            job=name, command=command, items=items, directory=str(directory), timeout=timeout
        )
    except InputError as error:
        raise table.create_error("command", str(error)) from None
    placeholders = find_placeholders(command)
    if items is None:
        if placeholders & {"item", "stem", "name", "index"}:
            raise table.create_error("command", "the command refers to items, but the job has none")
    else:
        if "resize" in table.values:
            raise table.create_error(
                "resize", "resize needs a job that is a single command, without items"
            )
        if "servers" in placeholders:
            raise table.create_error(
                "command",
                "{servers} needs a job that is a single command; an item runs on one server",
            )
        resize = None
    return JobSpec(
        name=name,
        items=1 if items is None else len(items),
        size=size,
        speedup=None if p is None else PowerLaw(p),
        weight=weight,
        retries=retries,
        resize=resize,
        restart_cost=restart_cost,
        command=template,
    )


def _get_seconds(table: _Table, key: str, default: T) -> float | T:
    if key not in table.values:
        return default
    seconds = table.require(key, _DURATION, _to_seconds)
    if seconds <= 0:
        raise table.create_value_error(key, "greater than 0")
    return seconds


# --- items ------------------------------------------------------------------------------------


def _parse_items(table: _Table, directory: Path) -> tuple[str, ...] | None:
    if "items" not in table.values:
        return None
    try:
        return _list_items(table.values["items"], directory)
    except InputError as error:
        raise table.create_error("items", str(error)) from None


def _list_items(value: Any, directory: Path) -> tuple[str, ...]:
    """Return the items of a job, given as a pattern, a list, the lines of a file or a range."""
    if isinstance(value, str):
        paths = sorted(glob.glob(value, root_dir=directory, recursive=True))
        if not paths:
            raise InputError(f"no file matches {value!r} in {directory}")
        return tuple(paths)
    if isinstance(value, list):
        if not value or not all(isinstance(item, str | int | float) for item in value):
            raise InputError("a list of items must hold one or more strings or numbers")
        return tuple(str(item) for item in value)
    if isinstance(value, dict) and list(value) == ["lines"] and isinstance(value["lines"], str):
        path = directory / value["lines"]
        lines = tuple(line for line in read_text(path).split("\n") if line.strip())
        if not lines:
            raise InputError(f"{path}: has no lines")
        return lines
    if isinstance(value, dict) and list(value) == ["range"]:
        return _list_range(value["range"])
    raise InputError(
        'items must be a pattern like "photos/*.jpg", a list, {lines = "file.txt"} or '
        f"{{range = [0, 500]}}, got {value!r}"
    )


def _list_range(bounds: Any) -> tuple[str, ...]:
    if isinstance(bounds, list) and all(_is_whole(bound) for bound in bounds):
        has_step = 0 not in bounds[2:]
        if 1 <= len(bounds) <= 3 and has_step and (numbers := range(*bounds)):
            return tuple(map(str, numbers))
    raise InputError(f"a range must be like [0, 500] and not empty, got {bounds!r}")


# --- conversions: each returns None for a wrong value ------------------------------------------


def _to_string(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _to_command(value: Any) -> str | tuple[str, ...] | None:
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return tuple(value)
    return _to_string(value)


def _to_seconds(value: Any) -> float | None:
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return float(seconds) if _is_number(seconds) else None


def _to_fraction(value: Any) -> float | None:
    return float(value) if _is_number(value) and 0 < value < 1 else None


def _to_positive(value: Any) -> float | None:
    return float(value) if _is_number(value) and value > 0 else None


def _to_whole_number(minimum: int) -> Callable[[Any], int | None]:
    return lambda value: value if _is_whole(value) and value >= minimum else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
