"""Reading text and CSV files with errors that name the line, and writing files atomically."""

from __future__ import annotations

import csv
import errno
import gzip
import io
import os
import secrets
import stat
import sys
import zlib
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, NamedTuple, TypeAlias

from hesrpt.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

STANDARD_INPUT = "-"
#: A row of a CSV file: the number of its last line, and its cells.
Row: TypeAlias = tuple[int, list[str]]
BLOCK_BYTES = 1 << 20  # read at a time; also the longest line that is accepted
_GZIP_MAGIC = b"\x1f\x8b"
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"


class Block(NamedTuple):
    """Consecutive lines of a text file."""

    first_line: int  # line numbers start at 1
    lines: list[str]  # without line ends


def describe_source(path: str | Path) -> str:
    """Return the name that messages give to a file: its path, or "standard input" for "-"."""
    return "standard input" if str(path) == STANDARD_INPUT else str(path)


def read_blocks(
    path: str | Path, *, opener: Callable[[str, int], int] | None = None
) -> Generator[Block, None, None]:
    """Yield the lines of a UTF-8 text file, plain or gzipped, many lines at a time.

    A path of "-" reads standard input. ``opener`` is that of Python's ``open``: see
    :func:`open_regular`.
    """
    with closing(read_pieces(path, opener)) as pieces:
        yield from split_blocks(pieces, describe_source(path))


def open_regular(path: str, flags: int) -> int:
    """Open a regular file on a disk; anything else might block, or never end."""
    descriptor = os.open(path, flags | os.O_NONBLOCK)  # a FIFO without a writer would block
    status = os.fstat(descriptor)
    # Files that the system makes up, such as those in /proc, claim to be empty.
    if stat.S_ISREG(status.st_mode) and status.st_size > 0:
        return descriptor
    os.close(descriptor)
    raise OSError(errno.EINVAL, "it is empty, or not a regular file on a disk")


def read_pieces(
    path: str | Path, opener: Callable[[str, int], int] | None = None
) -> Generator[bytes, None, None]:
    """Yield the bytes of a file, plain or gzipped, without a byte order mark.

    A path of "-" reads standard input.
    """
    source, lines, is_first = describe_source(path), 0, True
    with _open_stream(path, source, opener) as stream:
        while True:
            try:
                # Unlike read, read1 returns the data before a damaged part instead of raising.
                piece = stream.read1(BLOCK_BYTES)
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise InputError(
                    f"{source}: the gzip data is damaged after line {lines}: {error}"
                ) from None
            except OSError as error:
                raise _create_read_error(source, error) from None
            if not piece:
                return
            lines += piece.count(b"\n")
            yield piece.removeprefix(_BYTE_ORDER_MARK) if is_first else piece
            is_first = False


def split_blocks(
    pieces: Iterable[bytes], source: str, progress: Callable[[int], None] | None = None
) -> Generator[Block, None, None]:
    """Yield the lines of a UTF-8 text that comes in pieces, many lines at a time.

    After each block, ``progress`` is called with the number of lines that have been consumed.
    """
    rest, line = b"", 1
    for piece in chain(pieces, [None]):
        data, rest = (rest, b"") if piece is None else _split_last_line(rest + piece)
        if len(rest) > BLOCK_BYTES:
            long = line + data.count(b"\n")
            raise InputError(f"{source}:{long}: the line is longer than {BLOCK_BYTES:,} bytes")
        if data:
            block = Block(line, _decode_lines(data, source, line))
            yield block
            line += len(block.lines)
            if progress is not None:
                progress(line - 1)


def read_text(path: str | Path, *, max_length: int) -> str:
    """Return the text of a UTF-8 file; every line ends with a newline, even the last one."""
    lines, length = [], 0
    for block in read_blocks(path):
        lines += block.lines
        length += sum(map(len, block.lines)) + len(block.lines)
        if length > max_length:
            raise InputError(f"{describe_source(path)}: is longer than {max_length:,} characters")
    return "".join(f"{line}\n" for line in lines)


def read_csv(path: str | Path) -> Iterator[Row]:
    """Yield the rows of a comma-separated file with stripped cells, skipping blank rows."""
    lines = chain.from_iterable(block.lines for block in read_blocks(path))
    for line, cells in parse_csv(lines, describe_source(path), skipinitialspace=True):
        stripped = [cell.strip() for cell in cells]
        if any(stripped):
            yield line, stripped


