"""The results of items: their checksums, and the files of large ones beside the database.

The checksum of a result also covers its item, so that no other item can be given it.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Iterable
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from zlib import crc32

from hesrpt.errors import StateError
from hesrpt.storage.state_directory import create_private_directory, open_private, sync_directory

#: Results that are larger than this go to files, in bytes.
MAX_BYTES_IN_DATABASE = 2**20

# Results of at most this many bytes have short checksums: there may be millions.
_SHORT_BYTES = 4096
_DRAFT_SUFFIX = ".new"


def compute_digest(job: int, key: bytes, result: bytes) -> bytes:
    """Return the checksum of a result in the database, given its job and the key of its item."""
    owner = job.to_bytes(8, "big") + key
    if len(result) <= _SHORT_BYTES:
        return crc32(result, crc32(owner)).to_bytes(4, "big")
    return hash_content(owner, result)


def hash_content(*parts: bytes) -> bytes:
    """Return a checksum that no other content has."""
    content = blake2b(digest_size=16)
    for part in parts:
        content.update(part)
    return content.digest()


def get_result_name(job: int, key: bytes, digest: bytes) -> str:
    """Return the name of the file with an item's result, given the hash of the result.

    The result of another attempt has another name, so the file of an entry never changes.
    """
    return f"{job}-{hash_content(key, digest).hex()}"


class ResultFiles:
    """The files with large results of a state directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory / "results"

    def write(self, name: str, content: bytes) -> None:
        """Write a result; its file exists completely or not at all, even after a power failure."""
        path = self.directory / name
        draft = path.with_name(name + _DRAFT_SUFFIX)
        try:
            create_private_directory(self.directory)
            descriptor = open_private(draft, os.O_WRONLY | os.O_TRUNC)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(descriptor)
            draft.replace(path)
            sync_directory(self.directory)
        except OSError as error:
            with suppress(OSError):
                draft.unlink(missing_ok=True)  # it may have filled the disk
            raise StateError(f"{path}: cannot be written: {error.strerror}") from None

    def read(self, name: str) -> bytes | None:
        """Return a result; None if its file is missing."""
        path = self.directory / name
        try:
            return path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise StateError(f"{path}: cannot be read: {error.strerror}") from None

    def has(self, name: str) -> bool:
        """Return whether the file of a result is there."""
        return (self.directory / name).exists()

    def remove(self, names: Iterable[str]) -> None:
        """Remove results that are no longer in the journal."""
        for name in names:
            with suppress(OSError):  # the next resume tries again
                (self.directory / name).unlink(missing_ok=True)

    def list_sizes(self) -> list[tuple[str, int]]:
        """Return the names and the sizes of all files."""
        sizes = []
        with suppress(FileNotFoundError), os.scandir(self.directory) as entries:
            for entry in entries:
                with suppress(OSError):
                    sizes.append((entry.name, entry.stat().st_size))
        return sizes

    def keep_only(self, names: Collection[str]) -> None:
        """Remove all files but these: drafts, and results that are not in the journal."""
        try:
            found = os.listdir(self.directory)
        except FileNotFoundError:
            return
        except OSError as error:
            raise StateError(f"{self.directory}: cannot be read: {error.strerror}") from None
        self.remove(set(found).difference(names))
