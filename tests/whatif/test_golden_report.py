"""The words and numbers of a whole report, compared with a file that somebody has read.

If a change of the report is intended, delete the file: the test writes it anew and fails once.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pytest
from support.trace_samples import make_trace

from hesrpt.whatif import StudyOptions, run_study
from hesrpt.whatif.report import render_report

GOLDEN = Path(__file__).parent / "golden_report.txt"


class TextReader(HTMLParser):
    """Collects the text of a page: a line for each row of a table, and for each other block."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.lines = [""]
        self.hidden: list[str] = []
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in ("style", "svg"):
            self.hidden.append(tag)
        elif tag in ("td", "th"):
            self.lines[-1] += " | "
        elif tag == "figure":
            self.lines.append(f"[{dict(attrs)['aria-label']}]")
        elif tag in ("p", "li", "tr", "h1", "h2", "h3", "title"):
            self.lines.append({"h1": "# ", "h2": "## ", "h3": "### ", "li": "- "}.get(tag, ""))

    def handle_endtag(self, tag: str) -> None:
        if self.hidden and tag == self.hidden[-1]:
            self.hidden.pop()

    def handle_data(self, data: str) -> None:
        if not self.hidden:
            self.lines[-1] += data

    def read(self) -> str:
        lines = (" ".join(line.split()).removeprefix("| ") for line in self.lines)
        return "\n".join(filter(None, lines)) + "\n"


def test_report_says_the_same_as_the_file() -> None:
    # Two users: short narrow jobs of one, long wide jobs of the other, over three days.
    jobs = 60
    is_wide = np.arange(jobs) % 3 == 0
    trace = replace(
        make_trace(
            (np.arange(jobs) * 4320.0).tolist(),
            np.where(is_wide, 8.0, 2.0).tolist(),
            np.where(is_wide, 7200.0, 1800.0).tolist(),
            machine_servers=8,
        ),
        source="made-up.swf",
        labels={"user": np.where(is_wide, "ann", "bob")},
        start_date=datetime(2024, 5, 1, 12, 0, 0),
    )
    trace = replace(trace, estimates=2 * trace.runtimes, start_times=trace.submit_times + 60)
    study = run_study(
        trace,
        StudyOptions(
            assumption=0.5,
            policies=["fcfs", "easy", "moldable", "equi", "srpt"],
            malleable="servers >= 8",
            resize_cost=30,
        ),
    )
    text = TextReader(render_report(study)).read().replace("hesrpt 0.1.0", "hesrpt VERSION")
    if not GOLDEN.exists():
        GOLDEN.write_text(text)
        pytest.fail(f"{GOLDEN} was missing and has been written: read it")
    assert text.splitlines() == GOLDEN.read_text().splitlines()
