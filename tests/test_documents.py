"""The documents: their shell examples print what they show, and nothing public is left out.

Their Python examples are doctests, which pytest collects by itself.
"""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.paths import ROOT

import hesrpt

DOCUMENTS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
EXAMPLES = [
    (document, block)
    for document in DOCUMENTS
    for block in re.findall(r"```console\n(.*?)```", document.read_text(), re.DOTALL)
]


@pytest.mark.parametrize(
    ("document", "block"), EXAMPLES, ids=[f"{d.name}-{b.split(chr(10))[0]}" for d, b in EXAMPLES]
)
def test_shell_examples_print_what_they_show(document: Path, block: str) -> None:
    command, _, shown = block.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "hesrpt"
    done = subprocess.run(
        [sys.executable, "-m", "hesrpt", *arguments],
        cwd=ROOT, capture_output=True, text=True, check=True,
    )  # fmt: skip
    printed = [line.split() for line in done.stdout.splitlines()]
    for line, expected in enumerate(shown.splitlines()):
        if expected == "…":
            return
        assert printed[line] == expected.split()
    assert len(printed) == len(shown.splitlines())


def test_there_are_shell_examples() -> None:
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize(("p", "equi", "srpt"), [(0.9, 1.51, 1.37), (0.5, 1.06, 9.9)])
def test_the_figures_of_the_readme(p: float, equi: float, srpt: float) -> None:
    ratios = []
    for seed in range(10):
        x = -np.sort(-(np.random.default_rng(seed).pareto(1.5, 500) + 1))
        k = np.arange(1, 501)
        best = hesrpt.plan(hesrpt.Workload(x, hesrpt.PowerLaw(p)), servers=1).total_flow_time
        ratios.append([x @ (k ** (1 + p) - (k - 1) ** (1 + p)) / best, x @ k / best])
    assert np.median(ratios, axis=0) == pytest.approx([equi, srpt], rel=0.01)


def test_every_public_name_is_in_the_api_page() -> None:
    page = (ROOT / "docs" / "api.md").read_text()
    for name in hesrpt.__all__:
        assert f"`{name}" in page, name


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)\)", document.read_text()):
        if not target.startswith("http"):
            assert (document.parent / target).exists(), target


def test_the_readme_counts_the_claims_as_they_were_judged() -> None:
    claims = json.loads((ROOT / "docs" / "paper" / "claims.json").read_text())["claims"]
    count = Counter(claim["verdict"] for claim in claims)
    assert (
        f"{len(claims)} claims, of which {count['holds']} hold, {count['holds roughly']} hold "
        f"roughly and {count['differs']} differ."
    ) in " ".join((ROOT / "README.md").read_text().split())
