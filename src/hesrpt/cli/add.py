"""``hesrpt add``: adds one job to a run or service."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Annotated, Any

import typer

from hesrpt._version import __version__
from hesrpt.cli.options import AsJson, parse_number, parse_whole_number
from hesrpt.cli.run_choice import RunChoice
from hesrpt.display.escaping import escape
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
        typer.Option(metavar="NAME", help="Name of the job. By default, that of the program."),
    ] = None,
    group: Annotated[
        str | None, typer.Option(metavar="NAME", rich_help_panel=_ORDER_PANEL, help="Its group.")
    ] = None,
    after: Annotated[
        list[str] | None,
        typer.Option(
            metavar="JOB",
            rich_help_panel=_ORDER_PANEL,
            help="Start when this job has ended well. Can be repeated.",
        ),
    ] = None,
    after_failure: Annotated[
        str | None,
        typer.Option(
            metavar="CHOICE",
            rich_help_panel=_ORDER_PANEL,
            help="If such a job fails: cancel this one, the default, or release it.",
        ),
    ] = None,
    weight: Annotated[
        float | None,
        typer.Option(
            parser=parse_number,
            metavar="W",
            rich_help_panel=_ORDER_PANEL,
            help="What a second of its flow time costs; 1 by default.",
        ),
    ] = None,
    servers: Annotated[
        int | None,
        typer.Option(
            parser=parse_whole_number,
            metavar="N",
            rich_help_panel=_SERVERS_PANEL,
            help="How many servers it gets. Sets --min-servers and --max-servers.",
        ),
    ] = None,
    min_servers: Annotated[
        int | None,
        typer.Option(
            "--min-servers",
            "--min",
            parser=parse_whole_number,
            metavar="N",
            rich_help_panel=_SERVERS_PANEL,
            help="The fewest servers that it gets.",
        ),
    ] = None,
    max_servers: Annotated[
        int | None,
        typer.Option(
            "--max-servers",
            "--max",
            parser=parse_whole_number,
            metavar="N",
            rich_help_panel=_SERVERS_PANEL,
            help="The most servers that it gets.",
        ),
    ] = None,
    resources: Annotated[
        str | None,
        typer.Option(
            metavar="KIND=N,…",
            rich_help_panel=_SERVERS_PANEL,
            help="What each item needs besides a server, for example gpu=1,memory=4GB.",
        ),
    ] = None,
    size: Annotated[
        str | None,
        typer.Option(
            metavar="DURATION",
            rich_help_panel=_SERVERS_PANEL,
            help="Work on one server, for example 90s or 2h, if it is known.",
        ),
    ] = None,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="DURATION", help="Stop an item after this long; it has failed then."),
    ] = None,
    retries: Annotated[
        int | None,
        typer.Option(
            parser=parse_whole_number,
            metavar="N",
            help="How often a failed item runs again; once by default.",
        ),
    ] = None,
    keep_going: Annotated[
        bool, typer.Option("--keep-going", help="If an item fails, go on with the others.")
    ] = False,
    cwd: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where to run it. By default, the current directory."),
    ] = None,
    env: Annotated[
        list[str] | None,
        typer.Option(metavar="NAME=VALUE", help="Variable of its environment. Can be repeated."),
    ] = None,
    on_end: Annotated[
        list[str] | None,
        typer.Option(
            metavar="HOOK", help="Command to run or address to post to when it has ended."
        ),
    ] = None,
    wait: Annotated[
        bool,
        typer.Option("--wait", help="Wait until it has ended; exit with 1 if it is not done."),
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
    from hesrpt.cli.wait import wait_for_jobs
    from hesrpt.runtime.decisions.item_resources import parse_resources
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
    names, note = target.add([{key: value for key, value in job.items() if value is not None}])
    if not as_json:
        print(escape(f"added: {', '.join(names)}{note}"), flush=True)
    elif not wait:
        print(json.dumps({"hesrpt": __version__, "jobs": list(names)}, indent=2))
    if wait:
        wait_for_jobs(target, names, None, as_json=as_json)


def _split_variable(text: str) -> tuple[str, str]:
    name, sign, value = text.partition("=")
    if not sign:
        raise InputError(f"--env must be like NAME=VALUE, got {text!r}")
    return name, value.replace("{", "{{").replace("}", "}}")
