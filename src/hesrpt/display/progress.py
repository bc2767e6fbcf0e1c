"""The live display of a run, in a thread of its own."""

from __future__ import annotations

import atexit
import contextvars
import logging
import threading
from collections.abc import Callable
from typing import Self

from hesrpt.display.overview import RunOverview
from hesrpt.display.screens import Screen

# How often the display changes, in seconds.
_REFRESH_SECONDS = 0.25

_LOG = logging.getLogger("hesrpt")


class Progress:
    """A live display of a pool's jobs, as :meth:`Pool.progress` returns it.

    It goes on until all jobs have ended. In a ``with`` block, it goes on at least to the end of the
    block, which then waits for all jobs but executors.
    """

    def __init__(
        self, take_overview: Callable[[], RunOverview], wait: Callable[[], object], screen: Screen
    ) -> None:
        self._take_overview, self._wait, self._screen = take_overview, wait, screen
        self._is_in_block = False
        self._start()

    def _start(self) -> None:
        self._must_end = threading.Event()
        self._screen.open(self._take_overview())
        # The context tells a notebook which cell the display belongs to.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(
            target=run, args=(self._follow,), name="hesrpt-progress", daemon=True
        )
        atexit.register(self.close)  # else a terminal would be left without its cursor
        self._thread.start()

    def _follow(self) -> None:
        try:
            while not self._must_end.wait(_REFRESH_SECONDS):
                overview = self._take_overview()
                if overview.has_ended and not self._is_in_block:
                    break
                self._screen.update(overview)
            self._screen.close(self._take_overview())
        except Exception:  # whatever shows the output may have gone, and the jobs must go on
            _LOG.debug("hesrpt: the progress can no longer be shown", exc_info=True)
        finally:
            atexit.unregister(self.close)

    def close(self) -> None:
        """Show the present state for the last time."""
        self._must_end.set()
        self._thread.join()

    def close_if_ended(self) -> None:
        """Show that all jobs have ended at once, not at the next change of the display."""
        if not self._is_in_block and self._take_overview().has_ended:
            self.close()

    def __enter__(self) -> Self:
        self._is_in_block = True
        if not self._thread.is_alive():  # all jobs had ended, but others will come
            self._start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *error: object) -> None:
        try:
            if kind is None:
                self._wait()
        finally:
            self.close()

    def _ipython_display_(self) -> None:
        """Show nothing as the result of a cell: the display is there already."""
