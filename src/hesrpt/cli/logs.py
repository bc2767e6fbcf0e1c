"""``hesrpt logs``: the output of a job's items."""

from __future__ import annotations

import codecs
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from hesrpt.cli.completion import complete_job
from hesrpt.cli.options import StateDirectory, parse_whole_number
from hesrpt.display.escaping import escape, escape_output
from hesrpt.errors import InputError

_BLOCK_BYTES = 1 << 16


def logs(
    state: StateDirectory,
    job: Annotated[
        str, typer.Argument(metavar="JOB", autocompletion=complete_job, help="Name of a job.")
    ],
    item: Annotated[
        int | None,
        typer.Argument(
            parser=parse_whole_number,
            metavar="ITEM",
            show_default=False,
            help="Number of an item. By default, all items.",
        ),
    ] = None,
) -> None:
    """Print the output of a job's items."""
    from hesrpt.runtime.inspection import list_logs

    for log in list_logs(state, job, item):
        if item is None:
            print(escape(f"--- {job}, {log.title}"))
        _print_file(log.path)


def _print_file(path: Path) -> None:
    """Print a file of any size, and a newline if it does not end with one.

    As ``ls`` and ``git`` do, escape control characters on a terminal, and pass on all bytes to a
    file or a pipe.
    """
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    buffer = None if sys.stdout.isatty() else getattr(sys.stdout, "buffer", None)
    sys.stdout.flush()
    last = b"\n"
    for last in _read_blocks(path):
        if buffer is None:
            sys.stdout.write(escape_output(decoder.decode(last)))
        else:
            buffer.write(last)
    if buffer is None:
        sys.stdout.write(escape_output(decoder.decode(b"", final=True)))
    if not last.endswith(b"\n"):
        print()
    sys.stdout.flush()


def _read_blocks(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(_BLOCK_BYTES), b"")
    except FileNotFoundError:
        return  # an empty log is removed when its item ends
    except PermissionError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
