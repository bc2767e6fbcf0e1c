"""The rooms of the project: which may import which, what each module is called, who may print."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import cast

from typer.core import TyperGroup
from typer.main import get_command

import hesrpt
from hesrpt.cli.main import app

SOURCE = Path(hesrpt.__file__).parent
FILES = sorted(SOURCE.rglob("*.py"))

# From the inside out: a room may import itself, the rooms beside it, and those before it.
ROOMS = [
    ("_version", "arrays", "errors", "units"),
    ("compiled", "files", "parallel", "pickling", "validation"),
    ("objectives", "speedups"),
    ("workload",),
    ("schedule", "readers", "traces"),
    ("optimal",),
    ("policies",),
    ("simulator",),
    ("jobs",),
    ("display",),
    ("decisions",),
    ("storage",),
    ("engines",),
    ("scheduler",),
    ("reports",),
    ("pool",),
    ("integrations",),
    ("plotting",),
    ("paper", "whatif"),
    ("service",),
    ("cli",),
    ("__init__", "__main__"),
]

# Imports that point outwards, and why each is allowed.
ALLOWED = {
    ("hesrpt.schedule", "hesrpt.plotting"): "schedule.plot() is a shortcut, and loads it on demand",
    (
        "hesrpt.simulator.comparison",
        "hesrpt.plotting",
    ): "comparison.plot() is a shortcut, and loads it on demand",
    ("hesrpt.plotting.whatif_figures", "hesrpt.whatif"): "only to annotate arguments",
    ("hesrpt.plotting.paper_figures", "hesrpt.paper.figures"): "only to annotate arguments",
}


@cache
def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def find_imports(path: Path) -> Iterator[str]:
    """Yield the modules of the project that a file imports, even inside functions."""
    for node in ast.walk(parse(path)):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names if name.name.startswith("hesrpt"))
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "hesrpt":
                yield from (f"hesrpt.{name.name}" for name in node.names)
            elif (node.module or "").startswith("hesrpt."):
                yield str(node.module)


def name_module(path: Path) -> str:
    parts = path.relative_to(SOURCE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" and len(parts) > 2 else parts)


def find_level(module: str) -> int:
    """Return the position of a module's room in ``ROOMS``; outer rooms have higher ones."""
    room = module.split(".")[1]
    return next(level for level, rooms in enumerate(ROOMS) if room in rooms)


def test_imports_point_inwards() -> None:
    """All others are allowed for a reason, and needed."""
    outward = {
        (module, imported)
        for path in FILES
        for module in [name_module(path)]
        for imported in find_imports(path)
        if find_level(imported) > find_level(module)
    }
    assert outward == set(ALLOWED)


def test_every_room_has_a_level() -> None:
    found = {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__pycache__"} == {room for rooms in ROOMS for room in rooms}


def test_module_names_are_unique() -> None:
    """A command may share the name of the module it runs, and every room may have a registry."""
    commands = set(cast(TyperGroup, get_command(app)).commands)
    names = Counter(
        path.stem
        for path in FILES
        if path.stem not in ("__init__", "registry")
        and not (path.parent.name == "cli" and path.stem in commands)
    )
    assert [name for name, count in names.items() if count > 1] == []


def test_compiled_code_depends_on_kernel_files_only() -> None:
    """The stamp of the compiled code covers those files (see :mod:`hesrpt.compiled`)."""
    for path in FILES:
        text = path.read_text()
        if re.search(r"@(compiled|inlined)\b|= (compiled|inlined)\(", text):
            assert "kernel" in path.name
            imports = set(find_imports(path))
            assert all("kernel" in name for name in imports - {"hesrpt.arrays", "hesrpt.compiled"})
        if path.name != "compiled.py":
            assert not re.search(r"(from|import) numba", text), path


def find_output(path: Path, forbidden: set[str]) -> Iterator[str]:
    """Yield the places where a file prints, or imports one of the forbidden packages."""
    for node in ast.walk(parse(path)):
        packages: set[str] = set()
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id == "print":
                yield f"{path}:{node.lineno}: print"
        elif isinstance(node, ast.Import):
            packages = {name.name.partition(".")[0] for name in node.names}
        elif isinstance(node, ast.ImportFrom):
            packages = {str(node.module).partition(".")[0]}
        yield from (f"{path}: {package}" for package in packages & forbidden)


def test_only_the_command_line_prints() -> None:
    """Displays are shown only to those who ask for them, by Rich: ``pool.progress()`` is a call."""
    found = [
        place
        for path in FILES
        if not path.is_relative_to(SOURCE / "cli")
        for place in find_output(
            path, {"typer"} if path.is_relative_to(SOURCE / "display") else {"rich", "typer"}
        )
    ]
    assert found == []


def run_script(script: str) -> str:
    """Return what a script prints in a fresh interpreter."""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout


def test_importing_is_light() -> None:
    heavy = ["matplotlib", "scipy", "typer", "rich", "pandas", "numba", "ray", "fastapi", "httpx"]
    script = f"import sys, hesrpt; print([name for name in {heavy} if name in sys.modules])"
    assert run_script(script) == "[]\n"


def test_help_is_light() -> None:
    heavy = ["matplotlib", "scipy", "pandas", "numba", "ray", "fastapi", "httpx"]
    script = f"import sys, hesrpt.cli.main; print([n for n in {heavy} if n in sys.modules])"
    assert run_script(script) == "[]\n"


def test_installation_without_extras_plans_draws_and_runs() -> None:
    extras = [
        "ray",
        "joblib",
        "fastapi",
        "httpx",
        "uvicorn",
        "pandas",
        "sklearn",
        "hypothesis",
        "mkdocs",
    ]
    script = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({extras}))\n"
        "import hesrpt\n"
        "workload = hesrpt.Workload([9, 4, 1], hesrpt.PowerLaw(0.5))\n"
        "hesrpt.plan(workload, servers=10).plot()\n"
        "for name in hesrpt.__all__: getattr(hesrpt, name)\n"
        "with hesrpt.Pool(servers=1) as pool:\n"
        "    print(list(pool.map(abs, [-1, -2]).results()))\n"
    )
    assert run_script(script) == "[1, 2]\n"


def test_public_names_exist_and_are_documented() -> None:
    for name in hesrpt.__all__:
        value = getattr(hesrpt, name)
        assert name == "__version__" or value.__doc__, name


def test_star_import_gives_every_public_name_and_completion_offers_no_others() -> None:
    """Even after every name was used, which imports further submodules."""
    script = (
        "import hesrpt\n"
        "before = dir(hesrpt)\n"
        "from hesrpt import *\n"
        "print(set(hesrpt.__all__) - set(globals()))\n"
        "print(before == dir(hesrpt) == sorted(hesrpt.__all__))"
    )
    assert run_script(script) == "set()\nTrue\n"
