"""Turns the markup of our docstrings into what mkdocstrings renders.

Docstrings use Sphinx roles (:class:`Name`), which editors and readers of `help()` know, and end in
doctests without a heading. Here a role becomes a link to the API page, if the name is on one, and
doctests become an Examples section. The comment of an attribute (`#:` above it, or `#` after it)
becomes its docstring.
"""

from __future__ import annotations

import re
from pathlib import Path
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
    if isinstance(obj, griffe.Attribute) and not obj.docstring and (comment := _find_comment(obj)):
        obj.docstring = griffe.Docstring(comment, parent=obj)
    if obj.docstring:
        obj.docstring.value = _link_roles(obj, _add_examples_heading(obj.docstring.value))
    for member in obj.members.values():
        if not member.is_alias:
            _rewrite(member)  # type: ignore[arg-type]


def _find_comment(attribute: griffe.Attribute) -> str:
    """Return the comment that describes an attribute, as a sentence."""
    if attribute.lineno is None or not isinstance(attribute.filepath, Path):
        return ""
    lines = attribute.lines_collection[attribute.filepath]
    first = attribute.lineno - 1
    trailing = lines[first].partition("  # ")[2]
    above: list[str] = []
    while first > 0 and (line := lines[first - 1].strip()).startswith("#:"):
        above.insert(0, line.removeprefix("#:").strip())
        first -= 1
    text = " ".join(above) or trailing
    if not text or text.startswith(("noqa", "type:")):
        return ""
    return text[0].upper() + text[1:] + ("" if text.endswith(".") else ".")


def _add_examples_heading(text: str) -> str:
    """Start an Examples section at the first paragraph that contains a doctest."""
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
