"""The command of a job: its texts, which may contain placeholders, and how they are filled in."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path, PurePath
from string import Formatter
from typing import Any

from hesrpt.errors import InputError
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
            f'list with its options such as ["bash", "-eu"], got {describe_value(list(shell))}',
            argument="shell",
        )
    for option in shell[1:]:
        if re.fullmatch("-[A-Za-z]*[cs][A-Za-z]*", option) or "\0" in option:
            raise InputError(
                f"cannot have the option {option!r}, because hesrpt adds -c and the command itself",
                argument="shell",
            )


# --- placeholders in texts, such as {item} ------------------------------------------------------

PLACEHOLDERS = ("item", "stem", "name", "index", "servers", "job")

_PLACEHOLDER = r"\{(?:" + "|".join(PLACEHOLDERS) + r")\}"
# Braces that are doubled, placeholders, and any other brace.
_ANY_BRACE = re.compile(rf"\{{\{{|\}}\}}|{_PLACEHOLDER}|[{{}}]")


def find_placeholders(texts: Iterable[str]) -> set[str]:
    """Return the names of the placeholders in texts."""
    return {name for text in texts for _, name, _, _ in _parse(text) if name is not None}


def check_placeholders(text: str) -> None:
    """Raise an error if a text contains other braces than those of placeholders."""
    for _, name, spec, conversion in _parse(text):
        if name is not None and (name not in PLACEHOLDERS or spec or conversion):
            known = ", ".join(f"{{{placeholder}}}" for placeholder in PLACEHOLDERS)
            suffix = (f"!{conversion}" if conversion else "") + (f":{spec}" if spec else "")
            raise InputError(
                f"unknown placeholder {describe_value(f'{{{name}{suffix}}}')[1:-1]} in "
                f"{describe_value(text)}; placeholders are {known}{_explain_braces(text)}"
            )


def split_symbols(text: str) -> list[str]:
    """Return the characters and the placeholders of a text."""
    symbols: list[str] = []
    for literal, name, _, _ in _parse(text):
        symbols += literal
        if name is not None:
            symbols.append(f"{{{name}}}")
    return symbols


def double_other_braces(text: str) -> str:
    """Return a text with the braces doubled that are not those of placeholders.

    >>> double_other_braces("awk '{print $1}' {item}")
    "awk '{{print $1}}' {item}"
    """
    return _ANY_BRACE.sub(lambda found: found[0] * 2 if found[0] in "{}" else found[0], text)


def write_braces_once(text: str) -> str:
    """Return a text as ``hesrpt add`` takes it: its other braces are not doubled.

    A text that would gain a placeholder by that stays as it is.

    >>> write_braces_once("awk '{{print $1}}' {item}"), write_braces_once("echo {{item}}")
    ("awk '{print $1}' {item}", 'echo {{item}}')
    """
    symbols = split_symbols(text)
    plain = "".join(symbols)
    is_same = re.findall(_PLACEHOLDER, plain) == [symbol for symbol in symbols if len(symbol) > 1]
    return plain if is_same else text


def _explain_braces(text: str) -> str:
    return f"; write other braces twice: {describe_value(double_other_braces(text))}"


def _parse(text: str) -> list[tuple[str, str | None, Any, Any]]:
    try:
        return list(Formatter().parse(text))
    except ValueError:
        raise InputError(
            f"{describe_value(text)} has a brace without its counterpart{_explain_braces(text)}"
        ) from None


# --- lines for the shell ------------------------------------------------------------------------
#
# Values travel in the environment, and the line refers to them, so the shell never reads a value as
# part of the line. How a line refers to a variable depends on quotes. So this follows quotes,
# comments and $(…). It refuses placeholders where nothing can refer to a variable, and where shells
# differ or the end of a construct is uncertain. What programs do with their arguments is not its
# concern.

#: Placeholders whose values are digits: they need no variables, and may stand inside any quotes.
NUMBERS = frozenset({"index", "servers"})

_NUMBER = r"\{(?:index|servers)\}"
_BRACE = r"\{\{|\}\}"  # lines are format strings, so all other braces are doubled
# What ${…} and ((…)) may contain so that it is certain where they end.
_SIMPLE = rf"[^(){{}}'\"\\`]|{_NUMBER}"
_SUM = rf"(?:{_SIMPLE}|{_BRACE}|\((?:{_SIMPLE}|{_BRACE})*\))*\)\)(?!\#)"

_SUM_REASON = (
    "is inside ((…)), where the shell would evaluate it, or after one that is hard to follow; "
    "write it before"
)
_DOCUMENT_REASON = (
    "is inside or after a here-document; pass it with stdin or as an argument, or write it before"
)
_CASE_REASON = "comes after case inside $(…); assign it to a variable first"

# Constructs in which values are refused, and why. One whose end is uncertain reaches to the end of
# the line.
_REFUSED = {
    "escaped": (
        rf"\\{_PLACEHOLDER}",
        "comes after a backslash, which would change its meaning; remove the backslash",
    ),
    "dollar": (rf"\${_PLACEHOLDER}", "must not come right after $; remove $"),
    "backticks": (r"`(?:(?:[^`\\]|\\.)*`|.*)", "is inside backticks; write $(…) instead"),
    "braces": (
        rf"\$\{{\{{(?:(?:{_SIMPLE})*\}}\}}|.*)",
        "is inside ${…}, or after one with quotes or expansions inside; assign it to a variable "
        "first",
    ),
    "sum": (rf"\$\(\((?:{_SUM}|.*)", _SUM_REASON),
    "old_sum": (rf"\$\[(?:(?:(?!\])(?:{_SIMPLE}))*\]|.*)", _SUM_REASON),
    "unclear": (
        r"(?:\$\$[({'[]|[$(<]\\\n).*",
        "comes after $$( or the like, or after a line that ends with $\\, (\\ or <\\; "
        "assign it to a variable first",
    ),
}
_REFUSED_IN_CODE = {
    "single_quotes": (
        r"'(?:[^']*'|.*)",
        "is inside single quotes; write it outside of them, and pass it as an argument if they are "
        "code: sh -c 'echo \"$1\"' sh {item}",
    ),
    "ansi_quotes": (
        r"\$'(?:(?:[^'\\]|\\[^'])*'|.*)",
        "is inside $'…', or after one with \\' inside, which shells read differently; write it "
        'outside, and "\'" for a single quote',
    ),
    "sum_command": (rf"\(\((?:{_SUM}|.*)", _SUM_REASON),
    "delimiter": (rf"<<-?[ \t]*{_PLACEHOLDER}", "cannot be the delimiter of a here-document"),
}
_REASONS = {kind: reason for kind, (_, reason) in (_REFUSED | _REFUSED_IN_CODE).items()}


def _compile(refused: dict[str, tuple[str, str]], **others: str) -> re.Pattern[str]:
    patterns = {kind: pattern for kind, (pattern, _) in refused.items()} | others
    groups = [f"(?P<{kind}>{pattern})" for kind, pattern in patterns.items()]
    return re.compile("|".join([*groups, _BRACE, "."]), re.DOTALL)


# The tokens of code, and those inside double quotes and comments.
_ESCAPES = {"continuation": r"\\\n", "escape": rf"\\(?:{_BRACE}|.)"}
_CODE = _compile(
    _REFUSED | _REFUSED_IN_CODE,
    **_ESCAPES,
    placeholder=_PLACEHOLDER,
    string="<<<",
    document="<<",
    opening=r"\$?\(",
    separator=r"[ \t\n;&|<>)]",
    word=r"\w+",
)
_TOKENS = {
    '"': _compile(_REFUSED, **_ESCAPES, placeholder=_PLACEHOLDER, opening=r"\$\("),
    "#": _compile({}, placeholder=_PLACEHOLDER),
}


def get_variable(placeholder: str) -> str:
    """Return the environment variable that holds the value of a placeholder.

    >>> get_variable("item")
    'HESRPT_ITEM'
    """
    return f"HESRPT_{placeholder.upper()}"


@lru_cache(maxsize=256)
def refer_to_variables(line: str) -> str:
    """Return a line that refers to variables; only placeholders of numbers are left.

    >>> refer_to_variables("gzip -c {item} > {stem}-{index}.gz")
    'gzip -c "${{HESRPT_ITEM}}" > "${{HESRPT_STEM}}"-"{index}".gz'
    >>> refer_to_variables('echo "size of {item}: $(stat -c %s {item})"')
    'echo "size of ${{HESRPT_ITEM}}: $(stat -c %s "${{HESRPT_ITEM}}")"'
    """
    output = []
    opened = [""]  # and not yet closed: ", (, $( and # (a comment)
    position, starts_word, body = 0, True, ""
    while found := _TOKENS.get(opened[-1], _CODE).match(line, position):
        kind, token, position = found.lastgroup, found[0], found.end()
        if kind == "placeholder":
            token = _refer(token[1:-1], is_quoted=opened[-1] == '"')
        elif kind in _REASONS:
            _refuse(token, _REASONS[kind], but=frozenset() if kind == "dollar" else NUMBERS)
        elif kind == "document" and (end := line.find("\n", position)) >= 0:
            line, body = line[:end], line[end:]
            _refuse(body, _DOCUMENT_REASON)
        elif token == "case" and starts_word and "$(" in opened:
            _refuse(line[position:], _CASE_REASON)  # its patterns have ) without (
        output.append(token)
        if kind != "continuation":
            starts_word = _open_or_close(opened, kind, token, starts_word=starts_word)
    return "".join(output) + body


def _open_or_close(opened: list[str], kind: str | None, token: str, *, starts_word: bool) -> bool:
    """Note what a token opens or closes; return whether a word can start after it."""
    place = opened[-1]
    if place == "#":
        if token == "\n":
            opened.pop()
    elif token == place == '"':
        opened.pop()
    elif token == '"' or kind == "opening" or (token == "#" and starts_word and place != '"'):
        opened.append(token)
    elif token == ")" and place in ("(", "$("):
        opened.pop()
        return place == "("
    return kind in ("opening", "separator", "document", "string") or token == "\n"


def _refer(name: str, *, is_quoted: bool) -> str:
    if name in NUMBERS:  # closed and opened quotes keep "$x{index}" from becoming "$x0"
        return f'""{{{name}}}' if is_quoted else f'"{{{name}}}"'
    reference = f"${{{{{get_variable(name)}}}}}"
    return reference if is_quoted else f'"{reference}"'


def _refuse(text: str, reason: str, *, but: frozenset[str] = NUMBERS) -> None:
    """Raise an error if a text contains placeholders other than those in ``but``."""
    if names := find_placeholders([text]) - but:
        raise InputError(f"{{{min(names)}}} {reason}")
