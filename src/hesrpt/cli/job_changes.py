"""Commands that add jobs to a run or service, and those that change its jobs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple

import typer

from hesrpt.cli.completion import complete_group, complete_job
from hesrpt.cli.options import (
    AsJson,
    RunArguments,
    RunChoice,
    number_option,
    option,
    parse_pairs,
    run_argument,
    whole_number_option,
)
from hesrpt.cli.terminal import print_json
from hesrpt.display.console import escape
from hesrpt.errors import InputError
from hesrpt.validation import check_positive, is_number

if TYPE_CHECKING:
    from hesrpt.cli.run_access import AddedJobs
    from hesrpt.storage.journal_entries import RequestKind

# --- add, submit ----------------------------------------------------------------------------------

_need_option = partial(option, panel="What the job needs")
_need_count = partial(whole_number_option, panel="What the job needs")
_ORDER_PANEL = "Order and weight"
_order_option = partial(option, panel=_ORDER_PANEL)

# What --resources must be.
_RESOURCES = "KIND=AMOUNT,… with each kind once, such as gpu=2,memory=64GB"
_SEPARATORS = (":::", "::::")
# A placeholder, or a brace that means itself.
_BRACES = re.compile(r"\{(item|stem|name|index|servers|job)?\}|[{}]")
_ABOUT_ITEMS = ("{item}", "{stem}", "{name}", "{index}")
# find replaces these by its files, and GNU parallel by its items.
_EMPTY_BRACES = "{}"
# The exit code of a request that makes sense, but was refused.
_REFUSED = 1


@dataclass(frozen=True)
class NewJob:
    """The options of a job to add, by their keys in a jobs file."""

    name: Annotated[
        str | None, option("Name of the job. By default, that of the program.", metavar="NAME")
    ] = None
    group: Annotated[
        str | None, _order_option("Its group.", metavar="NAME", complete=complete_group)
    ] = None
    after: Annotated[
        list[str] | None,
        _order_option(
            "Start when this job has ended well. Can be repeated.",
            metavar="JOB",
            complete=complete_job,
        ),
    ] = None
    after_failure: Annotated[
        Literal["cancel", "release"] | None,
        _order_option(
            "If such a job fails: cancel this one, the default, or release it.", metavar="CHOICE"
        ),
    ] = None
    weight: Annotated[
        float | None,
        number_option(
            "What a second of its flow time costs; 1 by default.", metavar="W", panel=_ORDER_PANEL
        ),
    ] = None
    servers: Annotated[
        int | None, _need_count("How many servers it gets. Sets --min-servers and --max-servers.")
    ] = None
    min_servers: Annotated[
        int | None, _need_count("The fewest servers that it gets.", "--min-servers", "--min")
    ] = None
    max_servers: Annotated[
        int | None, _need_count("The most servers that it gets.", "--max-servers", "--max")
    ] = None
    resources: Annotated[
        str | None,
        _need_option(
            "What each item needs besides a server, for example gpu=1,memory=4GB.",
            metavar="KIND=N,…",
        ),
    ] = None
    size: Annotated[
        str | None,
        _need_option(
            "Work on one server, for example 90s or 2h, if it is known.", metavar="DURATION"
        ),
    ] = None
    timeout: Annotated[
        str | None, option("Stop an item after this long; it has failed then.", metavar="DURATION")
    ] = None
    retries: Annotated[
        int | None, whole_number_option("How often a failed item runs again; once by default.")
    ] = None
    keep_going: Annotated[
        bool, option("If an item fails, go on with the others.", "--keep-going")
    ] = False
    cwd: Annotated[
        Path | None, option("Where to run it. By default, the current directory.", metavar="DIR")
    ] = None
    env: Annotated[
        list[str] | None,
        option("Variable of its environment. Can be repeated.", metavar="NAME=VALUE"),
    ] = None
    on_end: Annotated[
        list[str] | None,
        option("Command to run or address to post to when it has ended.", metavar="HOOK"),
    ] = None


def add(
    *,
    run: RunChoice,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="COMMAND [ARGUMENT]... [::: ITEM...]",
            show_default=False,
            help="One word is a line for the shell; several are a program and its arguments. With "
            "items after :::, or in files after ::::, it runs once for each. A command with {item} "
            "and without ::: reads the items from standard input.",
        ),
    ] = None,
    job: NewJob,
    wait: Annotated[
        bool, option("Wait until it has ended; exit with 1 if it is not done.", "--wait")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a job: hesrpt add -- python train.py, or hesrpt add 'gzip {item}' ::: *.txt.

    Options come before the command. In a command, {item} is the item, {stem} and {name} are parts
    of its path, {index} is its number and {servers} the number of servers; {} is the item if none
    of these is there, and other braces mean themselves. Items for which there is no place are
    appended. If nothing runs the queue now, the job starts when something does.
    """
    from hesrpt.cli.status import wait_for_jobs
    from hesrpt.service.job_requests import name_command

    if job.after_failure is not None and not job.after:
        raise InputError("--after-failure says what to do if a job of --after fails: give --after")
    target, _ = run.find(None)
    command, items = parse_words(words or [])
    given: dict[str, Any] = vars(job) | {
        "name": job.name or name_command(command),
        "command": command,
        "items": items,
        "cwd": _double_braces(os.path.abspath(job.cwd or Path.cwd())),
        "env": dict(_split_variable(each) for each in job.env or ()),
    }
    if job.resources is not None:
        given["resources"] = parse_pairs(job.resources, _RESOURCES, "resources")
    given = {
        key: value
        for key, value in given.items()
        if value is not None and value is not False and value not in ([], {})
    }
    jobs = _add_and_print(lambda: target.add([given]), as_json=as_json, is_waited_for=wait)
    if wait:
        wait_for_jobs(target, jobs.names, None, as_json=as_json)