def parse_csv(
    lines: Iterable[str], source: str, *, first_line: int = 1, **options: Any
) -> Iterator[Row]:
    """Yield the rows in the lines of a CSV file; ``options`` are those of Python's csv module."""
    reader = csv.reader((f"{line}\n" for line in lines), **options)
    lines_above = first_line - 1
    try:
        for cells in reader:
            yield lines_above + reader.line_num, cells
    except csv.Error as error:
        raise InputError(f"{source}:{lines_above + reader.line_num}: {error}") from None


def write_csv(path: str | Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows to a CSV file atomically. The keys of the first row are the header."""
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(rows[0]))
    writer.writeheader()
    writer.writerows(rows)
    write_text(path, text.getvalue())


def write_text(path: str | Path, text: str) -> None:
    """Write a UTF-8 text file atomically."""
    write_bytes(path, text.encode(errors="replace"))


def write_bytes(path: str | Path, data: bytes, *, create_directory: bool = False) -> None:
    """Write a file atomically: it ends up with all of the data or stays as it was.

    Terminals, pipes and other special files are written to directly.
    """
    try:
        if Path(path).exists() and not Path(path).is_file():
            Path(path).write_bytes(data)
            return
        target = Path(path).resolve()  # a symbolic link stays one: its target is replaced
        if create_directory:
            target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f".{secrets.token_hex(8)}{target.suffix}")
        try:
            draft.write_bytes(data)
            draft.replace(target)
        finally:
            draft.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{path}: cannot be written: {error.strerror or error}") from None


def build_frame(rows: Sequence[Mapping[str, Any]]) -> pd.DataFrame:
    """Return rows as a pandas data frame."""
    try:
        import pandas as pd
    except ImportError:
        raise InputError("to_frame() needs pandas: pip install pandas") from None
    return pd.DataFrame(rows)


def _split_last_line(data: bytes) -> tuple[bytes, bytes]:
    """Split data after its last complete line."""
    # A carriage return ends a line only in data without newlines; a final one may be half of \r\n.
    end = data.rfind(b"\n") + 1 or data.rfind(b"\r", 0, -1) + 1
    return data[:end], data[end:]


def _decode_lines(data: bytes, source: str, first_line: int) -> list[str]:
    if b"\r" in data:
        data = data.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    if b"\0" in data:
        line = first_line + data.count(b"\n", 0, data.index(b"\0"))
        raise InputError(f"{source}:{line}: is not text: it contains a zero byte")
    try:
        return data.decode().removesuffix("\n").split("\n")
    except UnicodeDecodeError as error:
        line = first_line + data.count(b"\n", 0, error.start)
        raise InputError(f"{source}:{line}: is not UTF-8 text") from None


@contextmanager
def _open_stream(
    path: str | Path, source: str, opener: Callable[[str, int], int] | None
) -> Iterator[io.BufferedReader[Any] | gzip.GzipFile]:
    """Open a file or standard input for reading, and decompress it if it is gzipped."""
    with _open_binary(path, source, opener) as file:
        # Not every standard input can peek, but this buffer can.
        stream = io.BufferedReader(file, BLOCK_BYTES)  # type: ignore[type-var]
        try:
            try:
                is_gzipped = stream.peek(2)[:2] == _GZIP_MAGIC
            except OSError as error:  # some systems can open a directory but not read it
                raise _create_read_error(source, error) from None
            if is_gzipped:
                with gzip.GzipFile(fileobj=stream) as decompressed:
                    yield decompressed
            else:
                yield stream
        finally:
            stream.detach()  # closing the stream would close standard input


@contextmanager
def _open_binary(
    path: str | Path, source: str, opener: Callable[[str, int], int] | None
) -> Iterator[IO[bytes]]:
    if str(path) == STANDARD_INPUT:
        if sys.stdin is None or sys.stdin.closed:
            raise InputError("standard input is closed")
        yield sys.stdin.buffer
        return
    try:
        file = open(path, "rb", opener=opener)  # noqa: SIM115
    except OSError as error:
        raise _create_read_error(source, error) from None
    except ValueError as error:  # for example a zero byte in the path
        raise InputError(f"{source!r}: cannot be read: {error}") from None
    with file:
        yield file


def _create_read_error(source: str, error: OSError) -> InputError:
    return InputError(f"{source}: cannot be read: {error.strerror or error}")
