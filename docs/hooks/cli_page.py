"""Generates the command line reference from the commands themselves."""

from __future__ import annotations

from typing import Any

import typer
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hesrpt.cli.main import app

INTRODUCTION = """\
# Command line

This page shows what `hesrpt COMMAND --help` prints: both are generated from the code. `hesrpt
--install-completion` lets your shell complete commands, options and the names of policies and jobs.
If a command line is invalid, hesrpt prints one line to standard error and exits with code 2.
"""


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the page."""
    group: Any = typer.main.get_command(app)
    context = typer.Context(group, info_name="hesrpt")
    lines = [INTRODUCTION, "| command | purpose |", "|---|---|"]
    commands = {name: group.get_command(context, name) for name in group.list_commands(context)}
    for name, command in commands.items():
        lines.append(
            f"| [`hesrpt {name}`](#hesrpt-{name}) | {_format_cell(_get_first_line(command.help))} |"
        )
    for name, command in commands.items():
        lines += _describe(command, typer.Context(command, info_name=name, parent=context))
    files.append(File.generated(config, "reference/cli.md", content="\n".join(lines) + "\n"))


def _describe(command: Any, context: typer.Context) -> list[str]:
    """Return the section of one command."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = ["", f"## hesrpt {command.name}", "", "```sh", usage, "```", "", command.help or ""]
    groups: dict[str, list[Any]] = {}
    for parameter in command.get_params(context):
        if not getattr(parameter, "hidden", False):
            default = "Options" if parameter.param_type_name == "option" else "Arguments"
            groups.setdefault(parameter.rich_help_panel or default, []).append(parameter)
    for title, parameters in groups.items():
        lines += ["", f"**{title}**", "", "| name | description |", "|---|---|"]
        for parameter in parameters:
            signature, text = parameter.get_help_record(context)
            if parameter.param_type_name == "argument":
                signature = signature.partition(" ")[0]  # without its type
            lines.append(f"| {_format_code(signature)} | {_format_cell(text)} |")
    return lines


def _get_first_line(text: str | None) -> str:
    return (text or "").strip().partition("\n")[0]


def _format_code(text: str) -> str:
    return f"<code>{_format_cell(text)}</code>"


def _format_cell(text: str) -> str:
    """Return text on one line, with the characters escaped that a table cell cannot contain."""
    plain = " ".join(text.split())
    for character, entity in (("&", "&amp;"), ("<", "&lt;"), ("|", "&#124;"), ("*", "&#42;")):
        plain = plain.replace(character, entity)
    return plain
