"""hesrpt plan, and how the program prints, plots, and ends."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.shell import call, run

import hesrpt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text("name,size\nlarge,9\nmedium,4\nsmall,1\n")
    (tmp_path / "curve.csv").write_text("servers,speedup\n1,1\n2,1.8\n4,3\n8,2.5\n")
    return tmp_path


def test_plan_prints_allocation_completion_times_and_proof(folder: Path) -> None:
    done = run("plan", "jobs.csv", "--servers", "10", "--p", "0.5", "--verify", cwd=folder)
    assert done.returncode == 0, done.stderr
    small, medium, large = (
        next(line for line in done.stdout.splitlines() if line.startswith(name))
        for name in ("small", "medium", "large")
    )
    assert small.split() == ["small", "1", "0.424264", "5.556"]
    assert medium.split() == ["medium", "4", "1.60201", "3.333", "7.5"]
    assert large.split() == ["large", "9", "3.71777", "1.111", "2.5", "10"]
    assert "mean flow time  1.91468" in done.stdout
    assert "proven optimal: no schedule has a total flow time below 5.744046905" in done.stdout
    assert "verified independently of the solver" in done.stdout


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--p", "0.5"], {"speedup": hesrpt.PowerLaw(0.5)}),
        (["--p", "0.5", "--whole"], {"speedup": hesrpt.PowerLaw(0.5), "whole": True}),
        (["--amdahl", "0.9"], {"speedup": hesrpt.Amdahl(0.9)}),
        (["--p", "0.5", "--max-servers", "3"], {"speedup": hesrpt.PowerLaw(0.5).limited(3)}),
        (["--p", "0.5", "--time-shared"], {"speedup": hesrpt.PowerLaw(0.5).time_shared()}),
        (["--measured", "curve.csv"], {"speedup": hesrpt.Measured([1, 2, 4], [1, 1.8, 3])}),
        (
            ["--p", "0.5", "--objective", "makespan"],
            {"speedup": hesrpt.PowerLaw(0.5), "objective": "makespan"},
        ),
        (
            ["--p", "0.5", "--objective", "slowdown"],
            {"speedup": hesrpt.PowerLaw(0.5), "objective": "slowdown"},
        ),
    ],
)
def test_json_agrees_with_the_library(
    folder: Path, options: list[str], expected: dict[str, object]
) -> None:
    done = call("plan", "jobs.csv", "--servers", "10", "--json", *options, cwd=folder)
    assert done.returncode == 0, done.stderr
    printed = json.loads(done.stdout)
    workload = hesrpt.Workload([9, 4, 1], expected.pop("speedup"))  # type: ignore[arg-type]
    best = hesrpt.plan(workload, 10, **expected)  # type: ignore[arg-type]
    assert printed["mean_flow_time"] == best.mean_flow_time
    assert [job["completion_time"] for job in printed["jobs"]] == best.completion_times.tolist()
    assert [job["name"] for job in printed["jobs"]] == ["large", "medium", "small"]
    assert printed["phases"][0]["servers"] == best.servers_at(0).tolist()
    assert printed["certificate"]["proven"] is True
    assert printed["certificate"]["gap"] == best.certificate.gap


def test_plan_of_jobs_that_differ_in_weight_limit_and_power(folder: Path) -> None:
    (folder / "own.csv").write_text("size,p,max_servers,weight\n9,0.5,4,1\n4,0.9,100,2\n")
    done = call(
        "plan", "own.csv", "--servers", "10", "--objective", "weighted", "--json", cwd=folder
    )
    workload = hesrpt.Workload(
        [9, 4],
        [hesrpt.PowerLaw(0.5).limited(4), hesrpt.PowerLaw(0.9).limited(100)],
        weights=[1, 2],
    )
    best = hesrpt.plan(workload, 10, objective="weighted")
    printed = json.loads(done.stdout)
    assert printed["weighted_flow_time"] == best.weighted_flow_time
    assert printed["certificate"]["proven"] is False
    assert printed["certificate"]["certified_gap"] == best.certificate.certified_gap
    text = call("plan", "own.csv", "--servers", "10", cwd=folder).stdout
    assert "not proven optimal: jobs have different speedups" in text
    assert "above the optimum, whatever the order" in " ".join(text.split())


def test_plan_reads_sizes_from_standard_input(folder: Path) -> None:
    done = call("plan", "-", "--servers", "10", "--p", "0.5", cwd=folder, stdin="9\n4\n\n1\n")
    assert "mean flow time  1.91468" in done.stdout


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_plot_records_the_command_line(folder: Path, ending: str) -> None:
    path = folder / "plots" / f"plan.{ending}"
    path.parent.mkdir()
    done = call("plan", "jobs.csv", "--servers", "9", "--p", ".5", "--plot", str(path), cwd=folder)
    assert done.returncode == 0, done.stderr
    picture = path.read_bytes()
    assert len(picture) > 5000
    assert f"hesrpt {hesrpt.__version__}".encode() in picture
    assert b"plan jobs.csv --servers 9" in picture
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]


def test_job_names_are_printed_literally(folder: Path) -> None:
    (folder / "odd.csv").write_text("name,size\na[/red],3\n[bold],2\n$x_{$,1\n:smile:,4\n")
    done = call("plan", "odd.csv", "--servers", "4", "--p", ".5", "--plot", "x.PNG", cwd=folder)
    assert done.returncode == 0, done.stderr
    for name in ("a[/red]", "[bold]", "$x_{$", ":smile:"):
        assert f"\n{name} " in done.stdout
    assert (folder / "x.PNG").exists()
    assert done.stderr == ""


def test_failed_verification_is_reported_as_a_bug(folder: Path) -> None:
    script = (
        "import hesrpt.optimal.certificate as c, hesrpt.cli.main, sys\n"
        "def fail(plan): raise c.CertificateError('no')\n"
        "c.verify = fail\n"
        "sys.argv = ['hesrpt', 'plan', 'jobs.csv', '--servers', '4', '--p', '.5', '--verify']\n"
        "hesrpt.cli.main.main()"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    assert done.stderr == "hesrpt: the plan failed verification; this is a bug in hesrpt: no\n"


def test_help_is_printed_without_arguments(folder: Path) -> None:
    done = run(cwd=folder)
    assert "Usage" in done.stdout
    assert done.stderr == ""


def test_full_disk_is_reported(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hesrpt", "plan", "jobs.csv", "--servers", "4", "--p", ".5"],
            cwd=folder,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert done.returncode == 2
    assert done.stderr == "hesrpt: cannot write the output: No space left on device\n"


def test_closed_pipe_is_not_an_error(folder: Path) -> None:
    (folder / "many.csv").write_text("\n".join(str(1 + i) for i in range(20_000)))
    command = f"{sys.executable} -m hesrpt plan many.csv --servers 4 --p .5 --json | head -n 1"
    done = subprocess.run(
        command, cwd=folder, shell=True, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


def test_help_and_version(folder: Path) -> None:
    assert call("--version", cwd=folder).stdout == f"hesrpt {hesrpt.__version__}\n"
    for arguments in (["--help"], ["-h"], ["plan", "--help"]):
        done = call(*arguments, cwd=folder)
        assert done.returncode == 0
        assert "plan" in done.stdout.lower()


def test_only_a_part_of_a_large_plan_is_printed(folder: Path) -> None:
    (folder / "many.csv").write_text("\n".join(str(1 + i) for i in range(3000)))
    done = call("plan", "many.csv", "--servers", "64", "--p", "0.7", cwd=folder)
    assert "… and 2,980 jobs that end later" in done.stdout
    printed = json.loads(
        call("plan", "many.csv", "--servers", "64", "--p", "0.7", "--json", cwd=folder).stdout
    )
    assert len(printed["jobs"]) == 3000
    assert printed["phases"] is None  # they would be nine million numbers
