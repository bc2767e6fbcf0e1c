"""The command of a job: its placeholders, how they are checked, and how they are filled in."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import PurePath
from string import Formatter
from typing import Any

from hesrpt.errors import InputError

PLACEHOLDERS = ("item", "stem", "name", "index", "servers", "job")


@dataclass(frozen=True, kw_only=True)
class CommandTemplate:
    """A command to run once for each item, or once on all servers of the job.

    A string is a line for the shell. A tuple is a program and its arguments, run without a shell.
    """

    job: str  # the value of {job}: the name in the jobs file
    command: str | tuple[str, ...]
    items: tuple[str, ...] | None = None  # None: one command on all servers of the job
    directory: str | None = None
    timeout: float | None = None

    def __post_init__(self) -> None:
        check_placeholders(self.command)

    def fill_in(self, item: int, servers: int) -> str | tuple[str, ...]:
        """Return the command of an item; values are quoted if it is a line for the shell."""
        value = self.items[item] if self.items else ""
        path = PurePath(value)
        values = {
            "item": value,
            "stem": path.stem,
            "name": path.name,
            "index": str(item),
            "servers": str(servers),
            "job": self.job,
        }
        if isinstance(self.command, str):
            quoted = {name: shlex.quote(value) for name, value in values.items()}
            return self.command.format(**quoted)
        return tuple(part.format(**values) for part in self.command)


def check_placeholders(command: str | tuple[str, ...]) -> None:
    """Raise an error if a placeholder is unknown, or is inside quotes in a line for the shell."""
    for part in [command] if isinstance(command, str) else command:
        fields = _parse(part)
        for _, name, spec, conversion in fields:
            if name is not None and (name not in PLACEHOLDERS or spec or conversion):
                known = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
                suffix = f"!{conversion}" if conversion else f":{spec}" if spec else ""
                raise InputError(
                    f"unknown placeholder {{{name}{suffix}}} in {part!r}; placeholders are "
                    f"{known}; write {{{{ and }}}} for braces"
                )
        if isinstance(command, str):
            _check_quotes(part, fields)


def find_placeholders(command: str | tuple[str, ...]) -> set[str]:
    """Return the names of the placeholders in a command."""
    parts = [command] if isinstance(command, str) else command
    return {name for part in parts for _, name, _, _ in _parse(part) if name is not None}


def _parse(part: str) -> list[tuple[str, str | None, Any, Any]]:
    try:
        return list(Formatter().parse(part))
    except ValueError as error:
        raise InputError(f"{part!r}: {error}; write {{{{ and }}}} for braces") from None


def _check_quotes(command: str, fields: Iterable[tuple[str, str | None, Any, Any]]) -> None:
    """Raise an error if a placeholder is inside quotes: its value is quoted already."""
    quote, escaped = "", False
    for text, name, _, _ in fields:
        for letter in text:
            if escaped:
                escaped = False
            elif letter == "\\" and quote != "'":
                escaped = True
            elif quote:
                quote = "" if letter == quote else quote
            elif letter in "'\"`":
                quote = letter
        if name is not None and quote:
            raise InputError(
                f"{{{name}}} is inside quotes in {command!r}: remove the quotes, since values are "
                "quoted for the shell automatically"
            )
