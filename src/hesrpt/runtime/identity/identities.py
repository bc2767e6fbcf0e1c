"""What identifies consecutive items of a job in the journal, as bytes.

Numbers are written down as they are. That is much quicker than to compute their fingerprints, which
are needed only if the run is resumed. Other items are identified by their fingerprints.
"""

from __future__ import annotations

import pickle
from collections.abc import Sequence

from hesrpt.runtime.engines.pickling import load_harmless
from hesrpt.runtime.identity.fingerprints import FINGERPRINT_BYTES, fingerprint_item

# The first byte says which of both it is.
_NUMBERS, _FINGERPRINTS = b"n", b"f"


def pack_numbers(numbers: Sequence[float]) -> bytes:
    """Return what identifies items that are numbers."""
    return _NUMBERS + pickle.dumps(numbers, pickle.HIGHEST_PROTOCOL)


def pack_fingerprints(fingerprints: Sequence[bytes]) -> bytes:
    """Return what identifies items with these fingerprints."""
    return _FINGERPRINTS + b"".join(fingerprints)


def unpack_fingerprints(packed: bytes) -> list[bytes]:
    """Return the fingerprints of items, given what identifies them.

    >>> unpack_fingerprints(pack_numbers(range(7, 9))) == [fingerprint_item(7), fingerprint_item(8)]
    True
    """
    kind, content = packed[:1], packed[1:]
    if kind == _NUMBERS:
        return list(map(fingerprint_item, load_harmless(content)))
    size = FINGERPRINT_BYTES
    return [content[start : start + size] for start in range(0, len(content), size)]
