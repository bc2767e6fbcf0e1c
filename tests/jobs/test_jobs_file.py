"""Jobs files: what they may contain, and how errors name the file and the line."""

from __future__ import annotations

import gzip
import time
from dataclasses import is_dataclass
from pathlib import Path

import numpy as np
import pytest
from support.shell import assert_refused, call

from hesrpt import Amdahl, Custom, InputError, Measured, PowerLaw, Speedup, speedups
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.jobs_file import parse_jobs_file, read_jobs_file

GOOD = '[[job]]\nname = "a"\ncommand = "true {item}"\nitems = [1]\n'


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "jobs.toml: has no jobs"),
        ("servers = 0\n" + GOOD, "jobs.toml:1: servers must be a whole number from 1 to 1,000,000"),
        (
            "speed = 1\n" + GOOD,
            "jobs.toml:1: unknown key 'speed'; keys are: servers, policy, resources, group, job",
        ),
        ("policy = 3\n" + GOOD, "jobs.toml:1: policy must be the name of a policy, got 3"),
        ("policy = 'best'\n" + GOOD, "jobs.toml:1: no policy named 'best'; "),
        ("policy = 'easy'\n" + GOOD, "jobs.toml:1: policy easy cannot share servers"),
        ("[[job]\n", "jobs.toml:1: "),
        ("servers = two\n", "jobs.toml:1: not valid TOML: Invalid value; text needs quotes"),
        (
            "[[job]]\nname = 'a'\nname = 'b'\n",
            "jobs.toml:3: not valid TOML: Cannot overwrite a value",
        ),
        (
            "[[job]]\nname = 'a'\nname = 'b'",
            "jobs.toml:3: not valid TOML: Cannot overwrite a value",
        ),
        ("policy = 'equi'\nservers = [\n\n", "jobs.toml:2: "),
        ("policy = 'equi'\n[[job]]\nname = 'a", "jobs.toml:3: "),
        ("[[job]]\nname = 'a'\n[[job]]\ncommand = 'x'\n", "jobs.toml:1: command is missing"),
        (GOOD + "[[job]]\ncommand = 'x'\n", "jobs.toml:5: name is missing"),
        (
            GOOD + "timeout = 0\n",
            "jobs.toml:5: timeout must be a number of seconds greater than 0, or a",
        ),
        (
            GOOD + "size = '0s'\n",
            "jobs.toml:5: size must be a number of seconds greater than 0, or a",
        ),
        (GOOD + GOOD, "jobs.toml:6: there is already a job named 'a'"),
        (GOOD + "colour = 1\n", "jobs.toml:5: unknown key 'colour'"),
        (
            GOOD + "size = 'soon'\n",
            "jobs.toml:5: size must be a number of seconds greater than 0, or a",
        ),
        (GOOD + "p = 1.5\n", "jobs.toml:5: p must be a number between 0 and 1, got 1.5"),
        (GOOD + "keep_going = 1\n", "jobs.toml:5: keep_going must be true or false, got 1"),
        (
            GOOD + "retries = -1\n",
            "jobs.toml:5: retries must be a whole number from 0 to 1,000,000",
        ),
        (GOOD + "resize = 'restart'\n", "jobs.toml:5: resize needs a job that is a single"),
        (GOOD.replace("{item}", "{thing}"), "jobs.toml:3: unknown placeholder {thing}"),
        (
            GOOD.replace("{item}", "{servers}"),
            "jobs.toml:3: {servers} needs a job that is a single",
        ),
        (GOOD.replace("{item}", "{"), "jobs.toml:3: "),
        (GOOD.replace("items = [1]\n", ""), "jobs.toml:3: the command refers to items"),
        (GOOD.replace("[1]", "'*.none'"), "jobs.toml:4: no file matches '*.none'"),
        (GOOD.replace("[1]", "{lines = 'none'}"), "jobs.toml:4: "),
        (GOOD.replace("[1]", "{range = [5, 1]}"), "jobs.toml:4: a range must be like [0, 500]"),
        (GOOD.replace("[1]", "[]"), "jobs.toml:4: a list of items must hold one or more strings"),
        (GOOD.replace("[1]", "3"), "jobs.toml:4: items must be a pattern"),
        (GOOD.replace("{item}", "{item!r}"), "jobs.toml:3: unknown placeholder {item!r}"),
        (GOOD.replace("true {item}", "echo '{item}'"), "jobs.toml:3: {item} is inside single"),
        (GOOD.replace("[1]", "[true]"), "jobs.toml:4: a list of items must hold one or more"),
        (GOOD.replace("[1]", "[1e400]"), "jobs.toml:4: an item must be a finite number, got inf"),
        (GOOD.replace("[1]", r'["a\u0000"]'), "jobs.toml:4: an item cannot contain a zero byte"),
        (GOOD.replace('"a"', r'"a\u0000"'), "jobs.toml:2: name must be a non-empty string without"),
        (GOOD.replace("true", r"a\u0000"), "jobs.toml:3: a command cannot contain a zero byte"),
        (
            GOOD.replace("[1]", "{range = [0, 1_000_000_000_000]}"),
            "jobs.toml:4: a job can have at most 1,000,000 items; split it",
        ),
        (GOOD.replace("[1]", "{range = [0, 1, 0]}"), "jobs.toml:4: a range must be like [0, 500]"),
        (
            GOOD.replace("[1]", "2020-02-30"),
            "jobs.toml:4: not valid TOML: Invalid date or datetime",
        ),
        (GOOD.replace("[1]", "2020-02-20"), "jobs.toml:4: items must be a pattern"),
        (GOOD + f"size = {10**350}\n", "jobs.toml:5: size must be a number of seconds"),
        (
            GOOD + f"retries = {10**350}\n",
            "jobs.toml:5: retries must be a whole number from 0 to 1,000,000",
        ),
        (GOOD + f"weight = {'9' * 5000}\n", "jobs.toml:5: a number or key is longer than 400"),
        (GOOD + "p = 1e400\n", "jobs.toml:5: p must be a number between 0 and 1, got inf"),
        (GOOD + "size = " + "[" * 10**6, "jobs.toml:5: values are nested more than 50 levels"),
        (GOOD + "size = " + "{a=" * 10**5, "jobs.toml:5: values are nested more than 50 levels"),
        (GOOD + "a." * 10**5 + "a = 1\n", "jobs.toml:5: a key has more than 50 parts"),
        ("[" + "a." * 10**5 + "a]\n", "jobs.toml:1: a key has more than 50 parts"),
        (f"{'x' * 300} = 1\n" + GOOD, "jobs.toml:1: unknown key 'xxxxx"),
        (
            f"servers = 9999999\n{GOOD}",
            "jobs.toml:1: servers must be a whole number from 1 to 1,000,000",
        ),
        (GOOD + 'kind = ""\n', "jobs.toml:5: kind must be a non-empty string"),
        (GOOD + "weight = nan\n", "jobs.toml:5: weight must be a number greater than 0"),
        (GOOD + "size = inf\n", "jobs.toml:5: size must be a number of seconds"),
        (
            'job = [{name="a", comand="x"}]\n',
            "jobs.toml:1: unknown key 'comand'; did you mean 'command'?",
        ),
        ("job = [1, 2]\n", "jobs.toml:1: a job must be a table, got 1"),
        (GOOD.replace('"a"', "3"), "jobs.toml:2: name must be a non-empty string"),
        (GOOD.replace('"true {item}"', "3"), "jobs.toml:3: command must be a string for the shell"),
    ],
    ids=lambda text: text[:80],
)
def test_error_names_the_file_and_the_line(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_jobs_file(text, "jobs.toml", tmp_path)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 500


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ("servers = 1\n".encode("utf-16"), "jobs.toml:1: is not"),
        (b"servers = 1\n# \xff\n", "jobs.toml:2: is not UTF-8 text"),
        (b"servers = 1\nname = '\0'\n", "jobs.toml:2: is not text: it contains a zero byte"),
        (b"# " + b"x" * 2_000_000, "jobs.toml:1: the line is longer than 1,048,576 bytes"),
        (b"# padding\n" * 500_000, "jobs.toml: is longer than 4,000,000 characters"),
        (gzip.compress(bytes(10**8)), "jobs.toml:1: "),
    ],
    ids=["utf-16", "not utf-8", "zero byte", "long line", "long file", "gzip bomb"],
)
def test_unreadable_files_are_one_clear_line(tmp_path: Path, data: bytes, message: str) -> None:
    (tmp_path / "jobs.toml").write_bytes(data)
    assert_refused(call("run", "jobs.toml", cwd=tmp_path), message)


