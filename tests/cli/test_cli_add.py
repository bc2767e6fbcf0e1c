"""hesrpt add and wait on a state directory, and which run a command is about."""

from __future__ import annotations

import io
import json
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
import typer
from support.served_queue import AppTransport, ServedQueue
from support.shell import assert_refused, call

from hesrpt import Client, InputError, Pool
from hesrpt.cli.completion import complete_group, complete_job
from hesrpt.cli.job_changes import parse_words
from hesrpt.engines.fake import FakeEngine
from hesrpt.reports.inspection import read_status


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """The state directory of a run that has ended."""
    with Pool(state=tmp_path / "s", engine=FakeEngine(1)) as pool:
        pool.map(abs, [1], name="first", group="g")
    return tmp_path / "s"


def test_words_are_a_command_and_items(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "list").write_text("x\ny\n\n")
    for words, command, items in (
        (["make"], "make", None),
        (["make -j4 all"], "make -j4 all", None),
        (["awk", "{print $1}", "{}"], ["awk", "{{print $1}}", "{{}}"], None),
        (["mpirun", "-n", "{servers}"], ["mpirun", "-n", "{servers}"], None),
        (["gzip", ":::", "a", "b"], "gzip {item}", ["a", "b"]),
        (["cp", "{}", "{}.bak", ":::", "a"], ["cp", "{item}", "{item}.bak"], ["a"]),
        (["find", "{item}", "-exec", "{}", ":::", "a"], ["find", "{item}", "-exec", "{{}}"], ["a"]),
        (["mpirun -n {servers}", ":::", "a"], "mpirun -n {servers} {item}", ["a"]),
        (["echo ${HOME} {index}", ":::", "a"], "echo ${{HOME}} {index}", ["a"]),
        (["wc", "-l", "::::", str(tmp_path / "list")], ["wc", "-l", "{item}"], ["x", "y"]),
    ):
        assert parse_words(words) == (command, items), words
    monkeypatch.setattr("sys.stdin", io.StringIO("1\n2\n"))
    assert parse_words(["echo {item}"]) == ("echo {item}", ["1", "2"])
    for words, message in (
        ([], "COMMAND is missing"),
        ([":::", "a"], "COMMAND is missing"),
        (["a", ":::", "b", ":::", "c"], "::: can be given only once"),
        (["a", ":::"], "there are no items"),
        (["a", "::::", "/no/such/file"], "/no/such/file: cannot be read"),
    ):
        with pytest.raises(InputError, match=message):
            parse_words(words)


def test_jobs_are_added_to_a_directory_that_nobody_runs(tmp_path: Path, state: Path) -> None:
    options = ["--name", "pack", "--weight", "2", "--after", "first", "--env", "A=b{c}"]
    done = call("add", "--state", "s", *options, "gzip", "-9", ":::", "x", "y", cwd=tmp_path)
    assert (done.stdout, done.returncode) == (
        "added: pack; it starts with: hesrpt run --state s\n",
        0,
    )
    (spec,) = read_status(state).submitted
    assert (spec.name, spec.items, spec.weight, spec.after) == ("pack", 2, 2.0, ("first",))
    assert spec.command is not None
    assert spec.command.fill_in(1, 1).command == ("gzip", "-9", "y")
    assert spec.command.fill_in(1, 1).variables["A"] == "b{c}"
    assert spec.command.fill_in(1, 1).directory == tmp_path
    added = call("add", "--state", "s", "--json", "--resources", "memory=4GB", "true", cwd=tmp_path)
    assert json.loads(added.stdout)["jobs"] == ["true"]
    assert read_status(state).submitted[1].resources == {"memory": 4e9}
    assert_refused(
        call("add", "--state", "s", "--after", "nobody", "--", "true", cwd=tmp_path),
        "there is no job 'nobody' to wait for",
    )
    assert_refused(call("add", "--state", "s", "--env", "A", "true", cwd=tmp_path), "NAME=VALUE")
    assert_refused(call("add", "--state", "none", "true", cwd=tmp_path), "does not exist")


