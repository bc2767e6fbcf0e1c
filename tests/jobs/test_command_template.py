"""Commands: what a program receives for each placeholder, and which commands are refused."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hesrpt import InputError, Pool
from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.live_job import LiveJob

#: Lines for the shell, with what ``show``, which prints its arguments, must receive before and
#: after the item.
LINES = {
    "show {item}": ("", ""),
    "show '' {item}": ("\0", ""),
    'show "{item}"': ("", ""),
    "show a{item}b": ("a", "b"),
    "show 'a  b'{item}\"c\"": ("a  b", "c"),
    'show "a {item} b"': ("a ", " b"),
    "show -- {item}": ("--\0", ""),
    'X={item}; show "$X"': ("", ""),
    "X={item} show -c; show {item}": ("-c\0", ""),
    'X="a{item}"; show "${{X}}"': ("a", ""),
    "true; show {item} && true || false": ("", ""),
    "(show {item})": ("", ""),
    "{{ show {item}; }}": ("", ""),
    "if true; then show {item}; fi": ("", ""),
    'for x in {item}; do show "$x"; done': ("", ""),
    "case {item} in {item}) show {item};; esac": ("", ""),
    "show {item} 2>/dev/null": ("", ""),
    "show {item}>out; cat out": ("", ""),
    "show {item}</dev/null # it's {item}": ("", ""),
    "# don't\nshow {item}": ("", ""),
    "show \\\n{item}": ("", ""),
    "show \\'{item}": ("'", ""),
    'show "\\"{item}"': ('"', ""),
    "f() {{ show {item}; }}; f other": ("", ""),
    "set -- a b; show {item}": ("", ""),
    "show $(( {index} + 1 )) {item}": ("1\0", ""),
    "show `echo {index}` {item}": ("0\0", ""),
    "show '{index}'{item}": ("0", ""),
    'X=$(printf %sx {item}); show "${{X%x}}"': ("", ""),
    'show "$(printf "%sx" "{item}")"': ("", "x"),
    "show ${{PATH:+a}}{item}": ("a", ""),
    "cat <<END >out; show {item}\nit's {index}\nEND\ntrue": ("", ""),
    "cat >out <<-'END'\n\t\"\n\tEND\nshow {item}": ("", ""),
    "sh -c 'show \"$1\"' sh {item}": ("", ""),
    "sh -s -- {item} <<'END'\nshow \"$1\"\nEND": ("", ""),
    'env -i PATH="$PATH" bash -c \'show "$@"\' bash {item}': ("", ""),
    "printf '%s\\0' {item} | xargs -0 show": ("", ""),
}
LISTS = {
    ("show", "{item}"): ("", ""),
    ("show", "a{item}b", "{index}"): ("a", "b\x000"),
    ("sh", "-c", 'show "$1"', "sh", "{item}"): ("", ""),
    ("env", "X=1", "bash", "-ec", 'show "$@"', "bash", "{item}"): ("", ""),
}
NASTY_ITEMS = (
    "",
    "a b",
    "it's",
    '"; touch hacked; "',
    "$(touch hacked)`touch hacked`",
    "-rf",
    "--help",
    "X=1",
    "2",
    "if",
    "~",
    "*",
    "a\nb\n",
    "\\",
    "\\n",
    "!!",
    "{a,b}",
    "a[$(touch hacked)]",
    "\x1b[31m\x01\x7f",
    os.fsdecode(b"\xff\x81\x88"),
    "é\u202e",
)
ITEMS = st.binary(max_size=30).map(lambda data: os.fsdecode(data.replace(b"\0", b""))) | st.text(
    alphabet="'\"\\$`!#&|;<>(){}[]*?~ \t\n-=%\x1b\x01\x7f\x81\x88aé2", max_size=12
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a program ``show``."""
    folder = tmp_path_factory.mktemp("programs")
    show = folder / "show"
    show.write_text("#!/bin/sh\nfor x do printf '%s\\0' \"$x\"; done\n")
    show.chmod(0o755)
    return folder


