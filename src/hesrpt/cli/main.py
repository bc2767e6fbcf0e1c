"""The ``hesrpt`` program: its commands, its version, and how it reports errors."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from itertools import pairwise
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from hesrpt._version import __version__
from hesrpt.cli.job_changes import add, cancel, pause, resume, retry, submit, weight
from hesrpt.cli.logs import logs
from hesrpt.cli.options import NumberError, expand_option_groups
from hesrpt.cli.paper import paper
from hesrpt.cli.planning import compare, plan, simulate
from hesrpt.cli.report import report
from hesrpt.cli.run import run
from hesrpt.cli.serve import serve
from hesrpt.cli.status import status, wait
from hesrpt.cli.whatif import whatif
from hesrpt.display.console import escape
from hesrpt.errors import CertificateError, InputError
from hesrpt.validation import is_number

_COMMANDS: dict[str, tuple[Callable[..., None], ...]] = {
    "Plan and simulate": (plan, simulate, compare, whatif, paper),
    "Run real jobs": (run, serve, add, submit, status, wait, logs, report),
    "Steer a run": (cancel, pause, resume, retry, weight),
}


def _hide_types_of_flags(parameters: list[Any]) -> list[Any]:
    """Keep the help from showing flags as ``--help <bool>``."""
    for parameter in parameters:
        if getattr(parameter, "is_flag", False):
            parameter.metavar = ""
    return parameters


def _join_lines(function: Callable[..., None]) -> str:
    """Return what a command does, with each paragraph on one line, as the terminal wraps it."""
    paragraphs = (function.__doc__ or "").split("\n\n")
    return "\n\n".join(" ".join(paragraph.split()) for paragraph in paragraphs)


def _mark_negative_numbers(arguments: list[str]) -> list[str]:
    """Keep negative numbers from being taken for options, unless they follow an option.

    >>> _mark_negative_numbers(["DIR", "job", "-1", "--json"])
    ['DIR', 'job', '--json', '--', '-1']
    """
    pairs = list(pairwise(["", *arguments]))
    numbers = [each for before, each in pairs if before[:1] != "-" and _is_negative(each)]
    if not numbers or "--" in arguments:
        return arguments
    others = [each for before, each in pairs if before[:1] == "-" or not _is_negative(each)]
    return [*others, "--", *numbers]


def _is_negative(text: str) -> bool:
    return text[:1] == "-" and is_number(text)


class _Group(TyperGroup):
    """The program, with a help that shows flags without a type."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))


class _Command(TyperCommand):
    """A command whose errors name options (``--amdahl``) instead of Python arguments."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _hide_types_of_flags(super().get_params(ctx))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        # What follows the program that add starts belongs to that program.
        given = _mark_negative_numbers(args) if ctx.allow_interspersed_args else args
        return super().parse_args(ctx, given)

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        # Typer writes required arguments as {JOBS.CSV}, and adds brackets and dots to metavars that
        # have their own.
        pieces = [piece.strip("{}") for piece in super().collect_usage_pieces(ctx)]
        return [
            piece.removeprefix("[").removesuffix("]...") if " " in piece else piece
            for piece in pieces
        ]

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            for parameter in self.params:
                if parameter.name == error.argument:
                    is_option = parameter.param_type_name == "option"
                    name = parameter.opts[0] if is_option else parameter.metavar
                    raise InputError(error.problem, argument=name) from error
            raise


app = typer.Typer(
    name="hesrpt",
    cls=_Group,
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

for _panel, _functions in _COMMANDS.items():
    for _function in _functions:
        app.command(
            cls=_Command,
            rich_help_panel=_panel,
            help=_join_lines(_function),
            # What follows the command to add belongs to that command.
            context_settings={"allow_interspersed_args": _function is not add},
        )(expand_option_groups(_function))


def _print_version(is_requested: bool) -> None:
    if is_requested:
        print(f"hesrpt {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version and exit."
        ),
    ] = False,
) -> None:
    """Share servers between parallel jobs: plan, simulate, and run them."""


def main() -> None:
    """Run the command line; a user's mistake prints one line to standard error and exits with 2."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Job names may not fit the terminal's encoding.
            stream.reconfigure(errors="backslashreplace")
    try:
        code = app(prog_name="hesrpt", standalone_mode=False)
        sys.stdout.flush()
    except InputError as error:
        sys.exit(_print_error(str(error), error.exit_code))
    except CertificateError as error:
        sys.exit(
            _print_error(f"the plan failed verification; this is a bug in hesrpt: {error}", code=1)
        )
    except OSError as error:
        # Standard output is broken: keep Python from flushing it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):
            sys.exit(0)  # the reader, such as head, has closed the pipe
        sys.exit(_print_error(f"cannot write the output: {error.strerror or error}"))
    except Exception as error:
        # The parser's exceptions can format themselves. Any other exception is a bug.
        if not hasattr(error, "format_message"):
            raise
        message = _describe_parser_error(error)
        # The message is empty if there were no arguments and the help was printed.
        sys.exit(_print_error(message) if message else 2)
    sys.exit(code if isinstance(code, int) else 0)


def _describe_parser_error(error: Any) -> str:
    """Return the message of an error of the parser, in the words of our own messages."""
    if isinstance(error, NumberError) and error.param is not None:
        return f"{error.param.opts[0]} {error.message}"
    return str(error.format_message()).replace("Value error, ", "")  # which Typer adds


def _print_error(message: str, code: int = 2) -> int:
    print(f"hesrpt: {escape(' '.join(message.split()))}", file=sys.stderr)
    return code
