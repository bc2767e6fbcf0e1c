"""The figures of a report, as SVG elements."""

from __future__ import annotations

import io
from collections.abc import Callable

from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from hesrpt.plotting import sensitivity_figures, whatif_figures
from hesrpt.policies.registry import get_title
from hesrpt.units import DAY
from hesrpt.whatif.study_results import Study
from hesrpt.whatif.variations import Variations

# Matplotlib would write web addresses into this metadata.
_OMITTED_METADATA = ("Date", "Creator", "Format", "Type")
# A rhythm is shown if the trace has at least this many periods.
_MIN_PERIODS = 2


def embed_figures(study: Study, variations: Variations) -> dict[str, list[Markup]]:
    """Return the figures of each section of the report."""
    flow, slowdown = "mean_flow_time", "mean_slowdown"
    figures = {
        "overview": [
            _embed("Distribution of flow times", whatif_figures.draw_flow_times(study)),
            _embed("Jobs in the system over time", whatif_figures.draw_jobs_over_time(study)),
        ],
        "by_size": [
            _embed("Mean flow times by size", whatif_figures.draw_size_classes(study, flow)),
            _embed("Mean slowdowns by size", whatif_figures.draw_size_classes(study, slowdown)),
        ],
        "rhythm": _draw_rhythms(study),
        "servers": [
            _embed(f"Servers in use under {get_title(policy)}", figure)
            for policy in study.shown_policies
            if (figure := whatif_figures.draw_servers_over_time(study, policy)) is not None
        ],
        "fractions": [],
        "sensitivity": [],
    }
    if variations.fractions is not None:
        draw: dict[str, Callable[..., Figure]] = {
            "Mean flow time over the malleable fraction": sensitivity_figures.draw_fraction_means,
            "Who gains over the malleable fraction": sensitivity_figures.draw_fraction_gains,
        }
        figures["fractions"] = [
            _embed(title, function(variations.fractions)) for title, function in draw.items()
        ]
    if variations.sensitivity is not None:
        figures["sensitivity"] = [
            _embed(
                f"Sensitivity to {parameter.replace('_', ' ')}",
                sensitivity_figures.draw_sensitivity_to(variations.sensitivity, parameter),
            )
            for parameter in sensitivity_figures.SWEEP_LABELS
        ]
    return figures


def _draw_rhythms(study: Study) -> list[Markup]:
    """Return the daily and the weekly rhythm, if the trace is long enough."""
    span = float(study.trace.submit_times[-1])
    rhythms = []
    if span >= _MIN_PERIODS * DAY:
        rhythms.append(_embed("Daily rhythm", whatif_figures.draw_rhythm(study)))
    if span >= _MIN_PERIODS * 7 * DAY:
        rhythms.append(_embed("Weekly rhythm", whatif_figures.draw_rhythm(study, is_weekly=True)))
    return rhythms


def _embed(title: str, figure: Figure) -> Markup:
    """Return a figure as an SVG element."""
    text = io.StringIO()
    # The salt keeps the ids of the figures in one page apart.
    with rc_context({"svg.hashsalt": title, "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata=dict.fromkeys(_OMITTED_METADATA))
    svg = text.getvalue()
    return Markup('<figure role="img" aria-label="{}">{}</figure>').format(
        title, Markup(svg[svg.index("<svg") :])
    )
