"""A study as one self-contained HTML file, without scripts or requests to other sites.

The page is made from ``templates/``: ``report.html`` includes one template for each section.
"""

from __future__ import annotations

from datetime import timedelta
from math import inf
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined

from hesrpt._version import __version__
from hesrpt.files import write_text
from hesrpt.policies.registry import get_title
from hesrpt.units import format_count, format_duration, format_number
from hesrpt.whatif.conditions import OMISSIONS, list_conditions
from hesrpt.whatif.headline import choose_headline
from hesrpt.whatif.report_figures import embed_figures
from hesrpt.whatif.study_results import Study
from hesrpt.whatif.variations import Variations

_STATISTICS = ("mean", "median", "p95", "p99")


def write_report(study: Study, path: str | Path, variations: Variations | None = None) -> None:
    """Write the report of a study atomically, with the variations that were asked for."""
    write_text(path, render_report(study, variations))


def render_report(study: Study, variations: Variations | None = None) -> str:
    """Return the report of a study as HTML."""
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
        statistics=_STATISTICS,
        by_kind=study.rows_by_kind(),
        by_user=study.rows_by_user(),
        fairness=study.fairness(),
        base=choose_headline(study.runs).base,
        conditions=list_conditions(study),
        omissions=OMISSIONS,
        figures=embed_figures(study, variations),
        infinity=inf,
        version=__version__,
    )


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
