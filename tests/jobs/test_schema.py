"""Each key of a job is accepted, refused and understood in the same way by all who take jobs."""

from __future__ import annotations

import contextlib
import inspect
import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest
from support.shell import assert_refused, call

from hesrpt import InputError, Pool
from hesrpt.cli.job_changes import add
from hesrpt.engines.fake import FakeEngine
from hesrpt.jobs.job_spec import JobSpec
from hesrpt.jobs.jobs_file import parse_jobs_file
from hesrpt.jobs.schema import COMMAND_FIELDS, FIELDS, FUNCTION_FIELDS, Field
from hesrpt.reports.inspection import read_status
from hesrpt.service.job_requests import read_jobs


class Sample(NamedTuple):
    """A value that a key may have, one that it may not have, and what it needs beside it."""

    good: Any
    bad: Any
    needs: Mapping[str, Any] = MappingProxyType({})


SAMPLES = {
    "name": Sample("x", ""),
    "kind": Sample("x", ""),
    "command": Sample(["true", "x"], 3),
    "items": Sample(["x"], 3, {"command": "true {item}"}),
    "cwd": Sample("/", ""),
    "env": Sample({"X": "1"}, {"X": ["1"]}),
    "stdin": Sample("x", 3),
    "stdin_file": Sample("x", ""),
    "shell": Sample("bash", "perl"),
    "timeout": Sample("90s", "soon"),
    "size": Sample("2h", 0),
    "p": Sample(0.5, 1.5),
    "speedup": Sample(0.5, 1.5),
    "weight": Sample(2.5, -1),
    "servers": Sample(2, 0),
    "min_servers": Sample(2, 0),
    "max_servers": Sample(2, 1_000_001),
    "after": Sample(["first"], [""]),
    "after_failure": Sample("release", "go", {"after": ["first"]}),
    "group": Sample("x", "x\ny"),
    "resources": Sample({"gpu": 1, "memory": "4GB"}, {"gpu": 0.5}),
    "on_end": Sample(["make report"], ["https://"]),
    "retries": Sample(3, -1),
    "keep_going": Sample(True, 3),
    "on_error": Sample("keep", "go"),
    "resize": Sample("restart", "go"),
    "restart_cost": Sample("5m", 0),
}
# What hesrpt add writes in another way than as an option of the same name.
WORDS = {"command", "items"}
OPTIONS = set(inspect.signature(add).parameters) & {field.name for field in FIELDS}


def from_file(values: dict[str, Any]) -> JobSpec:
    lines = [f"{key} = {write_toml(value)}" for key, value in values.items()]
    text = "\n".join(["[[job]]", *lines])
    return parse_jobs_file(text, "jobs.toml", Path.cwd(), {"first"}).jobs[0]


def write_toml(value: Any) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key} = {write_toml(each)}' for key, each in value.items())}}}"
    return json.dumps(value)


def from_request(values: dict[str, Any]) -> JobSpec:
    return read_jobs(json.loads(json.dumps(values)), {"first"})[0]


def write_options(values: dict[str, Any]) -> list[str]:
    """Return the words after ``hesrpt add`` that say the same."""
    words = []
    for key, value in values.items():
        option = f"--{key.replace('_', '-')}"
        if key in WORDS:
            continue
        if value is True:
            words.append(option)
        elif isinstance(value, dict):
            pairs = [f"{name}={each}" for name, each in value.items()]
            pairs = [",".join(pairs)] if key == "resources" else pairs
            words += [word for pair in pairs for word in (option, pair)]
        else:
            several = value if isinstance(value, list) else [value]
            words += [word for each in several for word in (option, str(each))]
    command, items = values["command"], values.get("items")
    words += ["--", *([command] if isinstance(command, str) else command)]
    return words if items is None else [*words, ":::", *items]


class EngineWithResources(FakeEngine):
    def resource_totals(self) -> dict[str, float]:
        return {"gpu": 4.0, "memory": 16e9}


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    pool = Pool(engine=EngineWithResources(4))
    pool.map(abs, [1], name="first")
    yield pool
    pool.close()


def from_map(pool: Pool, values: dict[str, Any]) -> JobSpec:
    given = {key: value for key, value in values.items() if key != "command"}
    job = pool.map(abs, [1], **given)
    return next(each.spec for each in pool.driver.jobs.values() if each.name == job.name)


def get_attribute(spec: JobSpec, field: Field) -> Any:
    """Return what a key has become."""
    name = field.attribute or field.name
    if name == "servers":
        return spec.min_servers, spec.max_servers
    is_of_command = field.work == "command" and name != "speedup" and hasattr(spec.command, name)
    return getattr(spec.command if is_of_command or name == "timeout" else spec, name)


