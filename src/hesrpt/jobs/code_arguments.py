"""Finds arguments that a program runs as code, and arguments that it may take for options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from hesrpt.jobs.shell_symbols import NUMBERS
from hesrpt.jobs.shell_words import PLACEHOLDER_MARK, Word


class _Interpreter(NamedTuple):
    """How a program is told what to run."""

    letters: str = ""  # options that come before code, such as -c
    names: tuple[str, ...] = ()  # the same for long options
    with_value: str = ""  # other options that have a separate value
    reads_first: bool = False  # whether the first operand is code, if no option comes before code
    reads_file: str = ""  # options that name a file with the code instead
    reads_all: bool = False  # whether all operands are code
    skips: int = 0  # how many operands come before the code
    is_shell: bool = False  # -c is a flag: the code is the first operand
    ends_options: bool = False  # whether no option can follow the code
    permutes: bool = False  # whether options may follow operands


_SHELL = _Interpreter("c", with_value="oO", is_shell=True, ends_options=True)
# A program whose name only the shell will know, such as $SHELL: it may be any interpreter.
_UNKNOWN = _Interpreter("ce", with_value="oO", is_shell=True, ends_options=True)

# These are found anywhere in a command, because another program such as env may start them.
_INTERPRETERS: Mapping[str, _Interpreter] = {
    r"(|a|ba|da|k|mk|z|fi|c|tc)sh": _SHELL,
    r"(python|pypy)[0-9.]*": _Interpreter("c", with_value="WX", ends_options=True),
    r"perl|ruby|julia": _Interpreter("eE"),
    r"node|nodejs|deno|bun": _Interpreter("eEp", ("--eval", "--print")),
    r"lua[0-9.]*|R|Rscript|osascript": _Interpreter("e"),
    r"php": _Interpreter("r"),
    r"env": _Interpreter("S", ("--split-string",), with_value="uC"),
}
# These are found only where the name of a program is expected.
_PROGRAMS: Mapping[str, _Interpreter] = {
    r"eval|let|watch|trap|unset|read": _Interpreter(reads_all=True, with_value="n"),
    r"ssh|rsh|slogin": _Interpreter(reads_all=True, skips=1, with_value="BbcDEeFIiJLlmOopQRSWw"),
    r"[gmn]?awk": _Interpreter(reads_first=True, with_value="Fv", reads_file="f"),
    r"g?sed": _Interpreter("e", ("--expression",), reads_first=True, reads_file="f"),
    r"su|runuser|script|flock": _Interpreter("c", ("--command",), permutes=True),
    r"sbatch": _Interpreter(names=("--wrap",)),
}
# Programs that run the rest of their arguments.
_WRAPPERS = re.compile(
    r"env|sudo|doas|nice|ionice|nohup|time|timeout|setsid|stdbuf|exec|command|builtin|xargs|srun|"
    r"taskset|chrt|numactl|busybox"
)
# Programs that run other programs, with the same standard input, somewhere else.
_LAUNCHERS = re.compile(r"ssh|rsh|slogin|su|runuser|docker|podman|kubectl|chroot|nsenter|unshare")
_KEYWORDS = re.compile(
    r"if|then|else|elif|while|until|do|!|\{|[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL
)
_AMOUNT = re.compile(r"[0-9.]+[smhd]?")


class CodeArgument(NamedTuple):
    """An argument that a program runs as code."""

    program: str
    place: int
    ends_options: bool  # whether the program takes no later argument for an option


def find_code(words: Sequence[Word]) -> list[CodeArgument]:
    """Return the arguments of a command that some program runs as code."""
    found = []
    program = _find_program(words)
    for place, word in enumerate(words):
        name = word.text.rpartition("/")[2]
        interpreter = _look_up(_INTERPRETERS, name)
        if interpreter is None and place == program:
            interpreter = _UNKNOWN if "$" in word.text else _look_up(_PROGRAMS, name)
        if interpreter is not None:
            found += [
                CodeArgument(name, code, interpreter.ends_options)
                for code in _find_code_after(words, place + 1, interpreter)
            ]
    return found


def reads_code_from_input(words: Sequence[Word]) -> bool:
    """Return whether a command is a shell or an interpreter that runs its standard input."""
    place = _find_program(words)
    if place == len(words):
        return False
    interpreter = _look_up(_INTERPRETERS, words[place].text.rpartition("/")[2])
    if interpreter is None:
        return False
    others = "cs" if interpreter.is_shell else interpreter.letters
    rest = [word.text for word in words[place + 1 :]]
    return all(text.startswith("-") and not set(text) & set(others) for text in rest)


def runs_standard_input(words: Sequence[Word]) -> bool:
    """Return whether a command runs what its standard input holds, wherever that comes from."""
    place = _find_program(words)
    if place == len(words):
        return False
    name = get_program(words)
    if re.fullmatch("ssh|rsh|slogin", name) and not find_code(words):
        return True  # a shell on the other machine does
    wrappers = [word for word in words[:place] if _WRAPPERS.fullmatch(word.text.rpartition("/")[2])]
    places = range(place, len(words)) if wrappers or _LAUNCHERS.fullmatch(name) else [place]
    return any(_runs_input_after(words, start) for start in places)


def _runs_input_after(words: Sequence[Word], place: int) -> bool:
    name = words[place].text.rpartition("/")[2]
    interpreter = _UNKNOWN if "$" in name else _look_up(_INTERPRETERS, name)
    if interpreter is None or name == "env":
        return False
    rest = [word.text for word in words[place + 1 :]]
    operands = [text for text in rest if text == "-" or not text.startswith(("-", "+"))]
    options = rest[: rest.index(operands[0])] if operands else rest
    letters = "".join(text for text in options if not text.startswith("--"))
    if interpreter.is_shell and "s" in letters:
        return True
    if set(letters) & set(interpreter.letters):
        return False  # the code is an argument
    return not operands or operands[0] in ("-", "/dev/stdin", "/dev/fd/0")


def find_exposed(words: Sequence[Word]) -> set[str]:
    """Return the placeholders whose values, if they begin with -, look like options."""
    ends = [argument.place for argument in find_code(words) if argument.ends_options]
    exposed = set()
    for word in words[_find_program(words) + 1 : min(ends, default=len(words))]:
        if word.text == "--":
            break
        if word.text.startswith(PLACEHOLDER_MARK) and word.placeholders[0] not in NUMBERS:
            exposed.add(word.placeholders[0])
    return exposed


def get_program(words: Sequence[Word]) -> str:
    """Return the name of the program that a command runs, without its directory."""
    place = _find_program(words)
    return words[place].text.rpartition("/")[2] if place < len(words) else ""


def _look_up(table: Mapping[str, _Interpreter], name: str) -> _Interpreter | None:
    return next((found for pattern, found in table.items() if re.fullmatch(pattern, name)), None)


def _find_program(words: Sequence[Word]) -> int:
    """Return the place of the program that a command runs, after keywords and wrappers."""
    place = 0
    while place < len(words):
        text = words[place].text
        if _WRAPPERS.fullmatch(text.rpartition("/")[2]):
            place += 1
            while place < len(words) and (
                words[place].text.startswith("-") or _AMOUNT.fullmatch(words[place].text)
            ):
                place += 1
        elif _KEYWORDS.fullmatch(text):
            place += 1
        else:
            break
    return place


def _find_code_after(words: Sequence[Word], place: int, interpreter: _Interpreter) -> list[int]:
    """Return the places of the code, given the place after the name of the interpreter."""
    found: list[int] = []
    expects_code = interpreter.reads_first or interpreter.reads_all
    while place < len(words):
        text = words[place].text
        place += 1
        if text == "--":
            break
        if text == "-" or not text.startswith(("-", "+")):
            if interpreter.permutes:
                continue
            place -= 1
            break
        if text.startswith("--"):
            name, has_value, _ = text.partition("=")
            if name in interpreter.names:
                found.append(place - 1 if has_value else place)
                place += not has_value
            continue
        letters = text[1:]
        option = next((letter for letter in letters if letter in interpreter.letters), "")
        if option and interpreter.is_shell:
            expects_code = True
        elif option:
            is_attached = not letters.endswith(option)  # such as -cCODE
            found.append(place - 1 if is_attached else place)
            place += not is_attached
            continue
        if letters[0] in interpreter.reads_file:
            expects_code = False
            place += len(letters) == 1
        elif letters[-1] in interpreter.with_value:
            place += 1
    first = place + interpreter.skips
    if interpreter.reads_all:
        found += range(first, len(words))
    elif expects_code and not found:
        found.append(first)
    return [index for index in found if index < len(words)]
