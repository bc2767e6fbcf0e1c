"""Reports in a real browser: everything is visible and readable on a desktop and on a phone."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from hesrpt.traces import Trace
from hesrpt.whatif import Variations, run_fractions, run_study
from hesrpt.whatif.report import render_report

BROWSER = next(
    filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None
)
pytestmark = pytest.mark.skipif(BROWSER is None, reason="Chromium is not installed")
WIDTHS = (1280, 390)
# In points: the text of figures, and of the page, must not be smaller on the screen.
SMALLEST_IN_FIGURES, LEAST_PIXELS, LEAST_PIXELS_IN_FIGURES = 8, 12, 9
MEASURE = """
const results = [...document.querySelectorAll("iframe")].map(frame => {
  const page = frame.contentDocument, width = frame.clientWidth;
  const elements = [...page.querySelectorAll("body *")].filter(e => !e.closest("svg"));
  const box = e => e.getBoundingClientRect();
  const hasText = e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim());
  const name = e => e.tagName + ": " + e.textContent.trim().slice(0, 40);
  return {
    page: frame.title,
    width,
    scrollWidth: page.documentElement.scrollWidth,
    outside: elements.filter(e => box(e).right > width + 0.5 || box(e).left < -0.5).map(name),
    cut: elements.filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1).map(name),
    smallText: elements.filter(e => hasText(e) && box(e).width > 0 &&
      parseFloat(frame.contentWindow.getComputedStyle(e).fontSize) < LEAST).map(name),
    pixelsPerPoint: [...page.querySelectorAll("svg")].map(
      e => box(e).width / e.viewBox.baseVal.width),
    cells: page.querySelector("td") &&
      frame.contentWindow.getComputedStyle(page.querySelector("td")).display,
    hiddenCells: [...page.querySelectorAll("td")].filter(
      e => e.textContent.trim() && box(e).width == 0).length,
  };
});
document.body.innerHTML = "<pre></pre>";
document.querySelector("pre").textContent = JSON.stringify(results);
"""


def measure(pages: dict[str, str], directory: Path) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what the browser shows of pages, each in frames of both widths."""
    frames = "".join(
        f'<iframe title="{title}" style="width:{width}px;height:900px;border:0" '
        f'srcdoc="{html.escape(page)}"></iframe>'
        for title, page in pages.items()
        for width in WIDTHS
    )
    script = f"<script>onload = () => {{{MEASURE.replace('LEAST', str(LEAST_PIXELS))}}}</script>"
    path = directory / "pages.html"
    path.write_text(f"<!DOCTYPE html><body>{frames}{script}")
    assert BROWSER is not None
    done = subprocess.run(
        [
            BROWSER,
            *("--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"),
            f"--user-data-dir={directory / 'profile'}",
            path.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    found = re.search(r"<pre>(.*)</pre>", done.stdout, re.DOTALL)
    if found is None:
        pytest.skip(f"Chromium cannot start here: {done.stderr[-300:]}")
    results = json.loads(html.unescape(found[1]))
    return {(result["page"], result["width"]): result for result in results}


def find_problems(result: dict[str, Any]) -> list[str]:
    """Return what cannot be seen or read."""
    problems = [f"scrolls to {result['scrollWidth']} of {result['width']} px"]
    problems = problems if result["scrollWidth"] > result["width"] else []
    for kind in ("outside", "cut", "smallText"):
        problems += [f"{kind}: {text}" for text in result[kind]]
    for scale in result["pixelsPerPoint"]:
        if scale * SMALLEST_IN_FIGURES < LEAST_PIXELS_IN_FIGURES:
            problems.append(f"text in figures has {scale * SMALLEST_IN_FIGURES:.1f} px")
    return problems


def test_reports_fit_on_desktops_and_phones(example_trace: Trace, tmp_path: Path) -> None:
    policies = ["fcfs", "easy", "moldable", "equi", "srpt", "hesrpt", "hesrpt-slowdown"]
    study = run_study(
        example_trace, policies=policies, resize_cost=30, malleable=0.5, other_limits=False
    )
    sweep = run_fractions(example_trace, fractions=(1.0,), policies=("moldable", "equi"))
    pages = {
        "report": render_report(study, Variations(fractions=sweep)),
        # These are found to be wrong, so the measurements work.
        "wide": "<div style='width:1300px'>x</div>",
        "cut": "<p style='width:50px;overflow:hidden;white-space:nowrap'>long long long</p>",
        "tiny": "<p style='font-size:6px'>tiny</p>",
    }
    results = measure(pages, tmp_path)
    for width in WIDTHS:
        report = results["report", width]
        assert find_problems(report) == []
        assert report["hiddenCells"] == 0
        for title in ("wide", "cut", "tiny"):
            assert find_problems(results[title, width])
    # A table on wide screens, cards on narrow ones.
    assert results["report", 1280]["cells"] == "table-cell"
    assert results["report", 390]["cells"] == "block"
