"""Jobs files: TOML that says which commands to run, checked completely before anything starts."""

from __future__ import annotations

import glob
import json
import re
import tomllib
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.files import read_text
from hesrpt.runtime.command_template import CommandTemplate, check_placeholders
from hesrpt.runtime.jobs import JobSpec, Resizing
from hesrpt.runtime.sources import CommandSource
from hesrpt.speedups import PowerLaw
from hesrpt.units import parse_duration

_TOP = ("servers", "policy", "job")
_KEYS = (
    "name", "command", "items", "size", "p", "weight", "retries", "timeout", "resize",
    "restart_cost",
)  # fmt: skip
_RESIZING: tuple[Resizing, ...] = ("restart", "affinity", "never")


@dataclass(frozen=True)
class JobRequest:
    """A job as somebody wants it."""

    name: str
    command: str | tuple[str, ...]
    items: tuple[str, ...] | None  # None: one command for all servers of the job
    directory: str
    size: float | None = None
    p: float | None = None
    weight: float = 1.0
    retries: int = 1
    timeout: float | None = None
    resize: Resizing = "never"
    restart_cost: float = 10.0

    @property
    def spec(self) -> JobSpec:
        """What the scheduler must know of it."""
        return JobSpec(
            name=self.name,
            items=1 if self.items is None else len(self.items),
            size=self.size,
            speedup=None if self.p is None else PowerLaw(self.p),
            weight=self.weight,
            retries=self.retries,
            resize=self.resize if self.items is None else None,
            restart_cost=self.restart_cost,
        )

    @property
    def source(self) -> CommandSource:
        """Where its tasks come from."""
        pinned = self.items is None and self.resize == "affinity"
        template = CommandTemplate(
            job=self.name,
            command=self.command,
            items=self.items,
            directory=self.directory,
            timeout=self.timeout,
        )
        return CommandSource(template, pinned)

    def as_text(self) -> str:
        """Return the request as text to be remembered."""
        return json.dumps(self.__dict__)

    @classmethod
    def from_text(cls, text: str) -> JobRequest:
        """Return a request that was remembered."""
        values = json.loads(text)
        for key in ("command", "items"):
            if isinstance(values[key], list):
                values[key] = tuple(values[key])
        return cls(**values)


@dataclass(frozen=True)
class JobsFile:
    """A jobs file, checked."""

    jobs: tuple[JobRequest, ...]
    servers: int | None
    policy: str | None


def read_jobs_file(path: str | Path) -> JobsFile:
    """Return what a jobs file says, or raise an error that names the file and the line."""
    place = Path(path)
    return parse_jobs(read_text(place), str(place), place.parent.resolve())


def parse_jobs(text: str, place: str, directory: Path) -> JobsFile:
    """Return what the text of a jobs file says."""
    try:
        content = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        line = re.search(r"line (\d+)", str(error))
        where = f":{line.group(1)}" if line else ""
        message = re.sub(r" \(at .*\)$", "", str(error))
        raise InputError(f"{place}{where}: {message}") from None
    lines = _Lines(text, place)
    for key in content:
        if key not in _TOP:
            raise lines.error(None, key, f"unknown key {key!r}; keys are: {', '.join(_TOP)}")
    servers, policy = content.get("servers"), content.get("policy")
    if servers is not None and (not _is_whole(servers) or servers < 1):
        raise lines.error(
            None, "servers", f"servers must be a whole number, at least 1: {servers!r}"
        )
    if policy is not None and not isinstance(policy, str):
        raise lines.error(None, "policy", f"policy must be a name, got {policy!r}")
    tables = content.get("job")
    if not isinstance(tables, list) or not tables:
        raise InputError(f"{place}: has no jobs; each begins with a line [[job]]")
    for number, table in enumerate(tables):
        if not isinstance(table, dict):
            raise lines.error(number, "job", f"a job must be a table, got {table!r}")
    jobs = [_job(table, number, lines, directory) for number, table in enumerate(tables)]
    names = [job.name for job in jobs]
    for number, name in enumerate(names):
        if name in names[:number]:
            raise lines.error(number, "name", f"there is already a job named {name!r}")
    return JobsFile(tuple(jobs), servers, policy)


class _Lines:
    """Where the keys of a jobs file stand; the TOML reader does not say."""

    def __init__(self, text: str, place: str) -> None:
        self.place = place
        self.lines = text.splitlines()
        self.starts = [
            number
            for number, line in enumerate(self.lines)
            if re.match(r"\s*\[\[\s*job\s*\]\]", line)
        ]

    def error(self, job: int | None, key: str, message: str) -> InputError:
        first = self.starts[job] if job is not None and job < len(self.starts) else 0
        last = len(self.lines)
        if job is not None and job + 1 < len(self.starts):
            last = self.starts[job + 1]
        wanted = re.compile(rf"""\s*["']?{re.escape(key)}["']?\s*[=.]""")
        line = next((n for n in range(first, last) if wanted.match(self.lines[n])), first)
        return InputError(f"{self.place}:{line + 1}: {message}")


