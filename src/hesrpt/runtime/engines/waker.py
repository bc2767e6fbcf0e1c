"""Waking a loop that waits for file descriptors, from any thread."""

from __future__ import annotations

import contextlib
import socket


class Waker:
    """Lets any thread wake the loop of another one.

    The loop sets ``is_waiting`` before it looks at ``is_woken`` and waits, so that a thread need
    not write to the socket while the loop is busy.
    """

    def __init__(self) -> None:
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._receiver.setblocking(False)
        self.is_waiting = self.is_woken = False

    def fileno(self) -> int:
        return self._receiver.fileno()

    def wake(self) -> None:
        """Wake the loop, now or when it is about to wait."""
        self.is_woken = True
        if self.is_waiting:
            with contextlib.suppress(OSError):  # enough bytes are in the socket already
                self._sender.send(b"\0")

    def clear(self) -> None:
        """Remove what woke the loop from the socket."""
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(4096)

    def close(self) -> None:
        """Close the socket."""
        self._sender.close()
        self._receiver.close()
