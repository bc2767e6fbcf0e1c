"""A study as one HTML file that needs nothing else: no script, no outside request."""

from __future__ import annotations

import io
from html import escape
from math import inf
from pathlib import Path

from matplotlib import rc_context
from matplotlib.figure import Figure

from hesrpt._version import __version__
from hesrpt.files import write_text
from hesrpt.plotting import get_title, whatif_figures
from hesrpt.units import format_duration, format_number
from hesrpt.whatif.study import WhatIf

# What matplotlib would say of a figure, with addresses that nobody needs to ask.
_METADATA = ("Date", "Creator", "Format", "Type")
_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: #222; margin: 0 auto; padding: 1rem;
       max-width: 76rem; }
h1 { font-size: 1.5rem; } h2 { font-size: 1.15rem; margin-top: 2rem; }
.lead { font-size: 1.15rem; background: #eef4fa; border-left: .3rem solid #0072B2;
        padding: .8rem 1rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; white-space: nowrap; }
th, td { padding: .3rem .7rem; text-align: right; border-bottom: 1px solid #ddd; }
th:first-child, td:first-child { text-align: left; position: sticky; left: 0; background: #fff; }
tr.chosen td { background: #eef4fa; font-weight: 600; }
figure { margin: 0; overflow-x: auto; }
figure svg { width: 100%; min-width: 34rem; max-width: 56rem; height: auto; }
.small { color: #666; font-size: .85rem; }
"""


def write(study: WhatIf, path: str | Path) -> None:
    """Write the page, whole or not at all."""
    write_text(path, as_html(study))


def as_html(study: WhatIf) -> str:
    """Return the page."""
    body = [
        f"<h1>Would it pay on {escape(Path(study.log.place).name)}?</h1>",
        f'<p class="lead">{escape(study.sentence[0].upper() + study.sentence[1:])}.</p>',
        f"<p>{escape(study.log.told)}. {study.servers:,} servers. {_load(study)} "
        f"{_overload(study)}</p>",
        "<h2>What would have come of it</h2>",
        _table(study),
        "<h2>How long jobs take</h2>",
        _picture(whatif_figures.draw_flow_times(study), "Distribution of flow times by policy"),
        "<h2>Do large jobs pay for it?</h2>",
        _class_table(study),
        _picture(whatif_figures.draw_size_classes(study), "Mean flow time by how large jobs are"),
        "<h2>Jobs in the system</h2>",
        _picture(whatif_figures.draw_jobs_over_time(study), "Jobs in the system over time"),
        "<h2>Servers handed out</h2>",
        _picture(whatif_figures.draw_servers_over_time(study), "Servers handed out over time"),
        "<h2>What was assumed</h2>",
        _assumptions(study),
        f'<p class="small">hesrpt {__version__}</p>',
    ]
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>What if: {escape(Path(study.log.place).name)}</title>"
        f"<style>{_STYLE}</style></head><body>\n" + "\n".join(body) + "\n</body></html>\n"
    )


def _load(study: WhatIf) -> str:
    if not study.load < inf:
        return "All jobs were submitted at once."
    return f"Users asked for {study.load:.0%} of the server time while jobs were submitted."


def _overload(study: WhatIf) -> str:
    names = [get_title(name) for name, run in study.runs.items() if run.overloaded]
    if not names:
        return ""
    return (
        f"<strong>Under {escape(', '.join(names))} jobs come faster than they are served</strong>: "
        "ever more wait, and averages depend on how long the log is."
    )


def _table(study: WhatIf) -> str:
    kinds = ("mean", "median", "p95", "p99")
    head = "".join(f"<th>{kind} flow time</th>" for kind in kinds)
    head += "".join(f"<th>{kind} slowdown</th>" for kind in kinds)
    rows = []
    for row in study.rows():
        cells = [format_duration(row[f"{kind}_flow_time"]) for kind in kinds]
        cells += [format_number(row[f"{kind}_slowdown"]) for kind in kinds]
        cells += [format_duration(row["makespan"]), f"{row['utilisation']:.0%}"]
        chosen = ' class="chosen"' if row["policy"] == "hesrpt" else ""
        rows.append(
            f"<tr{chosen}><td>{escape(get_title(row['policy']))}"
            f"{' (overloaded)' if row['overloaded'] else ''}</td>"
            + "".join(f"<td>{cell}</td>" for cell in cells)
            + "</tr>"
        )
    return (
        f'<div class="wide"><table><tr><th>policy</th>{head}<th>makespan</th><th>servers in use'
        f"</th></tr>{''.join(rows)}</table></div>"
        '<p class="small">Flow time: from submission to end. Slowdown: flow time for each second '
        "that the job ran by the log; below 1 it ends sooner than it ran, waiting included. "
        "Optimal for a batch: the planner's rule at every moment, which would be optimal if no "
        "more jobs came.</p>"
    )


def _class_table(study: WhatIf) -> str:
    found = study.by_class()
    head = "".join(f"<th>{escape(get_title(policy))}</th>" for policy in study.runs)
    rows = [
        f"<tr><td>{escape(row['class'])} ({row['jobs']:,})</td>"
        + "".join(f"<td>{format_duration(row[policy])}</td>" for policy in study.runs)
        + "</tr>"
        for row in found
    ]
    return (
        f'<div class="wide"><table><tr><th>jobs, by server-seconds</th>{head}</tr>{"".join(rows)}'
        '</table></div><p class="small">Mean flow times.</p>'
    )


def _assumptions(study: WhatIf) -> str:
    items = [
        f"Jobs speed up as {study.assumed.text}. The log does not say how they do.",
        "A job that ran r seconds on q servers has size r·s(q): on its own q servers it takes as "
        "long as it did.",
        "Malleable jobs can be given any whole number of servers at any time, on the whole "
        "machine; unless it is said otherwise below, at no cost, and their sizes are known when "
        "they are submitted.",
        "Users submit the same jobs, and do not react to how soon they end.",
        "Rigid policies know users' estimates of run times where the log has them, and otherwise "
        "the run times.",
        *(f"{note[0].upper()}{note[1:]}." for note in study.notes),
    ]
    dropped = [f"{count:,} jobs {escape(why)}." for why, count in study.log.dropped.items()]
    return (
        "<ul>" + "".join(f"<li>{item}</li>" for item in [*map(escape, items), *dropped]) + "</ul>"
    )


def _picture(figure: Figure, title: str) -> str:
    """Return a figure as SVG that stands in the page itself."""
    text = io.StringIO()
    with rc_context({"svg.hashsalt": title, "svg.fonttype": "path"}):  # ids differ between figures
        figure.savefig(text, format="svg", metadata=dict.fromkeys(_METADATA))
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    return f'<figure role="img" aria-label="{escape(title)}">{svg}</figure>'
