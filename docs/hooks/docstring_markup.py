"""Turns the markup of our docstrings into what mkdocstrings renders.

Docstrings use Sphinx roles (:class:`Name`), which editors and `help()` readers know, and end in
doctests without a heading. Here a role becomes a link to the API page, if the name is on one, and
doctests become an Examples section.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

_ROLE = re.compile(r":(?:attr|class|data|exc|func|meth|mod):`(?P<short>~?)(?P<name>[\w.]+)`")
_EXAMPLES = "Examples\n--------\n"


class DocstringMarkup(griffe.Extension):
    """Rewrites the docstring of each object before it is parsed."""

    def on_package(self, *, pkg: griffe.Module, **kwargs: Any) -> None:
        """Rewrite the docstrings once all names of the package are known."""
        _rewrite(pkg)


def _rewrite(obj: griffe.Object) -> None:
    if obj.docstring:
        obj.docstring.value = _link_roles(obj, _add_examples_heading(obj.docstring.value))
    for member in obj.members.values():
        if not member.is_alias:
            _rewrite(member)  # type: ignore[arg-type]


def _add_examples_heading(text: str) -> str:
    """Begin an Examples section at the first paragraph that holds a doctest."""
    if _EXAMPLES in text or ">>>" not in text:
        return text
    paragraphs = re.split(r"\n\n", text)
    for number, paragraph in enumerate(paragraphs):
        if paragraph.startswith(">>>") or "\n>>>" in paragraph:
            paragraphs[number] = _EXAMPLES + paragraph
            break
    return "\n\n".join(paragraphs)


def _link_roles(obj: griffe.Object, text: str) -> str:
    def link(match: re.Match[str]) -> str:
        name = match["name"]
        label = name.rpartition(".")[2] if match["short"] else name
        return f'<autoref optional identifier="{_resolve(obj, name)}">`{label}`</autoref>'

    return _ROLE.sub(link, text)


def _resolve(obj: griffe.Object, name: str) -> str:
    """Return the full path of a name as the docstring's object sees it."""
    if name.startswith("hesrpt."):
        return name
    first, _, rest = name.partition(".")
    try:
        path = obj.resolve(first)
    except griffe.NameResolutionError:
        return name
    return f"{path}.{rest}" if rest else path
