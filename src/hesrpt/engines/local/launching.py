"""The command lines of Python processes that run one module of this project, and start quickly.

Importing the project imports NumPy and more, which guardians and workers do not need. So these
processes import their module from packages that are empty at first.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

_LOCAL = Path(__file__).parent
_PACKAGES = {
    "hesrpt": str(_LOCAL.parent.parent),
    "hesrpt.engines": str(_LOCAL.parent),
    "hesrpt.engines.local": str(_LOCAL),
}
_SCRIPT = """\
import sys, types
for name, path in {packages}.items():
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = [path]
from hesrpt.engines.local.{module} import {function} as run
for name in [name for name in sys.modules if name.partition(".")[0] == "hesrpt"]:
    del sys.modules[name]
run(*sys.argv[1:])
"""


def build_isolated_command(module: str, function: str, *arguments: object) -> list[str]:
    """Return a command that calls a function of a module that needs the standard library only."""
    script = _SCRIPT.format(packages=_PACKAGES, module=module, function=function)
    return [sys.executable, "-I", "-S", "-c", script, *map(str, arguments)]


def build_python_command(module: str, function: str) -> list[str]:
    """Return a command that calls a function of a module with this process's ``sys.path``."""
    script = f"import sys\nsys.path[:] = sys.argv.pop().split({_SEPARATOR!r})\n" + _SCRIPT
    script = script.format(packages=_PACKAGES, module=module, function=function)
    flags = subprocess._args_from_interpreter_flags()  # type: ignore[attr-defined]
    path = _SEPARATOR.join(sys.path)
    return [sys.executable, *flags, "-P", "-c", script, path]


# It cannot be part of a path in practice, and no argument can contain the character 0.
_SEPARATOR = "\x1f"
