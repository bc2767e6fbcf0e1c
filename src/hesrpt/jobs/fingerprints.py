"""Fingerprints: what identifies an item, a function or a command, in this process and in others.

A result belongs to an item and to a function or command. When a run is resumed, their fingerprints
say whether they are still the same: see :mod:`~hesrpt.jobs.value_encoding` for values,
and :mod:`~hesrpt.jobs.function_encoding` for functions.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from hashlib import blake2b
from typing import Any

from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.function_encoding import get_root_scope
from hesrpt.jobs.value_encoding import EncodingError, encode_value

#: The length of a fingerprint in bytes.
FINGERPRINT_BYTES = 16


def fingerprint_item(item: Any) -> bytes:
    """Return the fingerprint of an item.

    An item that cannot be identified, because it cannot be pickled, gets a new one each time.
    """
    try:
        return _hash(encode_value(item))
    except EncodingError:
        return os.urandom(FINGERPRINT_BYTES)


def fingerprint_function(function: Callable[..., Any]) -> bytes:
    """Return the fingerprint of a function or another callable: of what it does."""
    try:
        return _hash(encode_value(function, get_root_scope(function)))
    except EncodingError:
        return os.urandom(FINGERPRINT_BYTES)


def fingerprint_command(template: CommandTemplate) -> bytes:
    """Return the fingerprint of a command, without its items."""
    return fingerprint_item(
        (
            template.command,
            template.directory,
            template.cwd,
            sorted(template.env.items()),
            template.stdin,
            template.stdin_file,
            template.shell,
            # The name of the job counts only if the command contains it.
            template.job if "job" in template.placeholders else None,
            template.items is not None,
        )
    )


def fingerprint_command_items(template: CommandTemplate) -> Sequence[bytes]:
    """Return the fingerprints of the items of a command."""
    if template.items is None:
        return [fingerprint_item(None)]
    # The position of an item counts only if the command contains it.
    if "index" in template.placeholders:
        return [fingerprint_item(item) for item in enumerate(template.items)]
    return [fingerprint_item(item) for item in template.items]


def _hash(encoding: bytes) -> bytes:
    return blake2b(encoding, digest_size=FINGERPRINT_BYTES).digest()
