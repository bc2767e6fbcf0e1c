"""The command of a job: its texts, which may contain placeholders, and how they are filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePath

from hesrpt.errors import InputError
from hesrpt.jobs.command_checks import (
    check_command,
    check_environment,
    check_input,
    check_shell,
    find_exposed_placeholders,
    read_line,
)
from hesrpt.jobs.placeholders import check_placeholders, find_placeholders
from hesrpt.jobs.shell_symbols import NUMBERS, get_variable


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

    def __post_init__(self) -> None:
        check_command(self.command)
        check_placeholders(self.cwd)
        check_environment(self.env)
        check_input(self.command, self.stdin or "")
        check_placeholders(self.stdin_file or "")
        check_shell(self.shell)

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
            placeholders = {f"{{{name}}}" for name in find_placeholders([command])}
            for name in placeholders.difference(NUMBERS):
                variables[get_variable(name)] = values[name[1:-1]]
            command = read_line(command).template.format(**values)
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

    def check_options(self) -> None:
        """Raise an error if the command would take an item for an option."""
        exposed = find_exposed_placeholders(self.command)
        if not exposed:
            return
        if "job" in exposed and self.job.startswith("-"):
            self._refuse_option("job", f"the name {self.job!r}")
        for item, value in enumerate(self.items or ()):
            # Few items can be at fault, and splitting paths is slow.
            if value.startswith("-") or "/-" in value:
                values = self._get_values(item, 1)
                for name in exposed:
                    if values[name].startswith("-"):
                        self._refuse_option(name, f"the item {value!r}")

    def _refuse_option(self, name: str, subject: str) -> None:
        raise InputError(
            f"the command would take {{{name}}} of {subject} for an option, because it begins with "
            f"-; write -- before {{{name}}}, or ./{{{name}}} if it is a file"
        )
