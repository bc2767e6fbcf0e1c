"""Generates the API pages: every public name, on the page of the room that defines it."""

from __future__ import annotations

import importlib
import inspect
import re
from types import ModuleType
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

import hesrpt

FOLDER = "reference/api/"
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
    "Running jobs": ("running.md", ("hesrpt.runtime",)),
    "Integrations": (
        "integrations.md",
        ("hesrpt.integrations.joblib", "hesrpt.integrations.ray_tune"),
    ),
    "Traces": ("traces.md", ("hesrpt.traces",)),
    "What-if studies": ("whatif.md", ("hesrpt.whatif",)),
    "Figures": ("figures.md", ("hesrpt.plotting",)),
    "The paper": ("paper.md", ("hesrpt.paper",)),
    "Errors": ("errors.md", ("hesrpt.errors",)),
}


def on_config(config: MkDocsConfig) -> None:
    """Replace the folder in the navigation with the pages generated for it."""
    pages: list[Any] = [FOLDER + "index.md"]
    pages += [{title: FOLDER + file} for title, (file, _) in PAGES.items()]
    _replace_folder(config.nav or [], pages)


def _replace_folder(entries: list[Any], pages: list[Any]) -> None:
    for entry in entries:
        if isinstance(entry, dict):
            for title, value in entry.items():
                if value == FOLDER:
                    entry[title] = pages
                elif isinstance(value, list):
                    _replace_folder(value, pages)


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the index of public names and one page for each group of modules."""
    index = File.generated(config, FOLDER + "index.md", content=_write_index())
    files.append(index)
    for title, (file, modules) in PAGES.items():
        content = f"# {title}\n" + "".join(map(_write_section, modules))
        files.append(File.generated(config, FOLDER + file, content=content))


def _write_index() -> str:
    rows = []
    for name in hesrpt.__all__:
        value = getattr(hesrpt, name)
        if isinstance(value, ModuleType):
            page = next(file for file, modules in PAGES.values() if value.__name__ in modules)
            rows.append(f"| [`{name}`]({page}) | {_summarise(value)} |\n")
        elif callable(value):
            rows.append(f"| [`{name}`][hesrpt.{name}] | {_summarise(value)} |\n")
    return INDEX + "".join(rows)


def _write_section(module_name: str) -> str:
    """Return the directives that document one module's public names."""
    module = importlib.import_module(module_name)
    paths = _find_public_paths(module)
    directives = "".join(f"::: {path}\n\n" for path in paths)
    return f"\n{_summarise(module)}\n\n{directives}"


def _find_public_paths(module: ModuleType) -> list[str]:
    """Return the paths by which users import a module's public names.

    Names that `hesrpt` itself offers come first. Functions come before classes and constants.
    """
    top = {
        name: value
        for name in hesrpt.__all__
        if _is_defined_in(value := getattr(hesrpt, name), module.__name__)
    }
    own = [name for name in getattr(module, "__all__", ()) if name not in top]
    own.sort(key=lambda name: _rank_kind(getattr(module, name)))
    paths = [f"hesrpt.{name}" for name in sorted(top, key=lambda name: _rank_kind(top[name]))]
    return paths + [f"{module.__name__}.{name}" for name in own]


def _rank_kind(value: object) -> int:
    """Return 0 for a function, 1 for a class and 2 for anything else."""
    return 0 if inspect.isfunction(value) else 1 if inspect.isclass(value) else 2


def _is_defined_in(value: object, module_name: str) -> bool:
    defined_in = str(getattr(value, "__module__", ""))
    return f"{defined_in}.".startswith(f"{module_name}.")


def _summarise(value: object) -> str:
    """Return the first paragraph of a docstring as one line of a table."""
    text = (inspect.getdoc(value) or "").partition("\n\n")[0]
    plain = re.sub(r":\w+:`~?(\w+\.)*(\w+)`", r"`\2`", text)  # a role becomes a code word
    return " ".join(plain.split()).replace("|", "\\|")
