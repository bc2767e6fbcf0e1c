"""Placeholders in the texts of a job, such as ``{item}``: finding, checking and filling them in."""

from __future__ import annotations

import re
from collections.abc import Iterable
from string import Formatter
from typing import Any

from hesrpt.errors import InputError
from hesrpt.jobs.text import describe_value

PLACEHOLDERS = ("item", "stem", "name", "index", "servers", "job")

_PLACEHOLDER = re.compile(r"\{(?:" + "|".join(PLACEHOLDERS) + r")\}")
# Braces that are doubled, placeholders, and any other brace.
_BRACES = re.compile(r"\{\{|\}\}|" + _PLACEHOLDER.pattern + r"|[{}]")


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
    return _BRACES.sub(lambda found: found[0] * 2 if found[0] in "{}" else found[0], text)


def write_braces_once(text: str) -> str:
    """Return a text as ``hesrpt add`` takes it: its other braces are not doubled.

    A text that would gain a placeholder by that stays as it is.

    >>> write_braces_once("awk '{{print $1}}' {item}"), write_braces_once("echo {{item}}")
    ("awk '{print $1}' {item}", 'echo {{item}}')
    """
    symbols = split_symbols(text)
    plain = "".join(symbols)
    is_same = _PLACEHOLDER.findall(plain) == [symbol for symbol in symbols if len(symbol) > 1]
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
