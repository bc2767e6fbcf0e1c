"""The reproduction as files: claims as JSON and Markdown, and a page with every figure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hesrpt import files
from hesrpt._version import __version__
from hesrpt.errors import InputError
from hesrpt.paper.exhibits import SHAPE, Exhibit, Row, Settings, versions
from hesrpt.paper.judging import RULES, Claim, Verdict, summary

_INTRODUCTION = """\
# The paper, reproduced

N servers are shared by M parallel jobs. Each job has a known size, and on k servers it runs k^p
times as fast as on one, with p between 0 and 1: the more servers, the less each one adds. How many
servers should each job hold at every moment, so that jobs take as little time as possible on
average, from the start to their end (their *flow time*)?

*heSRPT: Optimal Parallel Scheduling of Jobs With Known Sizes*, by B. Berg, R. Vesilo and
M. Harchol-Balter, answers this: its rule, **heSRPT**, gives more to shorter jobs, but something to
all of them. It is compared with **SRPT** (all servers to the shortest job), **EQUI** (equal
shares), and two heuristics: **HELL** (the best ratio of efficiency to remaining time first) and
**KNEE** (each job as many servers as still save a certain time α, the best α being searched).
Its twin **heLRPT** minimises the time at which the last job ends, the *makespan*.

Below are the figures of the paper and some beyond it, then every statement of the paper that can be
checked, with what we computed and a verdict. All of it, this page included, is made by
`hesrpt paper --out DIR`.
"""

_NOT_CHECKED = """\
What could not be checked: the fits of Figure 2 (their points are not published); the sizes of the
three jobs of Figure 3 (not given, ours are others); that other policies of the literature reduce to
EQUI here; what cited works say.
"""

#: Figures beyond the paper's begin with this.
_BEYOND = "beyond"
# Longer tables are only linked to.
_LONGEST_TABLE = 40


def prepared(out: str | Path) -> Path:
    """Return a directory that can be written to, made if need be: before the work, not after it."""
    directory = Path(out)
    if directory.exists() and not directory.is_dir():
        raise InputError(f"{directory}: is no directory")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        probe = directory / ".hesrpt"
        probe.touch()
        probe.unlink()
    except OSError as error:
        raise InputError(f"{directory}: cannot be written to: {error.strerror or error}") from None
    return directory


def as_json(
    settings: Settings, exhibits: Sequence[Exhibit], claims: Sequence[Claim]
) -> dict[str, Any]:
    """Return everything but the pictures as JSON values."""
    return {
        "hesrpt": __version__,
        "versions": versions(),
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
                "name": one.name,
                "title": one.title,
                "sentence": one.sentence,
                "parameters": one.parameters,
                "table": one.table,
            }
            for one in exhibits
        ],
    }


def write(
    directory: Path, settings: Settings, exhibits: Sequence[Exhibit], claims: Sequence[Claim]
) -> None:
    """Write the data, ``claims.json``, ``claims.md`` and ``index.md``."""
    for exhibit in exhibits:
        exhibit.save_data(directory)
        for ending in ("png", "svg"):
            # Pages of a run that had more of them.
            for old in directory.glob(f"{exhibit.name}_[0-9]*.{ending}"):
                if old.stem not in exhibit.pages:
                    old.unlink()
    everything = as_json(settings, exhibits, claims)
    table = claims_table(claims)
    made = (
        f"Made by {versions()}. Where nothing else is said, M = {settings.jobs}, "
        f"N = {settings.servers:,}, sizes are drawn from a Pareto distribution of shape {SHAPE:g}, "
        f"and there are {settings.sets} sets of jobs, with seeds from {settings.seed} on.\n"
    )
    ours = [one for one in exhibits if not one.name.startswith(_BEYOND)]
    further = [one for one in exhibits if one.name.startswith(_BEYOND)]
    page = [
        _INTRODUCTION,
        made,
        "## Figures of the paper\n",
        *map(_figure, ours),
        "## Beyond the paper\n",
        *map(_figure, further),
        "## Claims\n",
        table,
    ]
    files.write_text(directory / "claims.json", json.dumps(everything, indent=2) + "\n")
    files.write_text(directory / "claims.md", f"# Claims of the paper\n\n{made}\n{table}")
    files.write_text(directory / "index.md", "\n".join(page))


def _figure(exhibit: Exhibit) -> str:
    shown = "\n".join(f"![{exhibit.title}]({page}.png)" for page in exhibit.pages)
    parts = [f"### {exhibit.title}", exhibit.sentence, shown]
    if exhibit.note:
        parts.append(exhibit.note)
    if 0 < len(exhibit.table) <= _LONGEST_TABLE:
        parts.append(_table(exhibit.table))
    data = f"[Data]({exhibit.name}.csv)"
    parts.append(f"{data}, [table]({exhibit.name}_table.csv)" if exhibit.table else data)
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Row]) -> str:
    """Return rows as a Markdown table."""
    lines = [" | ".join(rows[0]), " | ".join("---" for _ in rows[0])]
    lines += [" | ".join(format_cell(value) for value in row.values()) for row in rows]
    return "\n".join(f"| {line} |" for line in lines)


def format_cell(value: object) -> str:
    """Return a value as it stands in a cell of a table."""
    text = "" if value is None else f"{value:.3f}" if isinstance(value, float) else str(value)
    return text.replace("|", r"\|")


def claims_table(claims: Sequence[Claim]) -> str:
    """Return the claims as a Markdown table, with the rules below it."""
    lines = [
        f"Of {summary(claims)}.\n",
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
    lines += ["", "The rules by which a verdict follows from the numbers:", ""]
    lines += [f"- *{name}*: {rule}." for name, rule in RULES.items()]
    return "\n".join([*lines, "", _NOT_CHECKED])
