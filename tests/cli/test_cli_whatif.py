"""hesrpt whatif."""

from __future__ import annotations

import gzip
import json
from math import ceil
from pathlib import Path

import pytest
from support.paths import EXAMPLES
from support.shell import call, run

EXAMPLE = EXAMPLES / "cluster.swf"


def test_whatif_prints_tables_and_writes_files(tmp_path: Path) -> None:
    trace = tmp_path / "trace.swf.gz"
    trace.write_bytes(gzip.compress(EXAMPLE.read_bytes()))
    options = "--p 0.7 --report out.html --csv out.csv --plot out.png"
    done = call("whatif", trace.name, *options.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "391 of 400 jobs used; 5 had no run time; 4 had run time 0; 64 servers" in done.stdout
    assert (
        "mean flow time would fall from 4.12 ± 1.60 h (EASY) to 57.8 ± 17.4 min under adaptive, "
        "the best of 6 policies; equal shares (EQUI) reach 59.4 ± 18.0 min, 2.7% ± 2.0% more"
        in done.stdout
    )
    assert "under adaptive, a job was resized 1.6 times on average, at no cost" in done.stdout
    assert (tmp_path / "out.html").read_text().startswith("<!DOCTYPE html>")
    assert len((tmp_path / "out.csv").read_text().splitlines()) == 11
    assert (tmp_path / "out.png").stat().st_size > 10_000
    assert done.stdout.endswith("wrote out.png\nwrote out.csv\nwrote out.html\n")


def test_whatif_shows_the_distance_to_the_bound(tmp_path: Path) -> None:
    options = "--p 0.7 --bound --window 0d..1d --policies easy,equi,adaptive"
    printed = json.loads(
        call("whatif", str(EXAMPLE), *options.split(), "--json", cwd=tmp_path).stdout
    )
    rows = {row["policy"]: row for row in printed["policies"]}
    assert 0 < rows["adaptive"]["above_bound"] < 0.2 < rows["easy"]["above_bound"]
    mean = rows["adaptive"]["mean_flow_time"]
    assert printed["lower_bound"] == pytest.approx(mean / (1 + rows["adaptive"]["above_bound"]))
    assert printed["proof"].startswith("one path of prices")
    done = call("whatif", str(EXAMPLE), *options.split(), "--report", "out.html", cwd=tmp_path)
    percentage = ceil(100 * rows["adaptive"]["above_bound"])
    sentence = f" is at most {percentage}% above what any scheduler could reach"
    assert f"\nadaptive{sentence}" in done.stdout
    assert "above bound" in done.stdout
    page = (tmp_path / "out.html").read_text()
    assert f"Adaptive{sentence} on this log" in page
    assert "This follows from one path of prices" in page


def test_whatif_prints_json_of_a_trace_from_standard_input(tmp_path: Path) -> None:
    table = "timestamp,num_gpus,duration\n0,1,100\n50,2,200\n60,4,0\n"
    columns = "submit=timestamp,servers=num_gpus,runtime=duration"
    options = f"--servers 4 --p 0.5,0.9 --max-servers 3 --json --map {columns}"
    done = call("whatif", "-", *options.split(), cwd=tmp_path, stdin=table)
    assert done.returncode == 0, done.stderr
    low, high = json.loads(done.stdout)
    assert (low["jobs"], low["dropped"]) == (2, {"had run time 0": 1})
    assert low["assumption"] == "s(k) = k^0.5, on at most 3 servers"
    flow_times = {row["policy"]: row["mean_flow_time"] for row in high["policies"]}
    assert flow_times["easy"] == pytest.approx(150)


def test_strict_stops_at_the_first_unusable_job(tmp_path: Path) -> None:
    table = "timestamp,num_gpus,duration\n0,1,100\n50,2,200\n60,4,0\n"
    options = "--servers 4 --p 0.5 --strict"
    done = call("whatif", "-", *options.split(), cwd=tmp_path, stdin=table)
    assert done.returncode == 2
    assert done.stderr.startswith("hesrpt: standard input:4: ")


@pytest.mark.slow
def test_links_are_followed_and_devices_are_written_directly(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("old")
    (tmp_path / "link.csv").symlink_to("real.csv")
    options = "--p 0.7 --window 0d..1d --policies fcfs,srpt --csv link.csv --plot x.png"
    done = run("whatif", str(EXAMPLE), *options.split(), "--report", "/dev/stdout", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text().startswith("policy,")
    assert done.stdout.startswith("<!DOCTYPE html>")


def test_sensitivity_prints_limits_and_draws_a_chart(tmp_path: Path) -> None:
    options = "--p 0.7 --window 0d..2d --sensitivity chart.svg"
    done = call("whatif", str(EXAMPLE), *options.split(), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (
        "against EASY, p 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95: adaptive "
        in done.stdout
    )
    assert (tmp_path / "chart.svg").stat().st_size > 10_000


def test_fractions_say_when_it_pays_and_draw_a_chart(tmp_path: Path) -> None:
    table = "submit,servers,runtime,user,elastic\n" + "".join(
        f"{n},{1 + n % 3},{20 + n % 7},u{n % 5},{'yes' if n % 2 else 'no'}\n" for n in range(40)
    )
    (tmp_path / "trace.csv").write_text(table)
    options = "--servers 4 --p 0.5 --policies easy,equi --fractions chart.svg --malleable"
    done = call("whatif", "trace.csv", *options.split(), "0.5 of users", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "malleable or moldable: 0.5 of the users, drawn at random (seed 0); " in done.stdout
    assert "% of the users on, with a mean flow time of " in done.stdout
    assert (tmp_path / "chart.svg").stat().st_size > 10_000
    options = "--servers 4 --p 0.5 --policies easy,equi --json --malleable elastic"
    done = call("whatif", "trace.csv", *options.split(), cwd=tmp_path)
    assert json.loads(done.stdout)["malleable_jobs"] == 20
    done = call("whatif", "trace.csv", *options.split(), "--malleable", "gpus", cwd=tmp_path)
    assert done.returncode == 2
    assert "trace.csv:1: has no column 'gpus'; its columns are: submit, serv" in done.stderr
    done = call("whatif", "trace.csv", *options.split(), "--malleable", "2", cwd=tmp_path)
    assert done.stderr == "hesrpt: --malleable must be a fraction between 0 and 1, got 2\n"
