"""Generates the list of policies from their registry."""

from __future__ import annotations

import inspect

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from hesrpt.policies import POLICIES, PolicyEntry
from hesrpt.policies.rigid import RigidDiscipline

INTRODUCTION = """\
# Policies

Each of these names works in `simulate(…, policy=…)`, `compare(…, policies=[…])` and
`hesrpt whatif`. All except the rigid disciplines ({rigid}) also work in `Pool(policy=…)` and
`hesrpt run`. A policy that does not fit the jobs is refused, with the reason. All figures
use the colour shown.

[Write your own policy](../how-to/write-a-policy.md) shows how to pass a function instead of a name.
[Contributing](../contributing.md#add-a-policy) shows how to add a name to the registry from which
this page is generated.

| name | in figures | decision | in Python |
|---|---|---|---|
"""


def is_rigid(entry: PolicyEntry) -> bool:
    """Return whether the policy gives each job the servers that it asks for."""
    return isinstance(entry.create(), RigidDiscipline)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the page."""
    rigid = [name for name, entry in POLICIES.items() if is_rigid(entry)]
    rows = []
    for name, entry in POLICIES.items():
        policy = entry.create()
        summary = " ".join((inspect.getdoc(policy) or "").partition("\n\n")[0].split())
        swatch = f'<span style="color: {entry.colour}">⬤</span>'
        cells = (f"`{name}`", f"{swatch} {entry.title}", summary, f"`{policy!r}`")
        rows.append(f"| {' | '.join(cells)} |")
    introduction = INTRODUCTION.format(rigid=", ".join(f"`{name}`" for name in rigid))
    content = introduction + "\n".join(rows) + "\n"
    files.append(File.generated(config, "reference/policies.md", content=content))
