"""Refuses commands known to run the value of a placeholder as code, or to take it for an option.

Values arrive as data, but programs and builtins that evaluate their arguments evaluate them too,
and no list of these is complete.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache

from hesrpt.errors import InputError
from hesrpt.jobs.code_arguments import (
    find_code,
    find_exposed,
    get_program,
    reads_code_from_input,
    runs_standard_input,
)
from hesrpt.jobs.placeholders import (
    check_placeholders,
    find_placeholders,
    split_symbols,
)
from hesrpt.jobs.shell_line import ShellLine, read_shell_line
from hesrpt.jobs.shell_symbols import NUMBERS
from hesrpt.jobs.shell_words import Word
from hesrpt.jobs.text import describe_value

_HINTS = {
    "eval": "remove eval",
    "ssh": "send it through standard input, as in "
    "printf '%s\\0' {item} | ssh HOST 'xargs -0 gzip --'",
    "awk": "pass it in the environment, as in X={item} awk '… ENVIRON[\"X\"] …'",
}
# Shells, interpreters and the system run what these variables hold, or look for programs there.
_CODE_VARIABLES = re.compile(
    r"PATH|IFS|ENV|BASH_ENV|BASH_FUNC_.*|SHELLOPTS|BASHOPTS|PS4|PROMPT_COMMAND|LD_.*|DYLD_.*|"
    r"PYTHON.*|PERL5.*|PERLLIB|RUBY(OPT|LIB)|NODE_(OPTIONS|PATH)|JAVA_TOOL_OPTIONS|"
    r"GIT_.*|(VISUAL|.*EDITOR|PAGER|SHELL)"
)
# The quotes around values are those of POSIX shells.
_SHELLS = re.compile(r"(|a|ba|da|k|mk|z)sh")
_OWN_PREFIX = "HESRPT_"
# Commands of so many characters that were right are remembered.
_SHORT = 1000


def check_command(command: str | tuple[str, ...]) -> None:
    """Raise an error if a placeholder is unknown, or its value could become code."""
    is_short = len(command if isinstance(command, str) else "".join(command)) <= _SHORT
    (_check_short_command if is_short else _check_command)(command)


def _check_command(command: str | tuple[str, ...]) -> None:
    for part in [command] if isinstance(command, str) else command:
        if "\0" in part:
            raise InputError(f"a command cannot contain a zero byte, got {part!r}")
        check_placeholders(part)
    try:
        commands = _split_commands(command)
        for words in commands:
            _check_code(words, is_list=not isinstance(command, str))
        _check_printed(commands)
        _check_eval(commands)
    except InputError as error:
        raise InputError(f"{error} (in {_describe(command)})") from None


# A job's command is checked when it is read, in its template and in the scheduler.
_check_short_command = lru_cache(maxsize=1000)(_check_command)


def check_environment(env: Mapping[str, str]) -> None:
    """Raise an error if a variable has an impossible name or value, or its value could be code."""
    for name, value in env.items():
        if not name or "=" in name or "\0" in name + value:
            raise InputError(
                f"a variable must have a name without '=', and no zero bytes, got "
                f"{describe_value(name)} = {describe_value(value)}"
            )
        if name.startswith(_OWN_PREFIX):
            raise InputError(f"{name} is reserved: names with {_OWN_PREFIX} are hesrpt's own")
        check_placeholders(value)
        values = find_values([value])
        if values and _CODE_VARIABLES.fullmatch(name):
            raise InputError(
                f"{values[0]} could become code, because programs run what {name} holds or leads "
                "to; use another variable"
            )


def check_input(command: str | tuple[str, ...], text: str) -> None:
    """Raise an error if a command would run the values in its standard input as code."""
    check_placeholders(text)
    if not (values := find_values([text])):
        return
    readers = [words for words in _split_commands(command) if runs_standard_input(words)]
    if readers:
        program = get_program(readers[0])
        raise InputError(
            f"{values[0]} would become part of the program that {program} reads; pass it as an "
            f"argument, as in {program} FILE {values[0]}"
        )


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


def find_values(texts: Sequence[str]) -> list[str]:
    """Return the placeholders in texts whose values may be anything: all but numbers."""
    found = sorted(f"{{{name}}}" for name in find_placeholders(texts))
    return [placeholder for placeholder in found if placeholder not in NUMBERS]


def find_exposed_placeholders(command: str | tuple[str, ...]) -> set[str]:
    """Return the placeholders whose values a program would take for options."""
    return {
        placeholder[1:-1]
        for words in _split_commands(command)
        for placeholder in find_exposed(words)
    }


@lru_cache(maxsize=256)
def read_line(command: str) -> ShellLine:
    """Read a line for the shell."""
    return read_shell_line(split_symbols(command))


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


def _check_printed(commands: Sequence[Sequence[Word]]) -> None:
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


def _split_commands(command: str | tuple[str, ...]) -> list[list[Word]]:
    """Return the words of each command that a shell runs, or those of a program and arguments."""
    if isinstance(command, str):
        return read_line(command).commands
    words = []
    for part in command:
        word = Word()
        for symbol in split_symbols(part):
            word.add(symbol)
        words.append(word)
    return [words]


def _describe(command: str | tuple[str, ...]) -> str:
    shown = repr(command if isinstance(command, str) else list(command))
    return shown if len(shown) <= 200 else f"{shown[:200]}…"
