"""Shell completion, as the script for bash runs it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import typer
from support.shell import call

from hesrpt import Pool
from hesrpt.cli.completion import complete_job
from hesrpt.cli.main import app
from hesrpt.engines.fake import FakeEngine
from hesrpt.engines.registry import ENGINES
from hesrpt.policies import POLICIES, list_malleable_policies
from hesrpt.traces.formats import FORMATS


class Bash:
    """A shell with hesrpt on its path and the completion script loaded."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        program = folder / "bin" / "hesrpt"
        program.parent.mkdir()
        program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m hesrpt "$@"\n')
        program.chmod(0o755)
        # The second command keeps bash alive: the shell is detected from the parent process.
        self.script = self.run("hesrpt --show-completion; true")

    def run(self, script: str, *arguments: str) -> str:
        done = subprocess.run(
            ["bash", "-c", f'PATH="$PWD/bin:$PATH"\n{script}', "bash", *arguments],
            cwd=self.folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert done.stderr == ""
        return done.stdout

    def complete(self, *words: str) -> list[str]:
        """Return what bash offers for the last of the words after hesrpt."""
        return self.run(
            f"{self.script}\n"
            'COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))\n'
            "_hesrpt_completion hesrpt\n"
            'printf "%s\\n" "${COMPREPLY[@]}"\n',
            "hesrpt",
            *words,
        ).splitlines()


def test_jobs_are_completed_once_even_if_they_were_only_submitted(tmp_path: Path) -> None:
    with Pool(state=tmp_path / "s", engine=FakeEngine(1)) as pool:
        pool.map(abs, [1], name="letters")
        pool.map(abs, [1], name="numbers")
    (tmp_path / "more.toml").write_text('[[job]]\nname = "lines"\nitems = [1]\ncommand = "true"\n')
    call("submit", "s", "more.toml", cwd=tmp_path)

    def complete(incomplete: str, **given: object) -> list[str]:
        return complete_job(cast(typer.Context, SimpleNamespace(params=given)), incomplete)

    assert complete("", state=tmp_path / "s") == ["letters", "numbers", "lines"]
    assert complete("l", state=tmp_path / "s", jobs=["letters"]) == ["lines"]
    assert complete("", state=tmp_path / "none") == []
    assert complete("") == []


@pytest.mark.slow
def test_names_of_jobs_and_groups_to_add_to_are_completed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Pool(state=tmp_path / "s", engine=FakeEngine(1)) as pool:
        pool.map(abs, [1], name="letters", group="nightly")
    monkeypatch.setenv("HESRPT_STATE", str(tmp_path / "s"))
    monkeypatch.setenv("_HESRPT_COMPLETE", "complete_bash")
    monkeypatch.setenv("COMP_CWORD", "3")
    for option, expected in (("--after", "letters"), ("--group", "nightly")):
        monkeypatch.setenv("COMP_WORDS", f"hesrpt add {option} ")
        command = [sys.executable, "-c", "from hesrpt.cli.main import app; app(prog_name='hesrpt')"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.stdout.split() == [expected]


def test_what_to_do_after_a_failure_is_completed() -> None:
    from typer.main import get_command

    command = get_command(app).commands["add"]  # type: ignore[attr-defined]
    context = command.make_context("add", [], resilient_parsing=True)
    (option,) = [each for each in command.params if each.name == "after_failure"]
    assert [each.value for each in option.shell_complete(context, "")] == ["cancel", "release"]
    assert [each.value for each in option.shell_complete(context, "r")] == ["release"]


@pytest.mark.slow
def test_bash_completes_commands_options_and_names(tmp_path: Path) -> None:
    (tmp_path / "jobs.toml").write_text(
        '[[job]]\nname = "count"\nitems = [1]\ncommand = "true"\n'
        '[[job]]\nname = "letters"\nitems = [1]\ncommand = "true"\n'
        '[[job]]\nname = "letters (2)"\nitems = [1]\ncommand = "true"\n'
    )
    assert call("run", "jobs.toml", "--state", "s", cwd=tmp_path).returncode == 0
    bash = Bash(tmp_path)
    for words, expected in (
        (["s"], ["simulate", "serve", "submit", "status"]),
        (["re"], ["report", "resume", "retry"]),
        (["pause", "s", ""], ["count", "letters", r"letters\ \(2\)"]),
        (["cancel", "s", "count", r"letters\ \(2\)", ""], ["letters"]),
        (["weight", "s", '"letters ('], ["letters (2)"]),
        (["plan", "--ser"], ["--servers"]),
        (["simulate", "--policy", ""], list(POLICIES)),
        (["run", "--policy", ""], list_malleable_policies()),
        (["compare", "--policies", "equi,kn"], ["equi,knee"]),
        (["run", "--on-change", "ke"], ["keep"]),
        (["logs", "s", "c"], ["count"]),
    ):
        assert bash.complete(*words) == expected, words


def test_help_names_every_policy_engine_and_format(tmp_path: Path) -> None:
    for command, names in (
        ("simulate", POLICIES),
        ("compare", POLICIES),
        ("run", [*list_malleable_policies(), *ENGINES]),
        ("whatif", [*POLICIES, *FORMATS]),
    ):
        words = call(command, "--help", cwd=tmp_path).stdout.replace(",", " ").split()
        assert {*names} <= {word.rstrip(".") for word in words}


def test_help_of_run_names_no_rigid_policy(tmp_path: Path) -> None:
    words = call("run", "--help", cwd=tmp_path).stdout.replace(",", " ").replace(".", " ").split()
    assert not {"fcfs", "easy"} & {*words}


def test_every_command_and_option_has_a_help_text() -> None:
    from typer.main import get_command

    for command in get_command(app).commands.values():  # type: ignore[attr-defined]
        assert command.help
        for parameter in command.params:
            assert parameter.help.endswith("."), f"{command.name} {parameter.name}"


def test_help_shows_no_types_of_flags_and_no_braces(tmp_path: Path) -> None:
    assert "<bool>" not in call("--help", cwd=tmp_path).stdout
    printed = call("plan", "--help", cwd=tmp_path).stdout
    assert "<bool>" not in printed
    assert "plan [OPTIONS] JOBS.CSV" in printed
