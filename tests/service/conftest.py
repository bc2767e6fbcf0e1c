"""A browser for the tests of a file, and a service for most of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.browser import open_browser
from support.running_service import RunningService

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with open_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def service(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningService]:
    """Start a service with two servers; not before a browser was found."""
    with RunningService(tmp_path_factory.mktemp("service"), "--servers", "2") as service:
        yield service
