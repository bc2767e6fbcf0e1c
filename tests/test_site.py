"""The documentation site builds without warnings, is complete, and loads nothing from elsewhere."""

from __future__ import annotations

import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from support.paths import ROOT

import hesrpt
from hesrpt.cli.main import app
from hesrpt.policies import POLICIES

pytestmark = pytest.mark.slow

# The `docs` extra does not install these, so the site must build without them.
BUILD = """
import sys
sys.modules.update(dict.fromkeys(["joblib", "ray"]))
from mkdocs.__main__ import cli
cli()
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("site")
    # With --quiet, warnings are dropped before --strict counts them.
    command = ["-c", BUILD, "build", "--strict", "--site-dir", str(directory)]
    built = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert built.returncode == 0, built.stdout + built.stderr
    return directory


class PageParser(HTMLParser):
    """Collects the addresses that a browser loads to show a page, and the ids in the page."""

    def __init__(self, page: Path) -> None:
        super().__init__()
        self.addresses: list[str] = []
        self.ids: set[str] = set()
        self.feed(page.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        self.ids.add(values.get("id") or "")
        self.addresses += [values.get("src") or "", values.get("srcset") or ""]
        if tag == "link" and values.get("rel") != "canonical":
            self.addresses.append(values.get("href") or "")


def test_pages_load_nothing_from_elsewhere(site: Path) -> None:
    pages = [PageParser(page) for page in site.rglob("*.html")]
    assert len(pages) > 20
    for page in pages:
        assert not [address for address in page.addresses if "//" in address]
    for sheet in site.rglob("*.css"):
        assert "url(http" not in sheet.read_text(encoding="utf-8")


def test_every_public_name_is_documented(site: Path) -> None:
    pages = [PageParser(page) for page in (site / "reference" / "api").rglob("*.html")]
    ids = set().union(*(page.ids for page in pages))
    names = [name for name in hesrpt.__all__ if callable(getattr(hesrpt, name))]
    assert {f"hesrpt.{name}" for name in names} <= ids
    integrations = {
        "hesrpt.integrations.joblib.on_pool",
        "hesrpt.integrations.ray_tune.HeSRPTAllocation",
    }
    assert integrations <= ids


def test_every_command_is_documented(site: Path) -> None:
    page = PageParser(site / "reference" / "cli.html")
    callbacks = [command.callback for command in app.registered_commands]
    commands = [callback.__name__ for callback in callbacks if callback is not None]
    assert len(commands) >= 10
    assert {f"hesrpt-{name}" for name in commands} <= page.ids


def test_every_policy_is_documented(site: Path) -> None:
    text = (site / "reference" / "policies.html").read_text(encoding="utf-8")
    for name in POLICIES:
        assert f"<code>{name}</code>" in text
