"""The words of ``hesrpt add``: a command, and items as GNU parallel takes them."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from hesrpt.errors import InputError

_SEPARATORS = (":::", "::::")
# A placeholder, or a brace that means itself.
_BRACES = re.compile(r"\{(item|stem|name|index|servers|job)?\}|[{}]")
_ABOUT_ITEMS = ("{item}", "{stem}", "{name}", "{index}")
# What find puts its own files for, and GNU parallel its items.
_EMPTY_BRACES = "{}"


class AddedCommand(NamedTuple):
    """What to run, and with which items."""

    command: str | list[str]
    items: list[str] | None


def parse_words(words: Sequence[str]) -> AddedCommand:
    """Return the command and the items that the words stand for.

    One word is a line for the shell, and several are a program with its arguments. Items follow
    after ``:::``, or are the lines of the files after ``::::``. Without a placeholder, they are
    appended. A command with a placeholder and without these reads them from standard input.

    >>> parse_words(["gzip", "-9", ":::", "a.txt", "b.txt"])
    AddedCommand(command=['gzip', '-9', '{item}'], items=['a.txt', 'b.txt'])
    >>> parse_words(["awk '{print $1}' {item} > {stem}", ":::", "a"]).command
    "awk '{{print $1}}' {item} > {stem}"
    >>> parse_words(["find {item} -exec wc {} +", ":::", "a"]).command
    'find {item} -exec wc {{}} +'
    """
    places = [place for place, word in enumerate(words) if word in _SEPARATORS]
    if len(places) > 1:
        raise InputError("::: can be given only once; combinations of several lists are not taken")
    end = places[0] if places else len(words)
    given_command = words[:end]
    if not given_command:
        raise InputError("COMMAND is missing; for example: hesrpt add -- sleep 10")
    refers_to_items = any(name in word for word in given_command for name in _ABOUT_ITEMS)
    is_item_empty = bool(places) and not refers_to_items
    if is_item_empty and any(_EMPTY_BRACES in word for word in given_command):
        refers_to_items = True
    command = [_escape_braces(word, is_item_empty=is_item_empty) for word in given_command]
    items = None
    if places:
        given = list(words[end + 1 :])
        items = given if words[end] == ":::" else [x for path in given for x in _read_lines(path)]
        if not refers_to_items:  # as GNU parallel does
            command = [f"{command[0]} {{item}}"] if len(command) == 1 else [*command, "{item}"]
    elif refers_to_items:
        items = _read_lines("-")
    if items is not None and not items:
        raise InputError("there are no items")
    return AddedCommand(command[0] if len(command) == 1 else command, items)


def _escape_braces(word: str, *, is_item_empty: bool) -> str:
    """Return a word in which braces mean themselves, except for those of placeholders.

    ``{}`` is the item only in a command that has no other placeholder for it.
    """

    def escape(found: re.Match[str]) -> str:
        text = found[0]
        if text == _EMPTY_BRACES:
            return "{item}" if is_item_empty else "{{}}"
        return text if found[1] else text * 2

    return _BRACES.sub(escape, word)


def _read_lines(path: str) -> list[str]:
    if path == "-" and sys.stdin.isatty():
        raise InputError("the command refers to items; give them after :::, or to standard input")
    try:
        text = sys.stdin.read() if path == "-" else Path(path).read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read: {error}") from None
    return [line for line in text.splitlines() if line]
