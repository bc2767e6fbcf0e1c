"""The same command every night: it does what is new, and learns how long items take."""

from __future__ import annotations

import gzip
import json
import re
from pathlib import Path

import pytest
from support.shell import call, run

JOBS = """
servers = 2

[[job]]
name = "compress"
items = "inbox/*.txt"
command = "gzip -c -- {item} > archive/{stem}.gz && echo {stem} >> done.txt"

[[job]]
name = "index"
command = "ls archive > index.txt; wc -l < index.txt"
items = {lines = "nights.txt"}
"""
COMMAND = ("run", "nightly.toml", "--state", "nightly", "--json")


@pytest.mark.slow
def test_second_night_does_only_what_is_new(tmp_path: Path) -> None:
    (tmp_path / "nightly.toml").write_text(JOBS)
    for folder in ("inbox", "archive"):
        (tmp_path / folder).mkdir()
    for name in ("a", "b"):
        (tmp_path / "inbox" / f"{name}.txt").write_text(f"letter {name}\n" * 1000)
    (tmp_path / "nights.txt").write_text("monday\n")
    monday = run(*COMMAND, cwd=tmp_path)
    assert monday.returncode == 0, monday.stderr
    assert sorted((tmp_path / "done.txt").read_text().split()) == ["a", "b"]

    (tmp_path / "inbox" / "c.txt").write_text("letter c\n" * 1000)
    (tmp_path / "nights.txt").write_text("monday\ntuesday\n")
    tuesday = run(*COMMAND, cwd=tmp_path)
    assert tuesday.returncode == 0, tuesday.stderr
    assert sorted((tmp_path / "done.txt").read_text().split()) == ["a", "b", "c"]
    compressed = (tmp_path / "archive" / "c.gz").read_bytes()
    assert gzip.decompress(compressed) == b"letter c\n" * 1000

    jobs = {job["name"]: job for job in json.loads(tuesday.stdout)["jobs"]}
    assert {name: (job["state"], job["done"]) for name, job in jobs.items()} == {
        "compress": ("done", 3),
        "index": ("done", 2),
    }
    # Both nights have taught how long an item takes.
    learned = call("status", "nightly", "--learned", cwd=tmp_path).stdout
    for kind, items in (("compress", 3), ("index", 2)):
        row = rf"^{kind} +items +2 +{items} +\S+ ± \S+ (ms|s) "
        assert re.search(row, learned, re.MULTILINE), learned
