"""Results say how they were computed, and figures are the same whenever they are drawn."""

from __future__ import annotations

import gzip
import json
from hashlib import sha256
from pathlib import Path

import pytest
from support.shell import call

from hesrpt.whatif.study_jobs import DEFAULT_POLICIES

ROOT = Path(__file__).parents[2]
TRACE = ROOT / "examples" / "cluster.swf"


def test_result_says_how_it_was_computed(tmp_path: Path) -> None:
    jobs = tmp_path / "my jobs.csv"
    jobs.write_text("size\n9\n4\n1\n")
    words = (
        "compare",
        str(jobs),
        "--servers",
        "4",
        "--p",
        "0.5",
        "--whole",
        "--seed",
        "3",
        "--json",
    )
    found = json.loads(call(*words, cwd=tmp_path).stdout)["provenance"]
    assert found["command"] == (
        f"hesrpt compare '{jobs}' --servers 4 --p 0.5 --whole --seed 3 --json"
    )
    assert found["options"]["policies"] == "hesrpt,equi,srpt"  # the default
    assert found["seed"] == 3
    assert {"hesrpt", "python", "numpy"} <= set(found["versions"])
    assert found["sha256"] == {str(jobs): sha256(jobs.read_bytes()).hexdigest()}


def test_study_has_the_digest_of_what_it_has_read(tmp_path: Path) -> None:
    content = TRACE.read_bytes()
    packed = tmp_path / "trace.swf.gz"
    packed.write_bytes(gzip.compress(content))
    report = tmp_path / "report.html"
    options = ("--p", "0.7", "--window", "0d..1d", "--report", str(report))
    found = json.loads(call("whatif", str(packed), *options, "--json", cwd=tmp_path).stdout)[
        "provenance"
    ]
    digest = sha256(content).hexdigest()
    assert found["sha256"] == {str(packed): digest}
    assert found["options"]["policies"] == list(DEFAULT_POLICIES)
    assert (found["options"]["malleable"], found["options"]["window"]) == ("all jobs", "0d..1d")
    page = report.read_text()
    for text in (found["command"], digest, found["versions"]["numpy"], "min-runtime"):
        assert text in page


@pytest.mark.parametrize("kind", ["svg", "pdf", "png"])
def test_figures_are_reproducible(tmp_path: Path, kind: str) -> None:
    jobs, figure = str(ROOT / "examples" / "three_jobs.csv"), tmp_path / f"plan.{kind}"
    drawn = set()
    for _ in range(2):
        call("plan", jobs, "--servers", "10", "--p", "0.5", "--plot", str(figure), cwd=tmp_path)
        drawn.add(figure.read_bytes())
        figure.unlink()
    assert len(drawn) == 1
