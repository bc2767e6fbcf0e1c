"""Prints the output of items: as it is, or as JSON lines."""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Iterator
from typing import NamedTuple

from hesrpt.display.escaping import escape, escape_output


class ItemOutput(NamedTuple):
    """Something that an item has printed."""

    item: int
    title: str  # the number of the item; for a command also the item
    content: bytes


class JobOutput(NamedTuple):
    """What the items of a job have printed, or will print."""

    has_several: bool  # whether it may come from more than one item
    parts: Iterator[ItemOutput]


def print_text(job: str, output: JobOutput) -> bool:
    """Print output as it is, that of each item below a heading; return whether there was any."""
    printer = _Printer()
    for part in output.parts:
        printer.begin(part.item, f"--- {job}, {part.title}" if output.has_several else "")
        printer.print(part.content)
    printer.end()
    return printer.has_printed


def print_json_lines(job: str, output: JobOutput) -> bool:
    """Print a JSON object for each line of output; return whether there was any."""
    open_lines: dict[int, bytes] = {}  # the beginnings of lines that have no end yet
    has_printed = False
    for part in output.parts:
        *lines, rest = (open_lines.pop(part.item, b"") + part.content).split(b"\n")
        if rest:
            open_lines[part.item] = rest
        for line in lines:
            _print_line(job, part.item, line)
        has_printed = has_printed or bool(part.content)
        sys.stdout.flush()
    for item, line in open_lines.items():
        _print_line(job, item, line)
    return has_printed


def _print_line(job: str, item: int, line: bytes) -> None:
    text = line.decode("utf-8", "replace")
    print(json.dumps({"job": job, "item": item, "line": text}, ensure_ascii=False))


class _Printer:
    """Prints the output of items.

    As ``ls`` and ``git`` do, escape control characters on a terminal, and pass on all bytes to a
    file or a pipe.
    """

    def __init__(self) -> None:
        self.has_printed = False
        self._item: int | None = None  # whose output is being printed
        self._is_line_open = False  # whether the last line has no end yet
        self._buffer = None if sys.stdout.isatty() else getattr(sys.stdout, "buffer", None)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def begin(self, item: int, heading: str) -> None:
        """Print the heading of an item, unless its output is being printed already."""
        if item != self._item:
            self.end()
            self._item = item
            if heading:
                print(escape(heading))
            sys.stdout.flush()

    def print(self, content: bytes) -> None:
        """Print output of the item."""
        if not content:
            return
        self.has_printed = True
        if self._buffer is None:
            sys.stdout.write(escape_output(self._decoder.decode(content)))
            sys.stdout.flush()
        else:
            self._buffer.write(content)
            self._buffer.flush()
        self._is_line_open = not content.endswith(b"\n")

    def end(self) -> None:
        """End the output of an item, and its last line."""
        if self._buffer is None:
            sys.stdout.write(escape_output(self._decoder.decode(b"", final=True)))
        if self._is_line_open:
            print()
        self._is_line_open = False
        sys.stdout.flush()
