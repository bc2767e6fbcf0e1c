"""Which run a command is about: a state directory, or a service that is found by its URL."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from hesrpt.cli.completion import complete_job
from hesrpt.cli.options import option
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.cli.run_access import DirectoryRun, ServiceRun

_option = partial(option, panel="Which run")

#: The arguments of commands about jobs: a state directory may come before the names.
RunArguments = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[DIR] [JOB]...",
        autocompletion=complete_job,
        show_default=False,
        help="State directory of the run, unless --url, --state or a variable says which; and "
        "names of jobs.",
    ),
]


@dataclass(frozen=True)
class RunChoice:
    """The options that say which run a command is about."""

    url: Annotated[
        str | None,
        _option(
            "Address of a service (hesrpt serve). By default, the variable HESRPT_URL.",
            metavar="URL",
        ),
    ] = None
    token: Annotated[
        str | None,
        _option(
            "Its token, unless the URL contains it. By default, the variable HESRPT_TOKEN.",
            metavar="TOKEN",
        ),
    ] = None
    state: Annotated[
        Path | None,
        _option(
            "State directory of a run or service. By default, the variable HESRPT_STATE.",
            metavar="DIR",
        ),
    ] = None

    def find(self, arguments: Sequence[str] | None) -> tuple[DirectoryRun | ServiceRun, list[str]]:
        """Return the run, and the arguments that do not say which it is."""
        from hesrpt.cli.run_access import DirectoryRun, ServiceRun
        from hesrpt.storage.state_directory import holds_run

        rest = list(arguments or ())
        if self.url is not None and self.state is not None:
            raise InputError("--url and --state exclude each other")
        if self.url is not None:
            return ServiceRun(self.url, self.token), rest
        if self.state is not None:
            return DirectoryRun(self.state), rest
        if rest and holds_run(Path(rest[0])):
            return DirectoryRun(Path(rest[0])), rest[1:]
        if os.environ.get("HESRPT_URL"):
            return ServiceRun(os.environ["HESRPT_URL"], self.token), rest
        if os.environ.get("HESRPT_STATE"):
            return DirectoryRun(Path(os.environ["HESRPT_STATE"])), rest
        if rest:
            return DirectoryRun(Path(rest[0])), rest[1:]  # reading it will say what is wrong
        raise InputError(
            "DIR is missing: give a state directory, --state DIR or --url URL, or set "
            "HESRPT_STATE or HESRPT_URL"
        )