def run_command(command: str | tuple[str, ...], item: str, shell: str, folder: Path) -> bytes:
    template = CommandTemplate(job="job", command=command, items=(item,))
    found = template.fill_in(0, servers=1)
    filled, variables = found.command, found.variables
    done = subprocess.run(
        [shell, "-c", filled] if isinstance(filled, str) else filled,
        env={**os.environ, **variables, "PATH": f"{folder}:{os.environ['PATH']}"},
        cwd=folder,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    return done.stdout


def check_item(command: str | tuple[str, ...], item: str, shell: str, folder: Path) -> None:
    before, after = LINES[command] if isinstance(command, str) else LISTS[command]
    expected = os.fsencode(f"{before}{item}{after}\0")
    assert run_command(command, item, shell, folder) == expected


SHELLS = [shell for name in ("sh", "bash") if (shell := shutil.which(name))]


@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("command", [*LINES, *LISTS])
def test_program_receives_nasty_items(
    command: str | tuple[str, ...], shell: str, folder: Path
) -> None:
    for item in NASTY_ITEMS[: None if command == "show {item}" else 8]:
        check_item(command, item, shell, folder)
    assert not (folder / "hacked").exists()


@given(st.sampled_from([*LINES, *LISTS]), ITEMS, st.sampled_from(SHELLS))
@settings(max_examples=250)
def test_program_receives_exactly_the_item(
    folder: Path, command: str | tuple[str, ...], item: str, shell: str
) -> None:
    check_item(command, item, shell, folder)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo '{item}'", "{item} is inside single quotes; use double quotes, or none"),
        ("echo \\{item}", "{item} comes after a backslash"),
        ('echo "\\{item}"', "{item} comes after a backslash"),
        ("echo ${item}", "{item} must not come after $"),
        ('echo "${stem}"', "{stem} must not come after $"),
        ("echo ${index}", "{index} must not come after $"),
        ("echo $'{item}'", "{item} cannot be passed as data in this line"),
        ("echo $'\\'' {item}", "{item} cannot be passed as data in this line"),
        ("echo `cat {item}`", "{item} is inside backticks; write $(…) instead"),
        ('echo "`cat {item}`"', "{item} is inside backticks; write $(…) instead"),
        ("echo ${{x:-{item}}}", "{item} is inside ${…}"),
        ("echo ${{x:-'}}'{item}}}", "{item} cannot be passed as data"),
        ("echo $(( {item} ))", "{item} is inside ((…))"),
        ("(( {item} ))", "{item} is inside ((…))"),
        ("[[ a && {item} -gt 3 ]]", "{item} is inside [[ … ]]"),
        ('[[ "x{item}" -gt 3 ]]', "{item} is inside [[ … ]]"),
        ("a[{item}]=1", "{item} is the index of an array"),
        ('a["{item}"]=1', "{item} is the index of an array"),
        ("unset {item}", "{item} would become part of a program that unset runs"),
        ("cat <<END\n{item}\nEND", "{item} is inside a here-document"),
        ("cat <<'END'\n{item}\nEND", "{item} is inside a here-document"),
        ("cat <<-\\END\nx\n\tend\n{item}", "{item} is inside a here-document"),
        ("sh <<A; cat <<B\nA\n{item}\nB", "{item} is inside a here-document"),
        ("cat <<{item}\n", "{item} cannot be the delimiter of a here-document"),
        ("echo 'a\n{item}", "{item} is inside single quotes"),
        ('echo "a\n{item}', "{item} cannot be passed as data"),
        ('echo "$(case x in a) echo "{item}";; esac)"', "{item} cannot be passed as data"),
        ('sh -c "gzip {item}"', "pass it as an argument, as in sh -c 'gzip -- \"$1\"' sh {item}"),
        ('X=1 bash -euo pipefail -c "gzip {item}"', "{item} would become part of a program"),
        ('sh -c -e -- "gzip {item}"', "{item} would become part of a program that sh runs"),
        ('/bin/dash -c "gzip {stem}"', "{stem} would become part of a program that dash runs"),
        ('if true; then eval "x={item}"; fi', "a program that eval runs; remove eval"),
        ("x={item}; eval $x", "{item} could become part of a program that eval runs"),
        ("nice $SHELL -c {item}", "{item} would become part of a program that $SHELL runs"),
        ('"${{PYTHON}}" -c "print({item})"', "{item} would become part of a program"),
        ('sudo -n ssh -p 22 host "gzip {item}"', "printf '%s\\0' {item} | ssh HOST"),
        ("ssh host gzip {item}", "{item} would become part of a program that ssh runs"),
        ('python3 -Ic "print({item})"', "{item} would become part of a program that python3 runs"),
        ("perl -ne s/{item}// x", "{item} would become part of a program that perl runs"),
        ('awk -F : "/{item}/" x', "ENVIRON"),
        ("sed s/x/{stem}/ x", "{stem} would become part of a program that sed runs"),
        ('x=$(sh -c "{item}")', "{item} would become part of a program that sh runs"),
        ('su bob -c "gzip {item}"', "{item} would become part of a program that su runs"),
        ('echo "gzip {item}" | sh -e', "{item} would become part of the program that sh reads"),
        (("sh", "-c", "gzip {item}"), '["sh", "-c", "gzip -- \\"$1\\"", "sh", "{item}"]'),
        (("env", "A=1", "bash", "-lc", "gzip {item}"), "a program that bash runs"),
        (("ssh", "host", "gzip", "{item}"), "a program that ssh runs"),
        (("docker", "exec", "x", "sh", "-c", "gzip {job}"), "{job} would become part of"),
        (("python", "-cprint('{item}')"), "a program that python runs"),
        (("env", "-S", "gzip {item}"), "a program that env runs"),
        (("echo", "\0"), "a command cannot contain a zero byte"),
    ],
)
def test_unsafe_commands_are_refused(command: str | tuple[str, ...], message: str) -> None:
    with pytest.raises(InputError) as caught:
        CommandTemplate(job="job", command=command, items=("a",))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'echo {index}'",
        "echo $'{index}'",
        "cat <<END\n{index}\nEND",
        "python main.py eval {item}",
        "rsync -e ssh {item} host:",
        "$PYTHON tool.py -c {item}",
        "eval $SETUP {index}",
        "tar -c {item} | ssh host 'cat > {index}'",
        "awk -f program {item}",
        "awk '{{print $1}}' {item}",
        "sed -e s/a/b/ {item}",
        "cat {item} | sh",
        "python -c 'import sys' {item}",
        ("python", "script.py", "-c", "{item}"),
        ("convert", "{item}", "-annotate", "caption of {item}"),
    ],
)
def test_safe_commands_are_accepted(command: str | tuple[str, ...]) -> None:
    CommandTemplate(job="job", command=command, items=("a",)).check_options()