@pytest.mark.parametrize("text", ["gpu", "gpu=", "=2", "gpu=1,gpu=2", "gpu=two"])
def test_wrong_resources_are_refused(tmp_path: Path, state: Path, text: str) -> None:
    added = call("add", "--state", "s", "--resources", text, "true", cwd=tmp_path)
    assert_refused(added, "--resources must ")


def test_waiting_says_what_became_of_jobs(tmp_path: Path, state: Path) -> None:
    assert call("wait", "s", "first", cwd=tmp_path).stdout == "first: done\n"
    nothing = call("wait", "s", cwd=tmp_path)  # only for jobs that have not ended yet
    assert (nothing.stdout, nothing.returncode) == ("", 0)
    content = json.loads(call("wait", "s", "first", "--json", cwd=tmp_path).stdout)
    assert content["jobs"] == [{"name": "first", "state": "done", "reason": "done", "error": None}]
    assert_refused(call("wait", "s", "nobody", cwd=tmp_path), "there is no job 'nobody'")
    call("add", "--state", "s", "--name", "later", "true", cwd=tmp_path)
    refused = call("wait", "s", "--timeout", "soon", cwd=tmp_path)
    assert_refused(refused, "--timeout must be a duration such as 90 or 2h, got 'soon'")
    waited = call("wait", "s", "--timeout", "0.1s", cwd=tmp_path)
    assert waited.returncode == 124
    assert waited.stderr.endswith("hesrpt: jobs have not ended after 0.1 s\n")
    assert "no scheduler is running" in waited.stderr
    waited = call("wait", "s", "first", "later", "--timeout", "0.1", "--json", cwd=tmp_path)
    assert waited.returncode == 124
    assert [job["name"] for job in json.loads(waited.stdout)["jobs"]] == ["first"]


def test_a_command_finds_its_run(
    tmp_path: Path, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("HESRPT_URL", "HESRPT_STATE", "HESRPT_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    assert_refused(call("status", cwd=tmp_path), "DIR is missing: give a state directory")
    assert_refused(call("status", "nowhere", cwd=tmp_path), "nowhere: does not exist")
    assert "first" in call("status", "s", cwd=tmp_path).stdout
    assert "first" in call("status", "--state", "s", "first", cwd=tmp_path).stdout
    assert_refused(call("status", "--state", "s", "two", cwd=tmp_path), "there is no job 'two'")
    monkeypatch.setenv("HESRPT_STATE", str(state))
    assert "first" in call("status", "first", cwd=tmp_path).stdout
    monkeypatch.setenv("HESRPT_URL", "http://127.0.0.1:9/?token=t")
    assert "first" in call("status", "s", cwd=tmp_path).stdout  # a directory says more
    unreachable = call("status", cwd=tmp_path)
    assert unreachable.returncode == 3
    assert "cannot reach http://127.0.0.1:9" in unreachable.stderr
    both = call("status", "--url", "http://127.0.0.1:9", "--state", "s", cwd=tmp_path)
    assert_refused(both, "--url and --state exclude each other")


def test_names_of_jobs_and_groups_are_completed_from_a_service(
    served: ServedQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    served.add("true", name="alpha", group="team")
    served.add("true", name="beta")

    def connect(url: str, token: str | None) -> Client:
        return Client(url, token, transport=AppTransport(served.app))

    monkeypatch.setattr("hesrpt.cli.run_access.Client", connect)
    params = {"url": "http://127.0.0.1:8642", "token": "owner-token-of-the-tests"}
    context = cast(typer.Context, SimpleNamespace(params=params))
    assert complete_job(context, "") == ["alpha", "beta"]
    assert complete_job(context, "b") == ["beta"]
    assert complete_group(context, "t") == ["team"]


@pytest.mark.slow
def test_items_come_from_standard_input(tmp_path: Path, state: Path) -> None:
    done = call("add", "--state", "s", "--name", "in", "echo {item}", cwd=tmp_path, stdin="a\nb\n")
    assert done.stdout.startswith("added: in")
    assert read_status(state).submitted[0].items == 2
