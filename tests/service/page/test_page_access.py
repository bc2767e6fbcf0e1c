"""The page in a browser: tokens, a service that goes away, and the looks of other people."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.running_service import RunningService

pytest.importorskip("fastapi")
if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_a_missing_or_wrong_token_is_asked_for(browser: Browser, service: RunningService) -> None:
    from playwright.sync_api import expect

    page = browser.new_page()
    problem = page.get_by_role("alert")
    for query, text in (("#/jobs/x", ""), ("?token=guess", "The token is wrong.")):
        answer = page.goto(f"{service.address}{query}")
        assert answer is not None
        assert answer.status == 401
        expect(problem).to_have_text(text)
        assert "hesrpt serve" in page.inner_text("main")
    assert page.url == service.address  # the wrong token has left it
    page.get_by_label("Token", exact=True).fill("another guess")
    page.get_by_label("Token", exact=True).press("Enter")
    expect(problem).to_have_text("The token is wrong.")
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))
    page.get_by_label("Token", exact=True).fill(service.token)
    page.get_by_role("button", name="Open the page").click()
    page.wait_for_selector("#connection[data-state=live]")
    assert len(addresses) > 3
    assert not any(service.token in address for address in addresses)
    page.close()


def test_the_token_leaves_the_address_and_scripts_cannot_read_it(
    browser: Browser, service: RunningService
) -> None:
    from support.watched_page import open_page

    with open_page(browser, service.address, service.token) as page:
        assert page.url == f"{service.address}"
        assert page.evaluate("document.cookie") == ""
        page.reload()
        page.wait_for_selector("#connection[data-state=live]")


def test_readers_see_everything_and_change_nothing(
    browser: Browser, service: RunningService
) -> None:
    from support.watched_page import open_page

    service.add(command="sleep 600", name="seen", group="night")
    with open_page(browser, service.address, service.read_token) as page:
        page.get_by_role("table", name="Jobs").get_by_role("row", name="seen").wait_for()
        assert page.get_by_text("Read-only").is_visible()
        names = {"Pause", "Pause all", "Cancel", "Add a job", "Set weight", "Retry"}
        for name in names:
            assert page.get_by_role("button", name=name).count() == 0
        page.get_by_role("link", name="seen", exact=True).last.click()
        page.get_by_role("heading", name="seen").wait_for()
        for name in names:
            assert page.get_by_role("button", name=name).count() == 0
    service.client.cancel("seen")


def test_the_page_goes_on_when_the_service_comes_back(browser: Browser, tmp_path: Path) -> None:
    from support.watched_page import open_page

    service = RunningService(tmp_path)
    service.add(command="sleep 600", name="survivor")
    with open_page(browser, service.address, service.token, may_refuse=True) as page:
        row = page.get_by_role("table", name="Jobs").get_by_role("row", name="survivor")
        row.wait_for()
        service.kill()
        banner = page.get_by_role("status").filter(has_text="The connection is lost")
        banner.wait_for()
        row.get_by_role("button", name="Pause survivor").click()
        page.get_by_role("alert").get_by_text("The service does not answer").wait_for()
        with service.restart() as again:
            page.wait_for_selector("#connection[data-state=live]")
            banner.wait_for(state="hidden")
            again.add(command="sleep 600", name="newcomer")
            table = page.get_by_role("table", name="Jobs")
            table.get_by_role("row", name="newcomer").wait_for()
            assert row.locator(".state").inner_text() in ("running", "waiting")


@pytest.mark.slow
def test_the_page_asks_for_another_token_when_the_service_has_one(
    browser: Browser, tmp_path: Path
) -> None:
    from support.watched_page import open_page

    service = RunningService(tmp_path)
    service.add(command="sleep 600", name="survivor")
    with open_page(browser, service.address, service.token, may_refuse=True) as page:
        service.kill()
        (tmp_path / "state" / "token").write_text("another-token-of-the-owner")
        with service.restart() as again:
            form = page.get_by_role("region", name="This page needs the token of the service")
            form.get_by_label("Token").fill(again.token)
            form.get_by_role("button", name="Open the page").click()
            page.get_by_role("table", name="Jobs").get_by_role("row", name="survivor").wait_for()
