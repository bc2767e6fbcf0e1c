"""``hesrpt add``: adds one job to a run or service."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from hesrpt.cli.added_jobs import add_and_print
from hesrpt.cli.completion import complete_after_failure, complete_group, complete_job
from hesrpt.cli.options import AsJson, number_option, option, whole_number_option
from hesrpt.cli.run_choice import RunChoice
from hesrpt.errors import InputError

_SERVERS_PANEL = "What the job needs"
_ORDER_PANEL = "Order and weight"


def add(
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
    name: Annotated[
        str | None,
        option("Name of the job. By default, that of the program.", metavar="NAME"),
    ] = None,
    group: Annotated[
        str | None,
        option("Its group.", metavar="NAME", panel=_ORDER_PANEL, complete=complete_group),
    ] = None,
    after: Annotated[
        list[str] | None,
        option(
            "Start when this job has ended well. Can be repeated.",
            metavar="JOB",
            panel=_ORDER_PANEL,
            complete=complete_job,
        ),
    ] = None,
    after_failure: Annotated[
        str | None,
        option(
            "If such a job fails: cancel this one, the default, or release it.",
            metavar="CHOICE",
            panel=_ORDER_PANEL,
            complete=complete_after_failure,
        ),
    ] = None,
    weight: Annotated[
        float | None,
        number_option(
            "What a second of its flow time costs; 1 by default.", metavar="W", panel=_ORDER_PANEL
        ),
    ] = None,
    servers: Annotated[
        int | None,
        whole_number_option(
            "How many servers it gets. Sets --min-servers and --max-servers.", panel=_SERVERS_PANEL
        ),
    ] = None,
    min_servers: Annotated[
        int | None,
        whole_number_option(
            "The fewest servers that it gets.", "--min-servers", "--min", panel=_SERVERS_PANEL
        ),
    ] = None,
    max_servers: Annotated[
        int | None,
        whole_number_option(
            "The most servers that it gets.", "--max-servers", "--max", panel=_SERVERS_PANEL
        ),
    ] = None,
    resources: Annotated[
        str | None,
        option(
            "What each item needs besides a server, for example gpu=1,memory=4GB.",
            metavar="KIND=N,…",
            panel=_SERVERS_PANEL,
        ),
    ] = None,
    size: Annotated[
        str | None,
        option(
            "Work on one server, for example 90s or 2h, if it is known.",
            metavar="DURATION",
            panel=_SERVERS_PANEL,
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        option("Stop an item after this long; it has failed then.", metavar="DURATION"),
    ] = None,
    retries: Annotated[
        int | None,
        whole_number_option("How often a failed item runs again; once by default."),
    ] = None,
    keep_going: Annotated[
        bool, option("If an item fails, go on with the others.", "--keep-going")
    ] = False,
    cwd: Annotated[
        Path | None,
        option("Where to run it. By default, the current directory.", metavar="DIR"),
    ] = None,
    env: Annotated[
        list[str] | None,
        option("Variable of its environment. Can be repeated.", metavar="NAME=VALUE"),
    ] = None,
    on_end: Annotated[
        list[str] | None,
        option("Command to run or address to post to when it has ended.", metavar="HOOK"),
    ] = None,
    wait: Annotated[
        bool,
        option("Wait until it has ended; exit with 1 if it is not done.", "--wait"),
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Add a job: hesrpt add -- python train.py, or hesrpt add 'gzip {item}' ::: *.txt.

    Options come before the command. In a command, {item} is the item, {stem} and {name} are parts
    of its path, {index} is its number and {servers} the number of servers; {} is the item if none
    of these is there, and other braces mean themselves. Items for which there is no place are
    appended. If nothing runs the queue now, the job starts when something does.
    """
    from hesrpt.cli.add_words import parse_words
    from hesrpt.cli.status import wait_for_jobs
    from hesrpt.jobs.item_resources import parse_resources
    from hesrpt.service.job_requests import name_command

    if after_failure is not None and not after:
        raise InputError("--after-failure says what to do if a job of --after fails: give --after")
    target, _ = run.find(None)
    added = parse_words(words or [])
    place = os.path.abspath(cwd or Path.cwd()).replace("{", "{{").replace("}", "}}")
    job: dict[str, Any] = {
        "name": name or name_command(added.command),
        "command": added.command,
        "items": added.items,
        "group": group,
        "after": after or None,
        "after_failure": after_failure,
        "weight": weight,
        "servers": servers,
        "min_servers": min_servers,
        "max_servers": max_servers,
        "resources": None if resources is None else parse_resources(resources),
        "size": size,
        "timeout": timeout,
        "retries": retries,
        "keep_going": keep_going or None,
        "cwd": place,
        "env": dict(_split_variable(each) for each in env or ()) or None,
        "on_end": on_end or None,
    }
    given = {key: value for key, value in job.items() if value is not None}
    jobs = add_and_print(lambda: target.add([given]), as_json=as_json, is_waited_for=wait)
    if wait:
        wait_for_jobs(target, jobs.names, None, as_json=as_json)


def _split_variable(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"--env must be like NAME=VALUE, got {text!r}")
    return name, value.replace("{", "{{").replace("}", "}}")