def test_numbers_need_no_variables() -> None:
    template = CommandTemplate(job="job", command="run '{index}' {servers} {{x}}", items=("a",))
    filled = template.fill_in(0, servers=3)
    assert (filled.command, filled.variables) == ("run '0' \"3\" {x}", {})


@pytest.mark.parametrize(
    "command",
    [
        "gzip {item}",
        'gzip "{item}"',
        "true && gzip -k {name}",
        "gzip {stem}.txt",
        "x=$(basename {item})",
        "nice -- gzip {item}",
        ("gzip", "{item}"),
        ("env", "gzip", "-k", "{name}"),
    ],
)
def test_items_that_look_like_options_are_refused(command: str | tuple[str, ...]) -> None:
    template = CommandTemplate(job="job", command=command, items=("a", "-rf"))
    with pytest.raises(InputError, match=r"of the item '-rf' for an option, .* write -- before"):
        template.check_options()


@pytest.mark.parametrize(
    "command",
    [
        "gzip -- {item}",
        "gzip ./{item}",
        "gzip --name={item}",
        "X={item} gzip x",
        "gzip < {item} > {stem}",
        "gzip {index}",
        "sh -c 'gzip -- \"$1\"' sh {item}",
        ("gzip", "--", "{item}"),
        ("gzip", "out/{item}"),
        ("sh", "-c", 'gzip -- "$1"', "sh", "{item}"),
    ],
)
def test_items_that_cannot_be_options_are_accepted(command: str | tuple[str, ...]) -> None:
    CommandTemplate(job="job", command=command, items=("a", "-rf")).check_options()


def test_file_names_and_job_names_that_look_like_options_are_refused() -> None:
    template = CommandTemplate(job="job", command="gzip {name}", items=("folder/-rf",))
    with pytest.raises(InputError, match=r"take \{name\} of the item 'folder/-rf' for an option"):
        template.check_options()
    CommandTemplate(job="job", command="gzip {item}", items=("folder/-rf",)).check_options()
    with pytest.raises(InputError, match=r"take \{job\} of the name '-x' for an option"):
        CommandTemplate(job="-x", command="gzip {job}").check_options()


def test_items_reach_commands_of_a_pool_unchanged(tmp_path: Path) -> None:
    commands: dict[str, str | tuple[str, ...]] = {
        "line": "printf %s {item} > {job}-{index}",
        "list": ("sh", "-c", 'printf %s "$1" > "$2"', "sh", "{item}", "{job}-{index}"),
    }
    with Pool(servers=2) as pool:
        for name, command in commands.items():
            template = CommandTemplate(
                job=name, command=command, items=NASTY_ITEMS, directory=str(tmp_path)
            )
            spec = JobSpec(name=name, items=len(NASTY_ITEMS), command=template)
            pool.add_jobs([LiveJob.from_command(spec)])
    assert [job.error for job in pool.jobs] == [None, None]
    for name in commands:
        written = [(tmp_path / f"{name}-{n}").read_bytes() for n in range(len(NASTY_ITEMS))]
        assert written == [os.fsencode(item) for item in NASTY_ITEMS]
    assert not (tmp_path / "hacked").exists()