def test_absurd_files_are_refused_quickly_and_in_little_memory(tmp_path: Path) -> None:
    (tmp_path / "nested.toml").write_text("a = " + "\n" * 5 + "[" * 10**6)
    (tmp_path / "range.toml").write_text(GOOD.replace("[1]", "{range = [0, 1_000_000_000_000]}"))
    (tmp_path / "lines.toml").write_text(GOOD.replace("[1]", "{lines = 'lines'}"))
    (tmp_path / "lines").write_text("x\n" * 2_000_000)
    for name in ("nested", "range", "lines"):
        started = time.process_time()
        with pytest.raises(InputError):
            read_jobs_file(tmp_path / f"{name}.toml")
        assert time.process_time() - started < 5


def test_strings_and_comments_may_contain_anything(tmp_path: Path) -> None:
    brackets, digits, dots = "[" * 500, "1" * 500, "a." * 500
    text = (
        f'# {brackets} {dots} {digits}\n[[job]]\nname = "{brackets}\\"{dots}"\n'
        f"command = '''\n: {brackets} {digits} '\n{dots}'''\n"
        f'items = ["{digits}", \'{brackets}\', """{dots}"\n{dots}""", 0.5, 1.5]\n'
    )
    (job,) = parse_jobs_file(text, "jobs.toml", tmp_path).jobs
    assert job.items == 5


