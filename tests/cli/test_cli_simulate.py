"""The commands simulate and compare, as a user meets them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.shell import run

from hesrpt import PowerLaw, Workload, simulate


def test_simulate_prints_what_came_of_a_policy(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("size,arrival\n4,0\n1,1\n")
    done = run(
        "simulate", "jobs.csv", "--servers", "4", "--p", "0.5", "--policy", "equi", cwd=tmp_path
    )
    assert "equi on 4 servers, 2 jobs, 4 events" in done.stdout
    assert "1.4571" in done.stdout  # (2.2071 + 0.7071) / 2


def test_simulate_for_programs(tmp_path: Path) -> None:
    table = tmp_path / "jobs.csv"
    done = run(
        "simulate", "--poisson", "200", "--rate", "5", "--servers", "8", "--p", "0.5",
        "--seed", "3", "--json", "--csv", "jobs.csv", cwd=tmp_path,
    )  # fmt: skip
    printed = json.loads(done.stdout)
    same = Workload.poisson(5, 200, seed=3, speedup=PowerLaw(0.5))
    assert printed["metrics"] == simulate(same, 8, "hesrpt").metrics()
    assert len(printed["jobs"]) == len(table.read_text().splitlines()) - 1 == 200


def test_compare_prints_a_row_for_each_policy(tmp_path: Path) -> None:
    figure, table = tmp_path / "compared.png", tmp_path / "compared.csv"
    done = run(
        "compare", "--pareto", "50", "--servers", "100", "--p", "0.5", "--replications", "3",
        "--policies", "hesrpt, equi,srpt", "--plot", figure.name, "--csv", table.name,
        cwd=tmp_path,
    )  # fmt: skip
    assert [line.split()[0] for line in done.stdout.splitlines()[3:6]] == ["hesrpt", "equi", "srpt"]
    assert "±" in done.stdout
    assert figure.stat().st_size > 10_000
    assert table.read_text().startswith("policy,replication,metric,value")
    printed = json.loads(
        run(
            "compare", "--pareto", "50", "--servers", "9", "--p", "0.5", "--json", cwd=tmp_path
        ).stdout
    )
    assert printed["best"] == "hesrpt"
    assert [row["policy"] for row in printed["policies"]] == ["hesrpt", "equi", "srpt"]


def test_overload_is_one_line_on_standard_error(tmp_path: Path) -> None:
    done = run(
        "simulate", "--poisson", "2000", "--rate", "50", "--servers", "4", "--p", "0.5",
        "--policy", "srpt", cwd=tmp_path,
    )  # fmt: skip
    assert done.stderr.startswith("hesrpt: warning: under policy srpt jobs arrive faster")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["simulate", "--servers", "4", "--p", "0.5"], "no jobs are given: one of JOBS.CSV"),
        (["simulate", "--servers", "4", "--pareto", "9"], "no speedup is given"),
        (["simulate", "--servers", "4", "--pareto", "0", "--p", ".5"], "jobs must be a whole"),
        (["simulate", "--servers", "4", "--poisson", "9", "--p", ".5"], "--rate go together"),
        (
            ["simulate", "--servers", "4", "--pareto", "9", "--p", ".5", "--policy", "best"],
            "no policy named 'best'",
        ),
        (
            ["compare", "--servers", "4", "--pareto", "9", "--p", ".5", "--policies", ","],
            "policies must be a list",
        ),
        (
            ["compare", "--servers", "4", "--pareto", "9", "--p", ".5", "--csv", "no/such/file"],
            "cannot be written",
        ),
        (
            ["compare", "--servers", "1.5", "--pareto", "9", "--p", ".5", "--whole"],
            "whole number for whole servers",
        ),
        (
            ["compare", "--servers", "4", "--pareto", "9", "--amdahl", ".5"],
            "policy hesrpt needs one power law",
        ),
        (
            ["compare", "--servers", "4", "--pareto", "9", "--p", ".5", "--replications", "0"],
            "--replications must be at least 1",
        ),
    ],
)
def test_mistakes_in_simulations_cost_one_line(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout == ""
