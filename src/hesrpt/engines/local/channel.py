"""Messages between two processes, over a socket that no third process uses.

A message is a *head*, a tuple of plain values, and a *body*, any number of bytes. It may carry file
descriptors. If the other process dies in the middle of a message, the part received is discarded.
A large value is written to a file without a path, in memory, which the other process maps: nothing
of it goes through the socket.

This module runs in processes that must start quickly, so it imports nothing else of the project.
"""

from __future__ import annotations

import contextlib
import errno
import marshal
import mmap
import os
import resource
import select
import socket
import struct
import weakref
from array import array
from collections import deque
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, NamedTuple

# How each message begins: whatever begins otherwise was written by somebody else.
_MAGIC = b"\xf0hes"
# The beginning, the sizes of head and body, and the number of file descriptors.
_HEADER = struct.Struct("<4sIQI")
# Bodies up to this size are joined with their head, to be sent at once.
_SMALL = 64 * 2**10
# How much to receive at once, and how many pieces to send at once.
_CHUNK, _PIECES = 2**18, 64
#: How many file descriptors a message may carry: Linux allows no more.
MAX_FDS = 253
_FDS_BYTES = socket.CMSG_LEN(MAX_FDS * array("i").itemsize)


class Message(NamedTuple):
    """A message as received."""

    head: tuple[Any, ...]
    body: bytes
    fds: list[int]  # empty if this process had too many open files to receive them


class Channel:
    """One end of the connection. It follows the socket's setting: blocking or not."""

    def __init__(self, connection: socket.socket, *, has_fds: bool = False) -> None:
        self.connection, self.has_fds = connection, has_fds
        self.is_closed = False  # whether the other end was closed
        self.is_garbled = False  # whether something else than messages has arrived
        self.has_lost_files = False  # whether there were too many open files to receive some
        #: What waits to be sent; :meth:`flush` sends it when the socket has room.
        self.outgoing: deque[tuple[bytes | memoryview, Sequence[int]]] = deque()
        self.incoming = bytearray()  # a part of a message
        self._needed = 1  # how many bytes make the next step possible
        self._fds: deque[list[int]] = deque()  # of each message that carries some

    def send(
        self,
        head: tuple[Any, ...],
        body: bytes | Sequence[bytes | memoryview] = b"",
        fds: Sequence[int] = (),
    ) -> None:
        """Send a message; if the socket does not block, as much of it as there is room for.

        The body may come in pieces. The channel owns the file descriptors, and closes them when
        they have been sent.
        """
        pieces = (body,) if isinstance(body, bytes) else body
        size = sum(map(len, pieces))
        packed = marshal.dumps(head)
        start = _HEADER.pack(_MAGIC, len(packed), size, len(fds)) + packed
        if size <= _SMALL:
            self.outgoing.append((b"".join((start, *pieces)), fds))
        else:
            self.outgoing.append((start, fds))
            self.outgoing.extend((piece, ()) for piece in pieces if piece)
        self.flush()

    def flush(self) -> None:
        """Send what there is room for. If the other end is closed, nothing is sent any more."""
        outgoing = self.outgoing
        try:
            while outgoing:
                pieces = []
                for piece, fds in islice(outgoing, _PIECES):
                    if fds:
                        break
                    pieces.append(piece)
                if pieces:
                    sent = self.connection.sendmsg(pieces)
                else:  # file descriptors travel with one piece
                    first, fds = outgoing[0]
                    sent = socket.send_fds(self.connection, [first], fds)
                    close_all(fds)
                    outgoing[0] = (first, ())
                while sent > 0:
                    piece, _ = outgoing.popleft()
                    if sent < len(piece):
                        outgoing.appendleft((memoryview(piece)[sent:], ()))
                    sent -= len(piece)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # receiving will find the connection closed
            for _, fds in outgoing:
                close_all(fds)
            outgoing.clear()

    def receive(self, *, everything: bool = False) -> list[Message]:
        """Return messages that have arrived; a blocking socket waits for some bytes first.

        There may be more to read, unless everything is read from a socket that does not block.
        """
        while self._read() and everything:
            pass
        return self._extract() if len(self.incoming) >= self._needed else []

    def _read(self) -> bool:
        """Read what has arrived, or a part of it; return whether there was anything."""
        try:
            if self.has_fds:
                # File descriptors end what is received at once, so these are of one message.
                data, extras, flags, _ = self.connection.recvmsg(_CHUNK, _FDS_BYTES)
                fds: list[int] = []
                for _, _, packed in extras:
                    fds += array("i", packed)
                for fd in fds:
                    os.set_inheritable(fd, False)
                if fds or flags & socket.MSG_CTRUNC:
                    self._fds.append(fds)
            else:
                data = self.connection.recv(_CHUNK)
        except (BlockingIOError, InterruptedError):
            return False
        except OSError:
            data = b""
        self.is_closed = not data
        self.incoming += data
        return bool(data)

    def _extract(self) -> list[Message]:
        """Remove the complete messages from what was received, and return them."""
        messages: list[Message] = []
        incoming, start = memoryview(self.incoming), 0
        self._needed = 1
        while len(incoming) > start and not self.is_garbled:
            begin = bytes(incoming[start : start + len(_MAGIC)])
            if begin != _MAGIC[: len(begin)]:
                self.is_garbled = True
                break
            if len(incoming) - start < _HEADER.size:
                self._needed = _HEADER.size
                break
            _, head_size, body_size, fd_count = _HEADER.unpack_from(incoming, start)
            head_start = start + _HEADER.size
            body_start = head_start + head_size
            end = body_start + body_size
            if end > len(incoming):
                self._needed = end - start
                break
            head = marshal.loads(incoming[head_start:body_start])
            fds = self._fds.popleft() if fd_count and self._fds else []
            if len(fds) < fd_count:
                close_all(fds)
                fds, self.has_lost_files = [], True
            messages.append(Message(head, bytes(incoming[body_start:end]), fds))
            start = end
        incoming.release()
        del self.incoming[: None if self.is_garbled else start]
        return messages

    def close(self) -> None:
        """Close this end."""
        for _, fds in self.outgoing:
            close_all(fds)
        self.outgoing.clear()
        for fds in self._fds:
            close_all(fds)
        self._fds.clear()
        self.connection.close()


