"""The keys of a job: what each may be, what it means, and whether commands or functions have it.

Jobs files, requests to a service, ``hesrpt add`` and ``Pool.map`` all read jobs by this table, so a
key is accepted, refused and understood in the same way everywhere. Each of them says in its own way
where a wrong value was: on a line of a file, in a job of a request, in an option or an argument.
What is not given has the default of :class:`JobSpec` or :class:`CommandTemplate`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from hesrpt.errors import InputError
from hesrpt.jobs.command_template import (
    check_command,
    check_environment,
    check_placeholders,
    check_shell,
)
from hesrpt.jobs.failures import OnError
from hesrpt.jobs.item_resources import check_resources
from hesrpt.jobs.job_items import EXPECTED_ITEMS
from hesrpt.jobs.job_spec import AfterFailure, Hook, Resizing
from hesrpt.jobs.text import describe_value, escape_undecodable
from hesrpt.speedups import PowerLaw, Speedup, as_speedup
from hesrpt.units import parse_duration
from hesrpt.validation import check_number

#: What the items of a job do.
Work: TypeAlias = Literal["command", "function"]

_MAX_NUMBER = 1_000_000
_MAX_AMOUNT = 1e300
_MAX_HOOKS = 20


@dataclass(frozen=True)
class Field:
    """A key of a job, or of another table in a jobs file."""

    name: str
    expected: str  # completes the message "must be …"
    #: Returns what a value means, or None if it is wrong; an InputError says more about that.
    convert: Callable[[Any], Any]
    attribute: str = ""  # of the spec or the command; by default, its name
    work: Work | None = None  # None: jobs of either kind have it

    def read(self, value: object) -> Any:
        """Return what a value means."""
        converted = self.convert(value)
        if converted is None:
            raise InputError(
                f"must be {self.expected}, got {describe_value(value)}", argument=self.name
            )
        return converted


# --- conversions: they return None for a wrong value --------------------------------------------


def to_string(value: object) -> str | None:
    """Return a string that is not empty."""
    return value if isinstance(value, str) and value and "\0" not in value else None


def to_positive(value: object) -> float | None:
    """Return a number greater than 0."""
    number = _to_number(value)
    return number if number is not None and 0 < number < _MAX_AMOUNT else None


def _to_number(value: object) -> float | None:
    try:
        return check_number("", value)
    except InputError:
        return None


def _to_whole_number(minimum: int) -> Callable[[object], int | None]:
    """Return a conversion to a whole number of at least ``minimum``."""

    def convert(value: object) -> int | None:
        number = _to_number(value)
        if number is None or number != int(number) or not minimum <= number <= _MAX_NUMBER:
            return None
        return int(number)

    return convert


def _to_seconds(value: object) -> float | None:
    try:
        return to_positive(parse_duration(value) if isinstance(value, str) else value)
    except ValueError:
        return None


def _to_power_law(value: object) -> PowerLaw | None:
    p = to_positive(value)
    return PowerLaw(p) if p is not None and p < 1 else None


def _to_speedup(value: Any) -> Speedup:
    if not isinstance(value, int | float):
        return as_speedup(value)
    try:
        return PowerLaw(value)
    except InputError as error:  # about p
        raise InputError(error.problem, argument="speedup") from None


def _to_on_error(value: object) -> OnError | None:
    if not isinstance(value, bool):
        return None
    return "keep" if value else "raise"


def _to_choice(choices: Any) -> Callable[[object], Any]:
    return lambda value: value if value in get_args(choices) else None


def _to_names(value: object) -> tuple[str, ...] | None:
    if isinstance(value, str):
        value = [value]
    names = list(value) if isinstance(value, Iterable) else [None]
    is_right = all(isinstance(name, str) and name for name in names)
    return tuple(dict.fromkeys(map(str, names))) if is_right else None


def to_group_name(value: object) -> str | None:
    """Return the name of a group; an empty one stands for no group."""
    return value if isinstance(value, str) and value.isprintable() else None


def _to_hooks(value: object) -> tuple[Hook, ...] | None:
    """Return the hooks that a command, an address or a list of these stands for.

    >>> _to_hooks("make report")
    (Hook(target='make report'),)
    """
    targets = value if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    hooks = []
    for target in targets:
        if not isinstance(target, str) or not target.strip() or "\0" in target:
            return None
        if target != escape_undecodable(target):
            return None  # the journal could not store it
        hook = Hook(target.strip())
        if hook.is_webhook and not _has_host(hook.target):
            raise InputError(f"must name a host, got {describe_value(target)}", argument="on_end")
        hooks.append(hook)
    if len(hooks) > _MAX_HOOKS:
        raise InputError(f"must have at most {_MAX_HOOKS} entries", argument="on_end")
    return tuple(hooks)


def _has_host(address: str) -> bool:
    try:
        return bool(urlsplit(address).hostname) and address.isprintable() and " " not in address
    except ValueError:  # of a malformed port or bracket
        return False


def _to_words(value: object) -> tuple[str, ...]:
    """Return a list of strings; an empty tuple for anything else."""
    is_right = isinstance(value, list) and all(isinstance(word, str) for word in value)
    return tuple(value) if isinstance(value, list) and is_right else ()


def _to_command(value: object) -> str | tuple[str, ...] | None:
    command = value if isinstance(value, str) else _to_words(value)
    if not command:
        return None
    check_command(command)
    return command


def _to_path(value: object) -> str | None:
    path = to_string(value)
    return None if path is None else _to_text(os.path.expanduser(path))


def _to_text(value: object) -> str | None:
    if not isinstance(value, str):
        return None
    check_placeholders(value)
    return value


def _to_variables(value: object) -> dict[str, str] | None:
    if not isinstance(value, dict):
        return None
    for each in value.values():
        if not isinstance(each, str) and _to_number(each) is None:
            return None
    variables = {name: str(each) for name, each in value.items()}
    check_environment(variables)
    return variables


def _to_shell(value: object) -> tuple[str, ...]:
    shell = _to_words(value) or (str(value),)
    check_shell(shell)
    return shell


# --- the table ----------------------------------------------------------------------------------

_NAME = "a non-empty string without zero bytes"
_DURATION = 'a number of seconds greater than 0, or a duration such as "90s", "15m", "2h" or "1d"'
_SERVERS = f"a whole number from 1 to {_MAX_NUMBER:,}"
_to_servers = _to_whole_number(1)

_command_field = partial(Field, work="command")
_function_field = partial(Field, work="function")

NAME = Field("name", _NAME, to_string)
WEIGHT = Field("weight", "a number greater than 0", to_positive)
SERVERS = Field("servers", _SERVERS, _to_servers)
GROUP = Field("group", "a name without line breaks", to_group_name)
RESOURCES = Field("resources", "a table", check_resources)
_COMMAND = "a string for the shell, or a list of strings to run without a shell"
_HOOKS = "a command, an address such as https://…, or a list of these"

FIELDS = (
    NAME,
    Field("kind", _NAME, to_string),
    _command_field("command", _COMMAND, _to_command),
    _command_field("items", EXPECTED_ITEMS, lambda value: value),  # an ItemReader checks them
    _command_field("cwd", "the name of a directory", _to_path),
    _command_field("env", 'a table of strings such as {LANG = "C"}', _to_variables),
    _command_field("stdin", "a string", _to_text),
    _command_field("stdin_file", "the name of a file", _to_path),
    _command_field("shell", "a shell", _to_shell),
    Field("timeout", _DURATION, _to_seconds),
    Field("size", _DURATION, _to_seconds),
    _command_field("p", "a number between 0 and 1", _to_power_law, "speedup"),
    _function_field("speedup", "a speedup, or the p of k^p", _to_speedup),
    WEIGHT,
    SERVERS,
    Field("min_servers", _SERVERS, _to_servers),
    Field("max_servers", _SERVERS, _to_servers),
    Field("after", "a list of names of jobs", _to_names),
    Field("after_failure", "'cancel' or 'release'", _to_choice(AfterFailure)),
    GROUP,
    RESOURCES,
    Field("on_end", _HOOKS, _to_hooks),
    Field("retries", f"a whole number from 0 to {_MAX_NUMBER:,}", _to_whole_number(0)),
    _command_field("keep_going", "true or false", _to_on_error, "on_error"),
    _function_field("on_error", "'raise' or 'keep'", _to_choice(OnError)),
    _command_field("resize", "'restart', 'affinity' or 'never'", _to_choice(Resizing)),
    _command_field("restart_cost", _DURATION, _to_seconds),
)

#: The keys of jobs that run commands, and of those that call functions.
COMMAND_FIELDS = tuple(field for field in FIELDS if field.work != "function")
FUNCTION_FIELDS = tuple(field for field in FIELDS if field.work != "command")

#: Returns an error about the value of a key that also says where this value is.
Locate: TypeAlias = Callable[[str, InputError], InputError]


def read_job(
    values: Mapping[str, object], fields: Iterable[Field], locate: Locate
) -> dict[str, Any]:
    """Return what the values of a job mean, by the names of attributes."""
    read = read_fields(values, fields, locate)
    try:
        _combine_limits(read)
    except InputError as error:
        raise locate(error.argument or "servers", error) from None
    return read


def read_fields(
    values: Mapping[str, object], fields: Iterable[Field], locate: Locate
) -> dict[str, Any]:
    """Return what the values of a table mean, by the names of attributes."""
    read = {}
    for field in fields:
        if field.name in values:
            try:
                read[field.attribute or field.name] = field.read(values[field.name])
            except InputError as error:
                raise locate(field.name, error) from None
    return read


def _combine_limits(values: dict[str, Any]) -> None:
    """Replace ``servers`` by the two limits that it sets; check that they agree.

    >>> _combine_limits(values := {"servers": 2})
    >>> values
    {'min_servers': 2, 'max_servers': 2}
    """
    if (servers := values.pop("servers", None)) is not None:
        for name in ("min_servers", "max_servers"):
            if name in values:
                raise InputError(
                    f"cannot be combined with servers, which sets both limits; got {name} = "
                    f"{values[name]!r} and servers = {servers!r}",
                    argument=name,
                )
            values[name] = servers
    most = values.get("max_servers", _MAX_NUMBER)
    if (fewest := values.get("min_servers", 0)) > most:
        raise InputError(
            f"must be at most max_servers, which is {most}, got {fewest}", argument="min_servers"
        )