def _job(table: Any, number: int, lines: _Lines, directory: Path) -> JobRequest:
    def wrong(key: str, expected: str) -> InputError:
        return lines.error(number, key, f"{key} must be {expected}, got {table.get(key)!r}")

    for key in table:
        if key not in _KEYS:
            raise lines.error(number, key, f"unknown key {key!r}; keys are: {', '.join(_KEYS)}")
    name = table.get("name")
    if not isinstance(name, str) or not name:
        raise wrong("name", "a text")
    command = table.get("command")
    listed = isinstance(command, list) and all(isinstance(part, str) for part in command)
    if not command or not (isinstance(command, str) or listed):
        raise wrong("command", "a text for the shell, or a list of texts that runs without one")
    command = tuple(command) if isinstance(command, list) else command
    try:
        check_placeholders(command)
    except InputError as error:
        raise lines.error(number, "command", str(error)) from None
    try:
        items = None if "items" not in table else _items(table["items"], directory)
    except InputError as error:
        raise lines.error(number, "items", str(error)) from None
    values: dict[str, Any] = {}
    for key in ("size", "timeout", "restart_cost"):
        if key in table:
            seconds = _seconds(table[key])
            if seconds is None:
                raise wrong(key, 'a time in seconds, or like "90s", "15m", "2h", "1d"')
            values[key] = seconds
    if "p" in table:
        if not _is_number(table["p"]) or not 0 < table["p"] < 1:
            raise wrong("p", "a number between 0 and 1")
        values["p"] = float(table["p"])
    if "weight" in table:
        if not _is_number(table["weight"]) or table["weight"] <= 0:
            raise wrong("weight", "a number greater than 0")
        values["weight"] = float(table["weight"])
    if "retries" in table:
        if not _is_whole(table["retries"]) or table["retries"] < 0:
            raise wrong("retries", "a whole number, at least 0")
        values["retries"] = table["retries"]
    if "resize" in table:
        if table["resize"] not in _RESIZING:
            raise wrong("resize", f"one of {', '.join(_RESIZING)}")
        if items is not None:
            raise lines.error(number, "resize", "resize is for a job of one command, without items")
        values["resize"] = table["resize"]
    if items is not None and "servers" in _placeholders(command):
        raise lines.error(
            number, "command", "{servers} is for a job of one command; an item runs on one server"
        )
    if items is None and _placeholders(command) & {"item", "stem", "name", "index"}:
        raise lines.error(number, "command", "the command refers to items, but the job has none")
    return JobRequest(name, command, items, str(directory), **values)


def _placeholders(command: str | tuple[str, ...]) -> set[str]:
    text = command if isinstance(command, str) else " ".join(command)
    return set(re.findall(r"(?<!\{)\{(\w+)\}", text))


def _items(value: Any, directory: Path) -> tuple[str, ...]:
    """Return the items of a job: of a pattern, a list, the lines of a file or a range."""
    if isinstance(value, str):
        found = sorted(glob.glob(value, root_dir=directory, recursive=True))
        if not found:
            raise InputError(f"no file matches {value!r} in {directory}")
        return tuple(found)
    if isinstance(value, list):
        if not value or not all(isinstance(one, str | int | float) for one in value):
            raise InputError("a list of items must hold texts or numbers, at least one")
        return tuple(str(one) for one in value)
    if isinstance(value, dict) and list(value) == ["lines"] and isinstance(value["lines"], str):
        path = directory / value["lines"]
        kept = tuple(line for line in read_text(path).split("\n") if line.strip())
        if not kept:
            raise InputError(f"{path}: has no lines")
        return kept
    if isinstance(value, dict) and list(value) == ["range"]:
        bounds = value["range"]
        whole = isinstance(bounds, list) and all(_is_whole(bound) for bound in bounds)
        if whole and 1 <= len(bounds) <= 3 and 0 not in bounds[2:]:
            numbers = range(*bounds)
            if numbers:
                return tuple(map(str, numbers))
        raise InputError(f"a range must be like [0, 500], and not empty, got {bounds!r}")
    raise InputError(
        'items must be a pattern like "photos/*.jpg", a list, {lines = "file.txt"} or '
        f"{{range = [0, 500]}}, got {value!r}"
    )


def _seconds(value: Any) -> float | None:
    try:
        seconds = parse_duration(value) if isinstance(value, str) else value
    except ValueError:
        return None
    return float(seconds) if _is_number(seconds) and seconds > 0 else None


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value)


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
