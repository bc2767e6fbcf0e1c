"""Text that can be stored and printed."""

from __future__ import annotations

import linecache
import re
import reprlib
from typing import Any

_REPR = reprlib.Repr()
_REPR.maxstring = _REPR.maxother = _REPR.maxlong = 100

# A frame of a traceback whose next line is not indented more, so it is not its line of source code.
_FRAME_WITHOUT_SOURCE = re.compile(
    r'^(?P<indent>[ |]*)File "(?P<file>[^"\n]+)", line (?P<line>\d+), in [^\n]+\n(?!(?P=indent)  )',
    re.MULTILINE,
)


def describe_value(value: Any) -> str:
    r"""Return a value as a short text in one line.

    >>> describe_value("a\tb"), describe_value(range(10))
    ("'a\\tb'", 'range(0, 10)')
    """
    text = _REPR.repr(value)
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


def escape_undecodable(text: str) -> str:
    r"""Return text that can be encoded as UTF-8: what cannot is written as an escape sequence.

    Python has such characters in the names of files that are not valid UTF-8, among other places.

    >>> print(escape_undecodable("caf\udce9 \ud800"))
    caf\xe9 \ud800
    """
    return re.sub("[\ud800-\udfff]", _escape, text)


def _escape(match: re.Match[str]) -> str:
    code = ord(match[0])
    # These stand for bytes that are not valid UTF-8.
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"


def add_source_lines(traceback: str) -> str:
    """Add the lines of source code that another process did not know, but this one does.

    These are above all those of a notebook's cells.
    """
    return _FRAME_WITHOUT_SOURCE.sub(_add_source_line, traceback)


def _add_source_line(frame: re.Match[str]) -> str:
    source = linecache.getline(frame["file"], int(frame["line"])).strip()
    return f"{frame[0]}{frame['indent']}  {source}\n" if source else frame[0]
