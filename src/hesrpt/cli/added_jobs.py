"""What the commands that add jobs to a run print."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from hesrpt._version import __version__
from hesrpt.display.escaping import escape
from hesrpt.errors import InputError

if TYPE_CHECKING:
    from hesrpt.cli.run_access import AddedJobs

# The code with which commands end whose request makes sense, but was refused.
_REFUSED = 1


def add_and_print(
    add: Callable[[], AddedJobs], *, as_json: bool, is_waited_for: bool = False
) -> AddedJobs:
    """Add jobs, print their names or why they were refused, and return them.

    Either all of them are added, or none. If they are waited for, JSON is printed at their end.
    """
    try:
        added = add()
    except InputError as error:
        if as_json and error.exit_code == _REFUSED:
            _print_json([], str(error))
        raise
    if not as_json:
        print(escape(f"added: {', '.join(added.names)}{added.note}"), flush=True)
    elif not is_waited_for:
        _print_json(added.names)
    return added


def _print_json(names: Sequence[str], problem: str | None = None) -> None:
    content = {"hesrpt": __version__, "jobs": list(names), "problem": problem}
    print(json.dumps(content, indent=2))
