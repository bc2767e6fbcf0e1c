"""Fingerprints of commands, and of anything in other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.fingerprint_samples import (
    DIFFERENT,
    list_functions,
)

from hesrpt.jobs.command_template import CommandTemplate
from hesrpt.jobs.fingerprints import (
    fingerprint_command,
    fingerprint_command_items,
)


def create_template(**changes: Any) -> CommandTemplate:
    options: dict[str, Any] = {"job": "a", "command": "echo {item}", "items": ("1", "2")}
    return CommandTemplate(**(options | {"directory": "/"} | changes))


def test_command_and_directory_count_but_not_items_name_and_timeout() -> None:
    base = fingerprint_command(create_template())
    unimportant: list[dict[str, Any]] = [{"job": "b"}, {"items": ("3",)}, {"timeout": 5.0}]
    for same in unimportant:
        assert fingerprint_command(create_template(**same)) == base
    different: list[dict[str, Any]] = [
        {"command": "echo -n {item}"},
        {"command": ("echo", "{item}")},
        {"directory": "/tmp"},
        {"cwd": "x"},
        {"env": {"A": "1"}},
        {"env": {"A": "2"}},
        {"stdin": ""},
        {"stdin": "x"},
        {"stdin_file": "x"},
        {"shell": ("bash",)},
        {"env": {"A": "{job}"}},
        {"env": {"A": "{job}"}, "job": "b"},
        {"items": None},
        {"command": "echo {item} {job}"},
        {"command": "echo {item} {job}", "job": "b"},
    ]
    found = {fingerprint_command(create_template(**changes)) for changes in different}
    assert len(found | {base}) == len(different) + 1


def test_position_of_an_item_counts_only_if_the_command_contains_it() -> None:
    first, second = fingerprint_command_items(create_template())
    assert first != second
    assert fingerprint_command_items(create_template(items=("2", "1"))) == [second, first]
    numbered: dict[str, Any] = {"command": "echo {item} {index}"}
    assert not {*fingerprint_command_items(create_template(**numbered))} & {
        *fingerprint_command_items(create_template(**numbered, items=("2", "1")))
    }
    elsewhere = fingerprint_command_items(create_template(stdin="{index}"))
    assert elsewhere == fingerprint_command_items(create_template(**numbered))
    assert len(fingerprint_command_items(create_template(items=None))) == 1


_IN_ANOTHER_PROCESS = """
import sys
sys.path[:0] = {path!r}
import random
from support.fingerprint_samples import DIFFERENT, list_functions
from hesrpt.jobs.fingerprints import fingerprint_function, fingerprint_item
letters = [f"{{number}}" for number in range(100)]
more = [set(letters), dict.fromkeys(set(letters)), frozenset((x, x) for x in letters)]
for value in [create() for create in DIFFERENT] + more:
    print(fingerprint_item(value).hex())
for function in list_functions():
    print(fingerprint_function(function).hex())
"""


def test_fingerprints_are_the_same_in_other_processes() -> None:
    source = _IN_ANOTHER_PROCESS.format(path=[str(Path(__file__).parents[1])])
    printed = {
        subprocess.run(
            [sys.executable, *options, "-c", source],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed, options in enumerate([[], ["-B", "-X", "no_debug_ranges"]])
    }
    assert len(printed) == 1
    assert len(printed.pop().split()) == len(DIFFERENT) + 3 + len(list_functions())
