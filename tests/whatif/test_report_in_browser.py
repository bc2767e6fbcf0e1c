"""Reports in a real browser: everything is visible and readable on a desktop and on a phone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from support.browser import open_browser, require_browser

from hesrpt.traces import Trace
from hesrpt.whatif import StudyOptions, Variations, run_fractions, run_study
from hesrpt.whatif.report import render_report

if TYPE_CHECKING:
    from playwright.sync_api import Browser

WIDTHS = (1280, 390)
# In points: the text of figures, and of the page, must not be smaller on the screen.
SMALLEST_IN_FIGURES, LEAST_PIXELS, LEAST_PIXELS_IN_FIGURES = 8, 12, 9
MEASURE = """
least => {
  const width = document.documentElement.clientWidth;
  const elements = [...document.querySelectorAll("body *")].filter(e => !e.closest("svg"));
  const box = e => e.getBoundingClientRect();
  const hasText = e => [...e.childNodes].some(n => n.nodeType == 3 && n.textContent.trim());
  const name = e => e.tagName + ": " + e.textContent.trim().slice(0, 40);
  const cell = document.querySelector("td");
  return {
    width,
    scrollWidth: document.documentElement.scrollWidth,
    outside: elements.filter(e => box(e).right > width + 0.5 || box(e).left < -0.5).map(name),
    cut: elements.filter(e => e.clientWidth > 0 && e.scrollWidth > e.clientWidth + 1).map(name),
    smallText: elements.filter(e => hasText(e) && box(e).width > 0 &&
      parseFloat(getComputedStyle(e).fontSize) < least).map(name),
    pixelsPerPoint: [...document.querySelectorAll("svg")].map(
      e => box(e).width / e.viewBox.baseVal.width),
    cells: cell && getComputedStyle(cell).display,
    hiddenCells: [...document.querySelectorAll("td")].filter(
      e => e.textContent.trim() && box(e).width == 0).length,
  };
}
"""


def measure(browser: Browser, content: str, width: int) -> dict[str, Any]:
    """Return what the browser shows of a page in a window of some width."""
    page = browser.new_page(viewport={"width": width, "height": 900})
    page.set_content(f"<!DOCTYPE html>{content}")
    result: dict[str, Any] = page.evaluate(MEASURE, LEAST_PIXELS)
    page.close()
    return result


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


@pytest.mark.slow
def test_reports_fit_on_desktops_and_phones(example_trace: Trace) -> None:
    require_browser()
    policies = ["fcfs", "easy", "moldable", "equi", "srpt", "hesrpt", "hesrpt-slowdown"]
    study = run_study(
        example_trace,
        StudyOptions(policies=policies, resize_cost=30, malleable=0.5, other_limits=False),
    )
    sweep = run_fractions(example_trace, fractions=(1.0,), policies=("moldable", "equi"))
    report = render_report(study, Variations(fractions=sweep))
    # These are found to be wrong, so the measurements work.
    wrong = (
        "<div style='width:1300px'>x</div>",
        "<p style='width:50px;overflow:hidden;white-space:nowrap'>long long long</p>",
        "<p style='font-size:6px'>tiny</p>",
    )
    with open_browser() as browser:
        # A table on wide screens, cards on narrow ones.
        for width, cells in zip(WIDTHS, ("table-cell", "block"), strict=True):
            result = measure(browser, report, width)
            assert find_problems(result) == []
            assert result["hiddenCells"] == 0
            assert result["cells"] == cells
            for page in wrong:
                assert find_problems(measure(browser, page, width))
