"""Chromium for tests. Without one, tests are skipped, but in CI they fail."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser

_NAMES = ("chromium", "chromium-browser", "google-chrome")
#: What tests start Chromium with: it must work as root, and ask nobody else for anything.
BROWSER_OPTIONS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def require_browser() -> str:
    """Return the path of Chromium. Without one, skip the test, or fail it if this is CI."""
    found = next(filter(None, map(shutil.which, _NAMES)), None)
    if found is None:
        reason = "Chromium is not installed (apt-get install chromium)"
        if os.environ.get("CI"):
            pytest.fail(reason)
        pytest.skip(reason)
    return found


@contextmanager
def open_browser() -> Iterator[Browser]:
    """Start Chromium, and close it at the end."""
    path = require_browser()
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=list(BROWSER_OPTIONS))
        yield browser
        browser.close()
