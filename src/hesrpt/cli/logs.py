"""``hesrpt logs``: the output of a job's items."""

from __future__ import annotations

import codecs
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt.cli.completion import complete_job
from hesrpt.cli.options import parse_whole_number
from hesrpt.cli.run_choice import RunChoice
from hesrpt.display.escaping import escape, escape_output
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.runtime.reports.inspection import ItemLog

_BLOCK_BYTES = 1 << 16
# How often to look for new output, in seconds; and how many times as long as that took, at least.
_POLL_SECONDS, _POLL_FACTOR = 0.2, 5.0


def logs(
    run: RunChoice,
    jobs: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] JOB [ITEM]",
            autocompletion=complete_job,
            show_default=False,
            help="State directory of the run, unless an option or a variable says which; name of "
            "a job; and number of an item, by default all items.",
        ),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Print further output until the job ends.")
    ] = False,
) -> None:
    """Print the output of a job's items.

    A line such as "── item 3, attempt 2, 14:03:11 ──" tells the attempts of an item apart.
    """
    from hesrpt.cli.directory_run import DirectoryRun
    from hesrpt.runtime.job_names import describe_names

    target, words = run.find(jobs)
    if not words:
        raise InputError(f"JOB is missing; {describe_names(target.list_names())}")
    if len(words) > 2:
        raise InputError(f"one JOB and one ITEM are enough, got {words[2]!r}")
    job, item = words[0], _parse_item(words[1]) if len(words) > 1 else None
    printer = _Printer(job)
    try:
        if isinstance(target, DirectoryRun):
            _print_logs(target.directory, job, item, printer, follow=follow)
        elif follow:
            printer.has_headings = item is None and target.client.info(job).items != 1
            for title, text in target.client.follow_logs(job, item):
                printer.begin_title(title)
                printer.print(text.encode())
            printer.end()
        else:
            printer.print(target.client.logs(job, item).encode())
            printer.end()
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if not printer.has_printed:
        subject = f"job {job!r}" if item is None else f"item {item} of job {job!r}"
        print(escape(f"hesrpt: {subject} has printed nothing"), file=sys.stderr)


def _parse_item(text: str) -> int:
    try:
        return parse_whole_number(text)
    except typer.BadParameter:
        raise InputError(f"ITEM must be a number, got {text!r}") from None


def _print_logs(
    state: Path, job: str, item: int | None, printer: _Printer, *, follow: bool
) -> None:
    """Print what items have printed, and with ``follow`` what they will print."""
    from hesrpt.runtime.reports.inspection import list_logs

    if follow:
        _follow(state, job, item, printer)
        return
    logs_found = list_logs(state, job, item)
    printer.has_headings = item is None and len(logs_found) > 1
    for log in logs_found:
        printer.begin(log)
        for block in _read_blocks(log.path):
            printer.print(block)
    printer.end()


def _follow(state: Path, job: str, item: int | None, printer: _Printer) -> None:
    """Print what items have printed and will print, until the job or its scheduler has ended."""
    from hesrpt.runtime.reports.log_following import LogFollower

    follower = LogFollower(state, job, item)
    printer.has_headings = item is None and follower.items != 1
    goes_on = True
    while goes_on:
        started = time.monotonic()
        outputs, goes_on = follower.read()
        for log, content in outputs:
            printer.begin(log)
            printer.print(content)
        sys.stdout.flush()
        if goes_on:
            time.sleep(max(_POLL_SECONDS, _POLL_FACTOR * (time.monotonic() - started)))
    printer.end()


class _Printer:
    """Prints the output of items, each below a heading if there may be several.

    As ``ls`` and ``git`` do, escape control characters on a terminal, and pass on all bytes to a
    file or a pipe.
    """

    def __init__(self, job: str) -> None:
        self._job = job
        self.has_headings = False
        self.has_printed = False
        self._place: object = None  # whose output is being printed
        self._is_line_open = False  # whether the last line has no end yet
        self._buffer = None if sys.stdout.isatty() else getattr(sys.stdout, "buffer", None)
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")

    def begin(self, log: ItemLog) -> None:
        """Print the heading of an item, unless its output is being printed already."""
        self._begin(log, log.title)

    def begin_title(self, title: str) -> None:
        """Print the heading of an item of which only the title is known."""
        self._begin(title, title)

    def _begin(self, place: object, title: str) -> None:
        if place != self._place:
            self.end()
            self._place = place
            if self.has_headings:
                print(escape(f"--- {self._job}, {title}"))
            sys.stdout.flush()

    def print(self, content: bytes) -> None:
        """Print output of the item."""
        if not content:
            return
        self.has_printed = True
        if self._buffer is None:
            sys.stdout.write(escape_output(self._decoder.decode(content)))
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


def _read_blocks(path: Path) -> Iterator[bytes]:
    try:
        with open(path, "rb") as file:
            yield from iter(lambda: file.read(_BLOCK_BYTES), b"")
    except FileNotFoundError:
        return  # an empty log is removed when its item ends
    except PermissionError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None
