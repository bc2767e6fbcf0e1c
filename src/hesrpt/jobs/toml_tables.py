"""Reading TOML files within limits, and checking their values with errors that name the line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, TypeVar

from hesrpt.errors import InputError
from hesrpt.jobs.text import describe_value

T = TypeVar("T")

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


def is_whole(value: Any) -> bool:
    """Return whether a value is a whole number."""
    return isinstance(value, int) and not isinstance(value, bool)


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
        self, number: int | None, key: str, message: str, kind: str = "job"
    ) -> InputError:
        """Return an error about a key of a job or another table, or of the file as a whole."""
        starts = self.starts.get(kind, [])
        first, last = 0, len(self.lines)
        if number is not None and number < len(starts):
            first = starts[number]
            all_starts = (start for each in self.starts.values() for start in each)
            last = min((start for start in all_starts if start > first), default=last)
        name = rf"""["']?{re.escape(key)}["']?\s*"""
        assignment = re.compile(rf"\s*({name}[=.]|\[\s*{kind}\s*\.\s*{name}\])")
        line = next((n for n in range(first, last) if assignment.match(self.lines[n])), first)
        return InputError(f"{self.file_name}:{line + 1}: {message}")


class TomlTable:
    """A table of the file; checks its values as they are read."""

    def __init__(
        self, values: dict[str, Any], lines: TomlLines, number: int | None, kind: str = "job"
    ) -> None:
        self.values, self.lines, self.number, self.kind = values, lines, number, kind

    def create_error(self, key: str, message: str) -> InputError:
        return self.lines.create_error(self.number, key, message, self.kind)

    def check_keys(self, keys: tuple[str, ...]) -> None:
        for key in self.values:
            if key not in keys:
                known = ", ".join(keys)
                close = get_close_matches(key, keys, n=1)
                hint = f"did you mean {close[0]!r}? Keys are" if close else "keys are"
                raise self.create_error(key, f"unknown key {describe_value(key)}; {hint}: {known}")

    def get(self, key: str, expected: str, convert: Callable[[Any], T | None], default: T) -> T:
        """Return the converted value of a key; ``convert`` returns None for a wrong value."""
        return self.require(key, expected, convert) if key in self.values else default

    def require(self, key: str, expected: str, convert: Callable[[Any], T | None]) -> T:
        """Return the converted value of a key that must be there."""
        converted = convert(self.values.get(key))
        if converted is None:
            raise self.create_value_error(key, expected)
        return converted

    def create_value_error(self, key: str, expected: str) -> InputError:
        if key not in self.values:
            return self.create_error(key, f"{key} is missing")
        return self.create_error(
            key, f"{key} must be {expected}, got {describe_value(self.values[key])}"
        )
