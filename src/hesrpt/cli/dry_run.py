"""``hesrpt run --dry-run``: prints what a run would do."""

from __future__ import annotations

import json
import os
import shlex
from itertools import islice
from pathlib import Path
from typing import Any

from rich.table import Table

from hesrpt._version import __version__
from hesrpt.cli.terminal import print_table
from hesrpt.display.console import create_console, literal
from hesrpt.pool.batch_run import RunOptions
from hesrpt.pool.run_preview import PreviewedCommand, PreviewedJob, RunPreview
from hesrpt.units import format_count, format_duration

# How many commands of a job to print.
_MAX_COMMANDS = 5


def print_preview(preview: RunPreview, options: RunOptions, *, as_json: bool) -> None:
    """Print the jobs of a run that was not started, with their commands."""
    if as_json:
        content = {
            "hesrpt": __version__,
            "policy": options.policy,
            "servers": preview.servers,
            "jobs": [_describe_as_json(job) for job in preview.jobs],
        }
        print(json.dumps(content, indent=2))
        return
    console = create_console()
    table = Table(box=None, pad_edge=False)
    for column in ("job", "items", "servers at first", "limits", "ends after"):
        table.add_column(column, justify="left" if column in ("job", "limits") else "right")
    for job in preview.jobs:
        done = f"{job.done:,}/" if job.done else ""
        table.add_row(
            literal(job.spec.name),
            f"{done}{job.spec.items or 0:,}",
            str(job.servers),
            _describe_limits(job),
            _describe_end(job),
        )
    print_table(console, table)
    for job in preview.jobs:
        if not job.left:
            continue
        console.print()
        console.print(literal(f"{job.spec.name}:"), soft_wrap=True)
        for command in islice(job.list_commands(_quote), _MAX_COMMANDS):
            console.print(
                literal(f"  {_describe_directory(command)}{command.text}"), soft_wrap=True
            )
        if (more := len(job.left) - _MAX_COMMANDS) > 0:
            console.print(f"  … and {more:,} more, which --json lists")
    console.print()
    note = f"{options.policy} on {format_count(preview.servers, 'server')}; nothing was started"
    if any(_describe_end(job) == "?" for job in preview.jobs):
        note += '; "?": give the size of the job, or run it once to learn it'
    if any(_waits_for_servers(job) for job in preview.jobs if job.left):
        note += '; "{servers}": not known before the job starts'
    console.print(literal(note), soft_wrap=True)


def _describe_end(job: PreviewedJob) -> str:
    """Return when a job would end; if it would not run, what keeps it from doing so."""
    if job.state != "waiting":
        return job.state
    return "?" if job.end is None else format_duration(job.end)


def _waits_for_servers(job: PreviewedJob) -> bool:
    template = job.spec.command
    return (
        job.command_servers is None and template is not None and "servers" in template.placeholders
    )


def _describe_directory(command: PreviewedCommand) -> str:
    directory = Path(os.path.normpath(command.directory or "."))
    if directory in (Path.cwd(), Path()):
        return ""
    if directory.is_relative_to(Path.cwd()):
        directory = directory.relative_to(Path.cwd())
    return f"cd {_quote(str(directory))} && "


def _quote(text: str) -> str:
    """Quote a text for a shell, without line breaks or other characters that cannot be seen."""
    if text.isprintable():
        return shlex.quote(text)
    characters = (
        char if char.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(char))
        for char in text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    )
    return f"$'{''.join(characters)}'"


def _describe_limits(job: PreviewedJob) -> str:
    spec, limits = job.spec, []
    if spec.max_servers is not None:
        low = max(spec.min_servers, 1)
        span = f"{low}" if low == spec.max_servers else f"{low} to {spec.max_servers}"
        limits.append(f"servers: {span}")
    elif spec.min_servers > 1:
        limits.append(f"servers: at least {spec.min_servers}")
    if spec.command is not None and spec.command.timeout is not None:
        limits.append(f"timeout: {format_duration(spec.command.timeout)}")
    limits.append(f"retries: {spec.retries}")
    return ", ".join(limits)


def _describe_as_json(job: PreviewedJob) -> dict[str, Any]:
    spec = job.spec
    return {
        "name": spec.name,
        "state": job.state,
        "items": spec.items,
        "done": job.done,
        "servers": job.servers,
        "min_servers": spec.min_servers,
        "max_servers": spec.max_servers,
        "timeout": None if spec.command is None else spec.command.timeout,
        "retries": spec.retries,
        "ends_after": job.end,
        "commands": [
            {"item": command.item, "command": command.text, "directory": str(command.directory)}
            for command in job.list_commands()
        ],
    }
