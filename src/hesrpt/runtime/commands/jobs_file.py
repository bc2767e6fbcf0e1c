"""Jobs files: TOML files that list commands to run, fully checked before anything starts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from hesrpt.errors import InputError
from hesrpt.files import read_text
from hesrpt.policies import get_malleable_policy
from hesrpt.runtime.commands.command_table import COMMAND_KEYS, read_command
from hesrpt.runtime.commands.toml_tables import TomlLines, TomlTable, parse_toml
from hesrpt.runtime.commands.toml_values import (
    MAX_NUMBER,
    get_seconds,
    to_boolean,
    to_fraction,
    to_positive,
    to_string,
    to_whole_number,
)
from hesrpt.runtime.decisions.server_limits import ServerLimits, check_server_limits
from hesrpt.runtime.job_spec import JobSpec, Resizing
from hesrpt.runtime.text import describe_value
from hesrpt.speedups import PowerLaw

_FILE_KEYS = ("servers", "policy", "job")
_JOB_KEYS = (
    "name",
    "kind",
    *COMMAND_KEYS,
    "size",
    "p",
    "weight",
    "servers",
    "min_servers",
    "max_servers",
    "retries",
    "keep_going",
    "resize",
    "restart_cost",
)
# The longest file, in characters: TOML takes seconds to read so much, and nobody writes it by hand.
_MAX_LENGTH = 4_000_000
_AT_MOST = f"and at most {MAX_NUMBER:,}"


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
    servers = top.get("servers", f"a whole number, at least 1 {_AT_MOST}", to_whole_number(1), None)
    policy = top.get("policy", "the name of a policy", to_string, None)
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
    name = table.require("name", "a non-empty string without zero bytes", to_string)
    template = read_command(table, name, directory)
    p = table.get("p", "a number between 0 and 1", to_fraction, None)
    keep_going = table.get("keep_going", "true or false", to_boolean, False)
    limits = _get_limits(table)
    resizings = get_args(Resizing)
    resize: Resizing | None = table.get(
        "resize",
        f"one of {', '.join(resizings)}",
        lambda value: value if value in resizings else None,
        "never",
    )
    if template.items is not None:
        if "resize" in table.values:
            raise table.create_error(
                "resize", "resize needs a job that is a single command, without items"
            )
        resize = None
    elif limits == ServerLimits() and resize == "never" and "servers" not in template.placeholders:
        limits = ServerLimits(max_servers=1)  # nothing says that it could use more
    return JobSpec(
        name=name,
        kind=table.get("kind", "a non-empty string without zero bytes", to_string, ""),
        items=1 if template.items is None else len(template.items),
        size=get_seconds(table, "size", None),
        speedup=None if p is None else PowerLaw(p),
        weight=table.get("weight", "a number greater than 0", to_positive, 1.0),
        retries=table.get(
            "retries", f"a whole number, at least 0 {_AT_MOST}", to_whole_number(0), 1
        ),
        on_error="keep" if keep_going else "raise",
        **limits._asdict(),
        resize=resize,
        restart_cost=get_seconds(table, "restart_cost", None) or 10.0,
        command=template,
    )


def _get_limits(table: TomlTable) -> ServerLimits:
    names = ("servers", "min_servers", "max_servers")
    try:
        return check_server_limits(*(table.values.get(name) for name in names))
    except InputError as error:
        raise table.create_error(error.argument or "servers", str(error)) from None


def parse_job(values: dict[str, Any], lines: TomlLines, number: int, directory: Path) -> JobSpec:
    """Return a job that did not come from a file; ``lines`` says how errors name its place."""
    return _parse_job(TomlTable(values, lines, number), directory)
