"""A study as one self-contained HTML file, without scripts or requests to other sites.

The page is made from ``templates/``: ``report.html`` includes one template for each section.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from datetime import timedelta
from math import inf
from pathlib import Path
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from hesrpt._version import __version__
from hesrpt.plotting import whatif_figures
from hesrpt.policies.registry import get_title
from hesrpt.units import DAY, WEEK, format_count, format_duration, format_number
from hesrpt.whatif.malleability import measure_parts
from hesrpt.whatif.study_results import Study
from hesrpt.whatif.variations import Variations


def render_report(
    study: Study, variations: Variations | None = None, provenance: Mapping[str, Any] | None = None
) -> str:
    """Return the report of a study as HTML.

    ``provenance`` says what the command line knows of it: the command, its options and the date.
    """
    variations = variations or Variations()
    environment = Environment(
        loader=PackageLoader("hesrpt", "whatif/templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "count": format_count,
        "duration": format_duration,
        "number": format_number,
        "option": _format_option,
        "percent": "{:.0%}".format,
        "sentence": _write_sentence,
        "title_of": get_title,
    }
    return environment.get_template("report.html").render(
        study=study,
        variations=variations,
        name=Path(study.trace.source).name,
        dates=_list_dates(study),
        overloaded=[policy for policy, run in study.runs.items() if run.is_overloaded],
        statistics=("mean", "median", "p95", "p99"),
        fairness=study.fairness(),
        base=study.base,
        malleable_parts=measure_parts(study.trace, study.is_malleable),
        figures=embed_figures(study, variations),
        infinity=inf,
        provenance=provenance or _describe_provenance(study),
    )


def _describe_provenance(study: Study) -> dict[str, Any]:
    """Return what a study knows of how it was made."""
    return {
        "options": study.options.as_json(),
        "versions": {"hesrpt": __version__},
        "sha256": {study.trace.source: study.trace.sha256} if study.trace.sha256 else {},
    }


def _format_option(value: object) -> str:
    """Return the value of an option as people write it."""
    if value is None or isinstance(value, bool):
        return {None: "default", True: "yes", False: "no"}[value]
    return ", ".join(value) if isinstance(value, list) else f"{value}"


def _write_sentence(text: str) -> str:
    """Return a text with an initial capital and a full stop; heSRPT stays as it is."""
    first_word = text.partition(" ")[0]
    return f"{text if first_word != first_word.lower() else text[0].upper() + text[1:]}."


def _list_dates(study: Study) -> list[str]:
    """Return the dates of the first and the last submission, if they are known."""
    first = study.trace.start_date
    if first is None:
        return []
    last = first + timedelta(seconds=float(study.trace.submit_times[-1]))
    return [f"{date.day} {date:%B %Y}" for date in (first, last)]


# Matplotlib would write web addresses into this metadata.
_OMITTED_METADATA = ("Date", "Creator", "Format", "Type")
# A rhythm (its title, its period and whether it is weekly) is shown if the trace has this many
# periods.
_RHYTHMS = (("Daily rhythm", DAY, False), ("Weekly rhythm", WEEK, True))
_MIN_PERIODS = 2


def embed_figures(study: Study, variations: Variations) -> dict[str, list[Markup]]:
    """Return the figures of each section of the report."""

    def panel(title: str, plot: Callable[..., None], *arguments: Any) -> Markup:
        return _embed(title, whatif_figures.draw_panel(plot, *arguments))

    draw, span = whatif_figures, float(study.trace.submit_times[-1])
    figures = {
        "overview": [
            panel("Distribution of flow times", draw.plot_flow_times, study),
            panel("Jobs in the system over time", draw.plot_jobs, study),
        ],
        "by_size": [
            panel("Mean flow times by size", draw.plot_size_classes, study, "mean_flow_time"),
            panel("Mean slowdowns by size", draw.plot_size_classes, study, "mean_slowdown"),
        ],
        "rhythm": [
            _embed(title, draw.draw_rhythm(study, is_weekly))
            for title, period, is_weekly in _RHYTHMS
            if span >= _MIN_PERIODS * period
        ],
        "servers": [
            _embed(f"Servers in use under {get_title(policy)}", figure)
            for policy in study.shown_policies
            if (figure := draw.draw_servers_over_time(study, policy)) is not None
        ],
        "fractions": [],
        "sensitivity": [],
    }
    if (sweep := variations.fractions) is not None:
        figures["fractions"] = [
            panel("Mean flow time over the malleable fraction", draw.plot_means, sweep),
            panel("Who gains over the malleable fraction", draw.plot_who_gains, sweep),
        ]
    if (sensitivity := variations.sensitivity) is not None:
        figures["sensitivity"] = [
            panel(f"Sensitivity to {name.replace('_', ' ')}", draw.plot_gains, sensitivity, name)
            for name in draw.SWEEP_LABELS
        ]
    return figures


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
