"""The part of a job in a jobs file that says what to run: its command, items and surroundings."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hesrpt.errors import InputError
from hesrpt.jobs.command_template import (
    CommandTemplate,
    check_command,
    check_environment,
    check_shell,
)
from hesrpt.jobs.job_items import ItemReader
from hesrpt.jobs.placeholders import check_placeholders, find_placeholders
from hesrpt.jobs.toml_tables import TomlTable
from hesrpt.jobs.toml_values import (
    get_seconds,
    to_command,
    to_string,
    to_text,
    to_variables,
)

#: The keys of a job that say what to run.
COMMAND_KEYS = ("command", "items", "cwd", "env", "stdin", "stdin_file", "shell", "timeout")

_ABOUT_ITEMS = {"item", "stem", "name", "index"}


def read_command(
    table: TomlTable, name: str, directory: Path, reader: ItemReader
) -> CommandTemplate:
    """Return the command of a job; paths are relative to a directory."""
    command = to_command(table.values.get("command"))
    if command is None:
        raise table.create_value_error(
            "command", "a string for the shell, or a list of strings to run without a shell"
        )
    _check(table, "command", check_command, command)
    cwd = _read_cwd(table, directory)
    no_variables: dict[str, str] = {}
    env = table.get("env", 'a table of strings such as {LANG = "C"}', to_variables, no_variables)
    _check(table, "env", check_environment, env)
    stdin = table.get("stdin", "a string", to_text, None)
    if stdin is not None:
        _check(table, "stdin", check_placeholders, stdin)
    stdin_file = table.get("stdin_file", "the name of a file", to_string, None)
    if stdin_file is not None:
        if stdin is not None:
            raise table.create_error("stdin_file", "stdin_file cannot be combined with stdin")
        stdin_file = os.path.expanduser(stdin_file)
        _check(table, "stdin_file", check_placeholders, stdin_file)
    items = None
    if "items" in table.values:
        place = directory if find_placeholders([cwd]) else directory / cwd.format()
        items = _check(table, "items", reader.list_items, table.values["items"], directory, place)
    template = CommandTemplate(
        job=name,
        command=command,
        items=items,
        directory=str(directory),
        cwd=cwd,
        env=env,
        stdin=stdin,
        stdin_file=stdin_file,
        shell=_read_shell(table, command),
        timeout=get_seconds(table, "timeout", None),
    )
    if items is None and template.placeholders & _ABOUT_ITEMS:
        raise table.create_error("command", "the command refers to items, but the job has none")
    if items is not None and "servers" in template.placeholders:
        raise table.create_error(
            "command", "{servers} needs a job that is a single command; an item runs on one server"
        )
    return template


def _read_cwd(table: TomlTable, directory: Path) -> str:
    cwd = os.path.expanduser(table.get("cwd", "the name of a directory", to_string, "") or "")
    _check(table, "cwd", check_placeholders, cwd)
    if not find_placeholders([cwd]) and not (directory / cwd.format()).is_dir():
        raise table.create_error("cwd", f"there is no directory {directory / cwd.format()}")
    return cwd


def _read_shell(table: TomlTable, command: str | tuple[str, ...]) -> tuple[str, ...]:
    if "shell" not in table.values:
        return ("/bin/sh",)
    value = table.values["shell"]
    if not isinstance(command, str):
        raise table.create_error("shell", "shell needs a command that is a string, not a list")
    shell = to_command(value) or (str(value),)
    shell = (shell,) if isinstance(shell, str) else shell
    _check(table, "shell", check_shell, shell, prefix="shell ")
    return shell


def _check(
    table: TomlTable, key: str, check: Callable[..., Any], *arguments: Any, prefix: str = ""
) -> Any:
    """Return the result of a function; its errors name the line of a key."""
    try:
        return check(*arguments)
    except InputError as error:
        raise table.create_error(key, f"{prefix}{error}") from None
