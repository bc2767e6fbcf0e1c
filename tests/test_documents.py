"""The documents: shell and TOML examples work, links resolve, tables agree with the code.

The Python examples are doctests, which pytest collects by itself.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import json
import re
import shlex
import tomllib
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import typer
from support.paths import ROOT
from support.shell import call
from test_architecture import ROOMS

import hesrpt
from benchmarks.ratios import FIGURES, PAGE, insert_table, read_figures
from hesrpt.cli.main import app
from hesrpt.jobs.command_template import PLACEHOLDERS
from hesrpt.jobs.jobs_file import read_jobs_file
from hesrpt.traces import read_trace
from hesrpt.traces.table import COLUMNS

DOCUMENTS = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
FORMATS = (ROOT / "docs" / "reference" / "file-formats.md").read_text()


def find_blocks(language: str) -> list[tuple[Path, str]]:
    """Return the code blocks of all documents in a language."""
    return [
        (document, block)
        for document in DOCUMENTS
        for block in re.findall(rf"```{language}\n(.*?)```", document.read_text(), re.DOTALL)
    ]


def name_block(value: Path | str) -> str:
    return value.name if isinstance(value, Path) else value.partition("\n")[0]


@pytest.mark.parametrize(("document", "block"), find_blocks("console"), ids=name_block)
def test_shell_examples_print_what_they_show(document: Path, block: str) -> None:
    command, _, shown = block.partition("\n")
    program, *arguments = shlex.split(command.removeprefix("$ "))
    assert program == "hesrpt"
    done = call(*arguments, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    printed = [line.split() for line in done.stdout.splitlines()]
    for line, expected in enumerate(shown.splitlines()):
        if expected == "…":
            return
        assert printed[line] == expected.split()
    assert len(printed) == len(shown.splitlines())


def test_shell_examples_are_found() -> None:
    assert len(find_blocks("console")) >= 3


@pytest.mark.parametrize(("document", "block"), find_blocks("toml"), ids=name_block)
def test_toml_examples_are_valid_jobs_files(document: Path, block: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(block)
    (tmp_path / "photos").mkdir()
    (tmp_path / "photos" / "one.jpg").touch()
    assert len(read_jobs_file(file).jobs) == len(tomllib.loads(block)["job"])


def test_training_jobs_in_documents_are_read(tmp_path: Path) -> None:
    (block,) = (block for _, block in find_blocks("json") if "step_seconds" in block)
    file = tmp_path / "jobs.jsonl"
    file.write_text(block)
    assert len(read_trace(file)) == len(block.splitlines())
    documented = read_table("Training jobs (JSON lines)")
    assert {key for line in block.splitlines() for key in json.loads(line)} <= set(documented)


def test_python_fragments_are_valid_and_import_existing_names() -> None:
    fragments = [block for _, block in find_blocks("python") if ">>>" not in block]
    assert len(fragments) >= 4
    for fragment in fragments:
        for node in ast.walk(ast.parse(fragment)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hesrpt"):
                module = importlib.import_module(node.module or "")
                assert all(hasattr(module, alias.name) for alias in node.names), fragment


def find_command_lines() -> list[str]:
    """Return the command lines of all documents, in the text and in blocks."""
    texts = [document.read_text() for document in DOCUMENTS]
    inline = [line for text in texts for line in re.findall(r"`(hesrpt [^`]+)`", text)]
    blocks = [block for _, block in [*find_blocks("sh"), *find_blocks("console")]]
    in_blocks = [line for block in blocks for line in re.findall(r"\bhesrpt [a-z-].*", block)]
    return [" ".join(line.partition(" #")[0].split()) for line in inline + in_blocks]


def test_commands_and_options_in_documents_exist() -> None:
    group: Any = typer.main.get_command(app)
    lines = [line for line in find_command_lines() if not line.startswith("hesrpt COMMAND")]
    assert len(lines) > 20
    for line in lines:
        _, name, *words = line.partition(" -- ")[0].split()  # behind "--" is another program's
        command = group if name.startswith("--") else group.commands.get(name)
        assert command is not None, line
        parameters = command.get_params(typer.Context(command))
        options = {option for parameter in parameters for option in parameter.opts}
        own = itertools.takewhile(lambda word: word != "--", [name, *words])
        used = {word.partition("=")[0] for word in own if word.startswith("--")}
        assert used <= options, line


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_to_files(document: Path) -> None:
    generated = {"cli.md", "policies.md"}
    for target in re.findall(r"\]\(([^)#\s]+)", document.read_text()):
        path = (document.parent / target).resolve()
        is_generated = path.parent.name == "api" or path.name in generated
        if not target.startswith("http") and not is_generated:
            assert path.exists(), target


@pytest.mark.parametrize(("p", "equi", "srpt"), [(0.9, 1.51, 1.37), (0.5, 1.06, 9.9)])
def test_readme_states_the_right_ratios(p: float, equi: float, srpt: float) -> None:
    ratios = []
    for seed in range(10):
        x = -np.sort(-(np.random.default_rng(seed).pareto(1.5, 500) + 1))
        k = np.arange(1, 501)
        best = hesrpt.plan(hesrpt.Workload(x, hesrpt.PowerLaw(p)), servers=1).total_flow_time
        ratios.append([x @ (k ** (1 + p) - (k - 1) ** (1 + p)) / best, x @ k / best])
    assert np.median(ratios, axis=0) == pytest.approx([equi, srpt], rel=0.01)


def test_readme_states_how_many_claims_hold() -> None:
    claims = json.loads((ROOT / "docs" / "paper" / "claims.json").read_text())["claims"]
    count = Counter(claim["verdict"] for claim in claims)
    assert (
        f"{len(claims)} claims, of which {count['holds']} hold, {count['holds roughly']} hold "
        f"roughly and {count['differs']} differ."
    ) in " ".join((ROOT / "README.md").read_text().split())


def test_readme_quotes_the_conclusion_of_the_example_trace() -> None:
    readme = " ".join((ROOT / "README.md").read_text().split())
    quote = re.search(r'"(mean flow time would fall [^"]*)"', readme)
    assert quote is not None
    assert quote[1] in (ROOT / "docs" / "how-to" / "replay-a-trace.md").read_text()


def test_readme_names_only_extras_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    named = set(re.findall(r"\[(\w+)\](?!\()", (ROOT / "README.md").read_text()))
    assert named == {"ray", "dask", "slurm", "tune", "joblib", "serve"}
    assert named <= set(project["optional-dependencies"])


def test_contributing_lists_every_room_in_the_order_of_imports() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    section = text.partition("## The rooms")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    rooms = [name.rstrip("/") for row in rows for name in re.findall(r"`([^`]+)`", row)]
    found = {path.name for path in (ROOT / "src" / "hesrpt").iterdir()}
    assert set(rooms) == found - {"__main__.py", "__pycache__", "_version.py", "py.typed"}
    levels = [next(n for n, level in enumerate(ROOMS) if Path(r).stem in level) for r in rooms]
    assert levels == sorted(levels)


def test_contributing_names_only_files_that_exist() -> None:
    text = re.sub(r"```.*?```", "", (ROOT / "CONTRIBUTING.md").read_text(), flags=re.DOTALL)
    named = set(re.findall(r"`([\w./]+(?:\.py|\.md|\.html|\.toml|\.yml|/))`", text))
    named -= {"policies/proportional.py"}  # the example of a new policy
    assert len(named) > 30
    for path in named:
        folders = (ROOT, ROOT / "src" / "hesrpt")
        assert any((folder / path).exists() for folder in folders) or path == "site/", path


def read_table(heading: str, number: int = 0) -> dict[str, set[str]]:
    """Return the code words of a table in the page of file formats, by its first column."""
    section = FORMATS.partition(f"\n## {heading}")[2].partition("\n## ")[0]
    table = re.findall(r"(?:^\|.*\n)+", section, re.MULTILINE)[number]
    rows = [re.split(r"(?<!\\)\|", line.strip("|\n")) for line in table.splitlines()[2:]]
    words = [[re.findall(r"`([^`]+)`", cell) for cell in row] for row in rows]
    return {row[0][0]: {*row[0][1:], *row[-1]} for row in words}


@pytest.mark.parametrize(
    ("heading", "command"),
    [
        ("Jobs (CSV)", ["plan", "FILE", "--servers", "2", "--p", "0.5"]),
        (
            "Measured speedup (CSV)",
            ["plan", "examples/jobs.csv", "--servers", "2", "--measured", "FILE"],
        ),
    ],
    ids=["jobs", "speedup"],
)
def test_columns_of_csv_files_are_documented(
    heading: str, command: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "table.csv"
    file.write_text("nonsense,column\n1,2\n")
    done = call(*[str(file) if word == "FILE" else word for word in command], cwd=ROOT)
    columns = done.stderr.partition("columns are: ")[2].strip().split(", ")
    assert set(read_table(heading)) == set(columns), done.stderr


@pytest.mark.parametrize(("number", "text"), [(0, ""), (1, "[[job]]\n")], ids=["file", "job"])
def test_keys_of_jobs_files_are_documented(number: int, text: str, tmp_path: Path) -> None:
    file = tmp_path / "jobs.toml"
    file.write_text(f"{text}nonsense = 1\n")
    with pytest.raises(hesrpt.InputError, match="keys are: ") as raised:
        read_jobs_file(file)
    keys = str(raised.value).partition("keys are: ")[2].split(", ")
    assert set(read_table("Jobs (TOML)", number)) == set(keys)


def test_placeholders_of_commands_are_documented() -> None:
    documented = read_table("Jobs (TOML)", 2)
    assert set(documented) == {f"{{{name}}}" for name in PLACEHOLDERS}


def test_benchmarks_page_shows_the_last_ratios() -> None:
    figures = read_figures(FIGURES.read_text())
    assert insert_table(PAGE.read_text(), figures) == PAGE.read_text()
    assert figures.to_text() == FIGURES.read_text()
    assert sum(map(len, figures.ratios.values())) > 2


def test_columns_of_traces_are_documented(tmp_path: Path) -> None:
    documented = read_table("Traces")
    assert set(documented) == set(COLUMNS)
    for column, names in documented.items():
        required = {"submit", "runtime", "servers"} - {column}
        for name in names:
            file = tmp_path / "trace.csv"
            header = [*required, name]
            file.write_text(f"{','.join(header)}\n{','.join('1' for _ in header)}\n")
            assert len(read_trace(file)) == 1, name


@pytest.fixture(scope="module")
def state(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Return the state directory of a run, and the JSON that the run printed."""
    directory = tmp_path_factory.mktemp("run")
    jobs = directory / "jobs.toml"
    jobs.write_text('[[job]]\nname = "one"\nitems = [1]\ncommand = "true"\n')
    done = call("run", str(jobs), "--state", "state", "--json", cwd=directory)
    return directory / "state", done.stdout


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "examples/jobs.csv", "--servers", "2", "--p", "0.5"],
        ["simulate", "examples/jobs.csv", "--servers", "2", "--p", "0.5"],
        ["compare", "examples/jobs.csv", "--servers", "2", "--p", "0.5"],
        ["whatif", "examples/cluster.swf", "--p", "0.7", "--policies", "easy"],
        ["run"],
        ["status", "STATE"],
        ["status", "STATE", "--learned"],
        ["report", "STATE"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_keys_of_json_output_are_documented(arguments: list[str], state: tuple[Path, str]) -> None:
    directory, printed = state
    if arguments != ["run"]:
        words = [str(directory) if word == "STATE" else word for word in arguments]
        printed = call(*words, "--json", cwd=ROOT).stdout
    name = " ".join(["hesrpt", arguments[0], *(word for word in arguments if word == "--learned")])
    assert read_table("JSON output")[name] == set(json.loads(printed))


def test_keys_of_claims_are_documented() -> None:
    """``hesrpt paper --json`` prints the content of ``claims.json``."""
    claims = json.loads((ROOT / "docs" / "paper" / "claims.json").read_text())
    assert read_table("JSON output")["hesrpt paper"] == set(claims)
