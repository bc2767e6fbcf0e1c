"""``hesrpt logs``: the output of a job's items."""

from __future__ import annotations

import codecs
import json
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt.cli.options import NumberError, RunChoice, option, parse_whole_number, run_argument
from hesrpt.display.console import escape, escape_output
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.cli.run_access import JobOutput


def logs(
    run: RunChoice,
    jobs: Annotated[
        list[str] | None,
        run_argument(
            "[DIR] JOB [ITEM]",
            "State directory of the run, unless an option or a variable says which; name of "
            "a job; and number of an item, by default all items.",
        ),
    ] = None,
    follow: Annotated[
        bool, option("Print further output until the job ends.", "--follow", "-f")
    ] = False,
    as_json: Annotated[
        bool, option("Print each line of output as a JSON object with its job and item.", "--json")
    ] = False,
) -> None:
    """Print the output of a job's items.

    A line such as "── item 3, attempt 2, 14:03:11 ──" tells the attempts of an item apart.
    """
    from hesrpt.storage.job_names import describe_names

    target, words = run.find(jobs)
    if not words:
        raise InputError(f"JOB is missing; {describe_names(target.read(failures=False).names)}")
    if len(words) > 2:
        raise InputError(f"one JOB and one ITEM are enough, got {words[2]!r}")
    job, item = words[0], _parse_item(words[1]) if len(words) > 1 else None
    print_output = print_json_lines if as_json else print_text
    try:
        has_printed = print_output(job, target.open_logs(job, item, follow=follow))
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    if not has_printed:
        subject = f"job {job!r}" if item is None else f"item {item} of job {job!r}"
        print(escape(f"hesrpt: {subject} has printed nothing"), file=sys.stderr)


def _parse_item(text: str) -> int:
    try:
        return parse_whole_number(text)
    except NumberError:
        raise InputError(f"ITEM must be a number, got {text!r}") from None


def print_text(job: str, output: JobOutput) -> bool:
    """Print output as it is, that of each item below a heading; return whether there was any.

    As ``ls`` and ``git`` do, escape control characters on a terminal, and pass on all bytes to a
    file or a pipe.
    """
    buffer = None if sys.stdout.isatty() else getattr(sys.stdout, "buffer", None)
    decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
    shown: int | None = None  # the item whose output is being printed
    last = b"\n"  # what was printed last

    def end_item() -> None:
        if buffer is None:
            sys.stdout.write(escape_output(decoder.decode(b"", final=True)))
        if not last.endswith(b"\n"):
            print()
        sys.stdout.flush()

    has_printed = False
    for item, title, content in output.parts:
        if item != shown:
            end_item()
            shown, last = item, b"\n"
            if output.has_several:
                print(escape(f"--- {job}, {title}"), flush=True)
        if not content:
            continue
        if buffer is None:
            sys.stdout.write(escape_output(decoder.decode(content)))
            sys.stdout.flush()
        else:
            buffer.write(content)
            buffer.flush()
        has_printed, last = True, content
    end_item()
    return has_printed


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
