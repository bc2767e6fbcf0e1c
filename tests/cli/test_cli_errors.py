"""Messages about wrong input: one line that speaks of the command line, not of the library."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.paths import EXAMPLES
from support.shell import assert_refused, call

PLAN = ["plan", "jobs.csv", "--servers", "4"]
SIMULATE = ["simulate", "--servers", "4", "--pareto", "9", "--p", ".5"]
POISSON = ["simulate", "--servers", "4", "--poisson", "9", "--p", ".5"]
COMPARE = ["compare", "--servers", "4", "--pareto", "9", "--p", ".5"]
WHATIF = ["whatif", str(EXAMPLES / "cluster.swf"), "--p", "0.7"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "jobs.csv").write_text("name,size\nlarge,9\nmedium,4\nsmall,1\n")
    (tmp_path / "jobs.toml").write_text('[[job]]\nname = "a"\nitems = [1]\ncommand = "true"\n')
    return tmp_path


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("size\n1\n-2\n", "jobs.csv:3: size must be a number greater than 0, got '-2'"),
        ("size\n1\nnan\n", "jobs.csv:3: size must be a number greater than 0, got 'nan'"),
        ("size\n1\n\nmany\n", "jobs.csv:4: size must be a number greater than 0, got 'many'"),
        ("size,weight\n1,2\n1\n", "jobs.csv:3: expected 2 values (size, weight), got 1"),
        ("size,weight\n1,2\n1,2,3\n", "jobs.csv:3: expected 2 values (size, weight), got 3"),
        ("size\n1\n1,2\n", "jobs.csv:3: expected 1 value (size), got 2"),
        ("size,wieght\n1,2\n", "jobs.csv:1: unknown column 'wieght'; columns are: size, name"),
        ("name,weight\na,2\n", "jobs.csv:1: no column 'size'"),
        ("size,size\n1,2\n", "jobs.csv:1: column 'size' appears more than once"),
        (
            "size,p\n1,0.7\n",
            "jobs.csv: has a column p, so each job has its own speedup; remove --p",
        ),
        ("size,p\n1,1.5\n", "jobs.csv:2: p must lie in (0, 1), got '1.5'"),
        ("size,arrival\n1,0\n2,7\n", "job 1 arrives at 7"),
        ("", "jobs.csv: is empty"),
        ("size\n", "jobs.csv: has a header but no rows"),
        ("5\n0\n", "jobs.csv:2: size must be a number greater than 0, got '0'"),
    ],
)
def test_invalid_line_of_jobs_file_is_named(folder: Path, content: str, message: str) -> None:
    (folder / "jobs.csv").write_text(content)
    assert_refused(call(*PLAN, "--p", "0.5", cwd=folder), message)


def test_jobs_file_that_is_not_text_is_refused(folder: Path) -> None:
    (folder / "jobs.csv").write_bytes(b"size\n1\n\xff\xfe\n")
    assert_refused(call(*PLAN, "--p", ".5", cwd=folder), "is not UTF-8 text")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["plan", "none.csv", "--servers", "4", "--p", ".5"], "none.csv: cannot be read: No such"),
        (["plan", ".", "--servers", "4", "--p", ".5"], "cannot be read: Is a directory"),
        (["plan", "jobs.csv", "--p", "0.5"], "Missing option '--servers'"),
        (
            ["plan", "jobs.csv", "--servers", "0", "--p", ".5"],
            "--servers must be greater than 0, got 0\n",
        ),
        (["plan", "jobs.csv", "--servers", "nan", "--p", ".5"], "--servers must be finite"),
        (["plan", "jobs.csv", "--servers", "few"], "--servers must be a number, got 'few'"),
        (["plan", "jobs.csv", "--servers", "4.5", "--p", ".5", "--whole"], "--servers must be a"),
        ([*PLAN, "--p", "1.5"], "--p must lie in (0, 1), got 1.5"),
        ([*PLAN, "--amdahl", "2"], "--amdahl must lie in (0, 1], got 2\n"),
        ([*PLAN, "--p", "x"], "--p must be a number, got 'x'"),
        ([*PLAN], "jobs.csv: has no column p: choose one of --p, --amdahl or --measured"),
        ([*PLAN, "--max-servers", "2"], "--max-servers needs one of --p, --amdahl or --measured"),
        ([*PLAN, "--time-shared"], "--time-shared needs one of --p, --amdahl or --measured"),
        ([*PLAN, "--p", ".5", "--max-servers", "0"], "--max-servers must be greater than 0"),
        ([*PLAN, "--p", ".5", "--amdahl", ".9"], "choose one of --p, --amdahl or --measured, not"),
        ([*PLAN, "--p", ".5", "--objective", "x"], "'--objective': 'x' is not one of 'flow'"),
        (
            [*PLAN, "--p", ".5", "--objective", "weighted"],
            "--objective weighted needs a column weight",
        ),
        ([*PLAN, "--p", ".5", "--plot", "plan.docx"], "must end in .pdf"),
        ([*PLAN, "--p", ".5", "--plot", "jobs.csv/x.png"], "jobs.csv/x.png: cannot be written"),
        ([*PLAN, "--p", ".5", "--plot", "no/x.png"], "no/x.png: cannot be written: there is no"),
        ([*PLAN, "--measured", "jobs.csv"], "unknown column 'name'"),
        (["plan", "jobs.csv", "--sevrers", "4"], "No such option: --sevrers"),
        (["plna"], "No such command 'plna'. Did you mean 'plan'?"),
        (["simulate", "--servers", "4", "--p", ".5"], "choose one of JOBS.CSV, --pareto or"),
        ([*SIMULATE, "--poisson", "3"], "--pareto or --poisson, not --pareto and --poisson"),
        (["simulate", "--servers", "4", "--pareto", "9"], "random jobs need a speedup: choose one"),
        (POISSON, "--poisson needs --rate"),
        ([*SIMULATE, "--rate", "2"], "--rate needs --poisson"),
        ([*SIMULATE, "--sizes", "pareto"], "--sizes needs --poisson"),
        ([*POISSON, "--rate", "2", "--shape", "2"], "--shape needs --pareto"),
        (
            [*SIMULATE, "--policy", "hesrpt-weighted"],
            "needs jobs from a JOBS.CSV with a column weight",
        ),
        (
            [
                "simulate",
                "--servers",
                "4",
                "--poisson",
                "9",
                "--rate",
                "1",
                "--p",
                ".5",
                "--sizes",
                "big",
            ],
            "--sizes must be one of exponential, deterministic, pareto, hyperexponential",
        ),
        ([*SIMULATE, "--shape", "0"], "--shape must be greater than 0"),
        ([*SIMULATE, "--pareto", "0"], "--pareto must be a whole number of at least 1, got 0"),
        ([*SIMULATE, "--policy", "best"], "no policy named 'best'; choose one of: hesrpt"),
        ([*SIMULATE, "--resize-cost", "-1"], "--resize-cost must lie between 0 and"),
        ([*SIMULATE, "--size-error", "much"], "--size-error must be a number, got 'much'"),
        ([*SIMULATE, "--seed", "-1"], "--seed must be a whole number of at least 0, got -1"),
        ([*COMPARE, "--policies", ","], "--policies must name at least one policy"),
        (
            [*COMPARE, "--policies", "easy"],
            "policy easy needs jobs from a JOBS.CSV with a column requested",
        ),
        ([*COMPARE[:-2], "--amdahl", ".5"], "policy hesrpt needs one power law"),
        ([*WHATIF, "--policies", ","], "--policies must name at least one policy"),
        (["run", "jobs.toml", "--policy", "fcfs"], "policy fcfs cannot share servers"),
        (["run", "jobs.toml", "--policy", "fcfs"], "Choose one of: hesrpt,"),
        ([*COMPARE, "--policies", "equi,best"], "no policy named 'best'"),
        (
            [*COMPARE, "--csv", "no/such/file"],
            "no/such/file: cannot be written: there is no directory",
        ),
        ([*COMPARE, "--csv", "."], ".: cannot be written: it is a directory"),
        ([*COMPARE, "--replications", "0"], "--replications must be a whole number of at least 1"),
        (
            ["compare", "jobs.csv", "--servers", "4", "--p", ".5", "--replications", "2"],
            "--replications needs random jobs: --pareto or --poisson",
        ),
        (["paper", "--out", "jobs.csv"], "jobs.csv: is not a directory"),
        (
            ["paper", "--out", "x", "--servers", "2.5"],
            "--servers must be a whole number, got '2.5'",
        ),
        (["whatif", "none.swf", "--p", ".5"], "none.swf: cannot be read: No such file"),
        (WHATIF[:2], "choose one of --p or --speedups"),
        ([*WHATIF, "--speedups", "jobs.csv"], "choose one of --p or --speedups"),
        ([*WHATIF, "--p", "fast"], "--p must be a number in (0, 1), uniform("),
        ([*WHATIF, "--p", "uniform(0.9,0.4)"], "--p must be uniform(LOW, HIGH) with 0 < LOW"),
        ([*WHATIF, "--window", "2d:5d"], "--window must be FROM..TO"),
        ([*WHATIF, "--p", "0.7,0.9", "--plot", "x.png"], "--fractions need a single --p"),
        ([*WHATIF, "--csv", "no/x.csv", "--report", "x.html"], "no/x.csv: cannot be written"),
        (
            [*WHATIF, "--csv", "x.html", "--report", "x.html"],
            "x.html: is already used for another file; choose another name",
        ),
        ([*WHATIF, "--report", "x.txt"], "a report must end in .html, got 'x.txt'"),
        ([*WHATIF, "--map", "submit=a,submit=b"], "--map must be OURS=THEIRS,… with each of"),
        ([*WHATIF, "--map", "sumbit=a"], "--map must map some of submit, runtime"),
        ([*WHATIF, "--max-servers", "0"], "--max-servers must be at least 1"),
        ([*WHATIF, "--min-runtime", "-1"], "--min-runtime must be at least 0"),
        ([*WHATIF, "--load", "0"], "--load must lie between 0.001 and 100"),
        ([*WHATIF, "--format", "pbs"], "--format must be one of swf, sacct, sacct-json, batsim,"),
        ([*WHATIF, "--map", "submit"], "--map must be OURS=THEIRS"),
        (["run"], "JOBS.TOML is missing; to continue a run, use --state DIR"),
        (["run", "--state", "s"], "s: holds no run; to start one, give a jobs file"),
        (["run", "none.toml"], "none.toml: cannot be read: No such file"),
        (["run", "jobs.toml", "--on-change", "redo"], "--on-change needs --state DIR"),
        (
            ["run", "jobs.toml", "--servers", "0"],
            "--servers must be a whole number of at least 1, got 0",
        ),
        (["run", "jobs.toml", "--policy", "best"], "helrpt, fifo\n"),
        (["run", "jobs.toml", "--engine", "slurm"], "slurm"),
        (
            ["run", "jobs.toml", "--address", "auto"],
            "--address is not an option of engine 'local'; its options are resources",
        ),
        (["run", "jobs.toml", "--engine-option", "x"], "--engine-option must be NAME=VALUE"),
        (
            ["run", "jobs.toml", "--engine-option", "address=a", "--address", "b"],
            "--address is also set by --engine-option address=",
        ),
        (
            ["run", "jobs.toml", "--engine", "ray", "--resources", "CPU"],
            "--resources must be NAME=NUMBER",
        ),
        (["status", "none"], "none"),
        (["submit", "none", "jobs.toml"], "none"),
        (["report", "none"], "none"),
        (["logs", "none", "job"], "none"),
    ],
)
def test_mistakes_are_reported_in_one_line(
    folder: Path, arguments: list[str], message: str
) -> None:
    before = sorted(folder.iterdir())
    done = call(*arguments, cwd=folder)
    assert_refused(done, message)
    assert not re.search(r"[a-z]+_[a-z]+|=None|\w\(\)", done.stderr.replace(str(folder), ""))
    assert sorted(folder.iterdir()) == before


def test_measured_speedup_of_zero_is_refused(folder: Path) -> None:
    (folder / "zero.csv").write_text("servers,speedup\n1,0\n")
    done = call(*PLAN, "--measured", "zero.csv", cwd=folder)
    assert_refused(done, "zero.csv: has no speedup greater than 0")


def test_output_cannot_overwrite_the_input(folder: Path) -> None:
    done = call(
        "simulate", "jobs.csv", "--servers", "4", "--p", ".5", "--csv", "jobs.csv", cwd=folder
    )
    assert_refused(done, "jobs.csv: is already used for another file; choose another name")
