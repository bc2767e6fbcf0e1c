"""How tables are printed: without trailing spaces, wrapped or in full."""

from __future__ import annotations

import pytest
from rich.table import Table

from hesrpt.cli.terminal import print_table
from hesrpt.display.console import create_console


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
