"""The browser and the service of the tests of the page."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.browser import open_browser
from support.running_service import RunningService

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    """Start a browser for all tests of the page."""
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Start a service with two servers for the tests of a file; not before a browser was found."""
    with RunningService(tmp_path_factory.mktemp("service")) as service:
        yield service
