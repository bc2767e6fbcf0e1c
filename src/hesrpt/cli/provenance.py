"""What a result was computed from, for ``--json`` and reports."""

from __future__ import annotations

import platform
import shlex
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from typing import Any

import typer

from hesrpt._version import __version__
from hesrpt.files import describe_source, read_pieces


def describe_provenance(context: typer.Context, **digests: str | None) -> dict[str, Any]:
    """Return the command with all of its options, the versions, the date and the input files.

    ``digests`` are SHA-256 digests of inputs, by the parameter that names the input; those of other
    files are computed. Of compressed files, the digest is that of the content.
    """
    options, words, inputs = {}, [context.command_path], {}
    for parameter in context.command.params:
        if (name := parameter.name) is None or name not in context.params:
            continue
        value = context.params[name]
        flag = max(parameter.opts, key=len)
        options[flag.lstrip("-")] = str(value) if isinstance(value, Path) else value
        source = context.get_parameter_source(name)
        if source is not None and source.name == "COMMANDLINE":
            if parameter.param_type_name == "argument":
                words.append(shlex.quote(str(value)))
            elif value is True:
                words.append(flag)
            else:
                words.append(f"{flag} {shlex.quote(str(value))}")
        if isinstance(value, Path) and name in _INPUTS:
            inputs[describe_source(value)] = digests.get(name) or _hash_file(value)
    packages = {name: version(name) for name in ("numpy", "scipy", "numba")}
    return {
        "command": " ".join(words),
        "options": options,
        "seed": options.get("seed"),
        "versions": {"hesrpt": __version__, "python": platform.python_version()} | packages,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "sha256": inputs,
    }


# The parameters that name input files. All other files are written.
_INPUTS = ("jobs", "trace", "curves", "measured")


def _hash_file(path: Path) -> str | None:
    """Return the digest of a file; None of standard input, which can be read only once."""
    if str(path) == "-":
        return None
    digest = sha256()
    for piece in read_pieces(path):
        digest.update(piece)
    return digest.hexdigest()
