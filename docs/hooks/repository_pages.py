"""Turns files outside docs/ into pages: CONTRIBUTING.md, CHANGELOG.md and the examples."""

from __future__ import annotations

import os
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[2]
LANGUAGES = {".py": "python", ".toml": "toml", ".csv": "text", ".swf": "text", ".yaml": "yaml"}
MAX_LINES = 60  # of a data file, before it is cut off

#: Files of the repository and the pages they become.
PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changes.md"}
PAGES |= {
    f"examples/{path.name}": f"examples/{path.name}.md"
    for path in sorted((ROOT / "examples").iterdir())
    if path.suffix in LANGUAGES
}


def on_config(config: MkDocsConfig) -> None:
    """Add the pages to the navigation, as its last tab."""
    examples = [{Path(file).name: page} for file, page in PAGES.items() if "/" in file]
    project: list[Any] = [
        {"Contributing": PAGES["CONTRIBUTING.md"]},
        {"Changes": PAGES["CHANGELOG.md"]},
        {"Examples": examples},
    ]
    assert config.nav is not None
    config.nav.append({"Project": project})


def on_files(files: Files, config: MkDocsConfig) -> None:
    """Add the pages."""
    for file, page in PAGES.items():
        text = (ROOT / file).read_text(encoding="utf-8")
        content = text if file.endswith(".md") else _format_listing(file, text)
        files.append(File.generated(config, page, content=content))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, **_: Any) -> str:
    """Redirect links to files outside docs/ to the pages generated from them."""
    sources = {page: file for file, page in PAGES.items()}
    here = posixpath.dirname(sources.get(page.file.src_uri, f"docs/{page.file.src_uri}"))

    def redirect(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(here, match[1]))
        inside = PAGES.get(target) or (
            target.removeprefix("docs/") if target.startswith("docs/") else None
        )
        if inside is None:
            return match[0]
        return f"]({os.path.relpath(inside, posixpath.dirname(page.file.src_uri) or '.')}"

    return re.sub(r"\]\((?!\w+:|#)([^)#\s]+)", redirect, markdown)


def _format_listing(file: str, text: str) -> str:
    lines, language = text.splitlines(), LANGUAGES[Path(file).suffix]
    if language == "text" and len(lines) > MAX_LINES:
        lines = [*lines[:MAX_LINES], "…"]
    return f"# {file}\n\n```{language}\n" + "\n".join(lines) + "\n```\n"