def is_about_open_files(error: OSError) -> bool:
    """Return whether an error says that there are too many open files."""
    return error.errno in (errno.EMFILE, errno.ENFILE)


def duplicate_all(fds: Sequence[int]) -> list[int]:
    """Return copies of file descriptors."""
    copies: list[int] = []
    try:
        copies.extend(map(os.dup, fds))
    except OSError:  # there are too many open files
        close_all(copies)
        raise
    return copies


def close_all(fds: Sequence[int]) -> None:
    """Close file descriptors."""
    for fd in fds:
        os.close(fd)


def wait_for(
    sources: Sequence[int | None], timeout: float | None, channels: Sequence[Channel] = ()
) -> set[int | None]:
    """Return the file descriptors that are readable, after waiting for one.

    Those of channels are also returned if there is room for what they have to send.
    """
    readers, writers, poll = list[int](), list[int](), select.poll()
    for source in sources:
        if source is not None:
            readers.append(source)
            poll.register(source, select.POLLIN)
    for channel in channels:
        fd = channel.connection.fileno()
        readers.append(fd)
        if channel.outgoing:
            writers.append(fd)
        poll.register(fd, select.POLLIN | (select.POLLOUT if channel.outgoing else 0))
    try:
        return set(dict(poll.poll(None if timeout is None else 1000 * timeout)))
    except OSError:  # it refuses to wait for more files than may be open
        ready, writable, _ = select.select(readers, writers, [], timeout)
        return {*ready, *writable}


# --- large values in files ------------------------------------------------------------------------

#: Values that are larger than this are shared in files, in bytes.
LARGE_BYTES = 2**20
# A mapped file stays open. If more files are mapped than this, or than this fraction of all that
# may be open, others are copied.
_MAX_MAPPED, _MAPPED_FRACTION = 200, 1 / 4

_mapped: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()


def create_shared_file(name: str) -> int:
    """Create a file without a path, to be shared with other processes; return its descriptor."""
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError):  # some sandboxes forbid it
            return os.memfd_create(name)
    import tempfile  # which takes long to import

    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def create_output_file() -> int:
    """Create a file without a path to which programs append, so that it can be cut meanwhile."""
    import fcntl  # the modules that import this one work without POSIX

    fd = create_shared_file("hesrpt-output")
    fcntl.fcntl(fd, fcntl.F_SETFL, fcntl.fcntl(fd, fcntl.F_GETFL) | os.O_APPEND)
    return fd


def write_shared_file(pieces: Iterable[bytes | memoryview]) -> int:
    """Write a value to a new file; return its descriptor."""
    fd = create_shared_file("hesrpt-value")
    try:
        for piece in pieces:
            rest = memoryview(piece)
            while rest:
                rest = rest[os.write(fd, rest) :]
    except BaseException:
        os.close(fd)
        raise
    return fd


def read_shared_file(fd: int) -> bytes | memoryview:
    """Return the value in a file, and close the descriptor."""
    try:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        if len(_mapped) < _MAX_MAPPED and (limit < 0 or len(_mapped) < limit * _MAPPED_FRACTION):
            with contextlib.suppress(OSError):  # there are too many open files
                content = mmap.mmap(fd, os.fstat(fd).st_size, access=mmap.ACCESS_READ)
                _mapped.add(content)
                return memoryview(content)
        os.lseek(fd, 0, os.SEEK_SET)
        with open(fd, "rb", closefd=False) as file:
            return file.read()
    finally:
        os.close(fd)