def _split_variable(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"--env must be like NAME=VALUE, got {text!r}")
    return name, _double_braces(value)


def _double_braces(text: str) -> str:
    """Return a text in which braces mean themselves."""
    return text.replace("{", "{{").replace("}", "}}")


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


def submit(
    run: RunChoice,
    jobs: Annotated[
        list[str] | None,
        run_argument(
            "[DIR] JOBS.TOML",
            "State directory of the run, unless an option or a variable says which; and the file "
            "with the jobs to add.",
            complete=None,
        ),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Add the jobs in a file to a run. If it is not running, they start when it is resumed.

    If one of them can never start, because it needs more than there is, none is added.
    """
    from hesrpt.jobs.jobs_file import list_run_settings

    target, files = run.find(jobs)
    if len(files) != 1:
        raise InputError(
            "JOBS.TOML is missing" if not files else f"one JOBS.TOML is enough, got {files[1]!r}"
        )
    _add_and_print(lambda: target.submit(Path(files[0])), as_json=as_json)
    if settings := list_run_settings(files[0]):
        ignored = f"{', '.join(settings)}: ignored, because the run keeps its own settings"
        print(escape(f"hesrpt: {files[0]}: {ignored}"), file=sys.stderr)


def _add_and_print(
    add: Callable[[], AddedJobs], *, as_json: bool, is_waited_for: bool = False
) -> AddedJobs:
    """Add jobs, print their names or why they were refused, and return them.

    Either all of them are added, or none. If they are waited for, JSON is printed at their end.
    """
    try:
        added = add()
    except InputError as error:
        if as_json and error.exit_code == _REFUSED:
            print_json(jobs=[], problem=str(error))
        raise
    if not as_json:
        print(escape(f"added: {', '.join(added.names)}{added.note}"), flush=True)
    elif not is_waited_for:
        print_json(jobs=list(added.names), problem=None)
    return added


# --- cancel, pause, resume, retry, weight ---------------------------------------------------------


@dataclass(frozen=True)
class JobChoice(RunChoice):
    """The options that say which jobs of which run to change."""

    jobs: RunArguments = None
    all_jobs: Annotated[bool, option("All jobs that have not ended.", "--all")] = False
    group: Annotated[
        str | None,
        option(
            "A group of jobs, instead of names of jobs.", metavar="NAME", complete=complete_group
        ),
    ] = None
    as_json: AsJson = False


@dataclass(frozen=True)
class RetriedJobs(JobChoice):
    """Which jobs to retry."""

    all_jobs: Annotated[
        bool, option("All jobs with failed items, and all that were cancelled.", "--all")
    ] = False


@dataclass(frozen=True)
class WeightedJobs(JobChoice):
    """Which jobs to give which weight."""

    jobs: Annotated[
        list[str] | None,
        run_argument(
            "[DIR] [JOB]... WEIGHT",
            "State directory of the run, unless an option or a variable says which; names of jobs; "
            "and a number greater than 0, which is 1 at first.",
        ),
    ] = None


def cancel(choice: JobChoice) -> None:
    """End jobs of a run. They stay cancelled until they are retried.

    Items that are running are stopped. Results of items that are done are kept.
    """
    _change_jobs(choice, "cancel", choice.jobs)


def pause(choice: JobChoice) -> None:
    """Give the servers of jobs to others until the jobs are resumed.

    A job with items finishes those that are running, and starts no others. A single command is
    suspended with all its processes, or stopped if it resizes by restarting.
    """
    _change_jobs(choice, "pause", choice.jobs)


def resume(choice: JobChoice) -> None:
    """Let paused jobs go on."""
    _change_jobs(choice, "resume", choice.jobs)


def retry(choice: RetriedJobs) -> None:
    """Run the failed items of jobs again, and continue jobs that were cancelled."""
    _change_jobs(choice, "retry", choice.jobs)


def weight(choice: WeightedJobs) -> None:
    """Change the weights of jobs: what a second of their flow time costs.

    A job with a higher weight gets more servers and ends earlier. The weight of a group multiplies
    those of its jobs.
    """
    *arguments, value = choice.jobs or [""]
    if not is_number(value):
        got = f", got {value!r}" if value else ""
        raise InputError(f"WEIGHT is missing: the last word must be a number greater than 0{got}")
    _change_jobs(choice, "weight", arguments, check_positive("WEIGHT", float(value)))


def _change_jobs(
    choice: JobChoice,
    kind: RequestKind,
    arguments: Sequence[str] | None,
    weight: float | None = None,
) -> None:
    """Ask for a change of jobs, and print what happened or will happen.

    Exit with code 1 if the change of a job was refused, but not if there was no job to change.
    """
    run, names = choice.find(arguments)
    group, all_jobs = choice.group, choice.all_jobs
    if group is not None and (names or all_jobs):
        raise InputError("--group means the jobs of a group: leave out --all and names of jobs")
    if not names and not all_jobs and group is None:
        from hesrpt.storage.job_names import describe_names

        known = describe_names(run.read(failures=False).names)
        raise InputError(f"JOB is missing; name jobs, or use --all; {known}")
    if names and all_jobs:
        raise InputError("--all means all jobs: leave out their names")
    results = run.change(kind, names, weight, group)
    if choice.as_json:
        entries = [
            {
                "name": result.job,
                "request": result.request,
                "answered": result.is_answered,
                "refused": result.is_refused,
                "text": result.text,
            }
            for result in results
        ]
        print_json(jobs=entries)
    else:
        for result in results:
            print(escape(f"{result.job}: {result.text}"))
        if not results:
            where = "" if group is None else f" in group {group!r}"
            verb = "change" if kind == "weight" else kind
            print(escape(f"nothing to do: there is no job to {verb}{where}"))
        is_answered = all(result.is_answered for result in results)
        if not is_answered and (obstacle := run.read(failures=False).obstacle):
            print(escape(obstacle))
    if any(result.is_refused for result in results):
        raise typer.Exit(1)
