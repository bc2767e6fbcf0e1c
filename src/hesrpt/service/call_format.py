"""How a Python function and its items travel over HTTP: a line of JSON, and then pickled bytes.

The line says what the job is to be, and how long each of the following parts is: the function, and
then the items. So the service can check and store it all without unpickling anything. Results come
back in the same way.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from hesrpt.errors import InputError

#: What a body in this format is called in HTTP.
MEDIA_TYPE = "application/vnd.hesrpt.calls"


@dataclass(frozen=True)
class PackedCalls:
    """A function, its items, and the options of their job."""

    options: dict[str, Any]
    function: bytes
    items: Sequence[bytes]
    labels: Sequence[str] = field(default=())  # what to call the items

    def pack(self) -> bytes:
        """Return all of this as bytes."""
        head = {
            "options": self.options,
            "function": len(self.function),
            "items": [len(item) for item in self.items],
            "labels": list(self.labels),
        }
        return b"".join([json.dumps(head).encode(), b"\n", self.function, *self.items])

    @classmethod
    def unpack(cls, content: bytes) -> PackedCalls:
        """Return what :meth:`pack` has packed, without unpickling it."""
        line, _, body = content.partition(b"\n")
        try:
            head = json.loads(line)
            options, labels = dict(head["options"]), list(map(str, head["labels"]))
            lengths = [int(head["function"]), *map(int, head["items"])]
        except (ValueError, KeyError, TypeError, RecursionError):
            raise InputError("the body is no function with items as Client.map sends it") from None
        if min(lengths) < 0 or sum(lengths) != len(body) or len(labels) != len(lengths) - 1:
            raise InputError("the body does not have the lengths that it states")
        function, *items = _split(body, lengths)
        return cls(options, function, items, labels)


def _split(body: bytes, lengths: Sequence[int]) -> Iterator[bytes]:
    start = 0
    for length in lengths:
        yield body[start : start + length]
        start += length


def pack_results(results: Sequence[tuple[int, bytes]]) -> bytes:
    """Return pickled results with the positions of their items as bytes."""
    head = [[position, len(result)] for position, result in results]
    return b"".join([json.dumps(head).encode(), b"\n", *(result for _, result in results)])


def unpack_results(content: bytes) -> dict[int, bytes]:
    """Return the pickled results that :func:`pack_results` has packed, by position."""
    line, _, body = content.partition(b"\n")
    head = json.loads(line)
    parts = _split(body, [length for _, length in head])
    return {position: part for (position, _), part in zip(head, parts, strict=True)}
