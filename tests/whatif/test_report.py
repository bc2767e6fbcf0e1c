"""The report of a study: one self-contained HTML file."""

from __future__ import annotations

import re
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from hesrpt.traces import Trace
from hesrpt.whatif import run_study
from hesrpt.whatif.report import render_report


class PageParser(HTMLParser):
    """Collects the addresses that a page refers to, and checks that its tags are balanced."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.open_tags: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "br", "path", "use"):
            self.open_tags.append(tag)
        for name, value in attrs:
            if name in ("src", "href", "xlink:href", "action", "data"):
                self.addresses.append(value or "")

    def handle_endtag(self, tag: str) -> None:
        if tag in self.open_tags:
            assert self.open_tags.pop() == tag


@pytest.fixture(scope="module")
def page(example_trace: Trace) -> str:
    return render_report(run_study(replace(example_trace, source="<b>&x.swf")))


def test_report_is_self_contained(page: str) -> None:
    parser = PageParser(page)
    assert parser.open_tags == []
    assert [address for address in parser.addresses if not address.startswith("#")] == []
    assert not re.search(r"url\((?!#)|@import|<script", page)


def test_report_has_the_results(page: str) -> None:
    assert page.count("<svg") == 4
    assert page.count("<li>") == 6
    for text in (
        "mean flow time would fall from",
        "had run time 0",
        "FCFS (rigid) (overloaded)",
    ):
        assert text in page


def test_names_are_escaped(page: str) -> None:
    assert "&lt;b&gt;&amp;x.swf" in page
    assert "<b>&x" not in page


def test_figures_do_not_share_ids(page: str) -> None:
    ids = re.findall(r' id="([mp][0-9a-f]{10})"', page)
    assert ids
    assert len(ids) == len(set(ids))


def test_report_lists_notes_and_overload(example_trace: Trace) -> None:
    study = run_study(example_trace, policies=["fcfs", "hesrpt"], resize_cost=120)
    page = render_report(study)
    assert "A resize stops a malleable job for 120 s." in page
    assert "Under FCFS (rigid), jobs arrive faster than they are" in page