def test_every_key_has_a_sample() -> None:
    assert list(SAMPLES) == [field.name for field in FIELDS]
    default = JobSpec(name="a", command=None)
    for field in FUNCTION_FIELDS:
        if field.name not in ("servers", "timeout"):
            assert hasattr(default, field.attribute or field.name), field.name


@pytest.mark.parametrize("field", COMMAND_FIELDS, ids=lambda field: field.name)
def test_key_means_the_same_in_a_file_and_a_request(field: Field) -> None:
    sample = SAMPLES[field.name]
    values = {"name": "a", "command": "true"} | dict(sample.needs) | {field.name: sample.good}
    plain = from_file({"name": "a", "command": "true"})
    assert from_file(values) == from_request(values)
    assert get_attribute(from_file(values), field) != get_attribute(plain, field)
    wrong = values | {field.name: sample.bad}
    with pytest.raises(InputError) as in_file:
        from_file(wrong)
    with pytest.raises(InputError) as in_request:
        from_request(wrong)
    assert str(in_file.value).startswith("jobs.toml:")
    assert str(in_file.value).partition(": ")[2] == str(in_request.value)


@pytest.mark.parametrize("name", sorted(OPTIONS))
def test_option_means_the_same_as_the_key(tmp_path: Path, name: str) -> None:
    sample = SAMPLES[name]
    values = {"name": "a", "command": "true"} | dict(sample.needs) | {name: sample.good}
    added = add_to_directory(tmp_path, write_options(values))
    with contextlib.chdir(tmp_path):  # by default, jobs run where they were added
        assert replace(added, submission=None) == from_request({"cwd": str(tmp_path)} | values)


def add_to_directory(tmp_path: Path, words: list[str]) -> JobSpec:
    with Pool(state=tmp_path / "s", engine=FakeEngine(1)) as pool:
        pool.map(abs, [1], name="first")
    done = call("add", "--state", "s", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    return read_status(tmp_path / "s").submitted[0]


@pytest.mark.parametrize("name", sorted(OPTIONS - {"name", "cwd", "env", "keep_going"}))
def test_wrong_options_are_named(tmp_path: Path, name: str) -> None:
    """All but those that cannot be wrong, or only in ways that no other door knows."""
    sample = SAMPLES[name]
    with Pool(state=tmp_path / "s", engine=FakeEngine(1)) as pool:
        pool.map(abs, [1], name="first")
    values = {"command": "true"} | dict(sample.needs) | {name: sample.bad}
    done = call("add", "--state", "s", *write_options(values), cwd=tmp_path)
    assert_refused(done, f"--{name.replace('_', '-')} ")


@pytest.mark.parametrize("field", FUNCTION_FIELDS, ids=lambda field: field.name)
def test_argument_means_the_same_as_the_key(pool: Pool, field: Field) -> None:
    sample = SAMPLES[field.name]
    given = dict(sample.needs) | {field.name: sample.good}
    spec = from_map(pool, {"name": f"job of {field.name}"} | given)
    if field.work is None and field.name not in ("name", "timeout"):
        command = from_request({"command": "true"} | given)
        assert get_attribute(spec, field) == get_attribute(command, field)
    with pytest.raises(InputError, match=rf"^{field.name} must ") as in_python:
        from_map(pool, given | {field.name: sample.bad})
    if field.work is None:
        with pytest.raises(InputError) as in_request:
            from_request({"command": "true"} | given | {field.name: sample.bad})
        assert str(in_python.value) == str(in_request.value)


def test_every_argument_is_a_key() -> None:
    other = {"self", "function", "items", "keep"}
    names = {field.name for field in FUNCTION_FIELDS}
    assert set(inspect.signature(Pool.map).parameters) - other == names
    own = {"self", "initializer", "initargs", "max_tasks_per_child"}
    assert set(inspect.signature(Pool.executor).parameters) - own < names


@pytest.mark.parametrize("field", FIELDS, ids=lambda field: field.name)
def test_keys_of_others_are_refused(pool: Pool, field: Field) -> None:
    value = SAMPLES[field.name].good
    if field.work == "function":
        for read in (from_file, from_request):
            with pytest.raises(InputError, match=f"unknown key '{field.name}'"):
                read({"name": "a", "command": "true", field.name: value})
    elif field.work == "command" and field.name != "items":
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            pool.map(abs, [1], **{field.name: value})


def test_hooks_that_the_journal_could_not_store_are_refused() -> None:
    with pytest.raises(InputError, match="on_end must be a command"):
        from_request({"command": "true", "on_end": "echo \udce9"})
