"""Jobs files: TOML files that list commands to run, fully checked before anything starts."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import read_text
from hesrpt.jobs.command_template import CommandTemplate, find_placeholders
from hesrpt.jobs.job_items import ItemReader
from hesrpt.jobs.job_spec import JobSpec, describe_cycle, find_cycle
from hesrpt.jobs.schema import (
    COMMAND_FIELDS,
    RESOURCES,
    SERVERS,
    WEIGHT,
    Field,
    read_fields,
    read_job,
    to_group_name,
    to_string,
)
from hesrpt.jobs.text import describe_value
from hesrpt.policies import get_malleable_policy

# The longest file, in characters. Parsing it takes seconds, and nobody writes so much by hand.
_MAX_LENGTH = 4_000_000
_ABOUT_ITEMS = {"item", "stem", "name", "index"}


def _to_policy(value: object) -> str | None:
    policy = to_string(value)
    if policy is not None:
        get_malleable_policy(policy)
    return policy


_FILE_FIELDS = (SERVERS, Field("policy", "the name of a policy", _to_policy), RESOURCES)
_GROUP_FIELDS = (
    Field("name", "a non-empty name without line breaks", lambda name: to_group_name(name) or None),
    WEIGHT,
)


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
    settings = TomlTable(content, lines, None).read(_FILE_FIELDS, lists=("group", "job"))
    if not content.get("job"):
        raise InputError(f"{file_name}: has no jobs; start each one with a line [[job]]")
    tables = _list_tables(content, lines, "job")
    reader = ItemReader()
    jobs = [_parse_job(table, directory, reader) for table in tables]
    _check_names(tables, [job.name for job in jobs], "job")
    _check_order(tables, jobs, known)
    tables = _list_tables(content, lines, "group")
    groups = [table.read(_GROUP_FIELDS, required=("name",)) for table in tables]
    _check_names(tables, [group["name"] for group in groups], "group")
    weights = {group["name"]: group.get("weight", 1.0) for group in groups}
    return JobsFile(jobs=tuple(jobs), group_weights=weights, **settings)


def _list_tables(content: dict[str, Any], lines: TomlLines, kind: str) -> list[TomlTable]:
    """Return the tables of a list, such as those that start with [[job]]."""
    values = content.get(kind, [])
    if not isinstance(values, list):
        problem = f"start each {kind} with a line [[{kind}]]"
        raise lines.create_error(None, kind, InputError(problem))
    for number, table in enumerate(values):
        if not isinstance(table, dict):
            error = InputError(f"a {kind} must be a table, got {describe_value(table)}")
            raise lines.create_error(number, kind, error, kind)
    return [TomlTable(table, lines, number, kind) for number, table in enumerate(values)]


def _check_names(tables: Sequence[TomlTable], names: Sequence[str], kind: str) -> None:
    taken: set[str] = set()
    for table, name in zip(tables, names, strict=True):
        if name in taken:
            problem = f"there is already a {kind} named {name!r}"
            raise table.create_error("name", InputError(problem))
        taken.add(name)


def _check_order(
    tables: Sequence[TomlTable], jobs: Sequence[JobSpec], known: Container[str]
) -> None:
    """Raise an error if jobs wait for each other, or for a job that does not exist."""
    by_name = dict(zip((job.name for job in jobs), tables, strict=True))
    for job in jobs:
        for name in job.after:
            if name not in by_name and name not in known:
                others = [other for other in by_name if other != job.name]
                listed = f"; jobs beside it are: {', '.join(others)}" if others else ""
                problem = f"job {job.name!r}: there is no job {name!r} to wait for{listed}"
                raise by_name[job.name].create_error("after", InputError(problem))
    if cycle := find_cycle({job.name: job.after for job in jobs}):
        raise by_name[cycle[0]].create_error("after", InputError(describe_cycle(cycle)))


def _parse_job(table: TomlTable, directory: Path, reader: ItemReader) -> JobSpec:
    values = table.read(COMMAND_FIELDS, required=("name", "command"), read=read_job)
    template = _create_command(table, values, directory, reader)
    resize = values.pop("resize", "never")
    if template.items is not None:
        if "resize" in table.values:
            problem = "needs a job that is a single command, without items"
            raise table.create_error("resize", InputError(problem, argument="resize"))
        resize = None
    elif (
        values.keys().isdisjoint(("min_servers", "max_servers"))
        and resize == "never"
        and "servers" not in template.placeholders
    ):
        values["max_servers"] = 1  # nothing says that it could use more
    items = 1 if template.items is None else len(template.items)
    return JobSpec(**values, items=items, resize=resize, command=template)


def _create_command(
    table: TomlTable, values: dict[str, Any], directory: Path, reader: ItemReader
) -> CommandTemplate:
    """Take the values that say what to run; return the command. Paths begin in a directory."""
    names = CommandTemplate.__dataclass_fields__
    parts = {name: values.pop(name) for name in names if name in values}
    cwd = parts.get("cwd", "")
    place = directory if find_placeholders([cwd]) else directory / cwd.format()
    if not place.is_dir():
        raise table.create_error("cwd", InputError(f"there is no directory {place}"))
    if "stdin" in parts and "stdin_file" in parts:
        problem = "cannot be combined with stdin"
        raise table.create_error("stdin_file", InputError(problem, argument="stdin_file"))
    if "shell" in parts and not isinstance(parts["command"], str):
        problem = "needs a command that is a string, not a list"
        raise table.create_error("shell", InputError(problem, argument="shell"))
    if "items" in parts:
        try:
            parts["items"] = reader.list_items(parts["items"], directory, place)
        except InputError as error:
            raise table.create_error("items", error) from None
    template = CommandTemplate(job=values["name"], directory=str(directory), **parts)
    if template.items is None and template.placeholders & _ABOUT_ITEMS:
        problem = "the command refers to items, but the job has none"
        raise table.create_error("command", InputError(problem))
    if template.items is not None and "servers" in template.placeholders:
        problem = "{servers} needs a job that is a single command; an item runs on one server"
        raise table.create_error("command", InputError(problem))
    return template


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


# --- TOML, within limits, with errors that name the line ----------------------------------------

# Deeper nesting, longer keys and longer numbers would take the parser very long, or too much stack.
_MAX_DEPTH = 50
_MAX_WORD = 400

# Strings and comments, in which nothing has a meaning, and everything that matters for the limits.
_TOKENS = re.compile(
    r'"""(?:[^\\]|\\.)*?"""'
    r"|'''.*?'''"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'"
    r"|#[^\n]*"
    r"|[\[\]{}\n,=.]"
    r"|[\w+-]+",
    re.DOTALL,
)


def parse_toml(text: str, file_name: str) -> dict[str, Any]:
    """Return the contents of a TOML file; errors name the file and the line."""
    _check_limits(text, file_name)
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = re.search(r" \(at line (\d+), [^()]*\)$", str(error))
        line = found.group(1) if found else len(text.rstrip().split("\n"))  # the end of the file
        message = re.sub(r" \(at [^()]*\)$", "", str(error))
        hint = "; text needs quotes" if message == "Invalid value" else ""
        raise InputError(f"{file_name}:{line}: not valid TOML: {message}{hint}") from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"{file_name}: cannot be read: {error}") from None


def _check_limits(text: str, file_name: str) -> None:
    """Raise an error if the parser would take very long, or need too much stack."""
    depth = dots = 0
    for token in _TOKENS.finditer(text):
        word = token.group()
        problem = None
        if word in ("[", "{"):
            depth, dots = depth + 1, 0
            if depth > _MAX_DEPTH:
                problem = f"values are nested more than {_MAX_DEPTH} levels deep"
        elif word in ("]", "}"):
            depth, dots = max(depth - 1, 0), 0
        elif word == ".":
            dots += 1
            if dots > _MAX_DEPTH:
                problem = f"a key has more than {_MAX_DEPTH} parts"
        elif word in ("\n", ",", "="):
            dots = 0
        elif len(word) > _MAX_WORD and word[0] not in "\"'#":
            problem = f"a number or key is longer than {_MAX_WORD} characters"
        if problem is not None:
            line = text.count("\n", 0, token.start()) + 1
            raise InputError(f"{file_name}:{line}: {problem}")


class TomlLines:
    """Finds the line of a key, which the TOML parser does not report."""

    def __init__(self, text: str, file_name: str) -> None:
        self.file_name = file_name
        self.lines = text.split("\n")
        # The lines at which the tables of each list start, such as those of [[job]].
        self.starts: dict[str, list[int]] = {}
        for number, line in enumerate(self.lines):
            if found := re.match(r"\s*\[\[\s*(\w+)\s*\]\]", line):
                self.starts.setdefault(found[1], []).append(number)

    def create_error(
        self, number: int | None, key: str, error: InputError, kind: str = "job"
    ) -> InputError:
        """Return an error that also says where its key is, in a table or in the whole file."""
        starts = self.starts.get(kind, [])
        first, last = 0, len(self.lines)
        if number is not None and number < len(starts):
            first = starts[number]
            all_starts = (start for each in self.starts.values() for start in each)
            last = min((start for start in all_starts if start > first), default=last)
        name = rf"""["']?{re.escape(key)}["']?\s*"""
        assignment = re.compile(rf"\s*({name}[=.]|\[\s*{kind}\s*\.\s*{name}\])")
        line = next((n for n in range(first, last) if assignment.match(self.lines[n])), first)
        return InputError(f"{self.file_name}:{line + 1}: {error}")


class TomlTable:
    """A table of the file; its values are checked as they are read."""

    def __init__(
        self, values: dict[str, Any], lines: TomlLines, number: int | None, kind: str = "job"
    ) -> None:
        self.values, self.lines, self.number, self.kind = values, lines, number, kind

    def create_error(self, key: str, error: InputError) -> InputError:
        return self.lines.create_error(self.number, key, error, self.kind)

    def read(
        self,
        fields: Sequence[Field],
        *,
        required: Iterable[str] = (),
        lists: Iterable[str] = (),
        read: Callable[..., dict[str, Any]] = read_fields,
    ) -> dict[str, Any]:
        """Return what the values mean, by the names of attributes; ``lists`` are other keys."""
        self._check_keys([*(field.name for field in fields), *lists])
        for key in required:
            if key not in self.values:
                raise self.create_error(key, InputError("is missing", argument=key))
        return read(self.values, fields, self.create_error)

    def _check_keys(self, keys: Sequence[str]) -> None:
        for key in self.values:
            if key not in keys:
                known = ", ".join(keys)
                close = get_close_matches(key, keys, n=1)
                hint = f"did you mean {close[0]!r}? Keys are" if close else "keys are"
                problem = f"unknown key {describe_value(key)}; {hint}: {known}"
                raise self.create_error(key, InputError(problem))
