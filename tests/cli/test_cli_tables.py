"""How tables are printed: without trailing spaces, wrapped or in full; and what is said of runs."""

from __future__ import annotations

import pytest
from rich.table import Table

from hesrpt.cli.outcomes import print_outcome
from hesrpt.cli.terminal import print_table
from hesrpt.display.console import create_console
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.reports.counterfactuals import RunComparison
from hesrpt.storage.journal_entries import JobRecord


@pytest.mark.parametrize(("soft_wrap", "lines"), [(True, 2), (False, 3)])
def test_tables_wrap_unless_the_console_does(
    soft_wrap: bool, lines: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    table = Table("claim", "note", box=None, pad_edge=False)
    table.add_row(" ".join(["word"] * 11), "")
    print_table(create_console(soft_wrap=soft_wrap), table)
    printed = capsys.readouterr().out.splitlines()
    assert len(printed) == lines
    assert all(line == line.rstrip() for line in printed)


@pytest.mark.parametrize(
    ("spec", "is_told"),
    [
        (JobSpec(name="a"), True),
        (JobSpec(name="a", resize="never"), True),
        (JobSpec(name="a", resize="never", was_paused=True), False),
        (JobSpec(name="a", resize="restart"), False),
    ],
)
def test_late_first_start_is_told_if_it_is_known(
    spec: JobSpec, is_told: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    record = JobRecord(spec=spec, number=1, arrived=1.0, ended=9.0)
    comparison = RunComparison(policy="equi", mean_flow_time=8.0)
    print_outcome(
        create_console(soft_wrap=True), [record], servers=1, first_start=3.0, comparison=comparison
    )
    told = "all flow times include 2 s until the first server was ready"
    assert (told in capsys.readouterr().out) == is_told
