"""A loop that waits for channels and other files, and that any thread can wake."""

from __future__ import annotations

import contextlib
import selectors
import socket
from collections.abc import Callable

from hesrpt.engines.local.channel import Channel


class EventLoop:
    """Waits for files, and calls a function for each that is ready."""

    def __init__(self) -> None:
        self.is_woken = False  # until whoever runs the loop has seen it, and resets it
        self._is_waiting = False
        self._selector = selectors.DefaultSelector()
        self._sender, self._receiver = socket.socketpair()
        self._sender.setblocking(False)
        self._receiver.setblocking(False)
        self.watch_file(self._receiver.fileno(), self._drain)

    def watch_file(self, fd: int, callback: Callable[[], None]) -> None:
        """Call a function whenever a file is readable."""
        self._selector.register(fd, selectors.EVENT_READ, callback)

    def watch(self, channel: Channel, callback: Callable[[], None]) -> None:
        """Call a function when a channel has messages, and when it has room for pending ones."""
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if channel.has_outgoing else 0)
        if channel.fileno() not in self._selector.get_map():
            self._selector.register(channel, events, callback)
        elif self._selector.get_key(channel).events != events:
            self._selector.modify(channel, events, callback)

    def unwatch(self, source: Channel | int) -> None:
        """Stop watching a channel or a file."""
        self._selector.unregister(source)

    def wait(self, timeout: float) -> None:
        """Wait until something is ready, or somebody wakes the loop, and call the functions."""
        # In this order, a thread that wakes the loop need not write to the socket while it is busy.
        self._is_waiting = True
        for key, _ in self._selector.select(0.0 if self.is_woken else timeout):
            key.data()
        self._is_waiting = False

    def wake(self) -> None:
        """Wake the loop, now or when it is about to wait. Any thread may call this."""
        self.is_woken = True
        if self._is_waiting:
            with contextlib.suppress(OSError):  # enough bytes are in the socket already
                self._sender.send(b"\0")

    def _drain(self) -> None:
        with contextlib.suppress(BlockingIOError):
            self._receiver.recv(4096)

    def close(self) -> None:
        """Close the files of the loop itself."""
        self._selector.close()
        self._sender.close()
        self._receiver.close()
