"""A page in a browser under observation: errors, and requests to anybody but the service."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Literal

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, expect

_DESKTOP = (1280, 900)
_PATIENCE = 60_000  # milliseconds; the machine may be busy
expect.set_options(timeout=_PATIENCE)
# How Chromium begins what it logs about a failed request. A connection to a service that was killed
# can fail for many reasons; the page says it in its own words.
_FAILED_REQUEST = "Failed to load resource: "


@dataclass
class Observations:
    """What must not happen on a page."""

    address: str
    problems: list[str] = field(default_factory=list)
    may_refuse: bool = False  # whether the service may refuse requests, or be away

    def hear(self, message: ConsoleMessage) -> None:
        """Note errors and warnings, which include violations of the security policy."""
        is_expected = self.may_refuse and message.text.startswith(_FAILED_REQUEST)
        if message.type in ("error", "warning") and not is_expected:
            self.problems.append(message.text)

    def see(self, request: Request) -> None:
        """Note requests to others."""
        if not request.url.startswith(self.address):
            self.problems.append(f"a request to {request.url}")


@contextmanager
def open_page(
    browser: Browser,
    address: str,
    token: str,
    *,
    size: Sequence[int] = _DESKTOP,
    scheme: Literal["light", "dark"] = "light",
    may_refuse: bool = False,
) -> Iterator[Page]:
    """Open the page of a service; at the end, check that nothing went wrong on it."""
    context = browser.new_context(
        viewport={"width": size[0], "height": size[1]},
        color_scheme=scheme,
        has_touch=size[0] < 600,
    )
    context.set_default_timeout(_PATIENCE)
    page = context.new_page()
    seen = Observations(address, may_refuse=may_refuse)
    page.on("console", seen.hear)
    page.on("pageerror", lambda error: seen.problems.append(str(error)))
    page.on("request", seen.see)
    try:
        page.goto(f"{address}?token={token}")
        page.wait_for_selector("#connection[data-state=live]")
        yield page
    finally:
        context.close()
    assert not seen.problems, seen.problems
