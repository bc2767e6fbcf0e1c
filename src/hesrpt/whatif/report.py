"""A study as one self-contained HTML file, without scripts or requests to other sites.

The page itself is the template ``report.html``.
"""

from __future__ import annotations

import io
from math import inf
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib import rc_context
from matplotlib.figure import Figure

from hesrpt._version import __version__
from hesrpt.files import write_text
from hesrpt.plotting import whatif_figures
from hesrpt.policies.registry import get_title
from hesrpt.units import format_duration, format_number
from hesrpt.whatif.study_results import Study
from hesrpt.whatif.variations import Variations

_STATISTICS = ("mean", "median", "p95", "p99")
# Matplotlib would write web addresses into this metadata.
_OMITTED_METADATA = ("Date", "Creator", "Format", "Type")


def write_report(study: Study, path: str | Path, variations: Variations | None = None) -> None:
    """Write the report of a study atomically."""
    write_text(path, render_report(study, variations))


def render_report(study: Study, variations: Variations | None = None) -> str:
    """Return the report of a study as HTML."""
    environment = Environment(
        loader=PackageLoader("hesrpt", "whatif"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "duration": format_duration,
        "number": format_number,
        "percent": "{:.0%}".format,
        "sentence": lambda text: f"{text[0].upper()}{text[1:]}.",
        "title_of": get_title,
    }
    return environment.get_template("report.html").render(
        study=study,
        name=Path(study.trace.source).name,
        overloaded=[policy for policy, run in study.runs.items() if run.is_overloaded],
        statistics=_STATISTICS,
        figures={
            "flow_times": _embed(whatif_figures.draw_flow_times(study), "Flow times by policy"),
            "size_classes": _embed(whatif_figures.draw_size_classes(study), "Flow times by size"),
            "jobs": _embed(whatif_figures.draw_jobs_over_time(study), "Jobs over time"),
            "servers": _embed(whatif_figures.draw_servers_over_time(study), "Servers over time"),
        },
        infinity=inf,
        version=__version__,
    )


def _embed(figure: Figure, title: str) -> Markup:
    """Return a figure as an SVG element."""
    text = io.StringIO()
    # The salt keeps the ids of the figures in one page apart.
    with rc_context({"svg.hashsalt": title, "svg.fonttype": "path"}):
        figure.savefig(text, format="svg", metadata=dict.fromkeys(_OMITTED_METADATA))
    svg = text.getvalue()
    return Markup('<figure role="img" aria-label="{}">{}</figure>').format(
        title, Markup(svg[svg.index("<svg") :])
    )
