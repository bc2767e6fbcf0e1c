"""The table of ratios that benchmarks measure."""

from __future__ import annotations

from rich.console import Console

from benchmarks.ratios import (
    Figures,
    Ratio,
    at_least,
    at_most,
    choose_better,
    find_worse,
    insert_table,
    print_figures,
    read_figures,
)


def create_figures(**ratios: tuple[Ratio, ...]) -> Figures:
    return Figures("a machine, 2 cores", "Python 3.11.7, numpy 2.4.6", ratios)


def test_figures_survive_being_written_and_read() -> None:
    figures = create_figures(
        sort=(at_most("planning 10,000 jobs / np.argsort", 1.84, 3),),
        solver=(at_least("CVXPY / plan", 7420, 1000), at_least("CVXPY / other plan", 0.988, 1)),
    )
    assert read_figures(figures.to_text()) == figures


def test_ratios_are_worse_if_they_move_away_from_their_target_by_a_fifth() -> None:
    before = at_least("faster", 100, 150), at_most("memory", 2.0, 3)
    now = at_least("faster", 84, 150), at_most("memory", 2.39, 3)
    assert find_worse(now, before) == []
    worse = at_least("faster", 83, 150), at_most("memory", 2.41, 3)
    assert find_worse(worse, before) == [*worse]
    better = at_least("faster", 900, 150), at_most("memory", 0.1, 3)
    assert find_worse(better, before) == []
    assert find_worse([at_least("new", 0.0, 1)], before) == []


def test_better_of_two_measurements_is_kept() -> None:
    assert choose_better(at_least("a", 3, 1), at_least("a", 4, 1)).value == 4
    assert choose_better(at_most("a", 3, 1), at_most("a", 4, 1)).value == 3


def test_table_marks_missed_targets_and_worse_ratios() -> None:
    before = create_figures(queues=(at_least("one", 200, 150), at_least("two", 100, 150)))
    now = create_figures(
        queues=(at_least("one", 151, 150), at_least("two", 100, 150), at_least("three", 2, 1))
    )
    console = Console(highlight=False, soft_wrap=True)
    with console.capture() as capture:
        print_figures(console, now, before)
    one, two, three = (
        next(line for line in capture.get().splitlines() if name in line.split())
        for name in ("one", "two", "three")
    )
    assert "worse by more than 20%" in one
    assert "misses" not in one
    assert "misses its target" in two
    assert "worse" not in two
    assert three.endswith("at least 1")


def test_table_of_a_page_is_replaced() -> None:
    page = "# Title\n\n<!-- ratios -->\nold\n<!-- end of ratios -->\n\nrest\n"
    figures = create_figures(sort=(at_most("time / sort", 4, 3),))
    shown = insert_table(page, figures)
    assert "| `sort` | time / sort | 4 | at most 3 (missed) |\n<!-- end of ratios -->\n" in shown
    assert shown.startswith(
        "# Title\n\n<!-- ratios -->\nMeasured on a machine, 2 cores, with Python"
    )
    assert shown.endswith("\n\nrest\n")
    assert "old" not in shown
