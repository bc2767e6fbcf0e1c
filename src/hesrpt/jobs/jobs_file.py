"""Jobs files: TOML files that list commands to run, fully checked before anything starts."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar, get_args

from hesrpt.errors import InputError
from hesrpt.files import read_text
from hesrpt.jobs.command_table import COMMAND_KEYS, read_command
from hesrpt.jobs.groups import check_group_name
from hesrpt.jobs.hooks import check_hooks
from hesrpt.jobs.item_resources import check_resources
from hesrpt.jobs.job_items import ItemReader
from hesrpt.jobs.job_order import check_after, describe_cycle, find_cycle
from hesrpt.jobs.job_spec import AfterFailure, JobSpec, Resizing
from hesrpt.jobs.server_limits import ServerLimits, check_server_limits
from hesrpt.jobs.text import describe_value
from hesrpt.jobs.toml_tables import TomlLines, TomlTable, parse_toml
from hesrpt.jobs.toml_values import (
    MAX_NUMBER,
    get_seconds,
    to_boolean,
    to_fraction,
    to_positive,
    to_string,
    to_whole_number,
)
from hesrpt.policies import get_malleable_policy
from hesrpt.speedups import PowerLaw

_FILE_KEYS = ("servers", "policy", "resources", "group", "job")
_GROUP_KEYS = ("name", "weight")
#: The keys of any job, whether it runs a command or calls a function.
COMMON_KEYS = (
    "size",
    "p",
    "weight",
    "servers",
    "min_servers",
    "max_servers",
    "after",
    "after_failure",
    "group",
    "resources",
    "on_end",
    "retries",
    "keep_going",
)
_JOB_KEYS = ("name", "kind", *COMMAND_KEYS, *COMMON_KEYS, "resize", "restart_cost")
# The longest file, in characters: TOML takes seconds to read so much, and nobody writes it by hand.
_MAX_LENGTH = 4_000_000
_AT_MOST = f"and at most {MAX_NUMBER:,}"

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class JobsFile:
    """The contents of a jobs file."""

    jobs: tuple[JobSpec, ...] = ()
    servers: int | None = None
    policy: str | None = None
    resources: Mapping[str, float] = field(default_factory=dict)  # of the machine, besides servers
    group_weights: Mapping[str, float] = field(default_factory=dict)  # by the names of the groups


def read_jobs_file(path: str | Path, known: Container[str] = ()) -> JobsFile:
    """Read a jobs file; errors name the file and the line.

    Its jobs may wait for each other, and for ``known`` jobs: those of the run that they join.
    """
    file = Path(path)
    text = read_text(file, max_length=_MAX_LENGTH)
    return parse_jobs_file(text, str(file), file.parent.resolve(), known)


def parse_jobs_file(
    text: str, file_name: str, directory: Path, known: Container[str] = ()
) -> JobsFile:
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
    if not content.get("job"):
        raise InputError(f"{file_name}: has no jobs; start each one with a line [[job]]")
    tables = _list_tables(content, lines, "job")
    reader = ItemReader()
    jobs = [_parse_job(table, directory, reader) for table in tables]
    _check_names(tables, [job.name for job in jobs], "job")
    _check_order(tables, jobs, known)
    return JobsFile(
        jobs=tuple(jobs),
        servers=servers,
        policy=policy,
        resources=_check(top, "resources", check_resources, {}),
        group_weights=_read_group_weights(content, lines),
    )


def _list_tables(content: dict[str, Any], lines: TomlLines, kind: str) -> list[TomlTable]:
    """Return the tables of a list, such as those that start with [[job]]."""
    values = content.get(kind, [])
    if not isinstance(values, list):
        raise lines.create_error(None, kind, f"start each {kind} with a line [[{kind}]]")
    for number, table in enumerate(values):
        if not isinstance(table, dict):
            raise lines.create_error(
                number, kind, f"a {kind} must be a table, got {describe_value(table)}", kind
            )
    return [TomlTable(table, lines, number, kind) for number, table in enumerate(values)]


def _check_names(tables: Sequence[TomlTable], names: Sequence[str], kind: str) -> None:
    taken: set[str] = set()
    for table, name in zip(tables, names, strict=True):
        if name in taken:
            raise table.create_error("name", f"there is already a {kind} named {name!r}")
        taken.add(name)


def _check_order(
    tables: Sequence[TomlTable], jobs: Sequence[JobSpec], known: Container[str]
) -> None:
    """Raise an error if jobs wait for each other, or for one that is nowhere."""
    by_name = dict(zip((job.name for job in jobs), tables, strict=True))
    for job in jobs:
        for name in job.after:
            if name not in by_name and name not in known:
                others = [other for other in by_name if other != job.name]
                listed = f"; jobs beside it are: {', '.join(others)}" if others else ""
                raise by_name[job.name].create_error(
                    "after",
                    f"job {job.name!r}: there is no job {name!r} to wait for{listed}",
                )
    if cycle := find_cycle({job.name: job.after for job in jobs}):
        raise by_name[cycle[0]].create_error("after", describe_cycle(cycle))


def _read_group_weights(content: dict[str, Any], lines: TomlLines) -> dict[str, float]:
    tables = _list_tables(content, lines, "group")
    names = []
    for table in tables:
        table.check_keys(_GROUP_KEYS)
        names.append(table.require("name", "a non-empty string without zero bytes", to_string))
        _check(table, "name", check_group_name, "")
    _check_names(tables, names, "group")
    weights = [table.get("weight", "a number greater than 0", to_positive, 1.0) for table in tables]
    return dict(zip(names, weights, strict=True))


def _parse_job(table: TomlTable, directory: Path, reader: ItemReader) -> JobSpec:
    table.check_keys(_JOB_KEYS)
    name = table.require("name", "a non-empty string without zero bytes", to_string)
    template = read_command(table, name, directory, reader)
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
        after=_check(table, "after", check_after, ()),
        after_failure=table.get("after_failure", "cancel or release", _to_after_failure, "cancel"),
        group=_check(table, "group", check_group_name, ""),
        resources=_check(table, "resources", check_resources, {}),
        on_end=_check(table, "on_end", check_hooks, ()),
        resize=resize,
        restart_cost=get_seconds(table, "restart_cost", None) or 10.0,
        command=template,
    )


def _to_after_failure(value: Any) -> AfterFailure | None:
    return value if value in get_args(AfterFailure) else None


def _check(table: TomlTable, key: str, check: Callable[[Any], T], default: T) -> T:
    """Return the checked value of a key; the error names its line."""
    if key not in table.values:
        return default
    try:
        return check(table.values[key])
    except InputError as error:
        raise table.create_error(key, f"{key} {error.problem}") from None


def _get_limits(table: TomlTable) -> ServerLimits:
    names = ("servers", "min_servers", "max_servers")
    try:
        return check_server_limits(*(table.values.get(name) for name in names))
    except InputError as error:
        raise table.create_error(error.argument or "servers", str(error)) from None


def parse_jobs(
    jobs: Sequence[dict[str, Any]],
    lines: TomlLines,
    directory: Path,
    known: Container[str],
    reader: ItemReader,
) -> list[JobSpec]:
    """Return jobs that did not come from a file; ``lines`` says how errors name their place."""
    tables = [TomlTable(values, lines, number, "job") for number, values in enumerate(jobs)]
    specs = [_parse_job(table, directory, reader) for table in tables]
    _check_order(tables, specs, known)
    return specs


class _AllNames:
    """Contains every name: only a service knows which jobs it has."""

    def __contains__(self, name: object) -> bool:
        return True


def list_run_settings(path: str | Path) -> list[str]:
    """Return the keys of a jobs file that are about the whole run, rather than about a job."""
    content = parse_toml(read_text(Path(path), max_length=_MAX_LENGTH), str(path))
    return [key for key in ("servers", "policy", "resources") if key in content]


def read_portable_jobs(path: str | Path) -> list[dict[str, Any]]:
    """Return the jobs of a file as values that mean the same in another directory."""
    file = Path(path)
    text = read_text(file, max_length=_MAX_LENGTH)
    directory = file.parent.resolve()
    specs = parse_jobs_file(text, str(file), directory, _AllNames()).jobs
    tables = parse_toml(text, str(file))["job"]
    return [_make_portable(*pair, directory) for pair in zip(tables, specs, strict=True)]


def _make_portable(values: dict[str, Any], spec: JobSpec, directory: Path) -> dict[str, Any]:
    assert spec.command is not None
    place = str(directory).replace("{", "{{").replace("}", "}}")
    portable = values | {"cwd": str(Path(place) / spec.command.cwd)}
    is_from_files = isinstance(values.get("items"), str) or "lines" in values.get("items", ())
    if is_from_files:
        portable["items"] = list(spec.command.items or ())
    return portable
