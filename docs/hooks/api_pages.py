"""Generates the API pages: every public name, on the page of the room that defines it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

Member = griffe.Object | griffe.Alias

#: The source as it is written. Nothing is imported, so optional dependencies may be missing.
PACKAGE = griffe.load("hesrpt", search_paths=[Path(__file__).parents[2] / "src"])

DIRECTORY = "reference/api/"
INDEX = """\
# Python API

`import hesrpt` offers the names below. The pages of this section describe them, and other public
names in submodules. They are generated from the docstrings: `help(hesrpt.plan)` prints the same
text.

| name | description |
|---|---|
"""

#: Title and file of each page, and the modules whose public names it documents. The names
#: themselves are read from `hesrpt.__all__` and from the `__all__` of these modules.
PAGES: dict[str, tuple[str, tuple[str, ...]]] = {
    "Workloads": ("workloads.md", ("hesrpt.workload", "hesrpt.readers")),
    "Speedups": ("speedups.md", ("hesrpt.speedups",)),
    "Planning": ("planning.md", ("hesrpt.optimal",)),
    "The theorems": ("theorems.md", ("hesrpt.optimal.closed_form",)),
    "Policies": ("policies.md", ("hesrpt.policies",)),
    "Simulating": ("simulating.md", ("hesrpt.simulator",)),
    "Schedules": ("schedules.md", ("hesrpt.schedule",)),
    "Running jobs": ("running.md", ("hesrpt.jobs", "hesrpt.scheduler", "hesrpt.pool")),
    "Clients of a service": ("service.md", ("hesrpt.service.client",)),
    "Engines": ("engines.md", ("hesrpt.engines",)),
    "Integrations": (
        "integrations.md",
        (
            "hesrpt.integrations.joblib",
            "hesrpt.integrations.ray_tune",
        ),
    ),
    "Traces": ("traces.md", ("hesrpt.traces",)),
    "What-if studies": ("whatif.md", ("hesrpt.whatif",)),
    "Figures": ("figures.md", ("hesrpt.plotting",)),
    "The paper": ("paper.md", ("hesrpt.paper",)),
    "Errors": ("errors.md", ("hesrpt.errors",)),
}

#: Classes whose members are in several modules.
_WITH_INHERITED = ("hesrpt.Pool",)


def on_config(config: MkDocsConfig) -> None:
    """Replace the directory in the navigation with the pages generated for it."""
    pages: list[Any] = [DIRECTORY + "index.md"]
    pages += [{title: DIRECTORY + file} for title, (file, _) in PAGES.items()]
    _replace_directory(config.nav or [], pages)


def _replace_directory(entries: list[Any], pages: list[Any]) -> None:
    for entry in entries:
        if isinstance(entry, dict):
            for title, value in entry.items():
                if value == DIRECTORY:
                    entry[title] = pages
                elif isinstance(value, list):
                    _replace_directory(value, pages)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the index of public names and one page for each group of modules."""
    index = File.generated(config, DIRECTORY + "index.md", content=_write_index())
    files.append(index)
    for title, (file, modules) in PAGES.items():
        content = f"# {title}\n" + "".join(map(_write_section, modules))
        files.append(File.generated(config, DIRECTORY + file, content=content))


def _write_index() -> str:
    rows = []
    for name in PACKAGE.exports or ():
        value = PACKAGE[str(name)]
        if value.is_module:
            page = next(file for file, modules in PAGES.values() if value.canonical_path in modules)
            rows.append(f"| [`{name}`]({page}) | {_summarise(value)} |\n")
        elif value.is_class or value.is_function:
            rows.append(f"| [`{name}`][hesrpt.{name}] | {_summarise(value)} |\n")
    return INDEX + "".join(rows)


def _write_section(module_name: str) -> str:
    """Return the directives that document one module's public names."""
    module = PACKAGE[module_name.removeprefix("hesrpt.")]
    directives = "".join(map(_write_directive, _find_public_paths(module)))
    return f"\n{_summarise(module)}\n\n{directives}"


def _write_directive(path: str) -> str:
    """Return the directive that documents a name, with what it inherits from unnamed classes."""
    inherits = "    options:\n      inherited_members: true\n" if path in _WITH_INHERITED else ""
    return f"::: {path}\n{inherits}\n"


def _find_public_paths(module: Member) -> list[str]:
    """Return the paths by which users import a module's public names.

    Names that `hesrpt` itself offers come first. Functions come before classes and constants.
    """
    top = [
        name
        for name in map(str, PACKAGE.exports or ())
        if f"{PACKAGE[name].canonical_path}.".startswith(f"{module.path}.")
        and not PACKAGE[name].is_module
    ]
    own = [name for name in map(str, module.exports or ()) if name not in top]
    top.sort(key=lambda name: _rank_kind(PACKAGE[name]))
    own.sort(key=lambda name: _rank_kind(module[name]))
    return [f"hesrpt.{name}" for name in top] + [f"{module.path}.{name}" for name in own]


def _rank_kind(value: Member) -> int:
    """Return 0 for a function, 1 for a class and 2 for anything else."""
    return 0 if value.is_function else 1 if value.is_class else 2


def _summarise(value: Member) -> str:
    """Return the first paragraph of a docstring as one line of a table."""
    text = value.docstring.value.partition("\n\n")[0] if value.docstring else ""
    plain = re.sub(r":\w+:`~?(\w+\.)*(\w+)`", r"`\2`", text)  # a role becomes a code word
    return " ".join(plain.split()).replace("|", "\\|")
