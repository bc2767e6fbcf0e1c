"""Shell completion: what to offer for a partly typed value of an option or argument.

These functions run at every press of the Tab key, so they import the library only where needed.
Typer leaves out what does not begin with the part that is typed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from hesrpt.errors import InputError
from hesrpt.policies import POLICIES, list_malleable_policies

if TYPE_CHECKING:
    from hesrpt.cli.run_access import RunView


def complete_policy() -> list[tuple[str, str]]:
    """Return the policies, with their titles."""
    return [(name, entry.title) for name, entry in POLICIES.items()]


def complete_malleable_policy() -> list[tuple[str, str]]:
    """Return the policies of a live run, with their titles."""
    return [(name, POLICIES[name].title) for name in list_malleable_policies()]


def complete_policies(incomplete: str) -> list[str]:
    """Return completions of the last name in a comma-separated list of policies."""
    *complete, _ = incomplete.split(",")
    return [",".join([*complete, name]) for name in POLICIES if name not in complete]


def complete_engine() -> list[str]:
    """Return the engines."""
    from hesrpt.engines.registry import list_engines

    return list_engines()


def complete_format() -> list[str]:
    """Return the trace formats."""
    from hesrpt.traces.formats import FORMATS

    return list(FORMATS)


def complete_job(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the jobs of the run whose names start with ``incomplete``."""
    try:
        run, typed = _find_run(ctx)
        return _complete_name([name for name in run.names if name not in typed], incomplete)
    except InputError:
        return []


def complete_group(ctx: typer.Context, incomplete: str) -> list[str]:
    """Return the groups of jobs of the run that start with ``incomplete``."""
    try:
        return _complete_name(_find_run(ctx)[0].groups, incomplete)
    except InputError:
        return []


def _complete_name(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that start so, except for those that shells cannot complete."""
    found = [name for name in names if name.startswith(incomplete) and name.isprintable()]
    return [_escape_in_bash(name) for name in found]


def _find_run(ctx: typer.Context) -> tuple[RunView, list[str]]:
    """Return the run that the words so far are about, and those that do not say which it is."""
    from hesrpt.cli.options import RunChoice

    given = {key: ctx.params.get(key) for key in ("url", "token", "state")}
    run, words = RunChoice(**given).find(ctx.params.get("jobs"))
    return run.read(failures=False), words


def _escape_in_bash(name: str) -> str:
    """Return a name as bash must insert it, which does not escape spaces and brackets itself."""
    words = os.environ.get("COMP_WORDS", "").split("\n")  # only bash sets it
    position = int(os.environ.get("COMP_CWORD") or 0)
    is_quoted = len(words) > position and words[position].startswith(("'", '"'))
    if words == [""] or is_quoted:
        return name
    return re.sub(r"[^\w./@%+,:=-]", r"\\\g<0>", name)
