"""The page in a browser: jobs are added, watched and changed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from support.running_service import RunningService

pytest.importorskip("fastapi")
if TYPE_CHECKING:
    from playwright.sync_api import Browser, Locator, Page

LONG = "sleep 600"


@pytest.fixture
def page(
    browser: Browser, service: RunningService, request: pytest.FixtureRequest
) -> Iterator[Page]:
    """Open the page. With the parameter "refusals", the service may refuse requests."""
    from support.watched_page import open_page

    may_refuse = getattr(request, "param", "") == "refusals"
    with open_page(browser, service.address, service.token, may_refuse=may_refuse) as page:
        yield page


def open_job(page: Page, name: str) -> None:
    """Search for a job in the list, and open it."""
    page.get_by_role("searchbox").fill(name)
    page.get_by_role("link", name=name, exact=True).last.click()
    page.get_by_role("heading", name=name, exact=True).wait_for()


def get_state(page: Page) -> Locator:
    """Return where the page of a job shows its state."""
    return page.locator(".job-head .state")


def expect_text(where: Locator, text: str | re.Pattern[str]) -> None:
    from playwright.sync_api import expect

    expect(where).to_have_text(text)


def expect_focus(where: Locator) -> Locator:
    from playwright.sync_api import expect

    expect(where).to_be_focused()
    return where


def test_newcomers_learn_what_to_type(page: Page) -> None:
    """This must be the first test: the service has no jobs yet."""
    welcome = page.get_by_role("region", name="Nothing has been added yet")
    assert "hesrpt add -- sleep 10" in welcome.inner_text()
    assert page.get_by_role("region", name="Servers held over time").count() == 0


def test_a_job_is_added_and_watched_until_its_end(page: Page, service: RunningService) -> None:
    page.get_by_role("banner").get_by_role("button", name="Add a job").click()
    form = page.get_by_role("dialog", name="Add a job")
    form.get_by_role("button", name="Add the job").click()
    expect_text(form.get_by_role("alert"), "Say which command to run, such as sleep 10.")
    command = "sleep 0.2; echo did {item} | awk '{print  $1, $2}'"
    form.get_by_label("Command").fill(command)
    form.get_by_label("Items").fill("one\ntwo\n\nthree\n")
    form.get_by_label("Name").fill("numbers")
    form.get_by_role("button", name="Add the job").click()
    expect_text(page.get_by_role("status").get_by_text("Added"), "Added numbers.")
    expect_text(page.get_by_role("heading", level=1), "numbers")
    assert page.locator("#job pre.command").inner_text() == command  # as `hesrpt add` takes it
    expect_text(get_state(page), "done")
    expect_text(page.locator("#job .progress .items"), "3/3")
    output = page.get_by_role("region", name="Output of numbers")
    expect_text(output, re.compile("did one.*did", re.DOTALL))
    items = page.get_by_role("table", name="Items of numbers")
    expect_text(items.get_by_role("row", name="two").get_by_role("cell").first, "done")
    assert service.get("numbers")["done"] == 3
    page.get_by_role("link", name="All jobs").click()
    row = page.get_by_role("table", name="Jobs").get_by_role("row", name="numbers")
    expect_text(row.locator(".state"), "done")
    mean = page.get_by_role("region", name="Mean flow time")
    expect_text(mean.locator(".figure"), re.compile(r"\d s$"))


def test_jobs_added_elsewhere_appear_and_change(page: Page, service: RunningService) -> None:
    name = service.add(command=LONG, name="elsewhere")
    row = page.get_by_role("table", name="Jobs").get_by_role("row", name=name)
    expect_text(row.locator(".state"), "running")
    expect_text(row.locator(".servers"), "1")
    legend = page.get_by_role("list", name="Servers of each job")
    expect_text(legend.get_by_role("link", name=name), name)
    assert page.title() == "1 running · hesrpt"
    service.client.cancel(name)
    expect_text(row.locator(".state"), "cancelled")
    expect_text(page.locator("#announcer"), re.compile("elsewhere cancelled"))


def test_a_job_is_cancelled_only_after_a_question(page: Page, service: RunningService) -> None:
    name = service.add(command=LONG, name="unwanted")
    page.get_by_role("button", name=f"Cancel {name}").click()
    question = page.get_by_role("dialog", name=f"Cancel {name}?")
    question.get_by_role("button", name="Keep it").click()
    assert service.get(name)["state"] == "running"
    page.get_by_role("button", name=f"Cancel {name}").click()
    question.get_by_role("button", name="Cancel the job").click()
    expect_text(page.locator("#answers p"), re.compile("unwanted"))
    row = page.get_by_role("table", name="Jobs").get_by_role("row", name=name)
    expect_text(row.locator(".state"), "cancelled")
    assert service.get(name)["state"] == "cancelled"
    expect_focus(row.get_by_role("button", name=f"Retry {name}")).click()
    expect_text(row.locator(".state"), "running")
    service.client.cancel(name)


@pytest.mark.parametrize("page", ["refusals"], indirect=True)
def test_a_job_is_paused_resumed_and_weighed(page: Page, service: RunningService) -> None:
    name = service.add(command=LONG, name="heavy", timeout="90m", retries=2)
    open_job(page, name)
    for title, text in (("Time limit", "90 min"), ("Retries", "2")):
        expect_text(page.locator(".facts div", has_text=title).locator("dd"), text)
    page.get_by_role("button", name="Pause", exact=True).click()
    expect_text(get_state(page), "paused")
    expect_focus(page.get_by_role("button", name="Resume", exact=True)).click()
    expect_text(get_state(page), "running")
    expect_focus(page.get_by_role("button", name="Pause", exact=True))
    weight = page.get_by_label(f"Weight of {name}")
    weight.fill("2.5")
    page.get_by_role("button", name="Set weight").click()
    expect_text(page.locator(".facts div", has_text="Weight").locator("dd"), "2.5")
    assert service.get(name)["weight"] == 2.5
    weight.fill("0")
    weight.press("Enter")
    expect_text(page.locator("#errors p"), re.compile("weight must be .*, got 0"))
    service.client.cancel(name)
    expect_text(get_state(page), "cancelled")


def test_failures_are_shown_and_retried(page: Page, service: RunningService) -> None:
    flag = service.directory / "flag"
    command = f"echo trying; test {{item}} != bad || test -e {flag} || exit 3"
    name = service.add(command=command, items=["good", "bad"], name="picky", retries=0)
    open_job(page, name)
    expect_text(get_state(page), "failed")
    failure = page.get_by_role("region", name="1 failure").locator("details")
    expect_text(failure.locator("summary"), re.compile("bad.*3"))
    failure.locator("summary").click()
    assert "3" in failure.get_by_label("Traceback of").inner_text()
    flag.touch()
    page.get_by_role("button", name="Retry").click()
    expect_text(get_state(page), "done")
    expect_focus(page.get_by_role("heading", name=name))  # there are no buttons any more
    page.get_by_role("region", name="failure").wait_for(state="hidden")
    assert service.get(name)["failures"] == []


def test_output_appears_while_a_job_runs(page: Page, service: RunningService) -> None:
    flag = service.directory / "more"
    command = f"echo first; until test -e {flag}; do sleep 0.05; done; echo second; {LONG}"
    name = service.add(command=command, name="talkative")
    open_job(page, name)
    output = page.get_by_role("region", name=f"Output of {name}")
    expect_text(output, re.compile("first"))
    flag.touch()
    expect_text(output, re.compile("first.*second", re.DOTALL))
    service.client.cancel(name)


def test_all_jobs_are_paused_after_a_question(page: Page, service: RunningService) -> None:
    name = service.add(command=LONG, name="one-of-all")
    page.get_by_role("button", name="Pause all").click()
    page.get_by_role("dialog").get_by_role("button", name="Pause all jobs").click()
    row = page.get_by_role("table", name="Jobs").get_by_role("row", name=name)
    expect_text(row.locator(".state"), "paused")
    page.get_by_role("button", name="Resume all").click()
    expect_text(row.locator(".state"), "running")
    service.client.cancel(name)


@pytest.mark.slow
def test_groups_are_paused_and_weighed(page: Page, service: RunningService) -> None:
    name = service.add(command=LONG, name="member", group="team a/b")
    groups = page.get_by_role("region", name="Groups")
    groups.get_by_role("button", name="Pause group team a/b").click()
    row = page.get_by_role("table", name="Jobs").get_by_role("row", name=name)
    expect_text(row.locator(".state"), "paused")
    groups.get_by_role("button", name="Resume group team a/b").click()
    expect_text(row.locator(".state"), "running")
    groups.get_by_label("Weight of group team a/b").fill("3")
    groups.get_by_role("button", name="Set weight").click()
    expect_text(groups.get_by_role("row", name="team a/b").get_by_role("cell").nth(2), "3")
    service.client.cancel(name)


@pytest.mark.slow
def test_single_commands_look_like_other_jobs_and_have_hooks_but_no_items(
    page: Page, service: RunningService
) -> None:
    names = [
        service.add(command="true 'a  b'", name="single", on_end="exit 7"),
        service.add(command="true {item}", items=["a", "b"], name="double"),
    ]
    service.client.wait(*names)
    page.get_by_role("searchbox").fill("le")
    middles = []
    for name in names:
        row = page.get_by_role("table", name="Jobs").get_by_role("row", name=name)
        expect_text(row.locator(".state"), "done")
        bar, cell = row.get_by_role("progressbar").bounding_box(), row.bounding_box()
        assert bar is not None
        assert cell is not None
        middles.append(bar["y"] - cell["y"])
        command = service.get(name)["command"]
        assert row.locator(".note").inner_text() == command  # also two spaces in a row
    assert abs(middles[0] - middles[1]) < 0.6
    for name, has_table in zip(names, (False, True), strict=True):
        with page.expect_response(lambda answer: "/items?" in answer.url) as answer:
            open_job(page, name)
        answer.value.finished()
        if not has_table:
            hook = page.get_by_role("region", name="Hooks").get_by_role("listitem")
            expect_text(hook, re.compile("exit 7.*7.*after [123] attempt"))
        page.evaluate("new Promise((done) => setTimeout(done, 50))")
        assert page.get_by_role("table", name=f"Items of {name}").is_visible() == has_table
        page.get_by_role("link", name="All jobs").click()


@pytest.mark.parametrize("page", ["refusals"], indirect=True)
def test_the_address_of_a_missing_job_says_so(page: Page) -> None:
    page.evaluate("location.hash = '#/jobs/no%2Fbody'")
    title = page.get_by_role("heading", level=1)
    expect_text(title, "There is no job “no/body”")
    page.evaluate("location.hash = '#/jobs/%'")
    expect_text(title, "There is no job “%”")
    page.get_by_role("link", name="All jobs").click()
    page.get_by_role("region", name="Servers held over time").wait_for()


def test_names_are_text_and_never_html(page: Page, service: RunningService) -> None:
    name = "<img src=x onerror=\"document.title='hacked'\">"
    service.add(command=f"echo '{name}'; exit 1", name=name, retries=0)
    page.get_by_role("searchbox").fill("onerror")
    row = page.get_by_role("table", name="Jobs").get_by_role("row", name="onerror")
    expect_text(row.locator(".state"), "failed")
    expect_text(row.locator(".name"), name)
    row.get_by_role("link").click()
    expect_text(page.get_by_role("heading", level=1), name)
    expect_text(page.get_by_role("region", name="Output of"), re.compile("<img"))
    assert page.locator("main img").count() == 0
    assert "hacked" not in page.title().replace(name, "")
