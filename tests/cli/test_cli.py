"""The command line as a user meets it: a process with arguments, output and an exit code."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from support.shell import run

import hesrpt


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text("name,size\nlarge,9\nmedium,4\nsmall,1\n")
    (tmp_path / "curve.csv").write_text("servers,speedup\n1,1\n2,1.8\n4,3\n8,2.5\n")
    return tmp_path


def test_plan_prints_allocation_ends_and_proof(folder: Path) -> None:
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
def test_json_is_the_plan_of_the_library(
    folder: Path, options: list[str], expected: dict[str, object]
) -> None:
    done = run("plan", "jobs.csv", "--servers", "10", "--json", *options, cwd=folder)
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


def test_jobs_may_have_weights_limits_and_powers_of_their_own(folder: Path) -> None:
    (folder / "own.csv").write_text("size,p,max_servers,weight\n9,0.5,4,1\n4,0.9,100,2\n")
    done = run(
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
    text = run("plan", "own.csv", "--servers", "10", cwd=folder).stdout
    assert "not proven optimal: jobs have different speedups" in text


def test_sizes_may_come_from_standard_input_without_a_header(folder: Path) -> None:
    done = run("plan", "-", "--servers", "10", "--p", "0.5", cwd=folder, stdin="9\n4\n\n1\n")
    assert "mean flow time  1.91468" in done.stdout


@pytest.mark.parametrize("ending", ["png", "svg", "pdf"])
def test_plots_are_saved_with_their_provenance(folder: Path, ending: str) -> None:
    path = folder / "new" / f"plan.{ending}"
    done = run("plan", "jobs.csv", "--servers", "9", "--p", ".5", "--plot", str(path), cwd=folder)
    assert done.returncode == 0, done.stderr
    picture = path.read_bytes()
    assert len(picture) > 5000
    assert f"hesrpt {hesrpt.__version__}".encode() in picture
    assert b"plan jobs.csv --servers 9" in picture
    assert sorted(p.name for p in path.parent.iterdir()) == [path.name]


BAD_FILES = {
    "size\n1\n-2\n": "jobs.csv:3: size must be a number greater than 0, got '-2'",
    "size\n1\nnan\n": "jobs.csv:3: size must be a number greater than 0, got 'nan'",
    "size\n1\n\nmany\n": "jobs.csv:4: size must be a number greater than 0, got 'many'",
    "size,weight\n1,2\n1\n": "jobs.csv:3: 2 values expected (size, weight), got 1",
    "size,weight\n1,2\n1,2,3\n": "jobs.csv:3: 2 values expected (size, weight), got 3",
    "size,wieght\n1,2\n": "jobs.csv:1: unknown column 'wieght'; columns are: size, name, weight",
    "name,weight\na,2\n": "jobs.csv:1: no column 'size'",
    "size,size\n1,2\n": "jobs.csv:1: column 'size' appears more than once",
    "size,p\n1,0.7\n": "has a column 'p', so each job has its own speedup",
    "size,p\n1,1.5\n": "jobs.csv:2: p must lie in (0, 1), got '1.5'",
    "size,arrival\n1,0\n2,7\n": "job 1 arrives at 7, but a plan is for jobs that are all present",
    "": "jobs.csv: is empty",
    "size\n": "jobs.csv: has a header but no rows",
    "5\n0\n": "jobs.csv:2: size must be a number greater than 0, got '0'",
}


@pytest.mark.parametrize(("content", "message"), BAD_FILES.items())
def test_a_bad_line_is_named(folder: Path, content: str, message: str) -> None:
    (folder / "jobs.csv").write_text(content)
    assert_refused(run("plan", "jobs.csv", "--servers", "4", "--p", "0.5", cwd=folder), message)


def test_bytes_that_are_no_text_are_named(folder: Path) -> None:
    (folder / "jobs.csv").write_bytes(b"size\n1\n\xff\xfe\n")
    assert_refused(
        run("plan", "jobs.csv", "--servers", "4", "--p", ".5", cwd=folder), "is not UTF-8 text"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["nowhere.csv", "--servers", "4", "--p", "0.5"], "nowhere.csv: cannot be read: No such"),
        ([".", "--servers", "4", "--p", "0.5"], "cannot be read: Is a directory"),
        (["jobs.csv", "--servers", "4", "--p", "1.5"], "p must lie in (0, 1), got 1.5"),
        (["jobs.csv", "--servers", "0", "--p", "0.5"], "servers must be greater than 0, got 0"),
        (
            ["jobs.csv", "--servers", "few", "--p", "0.5"],
            "'--servers': must be a number, got 'few'",
        ),
        (["jobs.csv", "--p", "0.5"], "Missing option '--servers'"),
        (["jobs.csv", "--servers", "4"], "speedup is missing, and jobs.csv has no column 'p'"),
        (
            ["jobs.csv", "--servers", "4", "--max-servers", "2"],
            "modify --p, --amdahl or --measured",
        ),
        (["jobs.csv", "--servers", "4", "--p", ".5", "--amdahl", ".9"], "exclude each other"),
        (["jobs.csv", "--servers", "4.5", "--p", ".5", "--whole"], "must be a whole number"),
        (["jobs.csv", "--servers", "4", "--p", ".5", "--objective", "x"], "'x' is not one of"),
        (
            ["jobs.csv", "--servers", "4", "--p", ".5", "--objective", "weighted"],
            "needs a workload",
        ),
        (["jobs.csv", "--servers", "4", "--p", ".5", "--plot", "plan.docx"], "must end in .pdf"),
        (["jobs.csv", "--servers", "4", "--p", ".5", "--plot", "jobs.csv/x.png"], "cannot be writ"),
        (["jobs.csv", "--servers", "4", "--measured", "jobs.csv"], "unknown column 'name'"),
        (["jobs.csv", "--sevrers", "4"], "No such option"),
    ],
)
def test_bad_arguments_are_named(folder: Path, arguments: list[str], message: str) -> None:
    assert_refused(run("plan", *arguments, cwd=folder), message)


def test_names_are_shown_as_they_are(folder: Path) -> None:
    (folder / "odd.csv").write_text("name,size\na[/red],3\n[bold],2\n$x_{$,1\n:smile:,4\n")
    done = run("plan", "odd.csv", "--servers", "4", "--p", ".5", "--plot", "x.PNG", cwd=folder)
    assert done.returncode == 0, done.stderr
    for name in ("a[/red]", "[bold]", "$x_{$", ":smile:"):
        assert f"\n{name} " in done.stdout
    assert (folder / "x.PNG").exists()
    assert done.stderr == ""


def test_a_plan_that_fails_its_check_is_said(folder: Path) -> None:
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
    assert done.stderr == "hesrpt: the plan fails its check, which is a bug in hesrpt: no\n"


def test_no_arguments_show_the_help(folder: Path) -> None:
    done = run(cwd=folder)
    assert "Usage" in done.stdout
    assert done.stderr == ""


def test_output_that_cannot_be_written_is_said(folder: Path) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "hesrpt", "plan", "jobs.csv", "--servers", "4", "--p", ".5"],
            cwd=folder, stdout=full, stderr=subprocess.PIPE, text=True, check=False,
        )  # fmt: skip
    assert done.returncode == 2
    assert done.stderr == "hesrpt: cannot write the output: No space left on device\n"


def test_a_reader_that_has_seen_enough_causes_no_error(folder: Path) -> None:
    (folder / "many.csv").write_text("\n".join(str(1 + i) for i in range(20_000)))
    command = f"{sys.executable} -m hesrpt plan many.csv --servers 4 --p .5 --json | head -n 1"
    done = subprocess.run(
        command, cwd=folder, shell=True, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("{\n", "")


def assert_refused(done: subprocess.CompletedProcess[str], message: str) -> None:
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("hesrpt: ")
    assert message in done.stderr
    assert done.stderr.count("\n") == 1, "one line"


def test_help_and_version(folder: Path) -> None:
    assert run("--version", cwd=folder).stdout == f"hesrpt {hesrpt.__version__}\n"
    for arguments in (["--help"], ["-h"], ["plan", "--help"]):
        done = run(*arguments, cwd=folder)
        assert done.returncode == 0
        assert "plan" in done.stdout.lower()


def test_large_batches_are_listed_in_part_but_planned_in_full(folder: Path) -> None:
    (folder / "many.csv").write_text("\n".join(str(1 + i) for i in range(3000)))
    done = run("plan", "many.csv", "--servers", "64", "--p", "0.7", cwd=folder)
    assert "… and 2980 jobs that end later" in done.stdout
    printed = json.loads(
        run("plan", "many.csv", "--servers", "64", "--p", "0.7", "--json", cwd=folder).stdout
    )
    assert len(printed["jobs"]) == 3000
    assert printed["phases"] is None  # nine million numbers nobody asked for
