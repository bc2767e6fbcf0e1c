"""The live display of a run: a table on a terminal, HTML in a notebook, or lines in a file."""

from __future__ import annotations

import atexit
import contextvars
import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol, Self

from hesrpt.display.console import create_console, literal, print_error_text
from hesrpt.display.overview import RunOverview, describe_job, render_run
from hesrpt.units import format_duration

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live

_LOG = logging.getLogger("hesrpt")

# How often the display changes, in seconds.
_REFRESH_SECONDS = 0.25
# How many lines of a terminal are left for the command line and the cursor.
_UNUSED_LINES = 2
# How often lines tell of jobs that have not ended, in seconds.
_LINE_SECONDS = 60.0


class Screen(Protocol):
    """Shows a run while it goes on."""

    def open(self, run: RunOverview) -> None:
        """Begin to show a run."""

    def update(self, run: RunOverview) -> None:
        """Show how the run is now."""

    def close(self, run: RunOverview) -> None:
        """Show the run for the last time."""


class TerminalScreen:
    """A table that is drawn again and again."""

    def __init__(self, console: Console, *, leaves_table: bool = True) -> None:
        self._console, self._leaves_table = console, leaves_table
        self._live: Live | None = None

    def open(self, run: RunOverview) -> None:
        from rich.live import Live

        self._live = Live(
            self._build(run),
            console=self._console,
            refresh_per_second=4,
            transient=not self._leaves_table,
        )
        self._live.start()

    def update(self, run: RunOverview) -> None:
        if self._live is not None:
            self._live.update(self._build(run))

    def close(self, run: RunOverview) -> None:
        if self._live is not None:
            self.update(run)
            self._live.stop()

    def _build(self, run: RunOverview) -> RenderableType:
        from hesrpt.display.terminal_table import build_view

        size = self._console.size
        return build_view(run, width=size.width, height=size.height - _UNUSED_LINES)


class LineScreen:
    """A line for each job that ends, and once a minute for those that have not."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._announced: dict[str, float | None] = {}  # how long jobs took, by names
        self._next_line = time.monotonic() + _LINE_SECONDS

    def update(self, run: RunOverview) -> None:
        for job in run.jobs:
            # A job that is retried ends again, later.
            if job.has_ended and self._announced.get(job.name, -1.0) != job.elapsed:
                self._announced[job.name] = job.elapsed
                is_cancelled = job.state == "cancelled"  # its error says so, and by whom
                what = job.error if is_cancelled and job.error else job.state
                subject = f"{job.name}: {what} after {format_duration(job.elapsed or 0.0)}"
                print_error_text(self._console, subject, None if is_cancelled else job.error)
        if time.monotonic() >= self._next_line:
            self._next_line += _LINE_SECONDS
            for job in run.jobs:
                if not job.has_ended:
                    self._console.print(literal(f"{job.name}: {describe_job(job)}"), soft_wrap=True)

    open = close = update


class NotebookScreen:
    """HTML in the output of a cell, which is replaced again and again."""

    def __init__(self) -> None:
        self._handle: Any = None
        self._shown = ""

    def open(self, run: RunOverview) -> None:
        from IPython.display import HTML, display

        self._shown = render_run(run)
        self._handle = display(HTML(self._shown), display_id=True)

    def update(self, run: RunOverview) -> None:
        from IPython.display import HTML

        html = render_run(run)
        if html != self._shown and self._handle is not None:
            self._shown = html
            self._handle.update(HTML(html))

    close = update


def choose_screen() -> Screen:
    """Return the screen that suits where this program runs."""
    if _is_notebook():
        return NotebookScreen()
    console = create_console()
    return TerminalScreen(console) if console.is_terminal else LineScreen(console)


def _is_notebook() -> bool:
    """Return whether this process is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = None if ipython is None else ipython.get_ipython()
    return getattr(shell, "kernel", None) is not None


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
