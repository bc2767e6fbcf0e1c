"""What commands run with: their directory, environment, standard input and shell."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from support.paths import ROOT

from hesrpt import InputError, Pool
from hesrpt.jobs.command_template import CommandTemplate, check_command
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.jobs_file import parse_jobs_file
from hesrpt.scheduler.live_job import LiveJob

NASTY = ["a b", "$(touch hacked)", "'; touch hacked; '", '"`touch hacked`', "x\ny", "*", "-rf", "é"]


def run(folder: Path, text: str) -> dict[str, str]:
    """Run the jobs of a jobs file; return the contents of the files that they leave."""
    before = set(folder.rglob("*"))
    specs = parse_jobs_file(text, "jobs.toml", folder).jobs
    for spec in specs:
        assert JobSpec.from_json(spec.to_json()) == spec
    with Pool(2) as pool:
        jobs = pool.add_jobs([LiveJob.from_command(spec) for spec in specs])
        pool.wait()
    assert [job.state for job in jobs] == ["done"] * len(jobs), [job.error for job in jobs]
    after = sorted(path for path in set(folder.rglob("*")) - before if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in after}


def test_commands_run_where_and_with_what_they_say(tmp_path: Path) -> None:
    for name in ("data/one", "data/two", "out"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "data/one/x.txt").write_text("from x\n")
    found = run(
        tmp_path,
        """
        [[job]]
        name = "default"
        command = "pwd > where; cat > input"

        [[job]]
        name = "here"
        cwd = "data"
        items = "*"                         # files of the directory in which it runs
        command = "echo {index} > {item}/found"

        [[job]]
        name = "each"
        items = ["one", "two"]
        cwd = "data/{item}"
        env = {GREETING = "hello {item}", LEVEL = 3}
        stdin = "first {item}\\nsecond {{x}}\\n"
        command = 'cat > input; printf %s "$GREETING $LEVEL" > greeting'

        [[job]]
        name = "file"
        cwd = "data"
        stdin_file = "one/x.txt"
        command = ["cp", "/dev/stdin", "../out/copied"]
        [job.env]
        ENDING = "{job}"
        """,
    )
    assert found == {
        "where": f"{tmp_path}\n",
        "input": "",
        "data/one/found": "0\n",
        "data/two/found": "1\n",
        "data/one/input": "first one\nsecond {x}\n",
        "data/two/input": "first two\nsecond {x}\n",
        "data/one/greeting": "hello one 3",
        "data/two/greeting": "hello two 3",
        "out/copied": "from x\n",
    }


def test_values_are_never_code_wherever_they_are(tmp_path: Path) -> None:
    """No item changes what a command does, and each arrives as it is."""
    items = tuple(NASTY)
    for index in range(len(items)):
        (tmp_path / str(index)).mkdir()
    template = CommandTemplate(
        job="job",
        command='printf %s "$VALUE" > variable; cat > input',
        items=items,
        directory=str(tmp_path),
        cwd="{index}",
        env={"VALUE": "{item}"},
        stdin="{item}",
    )
    with Pool(2) as pool:
        pool.add_jobs([LiveJob.from_command(JobSpec(name="a", items=len(items), command=template))])
    for index, item in enumerate(items):
        assert (tmp_path / str(index) / "variable").read_text() == item
        assert (tmp_path / str(index) / "input").read_text() == item
    assert not list(tmp_path.rglob("hacked"))


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_line_runs_in_the_shell_that_it_names(tmp_path: Path) -> None:
    found = run(
        tmp_path,
        """
        [[job]]
        name = "bash"
        shell = "bash"
        command = "values=(1 2 3); printf %s ${{#values[@]}} > count"

        [[job]]
        name = "options"
        shell = ["/bin/bash", "-euo", "pipefail"]
        command = "printf %s $- > flags; set -o | grep pipefail > pipefail"

        [[job]]
        name = "function"
        command = "f() {{ printf '{{\\"a\\": %s}}' $1 > json; }}; f 3"
        """,
    )
    assert found["count"] == "3"
    assert {*"eu"} <= {*found["flags"]}
    assert "on" in found["pipefail"]
    assert found["json"] == '{"a": 3}'


PROGRAMS = {
    "convert": 'cp "$1" "$4"',
    "make": "touch $1.pdf",
    "mpirun": "echo $2 > width",
}


@pytest.mark.skipif(shutil.which("bash") is None, reason="there is no bash")
def test_examples_of_the_guides_do_what_they_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "programs").mkdir()
    for name, line in PROGRAMS.items():
        (tmp_path / "programs" / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / "programs" / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "programs"), prepend=":")
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "a b.jpg").write_text("picture")
    found: dict[str, str] = {}
    for guide in ("run-commands.md", "limit-servers.md"):
        text = (ROOT / "docs" / "how-to" / guide).read_text()
        found |= run(tmp_path, text.partition("```toml\n")[2].partition("```")[0])
    assert found == {
        "photos/small-a b.jpg": "picture",
        "summary.txt": "a\nb\n",
        "report.pdf": "",
        "width": "2\n",  # of the two servers of this test
    }


def test_large_input_arrives_whole(tmp_path: Path) -> None:
    text = "0123456789abcde\n" * 2**17
    found = run(tmp_path, f"[[job]]\nname = 'a'\ncommand = 'wc -c > size'\nstdin = '''{text}'''\n")
    assert int(found["size"]) == 2**21


JOB = '[[job]]\nname = "a"\ncommand = "cat"\n'
BASH = '[[job]]\nname = "a"\nitems = [1]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (JOB + "cwd = 'nowhere'\n", "jobs.toml:4: there is no directory {folder}/nowhere"),
        (JOB + "cwd = 3\n", "jobs.toml:4: cwd must be the name of a directory, got 3"),
        (JOB + "cwd = '{x}'\n", "jobs.toml:4: unknown placeholder {x} in '{x}'"),
        (JOB + "cwd = '{item}'\n", "jobs.toml:3: the command refers to items, but the job has"),
        (JOB + "env = 3\n", "jobs.toml:4: env must be a table of strings such as {LANG"),
        (JOB + "env = {A = true}\n", "jobs.toml:4: env must be a table of strings"),
        (JOB + "env = {'A=B' = 'x'}\n", "jobs.toml:4: a variable must have a name without '='"),
        (JOB + "env = {'' = 'x'}\n", "jobs.toml:4: a variable must have a name"),
        (JOB + 'env = {A = "\\u0000"}\n', "jobs.toml:4: a variable must have a name without"),
        (JOB + "[job.env]\nHESRPT_ITEM = 'x'\n", "jobs.toml:4: HESRPT_ITEM is reserved"),
        (JOB + "env = {A = '{y}'}\n", "jobs.toml:4: unknown placeholder {y}"),
        (JOB + "stdin = 3\n", "jobs.toml:4: stdin must be a string, got 3"),
        (JOB + "stdin = '{z}'\n", "jobs.toml:4: unknown placeholder {z}"),
        (JOB + "stdin_file = ''\n", "jobs.toml:4: stdin_file must be the name of a file, got ''"),
        (JOB + "stdin = ''\nstdin_file = 'x'\n", "jobs.toml:5: stdin_file cannot be combined"),
        (JOB + "shell = 'fish'\n", "jobs.toml:4: shell must be a shell (sh, ash, bash"),
        (JOB + "shell = false\n", "jobs.toml:4: shell must be a shell"),
        (JOB + "shell = []\n", "jobs.toml:4: shell must be a shell"),
        (JOB + "shell = ['bash', '-lc']\n", "jobs.toml:4: shell cannot have the option '-lc'"),
        (JOB.replace('"cat"', '["cat"]') + "shell = 'sh'\n", "jobs.toml:4: shell needs a command"),
    ],
)
def test_mistakes_are_refused_with_their_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_jobs_file(text, "jobs.toml", tmp_path)
    assert str(caught.value).startswith(message.replace("{folder}", str(tmp_path)))


@pytest.mark.parametrize(
    ("command", "unknown", "fixed"),
    [
        ("awk '{print $1}' {item}", "{print $1}", "awk '{{print $1}}' {item}"),
        ("f() { echo; }; f {item}", "{ echo; }", "f() {{ echo; }}; f {item}"),
        ("echo ${HOME} {item}", "{HOME}", "echo ${{HOME}} {item}"),
        ('put {"a": 1} {item}', '{"a": 1}', 'put {{"a": 1}} {item}'),
        ("echo {item:>3}", "{item:>3}", "echo {{item:>3}}"),
        ("find -exec rm {} +", "{}", "find -exec rm {{}} +"),
    ],
)
def test_unknown_placeholder_shows_how_to_write_braces(
    command: str, unknown: str, fixed: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_command(command)
    message = str(caught.value)
    assert message.startswith(f"unknown placeholder {unknown} in {command!r}; placeholders are ")
    assert message.endswith(f"write other braces twice: {fixed!r}")
    check_command(fixed)


def test_brace_without_its_counterpart_is_explained() -> None:
    with pytest.raises(InputError) as caught:
        check_command("echo }")
    assert str(caught.value) == (
        "'echo }' has a brace without its counterpart; write other braces twice: 'echo }}'"
    )
