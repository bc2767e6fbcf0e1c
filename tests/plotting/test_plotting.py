"""Figures show the numbers that they are drawn from, and are saved with their provenance."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from hesrpt import Amdahl, InputError, PowerLaw, Speedup, Workload, compare, plan, simulate
from hesrpt.plotting import (
    check_figure_path,
    draw_comparison,
    draw_schedule,
    get_style,
    get_styles,
    save_figure,
)
from hesrpt.plotting.style import use_log_scale
from hesrpt.policies.registry import POLICIES
from hesrpt.traces.trace import RECORDED


def get_stack_tops(axes: Axes) -> list[float]:
    """Return the height of the top of each area of a stack."""
    return [
        float(np.asarray(area.get_paths()[0].vertices)[:, 1].max()) for area in axes.collections
    ]


# --- schedules --------------------------------------------------------------------------------


@pytest.mark.parametrize("speedup", [PowerLaw(0.5), Amdahl(0.9)], ids=str)
@pytest.mark.parametrize("whole", [False, True])
def test_few_jobs_are_drawn_as_lines_over_their_servers(speedup: Speedup, whole: bool) -> None:
    best = plan(Workload([9, 4, 1], speedup, names=["a", "b", "c"]), 500, whole=whole)
    above, below = best.plot().axes
    first_to_last = np.argsort(best.completion_times)
    lines = above.get_lines()
    assert len(lines) == 3
    for line, job in zip(lines, first_to_last, strict=True):
        times, sizes = np.asarray(line.get_xdata()), np.asarray(line.get_ydata())
        assert sizes[0] == best.workload.sizes[job]
        assert sizes[-1] == pytest.approx(0, abs=1e-9)
        assert times[-1] == pytest.approx(best.completion_times[job])
    assert get_stack_tops(below)[-1] == pytest.approx(500)
    # The job that ends first is at the bottom, with the servers that it holds.
    assert get_stack_tops(below)[0] == pytest.approx(best.servers_at(0.0)[first_to_last[0]])


def test_many_jobs_are_stacked_in_groups() -> None:
    sizes = np.random.default_rng(0).pareto(1.5, 5000) + 1
    above, below, key = plan(Workload(sizes, PowerLaw(0.5)), 64).plot().axes
    assert not above.get_lines()
    assert len(above.collections) == len(below.collections) == 20
    assert get_stack_tops(above)[-1] == pytest.approx(sizes.sum())
    assert above.get_title(loc="left").startswith("5,000 jobs on 64 servers")
    assert key.get_ylabel() == "5,000 jobs in order of completion, 20 groups"


def test_line_of_a_job_begins_at_its_arrival() -> None:
    workload = Workload([1.0, 2.0], PowerLaw(0.5), arrivals=[0.0, 0.3])
    run = simulate(workload, 4, "equi")
    above = draw_schedule(run).axes[0]
    assert above.get_title(loc="left").startswith("EQUI: 2 jobs on 4 servers")
    late = above.get_lines()[1]
    assert np.asarray(late.get_xdata())[0] == 0.3
    assert np.asarray(late.get_ydata())[0] == 2.0


@pytest.mark.parametrize(
    ("seconds", "label", "end"),
    [(100.0, "time (s)", 100.0), (1200.0, "time (min)", 20.0), (36000.0, "time (h)", 10.0)],
)
def test_time_axis_has_a_unit_that_suits_the_run(seconds: float, label: str, end: float) -> None:
    run = simulate(Workload([seconds], PowerLaw(0.5)), 1, "equi")
    above, below = draw_schedule(run, in_seconds=True).axes
    assert below.get_xlabel() == label
    assert below.get_xlim()[1] == pytest.approx(end)
    assert above.get_ylabel() == "remaining size\n(seconds on one server)"


def test_names_are_not_read_as_mathematics() -> None:
    figure = plan(Workload([2, 1], PowerLaw(0.5), names=["$x_1$", "b"]), 4).plot()
    assert r"\$x_1\$ (2)" in [text.get_text() for text in figure.legends[0].get_texts()]


def test_long_names_are_cut_off() -> None:
    figure = plan(Workload([2, 1], PowerLaw(0.5), names=["x" * 50, "b"]), 4).plot()
    assert "x" * 19 + "… (2)" in [text.get_text() for text in figure.legends[0].get_texts()]


# --- comparisons ------------------------------------------------------------------------------


def test_comparison_shows_ratios_with_their_intervals() -> None:
    replications = [Workload.pareto(30, seed=seed, speedup=PowerLaw(0.5)) for seed in range(4)]
    comparison = compare(replications, 64, ["hesrpt", "equi", "srpt"])
    left, right = draw_comparison(comparison).axes
    assert [label.get_text() for label in left.get_yticklabels()] == ["heSRPT", "EQUI", "SRPT"]
    for place, policy in enumerate(comparison):
        dot, line = left.containers[place][0], left.containers[place][2][0]
        difference = comparison.difference(policy, "hesrpt")
        ratio, half_width = difference.percentage / 100 + 1, difference.percentage_half_width / 100
        assert dot.get_xdata()[0] == pytest.approx(ratio)
        assert line.get_segments()[0][:, 0] == pytest.approx(
            [ratio - half_width, ratio + half_width]
        )
        assert dot.get_color() == POLICIES[policy].colour
    assert len(right.get_lines()) == 3
    assert "95% intervals, 4 replications" in left.get_xlabel()


def test_comparison_with_a_bound_shows_what_is_out_of_reach(tmp_path: Path) -> None:
    stream = Workload.poisson(20, 12, seed=1, speedup=PowerLaw(0.7))
    comparison = compare(stream, 8, ["hesrpt", "equi"], bound=True)
    figure = comparison.plot(tmp_path / "compared.png")
    assert (tmp_path / "compared.png").stat().st_size > 10_000
    (area,) = figure.axes[0].patches
    above = comparison.above_bound(comparison.best)
    assert above is not None
    assert area.get_extents().x1 == pytest.approx(
        figure.axes[0].transData.transform((1 / (1 + above), 0))[0]
    )


@pytest.mark.slow
def test_legend_of_many_policies_reads_line_by_line() -> None:
    policies = ["hesrpt", "optimal", "equi", "srpt", "hell", "knee", "fifo"]
    comparison = compare(Workload([9, 4, 1], PowerLaw(0.5)), 64, policies)
    figure = draw_comparison(comparison)
    figure.draw_without_rendering()
    entries = {text: text.get_window_extent() for text in figure.legends[0].get_texts()}
    in_reading_order = sorted(
        entries, key=lambda text: (-round(entries[text].y0), entries[text].x0)
    )
    titles = [get_style(policy).title for policy in comparison]
    assert [text.get_text() for text in in_reading_order] == titles
    assert len({round(extent.y0) for extent in entries.values()}) == 2


# --- styles -----------------------------------------------------------------------------------


def test_registered_policies_have_one_title_and_colour_each() -> None:
    styles = get_styles([*POLICIES, RECORDED])
    assert len({style.title for style in styles.values()}) == len(styles)
    assert len({style.colour for style in styles.values()}) == len(styles)
    assert get_style("equi") == styles["equi"]
    assert styles["hesrpt"].title == "heSRPT"


def test_unregistered_policies_get_colours_that_no_other_policy_has() -> None:
    styles = get_styles([*POLICIES, "mine", "yours"])
    assert styles["mine"].title == "mine"
    assert len({style.colour for style in styles.values()}) == len(styles)


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (0.9, 1.45, [0.9, 1.0, 1.1, 1.2, 1.3, 1.4]),
        (0.8, 25, [1, 2, 5, 10, 20]),
        (0.5, 50000, [1, 10, 100, 1000, 10000]),
    ],
)
def test_log_axes_have_plain_ticks_at_any_length(
    low: float, high: float, expected: list[float]
) -> None:
    axes = Figure().subplots()
    use_log_scale(axes)
    axes.set_ylim(low, high)
    ticks = [tick for tick in axes.get_yticks() if low <= tick <= high]
    assert ticks == pytest.approx(expected)


# --- saving -----------------------------------------------------------------------------------


def test_saved_figure_carries_its_description(tmp_path: Path) -> None:
    path = tmp_path / "new" / "plan.png"
    figure = plan(Workload([2, 1], PowerLaw(0.5)), 4).plot()
    save_figure(figure, path, description="two jobs")
    with Image.open(path) as image:
        assert image.info["Description"] == "two jobs"
        assert image.info["Software"].startswith("hesrpt ")
    assert list(path.parent.iterdir()) == [path]


def test_plot_saves_to_the_given_path(tmp_path: Path) -> None:
    path = tmp_path / "plan.svg"
    plan(Workload([2, 1], PowerLaw(0.5)), 4).plot(str(path))
    assert "<svg" in path.read_text()


def test_unknown_format_is_rejected() -> None:
    with pytest.raises(InputError, match=r"a figure must end in \.pdf, \.png, \.svg, got 'x\.gif'"):
        check_figure_path("x.gif")


def test_unwritable_path_is_reported(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(InputError, match="cannot be written"):
        save_figure(Figure(), tmp_path / "file" / "x.png")