def test_files_that_look_like_options_are_passed_as_paths(tmp_path: Path) -> None:
    (tmp_path / "-rf").touch()
    (tmp_path / "a").touch()
    (job,) = parse_jobs_file(GOOD.replace("[1]", '"*"'), "jobs.toml", tmp_path).jobs
    assert job.command is not None
    assert job.command.items == ("./-rf", "a")


def test_items_may_be_negative_numbers(tmp_path: Path) -> None:
    for items, expected in (("[-1, 2.5]", ("-1", "2.5")), ("{range = [-2, 0]}", ("-2", "-1"))):
        (job,) = parse_jobs_file(GOOD.replace("[1]", items), "jobs.toml", tmp_path).jobs
        assert job.command is not None
        assert tuple(job.command.items or ()) == expected


def test_all_kinds_of_items_are_read(tmp_path: Path) -> None:
    (tmp_path / "b.txt").touch()
    (tmp_path / "a.txt").touch()
    (tmp_path / "lines").write_text("one\n\ntwo\n")
    text = "\n".join(
        f'[[job]]\nname = "{name}"\ncommand = "echo {{item}} {{{{x}}}}"\nitems = {items}\n'
        for name, items in (
            ("glob", '"*.txt"'),
            ("lines", '{lines = "lines"}'),
            ("range", "{range = [2, 5]}"),
        )
    )
    one = '[[job]]\nname = "one"\ncommand = "run {servers}"\nsize = "1h 30m"\nresize = "restart"\n'
    jobs = parse_jobs_file(text + one, "jobs.toml", tmp_path).jobs
    assert [job.command and job.command.items for job in jobs] == [
        ("a.txt", "b.txt"),
        ("one", "two"),
        ("2", "3", "4"),
        None,
    ]
    assert [job.items for job in jobs] == [2, 2, 3, 1]
    assert (jobs[3].size, jobs[3].resize) == (5400, "restart")
    assert jobs[0].command is not None
    filled = jobs[0].command.fill_in(0, servers=1)
    assert filled.command == 'echo "${HESRPT_ITEM}" {x}'
    assert filled.variables == {"HESRPT_ITEM": "a.txt"}


def test_job_specs_survive_json(tmp_path: Path) -> None:
    text = (
        '[[job]]\nname = "a"\nitems = [1, 2]\ncommand = ["echo", "{item}"]\np = 0.5\nweight = 2\n'
        'kind = "c"\n'
        '[[job]]\nname = "b"\ncommand = "run {servers}"\ntimeout = "1m"\nresize = "affinity"\n'
    )
    jobs = parse_jobs_file(text, "jobs.toml", tmp_path).jobs
    assert [job.kind for job in jobs] == ["c", "b"]
    for job in jobs:
        assert JobSpec.from_json(job.to_json()) == job


def test_json_keeps_speedups_of_all_families_with_parameters() -> None:
    kept: list[Speedup] = [
        PowerLaw(0.5),
        Amdahl(0.9),
        Measured([1, 2, 4], [1, 1.8, 3]),
        Amdahl(0.9).time_shared(),
        Amdahl(0.9).time_shared().limited(4),
        Amdahl(0.7).on_whole_servers(),
    ]
    for speedup in kept:
        spec = JobSpec(name="a", items=1, speedup=speedup)
        assert JobSpec.from_json(spec.to_json()) == spec
    offered = {name for name, value in vars(speedups).items() if is_dataclass(value)}
    assert offered - {"Custom"} == {type(speedup).__name__ for speedup in kept}


def test_json_leaves_out_functions() -> None:
    for function in (Custom(np.log1p), Custom(np.log1p).limited(2)):
        spec = JobSpec(name="a", items=1, speedup=function)
        assert JobSpec.from_json(spec.to_json()).speedup is None
