"""The text of a log, block by block: from a file or standard input, plain or gzipped.

Blocks end where lines end. Whatever is wrong with the bytes is found here.
"""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Protocol

from hesrpt.errors import InputError

STANDARD_INPUT = "-"
Block = tuple[int, list[str]]  # the number of the first line, and the lines without their ends
_BLOCK = 1 << 20  # bytes that are read at a time, and more than any line of a log has
_GZIP = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class _Stream(Protocol):
    def read1(self, size: int, /) -> bytes: ...


def place_of(path: str | Path) -> str:
    """Return what messages call the file."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def blocks(
    path: str | Path, progress: Callable[[int], None] | None = None
) -> Generator[Block, None, None]:
    """Yield the lines of a log, many at a time; ``progress`` is told how many have been used."""
    place, rest, line = place_of(path), b"", 1
    with _opened(path, place) as stream:
        while True:
            try:
                piece = stream.read1(_BLOCK)  # what came before any damage, first
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                lines = line - 1 + rest.count(b"\n")
                raise InputError(
                    f"{place}: the gzipped data are damaged after line {lines}: {error}"
                ) from None
            except OSError as error:
                raise InputError(f"{place}: cannot be read: {error.strerror or error}") from None
            if line == 1 and not rest:
                piece = piece.removeprefix(_BYTE_ORDER_MARK)
            whole, rest = _cut(rest + piece) if piece else (rest, b"")
            if len(rest) > _BLOCK:
                longest = line + whole.count(b"\n")
                raise InputError(
                    f"{place}:{longest}: has a line of more than {_BLOCK:,} bytes, so it is no log"
                )
            if whole:
                lines_of_block = _lines(whole, place, line)
                yield line, lines_of_block
                line += len(lines_of_block)
                if progress is not None:
                    progress(line - 1)
            if not piece:
                return


def _cut(data: bytes) -> tuple[bytes, bytes]:
    """Return the whole lines, and the beginning of one more."""
    # A carriage return ends lines only where nothing else does; the last one may be half an end.
    end = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1
    return data[:end], data[end:]


def _lines(data: bytes, place: str, first: int) -> list[str]:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\0" in data:
        line = first + data.count(b"\n", 0, data.index(b"\0"))
        raise InputError(f"{place}:{line}: is not text: it holds a byte 0")
    try:
        return data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = first + data.count(b"\n", 0, error.start)
        raise InputError(f"{place}:{line}: is not UTF-8 text") from None


@contextmanager
def _opened(path: str | Path, place: str) -> Iterator[_Stream]:
    with _raw(path, place) as raw:
        # A buffer of our own, so that one can look ahead whatever the bytes come from.
        stream = io.BufferedReader(raw, _BLOCK)  # type: ignore[type-var]
        try:
            try:
                gzipped = stream.peek(2)[:2] == _GZIP
            except OSError as error:  # opening a directory succeeds on some systems
                raise InputError(f"{place}: cannot be read: {error.strerror or error}") from None
            if gzipped:
                with gzip.GzipFile(fileobj=stream) as unzipped:
                    yield unzipped
            else:
                yield stream
        finally:
            stream.detach()  # or standard input would be closed


@contextmanager
def _raw(path: str | Path, place: str) -> Iterator[IO[bytes]]:
    if str(path) == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.closed:
            raise InputError("standard input is closed")
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb")  # noqa: SIM115
    except OSError as error:
        raise InputError(f"{place}: cannot be read: {error.strerror or error}") from None
    except ValueError as error:  # such as a byte 0 in the name
        raise InputError(f"{place!r}: cannot be read: {error}") from None
    with file:
        yield file
