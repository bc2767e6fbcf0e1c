"""The command of a job: its placeholders, how they are checked, and how they are filled in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import PurePath
from string import Formatter
from typing import Any, NamedTuple

from hesrpt.errors import InputError
from hesrpt.runtime.commands.code_arguments import (
    find_code,
    find_exposed,
    get_program,
    reads_code_from_input,
)
from hesrpt.runtime.commands.shell_line import ShellLine, read_shell_line
from hesrpt.runtime.commands.shell_symbols import NUMBERS, get_variable
from hesrpt.runtime.commands.shell_words import Word

PLACEHOLDERS = ("item", "stem", "name", "index", "servers", "job")

_HINTS = {
    "eval": "remove eval",
    "ssh": "send it through standard input, as in "
    "printf '%s\\0' {item} | ssh HOST 'xargs -0 gzip --'",
    "awk": "pass it in the environment, as in X={item} awk '… ENVIRON[\"X\"] …'",
}


class FilledCommand(NamedTuple):
    """The command of an item, and the environment variables to which it refers."""

    command: str | tuple[str, ...]
    variables: dict[str, str]


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
        _check_command(self.command)

    def fill_in(self, item: int, servers: int) -> FilledCommand:
        """Return the command of an item."""
        values = self._get_values(item, servers)
        if not isinstance(self.command, str):
            return FilledCommand(tuple(part.format(**values) for part in self.command), {})
        # The shell finds the values in its environment, so they cannot change what the line means.
        line = _read_line(self.command).template.format(**values)
        placeholders = {f"{{{name}}}" for name in find_placeholders(self.command)}
        names = placeholders.difference(NUMBERS)
        return FilledCommand(line, {get_variable(name): values[name[1:-1]] for name in names})

    def _get_values(self, item: int, servers: int) -> dict[str, str]:
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
        exposed = _find_exposed(self.command)
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


def find_placeholders(command: str | tuple[str, ...]) -> set[str]:
    """Return the names of the placeholders in a command."""
    parts = [command] if isinstance(command, str) else command
    return {name for part in parts for _, name, _, _ in _parse(part) if name is not None}


def _check_command(command: str | tuple[str, ...]) -> None:
    """Raise an error if a placeholder is unknown, or its value could become code."""
    for part in [command] if isinstance(command, str) else command:
        if "\0" in part:
            raise InputError(f"a command cannot contain a zero byte, got {part!r}")
        for _, name, spec, conversion in _parse(part):
            if name is not None and (name not in PLACEHOLDERS or spec or conversion):
                known = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
                suffix = f"!{conversion}" if conversion else f":{spec}" if spec else ""
                raise InputError(
                    f"unknown placeholder {{{name}{suffix}}} in {part!r}; placeholders are "
                    f"{known}; write {{{{ and }}}} for braces"
                )
    try:
        commands = _split_commands(command)
        for words in commands:
            _check_code(words, is_list=not isinstance(command, str))
        _check_input(commands)
        _check_eval(commands)
    except InputError as error:
        raise InputError(f"{error} (in {_describe(command)})") from None


def _check_code(words: Sequence[Word], *, is_list: bool) -> None:
    """Raise an error if a program would run the value of a placeholder as code."""
    for program, index, _ in find_code(words):
        for placeholder in words[index].placeholders:
            if placeholder not in NUMBERS:
                safe = f"{program} -c 'gzip -- \"$1\"' {program} {placeholder}"
                if is_list:
                    safe = f'["{program}", "-c", "gzip -- \\"$1\\"", "{program}", "{placeholder}"]'
                hint = f"pass it as an argument, as in {safe}"
                if not program.endswith("sh") or program in _HINTS:
                    hint = _HINTS.get(program, "pass it as an argument of its own").replace(
                        "{item}", placeholder
                    )
                raise InputError(
                    f"{placeholder} would become part of a program that {program} runs; {hint}"
                )


def _check_input(commands: Sequence[Sequence[Word]]) -> None:
    """Raise an error if a placeholder is printed to an interpreter that runs what it reads."""
    printing = [words for words in commands if get_program(words) in ("echo", "printf")]
    printed = _list_placeholders(printing)
    readers = [get_program(words) for words in commands if reads_code_from_input(words)]
    if printed and readers:
        raise InputError(
            f"{printed[0]} would become part of the program that {readers[0]} reads; pass it as an "
            f"argument, as in {readers[0]} FILE {printed[0]}"
        )


def _check_eval(commands: Sequence[Sequence[Word]]) -> None:
    """Raise an error if a line has both a placeholder and eval, which may run what holds it."""
    placeholders = _list_placeholders(commands)
    if placeholders and any(get_program(words) == "eval" for words in commands):
        raise InputError(
            f"{placeholders[0]} could become part of a program that eval runs; write the command "
            "without eval"
        )


def _list_placeholders(commands: Sequence[Sequence[Word]]) -> list[str]:
    """Return the placeholders in some commands, except those that stand for numbers."""
    return [
        placeholder
        for words in commands
        for word in words
        for placeholder in word.placeholders
        if placeholder not in NUMBERS
    ]


def _find_exposed(command: str | tuple[str, ...]) -> set[str]:
    """Return the placeholders whose values a program would take for options."""
    return {
        placeholder[1:-1]
        for words in _split_commands(command)
        for placeholder in find_exposed(words)
    }


def _split_commands(command: str | tuple[str, ...]) -> list[list[Word]]:
    """Return the words of each command that a shell runs, or those of a program and arguments."""
    if isinstance(command, str):
        return _read_line(command).commands
    words = []
    for part in command:
        word = Word()
        for symbol in _split_symbols(part):
            word.add(symbol)
        words.append(word)
    return [words]


@lru_cache(maxsize=256)
def _read_line(command: str) -> ShellLine:
    return read_shell_line(_split_symbols(command))


def _split_symbols(part: str) -> list[str]:
    """Return the characters and the placeholders of a text."""
    symbols: list[str] = []
    for text, name, _, _ in _parse(part):
        symbols += text
        if name is not None:
            symbols.append(f"{{{name}}}")
    return symbols


def _parse(part: str) -> list[tuple[str, str | None, Any, Any]]:
    try:
        return list(Formatter().parse(part))
    except ValueError as error:
        raise InputError(f"{part!r}: {error}; write {{{{ and }}}} for braces") from None


def _describe(command: str | tuple[str, ...]) -> str:
    shown = repr(command if isinstance(command, str) else list(command))
    return shown if len(shown) <= 200 else f"{shown[:200]}…"
