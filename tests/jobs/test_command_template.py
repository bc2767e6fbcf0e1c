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
from hesrpt.jobs.command_template import CommandTemplate, check_command
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.scheduler.live_job import LiveJob

#: Lines for the shell, with what ``show``, which prints its arguments, must receive before and
#: after the item.
LINES = {
    "show {item}": ("", ""),
    "show '' {item}": ("\0", ""),
    'show "{item}"': ("", ""),
    "show pre{item}post": ("pre", "post"),
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
    'show "${{PATH:+a}}"# {item}': ("a#\0", ""),
    "show $(echo a # it's)\n)#{item} # it's": ("a#", ""),
    "show a\\ #{item}": ("a #", ""),
    "show a\\\n#{item}": ("a#", ""),
    "show {item} \\\n# it's {item}": ("", ""),
    "true;# it's {item}\nshow {item}": ("", ""),
    "x=$(true; (true)); (true)# '\nshow {item}": ("", ""),
    "show $(( (1 + 2) * {index} )) {item}": ("0\0", ""),
    "echo $$ $(echo $$) >out; show {item}": ("", ""),
    "show '\\'{item}": ("\\", ""),
    "show \\\\{item}": ("\\", ""),
    "show \\{{{item}\\}}": ("{", "}"),
    'show "\\{{{item}\\}}"': ("\\{", "\\}"),
    "show \"'{item}'\"": ("'", "'"),
    'show "it\'s $(printf %s. "\\"{item}") #"': ("it's \"", ". #"),
    'x=b; show "$x{index}" $x{index}{item}': ("b0\0b0", ""),
    "show {index}>out; cat out; show {item}": ("0\0", ""),
    'cat <<END; show {item}\n"{index} {{x}}\nEND': ('"0 {x}\n', ""),
    "cat <<END >out; show {item}\nit's {index}\nEND\ntrue": ("", ""),
    "cat >out <<'END'; show {item}\n# {{it's}} {index}\nEND": ("", ""),
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


#: A word, and what the shell makes of it; a zero byte stands for the item.
WORDS = st.recursive(
    st.sampled_from(
        [
            ("{item}", "\0"),
            ('"{item}"', "\0"),
            ('"a\'{item}\\" #$"', "a'\0\" #$"),
            ("'\"$( #'", '"$( #'),
            ("\\'\\\"", "'\""),
            ("$((1+(2)))", "3"),
            ("${{PWD:+b}}", "b"),
            ("`echo '\"'`", '"'),
            ("{index}#", "0#"),
        ]
    ),
    lambda words: (
        st.tuples(words, words).map(lambda pair: (pair[0][0] + pair[1][0], pair[0][1] + pair[1][1]))
        | words.map(lambda word: (f'"$(printf %s. {word[0]})"', f"{word[1]}."))
        | words.map(lambda word: (f'"($(printf %s. x{word[0]} # \'"\n))"', f"(x{word[1]}.)"))
    ),
    max_leaves=6,
)


@given(WORDS, ITEMS, st.sampled_from(SHELLS))
@settings(max_examples=150)
def test_nested_quotes_are_followed(
    folder: Path, word: tuple[str, str], item: str, shell: str
) -> None:
    line, value = word
    expected = os.fsencode(value.replace("\0", item) + "\0")
    assert run_command(f"show {line}", item, shell, folder) == expected


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("echo '{item}'", "{item} is inside single quotes; write it outside of them"),
        ("echo 'a\n{item}", "{item} is inside single quotes"),
        ("awk '{{print $1, \"{stem}\"}}' x", "{stem} is inside single quotes"),
        ("echo \\{item}", "{item} comes after a backslash"),
        ('echo "\\{item}"', "{item} comes after a backslash"),
        ("echo ${item}", "{item} must not come right after $"),
        ('echo "${stem}"', "{stem} must not come right after $"),
        ("echo ${index}", "{index} must not come right after $"),
        ("echo $'{item}'", "{item} is inside $'…'"),
        ("echo $'\\'' {item}", "{item} is inside $'…', or after one with \\' inside"),
        ("echo `cat {item}`", "{item} is inside backticks; write $(…) instead"),
        ('echo "`cat {item}`"', "{item} is inside backticks; write $(…) instead"),
        ("echo ${{x:-{item}}}", "{item} is inside ${…}"),
        ("echo ${{x:-'}}'}} {item}", "{item} is inside ${…}, or after one with quotes"),
        ('echo "${{x:-$(true)}} {item}"', "{item} is inside ${…}, or after one with quotes"),
        ("echo $(( {item} ))", "{item} is inside ((…))"),
        ('echo "$(( {item} ))"', "{item} is inside ((…))"),
        ("(( {item} ))", "{item} is inside ((…))"),
        ("((true) | cat {item})", "{item} is inside ((…)), where the shell would evaluate it, or"),
        ("echo $[ {item} ]", "{item} is inside ((…))"),
        (
            "echo $\\\n(( {item} ))",
            "{item} comes after $$( or the like, or after a line that ends with $",
        ),
        ('echo "$$(" {item}', "{item} comes after $$( or the like"),
        ("cat <<END\n{item}\nEND", "{item} is inside or after a here-document; pass it with stdin"),
        ("cat <<'END'\n{item}\nEND", "{item} is inside or after a here-document"),
        ("cat <<-\\END\nx\n\tEND\necho {item}", "{item} is inside or after a here-document"),
        ("sh <<A; cat <<B\nA\n{item}\nB", "{item} is inside or after a here-document"),
        ("x=$(cat <<END\n{item}\nEND\n)", "{item} is inside or after a here-document"),
        ("cat <<{item}\n", "{item} cannot be the delimiter of a here-document"),
        ('echo "$(case x in a) echo "{item}";; esac)"', "{item} comes after case inside $(…)"),
        (("echo", "\0"), "a command cannot contain a zero byte"),
    ],
)
def test_placeholders_are_refused_where_no_variable_can_stand(
    command: str | tuple[str, ...], message: str
) -> None:
    with pytest.raises(InputError) as caught:
        check_command(command)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    "command",
    [
        "sh -c 'echo {index}'",
        "echo $'{index}'",
        "echo ${{x:-{index}}}",
        "cat <<END\n{index}\nEND",
        "cat <<< {item}\necho {item}",
        "echo {item} $'\\'' `true` ${{x:-'}}'}}",
        "for ((i = 0; i < 3; i++)); do echo {item}; done",
        "echo $'a\\n' {item}",
        'sh -c "gzip {item}"',
        ("sh", "-c", "gzip {item}"),
    ],
)
def test_other_commands_are_accepted(command: str | tuple[str, ...]) -> None:
    check_command(command)


def test_a_line_that_an_earlier_version_has_accepted_is_read_and_fails_with_a_reason() -> None:
    template = CommandTemplate(job="job", command="echo '{item}'", items=("a",))
    spec = JobSpec.from_json(JobSpec(name="job", items=1, command=template).to_json())
    with Pool(servers=1) as pool:
        (job,) = pool.add_jobs([LiveJob.from_command(spec)])
        job.wait()
        assert job.state == "failed"
        assert "hesrpt: {item} is inside single quotes" in str(job.error)


def test_numbers_need_no_variables() -> None:
    template = CommandTemplate(job="job", command="run '{index}' {servers} {{x}}", items=("a",))
    filled = template.fill_in(0, servers=3)
    assert (filled.command, filled.variables) == ("run '0' \"3\" {x}", {})


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
