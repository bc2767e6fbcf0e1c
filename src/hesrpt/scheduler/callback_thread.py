"""A thread for callbacks of users, which may take long, raise anything, and call us again."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue

_LOG = logging.getLogger("hesrpt")


class CallbackThread:
    """Makes calls one after another; the scheduler's thread must not wait for them."""

    def __init__(self, name: str, subject: str) -> None:
        self._subject = subject  # what the calls are, as errors name it
        self._calls: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._starting = threading.Lock()

    def start(self) -> None:
        """Start the thread, unless it has been started."""
        with self._starting:
            if self._thread.ident is None:
                self._thread.start()

    def put(self, call: Callable[[], object]) -> None:
        """Let the thread make a call."""
        self._calls.put(call)

    def stop(self) -> None:
        """Let the thread end once it has made all calls."""
        self._calls.put(None)

    def join(self) -> None:
        """Wait until the thread has ended; a callback in this very thread need not wait."""
        if self._thread.ident is not None and threading.current_thread() is not self._thread:
            self._thread.join()

    def wait_until_idle(self) -> None:
        """Wait until all calls have been made that were put before; not in the thread itself."""
        if self._thread.is_alive() and threading.current_thread() is not self._thread:
            is_idle = threading.Event()
            self._calls.put(is_idle.set)
            while not is_idle.wait(0.1) and self._thread.is_alive():
                pass  # it may have been stopped before the call

    def call_now(self, call: Callable[[], object]) -> None:
        """Make a call in the present thread; log what it raises."""
        try:
            call()
        except Exception as error:
            self._log(error)

    def _run(self) -> None:
        while (call := self._calls.get()) is not None:
            try:
                call()
            except BaseException as error:  # callbacks may raise anything
                self._log(error)
            del call  # it may hold a large result

    def _log(self, error: BaseException) -> None:
        name = type(error).__name__
        _LOG.error("hesrpt: %s ended with %s", self._subject, name, exc_info=error)
