"""The page in a browser: on phones, by keyboard, for screen readers, and with many jobs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from support.browser import require_browser
from support.page_checks import FIND_PALE_TEXT, FIND_SMALL_PARTS
from support.paths import ROOT
from support.running_service import RunningService

from hesrpt.policies import POLICIES
from hesrpt.units import format_bytes, format_duration, format_duration_with_margin, format_number

pytest.importorskip("fastapi")
if TYPE_CHECKING:
    from playwright.sync_api import Browser, FloatRect, Locator, Page

FILES = ROOT / "src" / "hesrpt" / "service" / "page"
JOBS = 5000
CONTROLS = "button|link|textbox|searchbox|combobox|slider|spinbutton|progressbar"
PARTS = "dialog|table|navigation|region|list|search|article"


@pytest.fixture(scope="module")
def busy_service(service: RunningService) -> RunningService:
    """Add jobs in all kinds of states to the service of this file."""
    service.add(command="true", name="ended", items=["a", "b"])
    service.add(command="exit 1", name="broken", retries=0)
    service.add(
        command="sleep 600",
        items=[f"a-very-long-item-{'0' * 60}-{n}" for n in range(40)],
        name="with-a-very-long-name-" + 30 * "and-more-" + "of-it",
        group="a-group-with-a-long-name",
    )
    service.add(command="sleep 600", name="stopped")
    service.client.pause("stopped")
    service.add(command="echo later", name="later", after=["stopped"])
    return service


def open_views(page: Page) -> Iterator[str]:
    """Open all that the page can show, one after the other."""
    page.get_by_role("table", name="Jobs").get_by_role("row", name="later").wait_for()
    page.get_by_role("list", name="Servers of each job").get_by_role("link").first.wait_for()
    yield "overview"
    page.get_by_role("banner").get_by_role("button", name="Add a job").click()
    yield "form"
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Cancel stopped").click()
    yield "question"
    page.keyboard.press("Escape")
    for name in ("with-a-very-long-name", "broken"):
        page.get_by_role("table", name="Jobs").get_by_role("link", name=name).click()
        # Those of a single command are hidden.
        page.locator("table.items tbody tr").first.wait_for(state="attached")
        yield name
        page.get_by_role("link", name="All jobs").click()


def check_cards(page: Page) -> None:
    """Check that a long name begins beside its swatch, and that bars end where cards do."""
    rows = page.get_by_role("table", name="Jobs")
    long, single = rows.locator("tr", has_text="and-more"), rows.locator("tr", has_text="broken")

    def measure(place: Locator) -> FloatRect:
        box = place.bounding_box()
        assert box is not None
        return box

    swatch, name = measure(long.locator(".swatch")), measure(long.locator(".name"))
    row, bar = measure(single), measure(single.get_by_role("progressbar"))
    assert name["x"] >= swatch["x"] + swatch["width"]
    assert name["y"] <= swatch["y"] <= name["y"] + swatch["height"]
    assert bar["width"] == pytest.approx(row["width"], abs=2)


def test_everything_fits_on_a_phone_and_can_be_read(
    browser: Browser, busy_service: RunningService
) -> None:
    from support.watched_page import open_page

    address, token = busy_service.address, busy_service.token
    with open_page(browser, address, token, size=(320, 844), scheme="dark") as page:
        for view in open_views(page):
            assert page.evaluate("document.documentElement.scrollWidth") <= 320, view
            assert page.evaluate(FIND_SMALL_PARTS) == [], view
            assert page.evaluate(FIND_PALE_TEXT) == [], view
            if view == "overview":
                check_cards(page)


def test_without_a_browser_tests_are_skipped_but_fail_in_ci(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match="Chromium is not installed"):
        require_browser()
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="Chromium is not installed"):
        require_browser()


def test_checks_of_what_can_be_read_find_problems(browser: Browser) -> None:
    page = browser.new_page()
    page.set_content(
        "<main><p style='color: #999'>pale</p><p style='font-size: 9px'>tiny</p>"
        "<button style='width: 20px'>x</button><p>fine</p></main>"
    )
    assert page.evaluate(FIND_PALE_TEXT) == [": pale"]
    assert len(page.evaluate(FIND_SMALL_PARTS)) == 2
    page.close()


def test_every_control_and_part_has_a_name_and_can_be_read(
    browser: Browser, busy_service: RunningService
) -> None:
    from support.watched_page import open_page

    with open_page(browser, busy_service.address, busy_service.token) as page:
        for view in open_views(page):
            assert page.evaluate(FIND_PALE_TEXT) == [], view
            tree = page.locator("body").aria_snapshot()
            found = re.findall(rf"- (?:{CONTROLS}|{PARTS})\b.*", tree)
            assert len(found) > 3, view
            assert [line for line in found if '"' not in line and "/" not in line] == [], view
            if view == "overview":
                for landmark in ("banner", "main", "contentinfo"):
                    assert re.search(rf"- {landmark}\b", tree), landmark
                assert re.search(r'- img "Servers held over time"', tree)


def test_everything_works_by_keyboard(browser: Browser, busy_service: RunningService) -> None:
    from support.watched_page import open_page

    with open_page(browser, busy_service.address, busy_service.token) as page:

        def press_until(key: str, name: str) -> None:
            for _ in range(60):
                page.keyboard.press(key)
                focused = page.evaluate(
                    "(e => e.getAttribute('aria-label') || e.textContent.trim())"
                    "(document.activeElement)"
                )
                if focused == name:
                    outline = "getComputedStyle(document.activeElement).outlineStyle"
                    assert page.evaluate(outline) == "solid", name
                    return
            pytest.fail(f"the keyboard does not reach {name!r}")

        page.get_by_role("table", name="Jobs").get_by_role("row", name="later").wait_for()
        press_until("Tab", "Add a job")
        page.keyboard.press("Enter")
        page.keyboard.type("sleep 600")
        page.keyboard.press("Tab")
        page.keyboard.press("Tab")
        page.keyboard.type("typed")
        press_until("Tab", "Add the job")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="typed").wait_for()
        assert page.evaluate("document.activeElement.textContent") == "typed"
        press_until("Tab", "Cancel")
        page.keyboard.press("Enter")
        page.get_by_role("dialog", name="Cancel typed?").wait_for()
        page.keyboard.press("Escape")
        assert page.evaluate("document.activeElement.textContent") == "Cancel"
        page.keyboard.press("Enter")
        press_until("Tab", "Cancel the job")
        page.keyboard.press("Enter")
        page.locator(".job-head .state", has_text="cancelled").wait_for()
        assert page.evaluate("document.activeElement.textContent") == "Retry"
        # The slider reads off the areas.
        page.keyboard.press("Home")
        press_until("Shift+Tab", "All jobs")
        page.keyboard.press("Enter")
        page.get_by_role("slider").focus()
        page.keyboard.press("Home")
        assert page.get_by_role("slider").get_attribute("aria-valuetext") != ""
        assert page.locator("#areas-time").inner_text().endswith("ago")


@pytest.mark.slow
def test_five_thousand_jobs_are_shown_in_pages(browser: Browser, tmp_path: Path) -> None:
    from playwright.sync_api import expect
    from support.watched_page import open_page

    with RunningService(tmp_path, servers=1) as service:
        service.add(command="sleep 600", name="gate")
        service.client.pause("gate")
        jobs = [
            {"command": "true", "name": f"job-{n:04}", "after": ["gate"], "group": f"g{n % 3}"}
            for n in range(JOBS)
        ]
        service.client.submit(jobs)
        with open_page(browser, service.address, service.token) as page:
            expect(page.get_by_text(f"1–25 of {JOBS + 1:,} jobs")).to_be_visible()
            rows = page.get_by_role("table", name="Jobs").locator("tbody tr")
            assert rows.count() == 25
            page.get_by_role("button", name="Next").first.click()
            expect(page.get_by_text(f"26–50 of {JOBS + 1:,} jobs")).to_be_visible()
            page.get_by_role("searchbox").fill("job-4321")
            expect(rows).to_have_count(1)
            expect(rows.locator(".note")).to_have_text("waits: after gate")
            page.get_by_role("searchbox").fill("")
            page.get_by_label("Group", exact=True).select_option("g1")
            expect(page.get_by_text("of 1,667 jobs")).to_be_visible()
            page.get_by_role("columnheader", name="Job").get_by_role("button").click()
            page.get_by_role("columnheader", name="Job").get_by_role("button").click()
            expect(rows.first.locator(".name")).to_have_text("job-4999")
            # The address keeps all that, so that it can be bookmarked.
            page.reload()
            expect(rows.first.locator(".name")).to_have_text("job-4999")
            page.get_by_role("group", name="State").get_by_role("button", name="paused").click()
            page.get_by_label("Group", exact=True).select_option("")
            expect(rows).to_have_count(1)


def test_policies_are_compared_in_words_and_bars(
    browser: Browser, busy_service: RunningService
) -> None:
    from playwright.sync_api import Route, expect
    from support.watched_page import open_page

    def answer(route: Route) -> None:
        known = route.fetch().json()
        simulated = [("adaptive", 23.1, 0.4), ("fifo", 48.2, 1.9), ("equi", 24.0, 2.2)]
        known["mean_flow_time"], known["ended"] = 23.4, 256
        known["comparison"] = {
            "measured": 23.4,
            "jobs": 40,
            "policy": "adaptive",
            "simulated": [
                {"policy": policy, "mean_flow_time": mean, "margin": margin}
                for policy, mean, margin in simulated
            ],
            "reason": None,
        }
        known["bound"] = {"mean_flow_time": 22.0, "ratio": 1.063, "jobs": 40, "reason": None}
        route.fulfill(json=known)

    with open_page(browser, busy_service.address, busy_service.token) as page:
        page.route("**/api/v1/schedule*", answer)
        page.reload()
        panel = page.get_by_role("region", name="Mean flow time")
        rows = panel.get_by_role("table", name="The latest 40 jobs, simulated").get_by_role("row")
        expect(rows.nth(0)).to_contain_text("23.1 ± 0.4 s")
        expect(rows.nth(1)).to_contain_text("48.2 ± 1.9 s2.1 times as long")
        expect(rows.nth(2)).to_contain_text("24.0 ± 2.2 sabout the same")
        bound = "At most 6% above what any scheduler could reach: the latest 40 jobs took 23.4 s"
        expect(panel.get_by_text(bound)).to_be_visible()
        widths = [rows.nth(row).locator("rect").bounding_box() for row in range(3)]
        adaptive, fifo, equi = (box["width"] if box else 0 for box in widths)
        assert fifo / adaptive == pytest.approx(48.2 / 23.1, rel=0.02)
        assert equi / adaptive == pytest.approx(24.0 / 23.1, rel=0.02)
        page.unroute_all(behavior="wait")


def test_numbers_are_written_as_on_the_command_line(
    browser: Browser, service: RunningService
) -> None:
    from support.watched_page import open_page

    values = [0.0012, 0.25, 3.0, 42.34, 99.97, 119.9, 130.0, 5400.0, 18360.0, 1e5, 3e6]
    pairs = list(product(values[1:], (0.0061, 0.5, 30.0)))
    with open_page(browser, service.address, service.token) as page:
        written = page.evaluate(
            """async ([values, pairs]) => {
                const format = await import("/page/format.js");
                return [values.map(format.formatNumber), values.map(format.formatDuration),
                        pairs.map(pair => format.formatDurationWithMargin(...pair)),
                        values.map(value => format.formatAmount(1000 * value, "memory")),
                        format.formatAmount(2, "gpu"), format.formatClock(855.4)];
            }""",
            [values, pairs],
        )
    assert written[0] == [format_number(value) for value in values]
    assert written[1] == [format_duration(value) for value in values]
    assert written[2] == [format_duration_with_margin(*pair) for pair in pairs]
    assert written[3] == [format_bytes(1000 * value) for value in values]
    assert written[4:] == ["2", "14.3 min"]


def test_policies_have_the_colours_of_the_figures() -> None:
    sheet = (FILES / "theme.css").read_text()
    colours = dict(re.findall(r"--policy-([\w-]+): (#\w+);", sheet))
    assert {"adaptive", "fifo", "equi"} <= set(colours)
    for policy, colour in colours.items():
        assert colour.lower() == POLICIES[policy].colour.lower()
    jobs = re.findall(r"--job-\d: (#\w+);", sheet)
    assert len(set(jobs)) == len(jobs) == 8


def test_files_of_the_page_are_our_own_and_short() -> None:
    files = [path for path in FILES.iterdir() if path.suffix in (".js", ".css", ".html")]
    assert len(files) > 10
    for file in files:
        text = file.read_text()
        assert "http" not in text.replace("http://www.w3.org/2000/svg", ""), file
        assert "innerHTML" not in text, file
        assert len(text.splitlines()) <= 300, file
        assert not re.search(r"\sstyle=|\son\w+=", text), file
