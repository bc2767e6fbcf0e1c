"""The files of a reproduction: data as CSV, claims as JSON and Markdown, a page with everything."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hesrpt import files
from hesrpt._version import __version__
from hesrpt.errors import InputError
from hesrpt.paper.claims.verdicts import RULES, Claim, Verdict, count_verdicts
from hesrpt.paper.exhibits import SHAPE, Exhibit, Row, Settings, get_versions

_INTRODUCTION = """\
# The paper, reproduced

N servers are shared by M parallel jobs. The size of each job is known. On k servers a job runs k^p
times as fast as on one, with p between 0 and 1: each additional server adds less. How many servers
should each job hold at any time, so that the mean *flow time* (the time from the start until a job
ends) is as low as possible?

The paper *heSRPT: Optimal Parallel Scheduling of Jobs With Known Sizes* by B. Berg, R. Vesilo and
M. Harchol-Balter answers this question. Its policy **heSRPT** gives every job some servers, and
shorter jobs more. The paper compares it with **SRPT** (the shortest job gets all servers), **EQUI**
(all jobs get equal shares) and two heuristics: **HELL** (the job with the best ratio of efficiency
to remaining time comes first) and **KNEE** (a job gets one more server as long as this saves it at
least a time α; we search for the best α). A second policy, **heLRPT**, minimises the
*makespan*, the time at which the last job ends.

This page shows the figures of the paper, some figures beyond it, and every statement of the paper
that can be checked, with our numbers and a verdict. The command `hesrpt paper --out DIR` computes
all of it and writes this page.
"""

_NOT_CHECKED = """\
Not checked: the fits of Figure 2, because their points are not published; the sizes in Figure 3,
because the paper does not give them; and statements about cited papers.
"""

# The names of figures that go beyond the paper begin with this.
_BEYOND = "beyond"
# Headings of columns whose names are not plain words.
_HEADINGS = {
    "r_squared_power_law": "R² of k^p",
    "parallel_fraction": "f of Amdahl's law",
    "r_squared_amdahl": "R² of Amdahl's law",
    "better": "better fit",
}
# Longer tables are not shown on the page, only linked to.
_MAX_TABLE_ROWS = 40


def prepare_directory(out: str | Path) -> Path:
    """Create a directory if needed, and raise an error if it cannot be written to."""
    directory = Path(out)
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory}: is not a directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".hesrpt"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"{directory}: cannot be written to: {error.strerror or error}") from None
    return directory


def build_json(
    settings: Settings, exhibits: Sequence[Exhibit], claims: Sequence[Claim]
) -> dict[str, Any]:
    """Return everything but the figures as JSON values."""
    return {
        "hesrpt": __version__,
        "versions": get_versions(),
        "settings": {
            "seed": settings.seed,
            "jobs": settings.jobs,
            "servers": settings.servers,
            "sets": settings.sets,
            "curves": len(settings.curves),
            "stream": settings.stream,
        },
        "rules": RULES,
        "claims": [claim.as_json() for claim in claims],
        "figures": [
            {
                "name": exhibit.name,
                "title": exhibit.title,
                "sentence": exhibit.sentence,
                "parameters": exhibit.parameters,
                "table": exhibit.table,
            }
            for exhibit in exhibits
        ],
    }


def write_pages(
    directory: Path, settings: Settings, exhibits: Sequence[Exhibit], claims: Sequence[Claim]
) -> None:
    """Write the data, ``claims.json``, ``claims.md`` and ``index.md``."""
    for exhibit in exhibits:
        exhibit.save_data(directory)
        _remove_old_pages(directory, exhibit)
    data = build_json(settings, exhibits, claims)
    provenance = (
        f"Computed by {get_versions()}. Unless stated otherwise, there are {settings.sets} sets of "
        f"M = {settings.jobs} jobs on N = {settings.servers:,} servers; sizes follow a Pareto "
        f"distribution of shape {SHAPE:g}, and the seeds of the sets start at {settings.seed}.\n"
    )
    claims_table = _format_claims(claims)
    page = [
        _INTRODUCTION,
        provenance,
        "## Figures of the paper\n",
        *(_format_exhibit(one) for one in exhibits if not one.name.startswith(_BEYOND)),
        "## Beyond the paper\n",
        *(_format_exhibit(one) for one in exhibits if one.name.startswith(_BEYOND)),
        "## Claims\n",
        claims_table,
    ]
    files.write_text(directory / "claims.json", json.dumps(data, indent=2) + "\n")
    files.write_text(
        directory / "claims.md", f"# Claims of the paper\n\n{provenance}\n{claims_table}"
    )
    files.write_text(directory / "index.md", "\n".join(page))


def format_cell(value: object) -> str:
    """Return a value as the text of a cell in a table."""
    text = "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
    return text.replace("|", r"\|")


def _remove_old_pages(directory: Path, exhibit: Exhibit) -> None:
    """Remove the surplus pages of an earlier run that had more of them."""
    for suffix in ("png", "svg", "pdf"):
        for old in directory.glob(f"{exhibit.name}_[0-9]*.{suffix}"):
            if old.stem not in exhibit.pages:
                old.unlink()


def _format_exhibit(exhibit: Exhibit) -> str:
    images = "\n".join(f"![{exhibit.title}]({page}.png)" for page in exhibit.pages)
    parts = [f"### {exhibit.title}", exhibit.sentence, images]
    if exhibit.note:
        parts.append(exhibit.note)
    if 0 < len(exhibit.table) <= _MAX_TABLE_ROWS:
        parts.append(_format_table(exhibit.table))
    data = f"[Data]({exhibit.name}.csv)"
    parts.append(f"{data}, [table]({exhibit.name}_table.csv)" if exhibit.table else data)
    return "\n\n".join(parts) + "\n"


def _format_table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table, without empty columns."""
    columns = [name for name in rows[0] if any(row[name] not in (None, "") for row in rows)]
    lines = [" | ".join(_HEADINGS.get(name, name) for name in columns)]
    lines.append(" | ".join("---" for _ in columns))
    lines += [" | ".join(format_cell(row[name]) for name in columns) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def _format_claims(claims: Sequence[Claim]) -> str:
    """Return the claims as a Markdown table, followed by the rules."""
    lines = [
        f"{count_verdicts(claims)}.\n",
        "| where | the paper says | we computed | verdict | rule |",
        "|---|---|---|---|---|",
    ]
    for claim in claims:
        computed = claim.computed
        if claim.reason:
            computed += f". *Likeliest reason:* {claim.reason}"
        verdict = f"**{claim.verdict}**" if claim.verdict is not Verdict.HOLDS else claim.verdict
        cells = (claim.where, claim.says, computed, verdict, claim.rule)
        lines.append("| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |")
    lines += ["", "A verdict follows from the numbers by one of these rules:", ""]
    lines += [f"- *{name}*: {rule}; otherwise it differs." for name, rule in RULES.items()]
    return "\n".join([*lines, "", _NOT_CHECKED])
