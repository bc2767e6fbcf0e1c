"""Text from outside, such as job names and error messages, made safe to show on a terminal."""

from __future__ import annotations

import unicodedata

_SHORT = {"\n": r"\n", "\r": r"\r", "\t": r"\t"}


def escape(text: str) -> str:
    r"""Replace characters that a terminal would obey, or that hide or reorder others.

    >>> escape("a\x1b[31m\nb\u202e é")
    'a\\x1b[31m\\nb\\u202e é'
    """
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() or unicodedata.category(letter) == "Zs" else _name(letter)
        for letter in text
    )


def escape_output(text: str) -> str:
    """Escape the output of a program, which keeps its lines and tabs."""
    lines = ("\t".join(map(escape, line.split("\t"))) for line in text.split("\n"))
    return "\n".join(lines)


def escape_lines(text: str) -> str:
    r"""Escape a text of several lines, and indent all but the first: none can pass for ours.

    >>> escape_lines("boom\n\tat x\r")
    'boom\n            at x\\r'
    """
    return "\n    ".join(escape(line.expandtabs(8)) for line in text.split("\n"))


def _name(letter: str) -> str:
    code = ord(letter)
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"  # a byte that is not UTF-8
    if letter in _SHORT:
        return _SHORT[letter]
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
