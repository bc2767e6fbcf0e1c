"""Jobs files: TOML files that list commands to run, fully checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args

from hesrpt.errors import InputError
from hesrpt.files import read_text
from hesrpt.policies import get_malleable_policy
from hesrpt.runtime.commands.command_template import CommandTemplate, find_placeholders
from hesrpt.runtime.commands.job_items import list_items
from hesrpt.runtime.commands.toml_tables import (
    TomlLines,
    TomlTable,
    is_whole,
    parse_toml,
)
from hesrpt.runtime.jobs import JobSpec, Resizing
from hesrpt.runtime.server_limits import ServerLimits, check_server_limits
from hesrpt.runtime.text import describe_value
from hesrpt.speedups import PowerLaw
from hesrpt.units import parse_duration

T = TypeVar("T")

_FILE_KEYS = ("servers", "policy", "job")
_JOB_KEYS = (
    "name",
    "kind",
    "command",
    "items",
    "size",
    "p",
    "weight",
    "servers",
    "min_servers",
    "max_servers",
    "retries",
    "keep_going",
    "timeout",
    "resize",
    "restart_cost",
)
# The longest file, in characters: TOML takes seconds to read so much, and nobody writes it by hand.
_MAX_LENGTH = 4_000_000
_MAX_NUMBER = 1_000_000
_MAX_AMOUNT = 1e300
_AT_MOST = f"and at most {_MAX_NUMBER:,}"
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
    text = read_text(file, max_length=_MAX_LENGTH)
    return parse_jobs_file(text, str(file), file.parent.resolve())


def parse_jobs_file(text: str, file_name: str, directory: Path) -> JobsFile:
    """Return the contents of a jobs file; items and commands are relative to a directory."""
    content = parse_toml(text, file_name)
    lines = TomlLines(text, file_name)
    top = TomlTable(content, lines, None)
    top.check_keys(_FILE_KEYS)
    servers = top.get(
        "servers", f"a whole number, at least 1 {_AT_MOST}", _to_whole_number(1), None
    )
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
            raise lines.create_error(
                number, "job", f"a job must be a table, got {describe_value(table)}"
            )
        jobs.append(_parse_job(TomlTable(table, lines, number), directory))
    names: set[str] = set()
    for number, job in enumerate(jobs):
        if job.name in names:
            raise lines.create_error(number, "name", f"there is already a job named {job.name!r}")
        names.add(job.name)
    return JobsFile(jobs=tuple(jobs), servers=servers, policy=policy)


def _parse_job(table: TomlTable, directory: Path) -> JobSpec:
    table.check_keys(_JOB_KEYS)
    name = table.require("name", "a non-empty string without zero bytes", _to_string)
    kind = table.get("kind", "a non-empty string without zero bytes", _to_string, "")
    command = _to_command(table.values.get("command"))
    if command is None:
        raise table.create_value_error(
            "command", "a string for the shell, or a list of strings to run without a shell"
        )
    items = None
    if "items" in table.values:
        try:
            items = list_items(table.values["items"], directory)
        except InputError as error:
            raise table.create_error("items", str(error)) from None
    size = _get_seconds(table, "size", None)
    p = table.get("p", "a number between 0 and 1", _to_fraction, None)
    weight = table.get("weight", "a number greater than 0", _to_positive, 1.0)
    retries = table.get("retries", f"a whole number, at least 0 {_AT_MOST}", _to_whole_number(0), 1)
    keep_going = table.get("keep_going", "true or false", _to_boolean, False)
    timeout = _get_seconds(table, "timeout", None)
    restart_cost = _get_seconds(table, "restart_cost", 10.0)
    limits = _get_limits(table)
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
        if not _are_numbers(table.values.get("items")):
            template.check_options()
    except InputError as error:
        raise table.create_error("command", str(error)) from None
    placeholders = find_placeholders(command)
    if items is None:
        if placeholders & {"item", "stem", "name", "index"}:
            raise table.create_error("command", "the command refers to items, but the job has none")
        if limits == ServerLimits() and "servers" not in placeholders and resize == "never":
            limits = ServerLimits(max_servers=1)  # nothing says that it could use more
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
        kind=kind,
        items=1 if items is None else len(items),
        size=size,
        speedup=None if p is None else PowerLaw(p),
        weight=weight,
        retries=retries,
        on_error="keep" if keep_going else "raise",
        **limits._asdict(),
        resize=resize,
        restart_cost=restart_cost,
        command=template,
    )


def _get_limits(table: TomlTable) -> ServerLimits:
    names = ("servers", "min_servers", "max_servers")
    try:
        return check_server_limits(*(table.values.get(name) for name in names))
    except InputError as error:
        raise table.create_error(error.argument or "servers", str(error)) from None


def _get_seconds(table: TomlTable, key: str, default: T) -> float | T:
    if key not in table.values:
        return default
    seconds = table.require(key, _DURATION, _to_seconds)
    if seconds <= 0:
        raise table.create_value_error(key, "greater than 0")
    return seconds


def _are_numbers(items: Any) -> bool:
    """Return whether items are numbers: -1 is no option, but what the author wrote."""
    if isinstance(items, dict):
        return "range" in items
    return isinstance(items, list) and not any(isinstance(item, str) for item in items)


# --- conversions: each returns None for a wrong value ------------------------------------------


def _to_string(value: Any) -> str | None:
    return value if isinstance(value, str) and value and "\0" not in value else None


def _to_boolean(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _to_command(value: Any) -> str | tuple[str, ...] | None:
    if isinstance(value, list) and value and all(isinstance(part, str) for part in value):
        return tuple(value)
    return value if isinstance(value, str) and value else None


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
    return lambda value: value if is_whole(value) and minimum <= value <= _MAX_NUMBER else None


def _is_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and -_MAX_AMOUNT < value < _MAX_AMOUNT
