"""Shell completion: what to offer for a partly typed value of an option or argument.

These functions run at every press of the Tab key, so they import the library only where needed.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, get_args

import typer

from hesrpt.errors import InputError
from hesrpt.policies import POLICIES, list_malleable_policies
from hesrpt.workload import SIZES

if TYPE_CHECKING:
    from hesrpt.cli.run_access import DirectoryRun, ServiceRun


def complete_policy(incomplete: str) -> list[tuple[str, str]]:
    """Return the policies whose names start with ``incomplete``, with their titles."""
    entries = POLICIES.items()
    return [(name, entry.title) for name, entry in entries if name.startswith(incomplete)]


def complete_malleable_policy(incomplete: str) -> list[tuple[str, str]]:
    """Return the policies of a live run whose names start with ``incomplete``, with titles."""
    malleable = list_malleable_policies()
    return [offer for offer in complete_policy(incomplete) if offer[0] in malleable]


def complete_policies(incomplete: str) -> list[str]:
    """Return completions of the last name in a comma-separated list of policies."""
    *complete, last = incomplete.split(",")
    names = [name for name in POLICIES if name.startswith(last) and name not in complete]
    return [",".join([*complete, name]) for name in names]


def complete_sizes(incomplete: str) -> list[str]:
    """Return the size distributions whose names start with ``incomplete``."""
    return [name for name in SIZES if name.startswith(incomplete)]


def complete_engine(incomplete: str) -> list[str]:
    """Return the engines whose names start with ``incomplete``."""
    from hesrpt.engines.registry import list_engines

    return [name for name in list_engines() if name.startswith(incomplete)]


def complete_change(incomplete: str) -> list[str]:
    """Return the choices of --on-change that start with ``incomplete``."""
    from hesrpt.scheduler.job_registry import OnChange

    return [choice for choice in get_args(OnChange) if choice.startswith(incomplete)]


def complete_after_failure(incomplete: str) -> list[str]:
    """Return the choices of --after-failure that start with ``incomplete``."""
    from hesrpt.jobs.job_spec import AfterFailure

    return [choice for choice in get_args(AfterFailure) if choice.startswith(incomplete)]


def complete_format(incomplete: str) -> list[str]:
    """Return the trace formats whose names start with ``incomplete``."""
    from hesrpt.traces.formats import FORMATS

    return [name for name in FORMATS if name.startswith(incomplete)]


def complete_job(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs of the run whose names start with ``incomplete``."""
    try:
        run, typed = _find_run(ctx)
        names = run.list_names()
    except InputError:
        return []
    return [
        _escape_in_bash(name)
        for name in names
        if name.startswith(incomplete)
        and name not in typed
        and name.isprintable()  # shells cannot complete the others
    ]


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups of jobs of the run that start with ``incomplete``."""
    try:
        groups = _find_run(ctx)[0].list_groups()
    except InputError:
        return []
    found = [name for name in groups if name.startswith(incomplete) and name.isprintable()]
    return [_escape_in_bash(name) for name in found]


def _find_run(ctx: typer.Context) -> tuple[DirectoryRun | ServiceRun, list[str]]:
    """Return the run that the words so far are about, and those that do not say which it is."""
    from hesrpt.cli.options import RunChoice

    given = {key: ctx.params.get(key) for key in ("url", "token", "state")}
    return RunChoice(**given).find(ctx.params.get("jobs"))


def _escape_in_bash(name: str) -> str:
    """Return a name as bash must insert it, which does not escape spaces and brackets itself."""
    words = os.environ.get("COMP_WORDS", "").split("\n")  # only bash sets it
    position = int(os.environ.get("COMP_CWORD") or 0)
    is_quoted = len(words) > position and words[position].startswith(("'", '"'))
    if words == [""] or is_quoted:
        return name
    return re.sub(r"[^\w./@%+,:=-]", r"\\\g<0>", name)
