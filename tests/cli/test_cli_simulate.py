"""hesrpt simulate and hesrpt compare."""

from __future__ import annotations

import json
from math import ceil
from pathlib import Path

from support.shell import call

from hesrpt import PowerLaw, Workload, compare, simulate


def test_simulate_prints_metrics(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("size,arrival\n4,0\n1,1\n")
    options = "--servers 4 --p 0.5 --policy equi"
    done = call("simulate", "jobs.csv", *options.split(), cwd=tmp_path)
    assert "equi on 4 servers, 2 jobs, 4 events" in done.stdout
    assert "1.4571" in done.stdout  # (2.2071 + 0.7071) / 2


def test_simulate_writes_json_and_csv(tmp_path: Path) -> None:
    options = "--poisson 200 --rate 5 --servers 8 --p 0.5 --seed 3 --json --csv jobs.csv"
    done = call("simulate", *options.split(), cwd=tmp_path)
    workload = Workload.poisson(5, 200, seed=3, speedup=PowerLaw(0.5))
    printed = json.loads(done.stdout)
    assert printed["metrics"] == simulate(workload, 8, "hesrpt").metrics()
    assert len(printed["jobs"]) == 200
    assert len((tmp_path / "jobs.csv").read_text().splitlines()) == 201


def test_compare_prints_a_row_for_each_policy(tmp_path: Path) -> None:
    options = "--pareto 50 --servers 100 --p 0.5 --replications 3 --plot out.png --csv out.csv"
    policies = "hesrpt, equi,srpt"
    done = call("compare", *options.split(), "--policies", policies, cwd=tmp_path)
    assert [line.split()[0] for line in done.stdout.splitlines()[3:6]] == ["hesrpt", "equi", "srpt"]
    assert "±" in done.stdout
    replications = [Workload.pareto(50, seed=seed, speedup=PowerLaw(0.5)) for seed in range(3)]
    compared = compare(replications, 100)
    for other in ("equi", "srpt"):
        assert f"\n{compared.difference('hesrpt', other)}\n" in done.stdout
    assert all(line == line.rstrip() for line in done.stdout.splitlines())
    assert (tmp_path / "out.png").stat().st_size > 10_000
    assert (tmp_path / "out.csv").read_text().startswith("policy,replication,metric,value")
    assert done.stdout.endswith("wrote out.png\nwrote out.csv\n")


def test_compare_prints_json(tmp_path: Path) -> None:
    options = "--pareto 50 --servers 9 --p 0.5 --json"
    printed = json.loads(call("compare", *options.split(), cwd=tmp_path).stdout)
    assert printed["best"] == "hesrpt"
    assert [row["policy"] for row in printed["policies"]] == ["hesrpt", "equi", "srpt"]
    (to_equi, to_srpt) = printed["differences"]
    assert (to_equi["policy"], to_equi["other"], to_srpt["other"]) == ("hesrpt", "equi", "srpt")
    assert to_equi["percentage"] < 0
    assert to_equi["half_width"] is to_equi["clear"] is None  # a single replication
    options += " --replications 3"
    printed = json.loads(call("compare", *options.split(), cwd=tmp_path).stdout)
    assert printed["differences"][1]["clear"] is True


def test_compare_shows_the_distance_to_the_bound(tmp_path: Path) -> None:
    options = "--poisson 10 --rate 5 --servers 4 --p 0.5 --bound"
    printed = json.loads(call("compare", *options.split(), "--json", cwd=tmp_path).stdout)
    best = min(row["mean_flow_time"] for row in printed["policies"])
    assert 0.9 * best < printed["lower_bound"] < best
    above = best / printed["lower_bound"] - 1
    done = call("compare", *options.split(), cwd=tmp_path)
    assert "above bound" in done.stdout.splitlines()[2]
    assert (
        f"{printed['best']} is at most {ceil(1000 * above) / 10:.1f}% above the best possible"
        in done.stdout
    )


def test_overload_warning_is_one_line_on_standard_error(tmp_path: Path) -> None:
    options = "--poisson 2000 --rate 50 --servers 4 --p 0.5 --policy srpt"
    done = call("simulate", *options.split(), cwd=tmp_path)
    assert done.stderr.startswith("hesrpt: warning: jobs arrive faster than")
    assert len(done.stderr.splitlines()) == 1


def test_rigid_policies_read_the_column_requested(tmp_path: Path) -> None:
    (tmp_path / "jobs.csv").write_text("size,requested\n9,2\n4,4\n1,2\n")
    options = "jobs.csv --servers 4 --p 0.5 --json"
    printed = json.loads(
        call("simulate", *options.split(), "--policy", "easy", cwd=tmp_path).stdout
    )
    workload = Workload([9, 4, 1], PowerLaw(0.5), requested=[2, 4, 2])
    assert printed["metrics"] == simulate(workload, 4, "easy").metrics()
    printed = json.loads(
        call("compare", *options.split(), "--policies", "fcfs,hesrpt", cwd=tmp_path).stdout
    )
    assert [row["policy"] for row in printed["policies"]] == ["fcfs", "hesrpt"]
