"""Names, items and errors with control characters are shown escaped; JSON has the true values."""

from __future__ import annotations

import io
import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.shell import call, run

from hesrpt import Pool
from hesrpt.display.console import escape, escape_output

NASTY = "a\x1b[31m\n[red]b\r\u202ec\x07\x9b[/red]"
SHOWN = r"a\x1b[31m\n[red]b\r\u202ec\x07\x9b[/red]"
CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

JOBS = f"""
[[job]]
name = {json.dumps(NASTY)}
items = [{json.dumps(NASTY)}, "b"]
retries = 0
keep_going = true
command = "echo {{item}}; exit 3"
"""


def run_on_terminal(*arguments: str, cwd: Path) -> str:
    """Return what hesrpt prints to a terminal, without the sequences that the terminal needs."""
    terminal, end = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "NO_COLOR": "1", "COLUMNS": "200"}
    process = subprocess.Popen(
        [sys.executable, "-m", "hesrpt", *arguments],
        cwd=cwd,
        stdin=end,
        stdout=end,
        stderr=end,
        env=environment,
    )
    os.close(end)
    output = b""
    while True:
        try:
            block = os.read(terminal, 65536)
        except OSError:  # all ends are closed
            break
        if not block:
            break
        output += block
    os.close(terminal)
    process.wait(timeout=60)
    text = output.decode(errors="surrogateescape").replace("\r\n", "\n")
    # The live table moves the cursor, hides it and erases lines.
    return re.sub(r"\x1b\[(\?25[lh]|[0-9]*[AK]|[0-9;]*m)|\r", "", text)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("nasty")
    (folder / "jobs.toml").write_text(JOBS)
    (folder / "jobs.csv").write_text('name,size\n"[red]\x1b[31m\u202eb",3\nc,1\n')
    done = run("run", "jobs.toml", "--state", "s", cwd=folder)
    assert done.returncode == 1
    assert SHOWN in done.stdout
    assert not CONTROL.search(done.stdout + done.stderr)
    with Pool(servers=1, state=folder / "p") as pool:
        pool.map(print_and_fail, [1], name=NASTY, retries=0)
    return folder


def print_and_fail(x: int) -> None:
    print(NASTY)
    raise ValueError(f"{NASTY}\nlast line")


@pytest.mark.parametrize(
    "arguments",
    [
        ("status", "s"),
        ("report", "s"),
        ("status", "p"),
        ("report", "p"),
        ("logs", "s", "no job"),
        ("logs", "s", NASTY, "7"),
        ("plan", "jobs.csv", "--servers", "4", "--p", "0.5"),
        ("run", "jobs.toml", "--servers", "\x1b[31m"),
        ("run", f"missing{NASTY}"),
        ("status", f"missing{NASTY}"),
    ],
    ids=str,
)
def test_control_characters_are_shown_escaped(folder: Path, arguments: tuple[str, ...]) -> None:
    done = call(*arguments, cwd=folder)
    assert not CONTROL.search(done.stdout + done.stderr)
    assert r"\x1b[31m" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_submitted_names_are_shown_escaped(folder: Path) -> None:
    done = call("submit", "p", "jobs.toml", cwd=folder)
    assert done.returncode == 0
    assert SHOWN in done.stdout
    assert not CONTROL.search(done.stdout)


@pytest.mark.slow
def test_live_table_and_logs_escape_on_a_terminal(folder: Path) -> None:
    shown = run_on_terminal("run", "jobs.toml", cwd=folder)
    assert r"a\x1b[31m\n[red]b\r\u202ec\x07\x9b[/red]" in shown
    assert not CONTROL.search(shown)
    logs = run_on_terminal("logs", "s", NASTY, cwd=folder)
    first = f"--- {SHOWN}, item 0 ('{SHOWN}')\n" + SHOWN.replace(r"\n", "\n") + "\n"
    assert logs == f"{first}--- {SHOWN}, item 1 ('b')\nb\n"


def test_logs_pass_on_all_bytes_to_a_pipe(folder: Path) -> None:
    command = [sys.executable, "-m", "hesrpt", "logs", "s", NASTY, "0"]
    done = subprocess.run(command, cwd=folder, capture_output=True, check=True)
    assert done.stdout == f"{NASTY}\n".encode()


def test_continued_lines_of_errors_are_indented(folder: Path) -> None:
    lines = call("status", "p", cwd=folder).stdout.splitlines()
    assert "    last line" in lines


@pytest.mark.parametrize("arguments", [("status", "s"), ("report", "s"), ("status", "p")], ids=str)
def test_json_has_the_true_values(folder: Path, arguments: tuple[str, ...]) -> None:
    result = json.loads(call(*arguments, "--json", cwd=folder).stdout)
    assert NASTY in result["jobs"][0].values()


def test_escaped_text_has_no_control_characters() -> None:
    everything = "".join(map(chr, range(0x300))) + "\u200b\u200f\u2028\ufeff\ud800\udcff\U000e0001"
    assert not CONTROL.search(escape(everything))
    assert escape("\udcff\ud800\U000e0001\u00a0") == "\\xff\\ud800\\U000e0001\u00a0"
    assert escape_output("a\tb\nc\r") == "a\tb\nc\\r"
    assert escape("naïve [red] \\n 日本 😀") == "naïve [red] \\n 日本 😀"
    io.TextIOWrapper(io.BytesIO(), encoding="utf-8").write(escape(everything))
