"""The report of a study: one self-contained HTML file."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from hesrpt.traces import Trace
from hesrpt.whatif import StudyOptions, Variations, run_fractions, run_sensitivity, run_study
from hesrpt.whatif.report import render_report
from hesrpt.whatif.study_jobs import select_jobs


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
    policies = ["fcfs", "easy", "moldable", "equi", "adaptive", "hesrpt"]
    return render_report(
        run_study(replace(example_trace, source="<b>&x.swf"), StudyOptions(policies=policies))
    )


def test_report_is_self_contained(page: str) -> None:
    parser = PageParser(page)
    assert parser.open_tags == []
    assert [address for address in parser.addresses if not address.startswith("#")] == []
    assert not re.search(r"url\((?!#)|@import|<script", page)


def test_report_has_the_results(page: str) -> None:
    figures = re.findall(r'<figure role="img" aria-label="([^"]*)"', page)
    assert figures == [
        "Mean flow times by size",
        "Mean slowdowns by size",
        "Distribution of flow times",
        "Jobs in the system over time",
        "Daily rhythm",  # the trace is shorter than two weeks
        *(
            f"Servers in use under {policy}"
            for policy in ("as recorded", "EASY (rigid)", "moldable", "EQUI", "adaptive")
        ),
    ]
    assert page.count("<svg") == len(figures)
    for text in (
        "mean flow time would fall from",
        "had run time 0",
        "FCFS (rigid) (overloaded)",
        "They were submitted from 1 January 2025 to\n  11 January 2025.",
        "Moldable jobs, which choose their servers once, when they start, would reach ",
        "What would have to be true",
        "every job can run on any whole number of servers".capitalize(),
        "What this does not model",
        "Where jobs run: any servers are as good as any others",
        "Jain's index of fairness",
        "<td>9 other users</td>",
        "<td>the largest 1%</td>",
        "<td>9 to 64 servers</td>",
    ):
        assert text in page
    assert "How many must change" not in page
    assert "Where does it stop paying?" not in page


@pytest.mark.slow
def test_report_has_the_variations_that_were_asked_for(example_trace: Trace) -> None:
    first_day = select_jobs(example_trace, StudyOptions(window="0d..1d"))
    study = run_study(
        first_day, StudyOptions(policies=["easy", "equi", "adaptive"], other_limits=False)
    )
    sensitivity = run_sensitivity(first_day, powers=(0.5,), resize_costs=(0.0,), size_errors=(0.0,))
    fractions = run_fractions(first_day, fractions=(0.5, 1.0), policies=("moldable", "equi"))
    page = render_report(study, Variations(sensitivity=sensitivity, fractions=fractions))
    assert page.count("<svg") == 8 + 3 + 2
    assert "How many must change before it pays?" in page
    assert "EQUI: it pays from 50% of the jobs on" in page or "EQUI: it does not clearly" in page
    assert "Where does it stop paying?" in page
    assert "Against EASY, p 0.5: adaptive " in page


def test_report_says_if_some_jobs_are_rigid_and_sizes_are_estimates(example_trace: Trace) -> None:
    study = run_study(
        replace(example_trace, labels={}, start_date=None),
        StudyOptions(
            policies=["easy", "hesrpt"], malleable="servers >= 8", sizes="estimates", load=0.5
        ),
    )
    page = render_report(study)
    for text in (
        "The jobs with servers &gt;= 8 (",
        "Users estimate as well as they did",
        "<h3>By kind</h3>",
        "The trace does not say whose jobs they are.",
    ):
        assert text in page
    assert "They were submitted from" not in page


def test_times_become_dates_only_if_they_are_known(example_trace: Trace) -> None:
    study = run_study(example_trace, StudyOptions(policies=["easy"], window="1d..3d"))
    first = study.trace.submit_times[0], study.trace.start_date
    assert first[0] == 0
    submitted = example_trace.submit_times
    offset = float(submitted[submitted >= 86400][0])
    assert example_trace.start_date is not None
    assert first[1] == example_trace.start_date + timedelta(seconds=offset)
    # Where times are stretched, dates would be wrong.
    assert (
        run_study(example_trace, StudyOptions(policies=["easy"], load=0.5)).trace.start_date is None
    )


def test_names_are_escaped(page: str) -> None:
    assert "&lt;b&gt;&amp;x.swf" in page
    assert "<b>&x" not in page


def test_figures_do_not_share_ids(page: str) -> None:
    ids = re.findall(r' id="([mp][0-9a-f]{10})"', page)
    assert ids
    assert len(ids) == len(set(ids))


def test_report_lists_notes_and_overload(example_trace: Trace) -> None:
    study = run_study(example_trace, StudyOptions(policies=["fcfs", "hesrpt"], resize_cost=120))
    page = render_report(study)
    assert "A resize stops a malleable job for 120 s." in page
    assert "Under FCFS (rigid), jobs arrive faster than they are" in page
