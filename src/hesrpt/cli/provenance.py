"""What a result was computed from, for ``--json`` and reports."""

from __future__ import annotations

import platform
import shlex
import sys
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer

from hesrpt._version import __version__
from hesrpt.files import STANDARD_INPUT, describe_source, read_pieces

# The parameters that name input files. All other files are written.
_INPUTS = ("jobs", "trace", "curves", "measured")


def describe_provenance(context: typer.Context, **digests: str | None) -> dict[str, Any]:
    """Return the command with all of its options, the versions, the date and the input files.

    ``digests`` are SHA-256 digests of inputs, by the parameter that names the input; those of other
    files are computed. Of compressed files, the digest is that of the content.
    """
    options: dict[str, Any] = {}
    inputs: dict[str, str | None] = {}
    for parameter in context.command.params:
        value = context.params.get(str(parameter.name))
        flag = max(parameter.opts, key=len).lstrip("-")
        options[flag] = str(value) if isinstance(value, Path) else value
        if isinstance(value, Path) and parameter.name in _INPUTS:
            inputs[describe_source(value)] = digests.get(parameter.name) or _hash_file(value)
    packages = {name: version(name) for name in ("numpy", "scipy", "numba")}
    return {
        "command": shlex.join(["hesrpt", *sys.argv[1:]]),
        "options": options,
        "seed": options.get("seed"),
        "versions": {"hesrpt": __version__, "python": platform.python_version()} | packages,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": inputs,
    }


def _hash_file(path: Path) -> str | None:
    """Return the digest of a file; None of standard input and pipes, which are read only once."""
    if str(path) == STANDARD_INPUT or not path.is_file():
        return None
    digest = sha256()
    for piece in read_pieces(path):
        digest.update(piece)
    return digest.hexdigest()
