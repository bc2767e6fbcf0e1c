"""The command of a job: its texts, which may contain placeholders, and how they are filled in."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from hesrpt.errors import InputError
from hesrpt.jobs.placeholders import check_placeholders, find_placeholders
from hesrpt.jobs.shell_line import NUMBERS, get_variable, refer_to_variables
from hesrpt.jobs.text import describe_value

_OWN_PREFIX = "HESRPT_"
# Lines refer to variables as in POSIX shells.
_SHELLS = re.compile(r"(|a|ba|da|k|mk|z)sh")


@dataclass(frozen=True, kw_only=True)
class FilledCommand:
    """The command of an item, and what it runs with."""

    command: str | tuple[str, ...]
    variables: dict[str, str]  # of its environment, with those to which the command refers
    directory: Path | None
    stdin: str | None
    stdin_file: str | None


@dataclass(frozen=True, kw_only=True)
class CommandTemplate:
    """A command to run once for each item, or once on all servers of the job.

    A string is a line for the shell. A tuple is a program and its arguments, run without a shell.
    Whoever creates one from what a user wrote checks that first, with the functions below.
    """

    job: str  # the value of {job}: the name in the jobs file
    command: str | tuple[str, ...]
    items: tuple[str, ...] | None = None  # None: one command on all servers of the job
    directory: str | None = None  # where paths begin
    cwd: str = ""  # where the command runs, relative to the directory
    env: Mapping[str, str] = field(default_factory=dict)  # added to its environment
    stdin: str | None = None  # what it reads from its standard input
    stdin_file: str | None = None  # or the file with that
    shell: tuple[str, ...] = ("/bin/sh",)  # with options
    timeout: float | None = None

    @property
    def placeholders(self) -> set[str]:
        """The names of the placeholders in all its texts."""
        parts = [self.command] if isinstance(self.command, str) else self.command
        others = (self.cwd, self.stdin or "", self.stdin_file or "")
        return find_placeholders([*parts, *others, *self.env.values()])

    def fill_in(self, item: int, servers: int | str) -> FilledCommand:
        """Return the command of an item, with the number of servers or a text in its place."""
        values = self._get_values(item, servers)
        variables = {name: value.format(**values) for name, value in self.env.items()}
        command = self.command
        if isinstance(command, str):
            # The shell finds the values in its environment, so they cannot change the line.
            for name in find_placeholders([command]) - NUMBERS:
                variables[get_variable(name)] = values[name]
            command = refer_to_variables(command).format(**{name: values[name] for name in NUMBERS})
        else:
            command = tuple(part.format(**values) for part in command)
        directory = None if self.directory is None else Path(self.directory)
        if self.cwd:
            directory = (directory or Path()) / self.cwd.format(**values)
        return FilledCommand(
            command=command,
            variables=variables,
            directory=directory,
            stdin=None if self.stdin is None else self.stdin.format(**values),
            stdin_file=None if self.stdin_file is None else self.stdin_file.format(**values),
        )

    def _get_values(self, item: int, servers: int | str) -> dict[str, str]:
        value = self.items[item] if self.items else ""
        path = PurePath(value)
        return {
            "item": value,
            "stem": path.stem,
            "name": path.name,
            "index": str(item),
            "servers": str(servers),
            "job": self.job,
        }


def check_command(command: str | tuple[str, ...]) -> None:
    """Raise an error if a command cannot run, or a placeholder is unknown or in a wrong place."""
    for part in [command] if isinstance(command, str) else command:
        if "\0" in part:
            raise InputError(f"a command cannot contain a zero byte, got {part!r}")
        check_placeholders(part)
    if isinstance(command, str):
        try:
            refer_to_variables(command)
        except InputError as error:
            raise InputError(f"{error} (in {describe_value(command)})") from None


def check_environment(env: Mapping[str, str]) -> None:
    """Raise an error if a variable has an impossible name or value, or an unknown placeholder."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError(
                f"a variable must have a name without '=', and no zero bytes, got "
                f"{describe_value(name)} = {describe_value(value)}"
            )
        if name.startswith(_OWN_PREFIX):
            raise InputError(f"{name} is reserved: names with {_OWN_PREFIX} are hesrpt's own")
        check_placeholders(value)


def check_shell(shell: Sequence[str]) -> None:
    """Raise an error if a program is not a shell that can run a line."""
    name = shell[0].rpartition("/")[2] if shell else ""
    if not _SHELLS.fullmatch(name):
        raise InputError(
            'must be a shell (sh, ash, bash, dash, ksh, mksh or zsh) such as "/bin/bash", or a '
            f'list with its options such as ["bash", "-eu"], got {describe_value(list(shell))}'
        )
    for option in shell[1:]:
        if re.fullmatch("-[A-Za-z]*[cs][A-Za-z]*", option) or "\0" in option:
            raise InputError(
                f"cannot have the option {option!r}, because hesrpt adds -c and the command itself"
            )
