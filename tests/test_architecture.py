"""The rooms of the project and the one way that imports point between them."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import hesrpt

SOURCE = Path(hesrpt.__file__).parent
# From the inside out: a room may import those before it, and itself.
ROOMS = [
    ("_version", "arrays", "errors", "units"),
    ("files", "parallel", "validation"),
    ("speedups",),
    ("workload",),
    ("schedule", "readers", "traces"),
    ("optimal",),
    ("policies",),
    ("simulator",),
    ("runtime",),
    ("integrations",),
    ("plotting",),
    ("paper", "whatif"),
    ("cli",),
    ("__init__", "__main__"),
]


def room_of(module: str) -> int:
    first = module.split(".")[1] if "." in module else "__init__"
    return next(level for level, rooms in enumerate(ROOMS) if first in rooms)


def imports_of(path: Path) -> list[str]:
    """Return the modules of the project that a file imports when it is itself imported."""
    lazy = {
        node
        for function in ast.walk(ast.parse(path.read_text()))
        if isinstance(function, ast.FunctionDef)
        for node in ast.walk(function)
    }
    found = []
    tree = ast.parse(path.read_text())
    lazy_lines = {getattr(node, "lineno", 0) for node in lazy}
    lazy_lines |= {
        node.lineno
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in block.body
    }
    for node in ast.walk(tree):
        if getattr(node, "lineno", 0) in lazy_lines:
            continue
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("hesrpt"):
            found += (
                [f"hesrpt.{name.name}" for name in node.names]
                if node.module == "hesrpt"
                else [node.module or ""]
            )
        elif isinstance(node, ast.Import):
            found += [name.name for name in node.names if name.name.startswith("hesrpt")]
    return found


@pytest.mark.parametrize(
    "path", sorted(SOURCE.rglob("*.py")), ids=lambda path: str(path.relative_to(SOURCE))
)
def test_imports_point_inwards(path: Path) -> None:
    parts = path.relative_to(SOURCE).with_suffix("").parts
    own = room_of("hesrpt." + parts[0])
    for imported in imports_of(path):
        assert room_of(imported) <= own, f"{path.name} imports {imported}"


def test_every_room_has_a_place() -> None:
    named = {name for rooms in ROOMS for name in rooms}
    assert {path.stem for path in SOURCE.iterdir() if path.suffix == ".py" or path.is_dir()} - {
        "__pycache__"
    } == named


def test_importing_is_light() -> None:
    """What only some calls need is imported by those calls."""
    heavy = ["matplotlib", "scipy", "typer", "rich", "pandas", "numba", "ray"]
    script = f"import sys, hesrpt; print([m for m in {heavy} if m in sys.modules])"
    printed = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    ).stdout
    assert printed.strip() == "[]"


def test_public_names_exist_and_are_documented() -> None:
    for name in hesrpt.__all__:
        assert hasattr(hesrpt, name)
        if name != "__version__":
            assert getattr(hesrpt, name).__doc__, name
