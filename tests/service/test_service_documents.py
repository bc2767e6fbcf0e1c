"""The documents of the service: their commands run, and their tables agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from support.paths import ROOT
from support.served_queue import ServedQueue
from support.service_process import start_service

_GUIDE = (ROOT / "docs" / "how-to" / "one-queue-for-a-team.md").read_text()
_REFERENCE = (ROOT / "docs" / "reference" / "http-api.md").read_text()


def find_block(language: str, word: str) -> str:
    """Return the block of a language that contains a word."""
    blocks = re.findall(rf"```{language}\n(.*?)```", _GUIDE, re.DOTALL)
    (found,) = [block for block in blocks if word in block]
    return str(found)


def test_the_commands_of_the_guide_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = f"{sys.executable} -m hesrpt"
    with start_service(tmp_path / "s") as service:
        monkeypatch.setenv("HESRPT_URL", service.url)
        script = re.sub(r"\bhesrpt (?=[a-z])", f"{program} ", find_block("sh", "hesrpt wait"))
        done = subprocess.run(
            ["sh", "-e", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr + done.stdout
        assert "squares: done\nlines: done\nreport: done\n" in done.stdout
        assert "item 2 ('3')\n9\n" in done.stdout
        example = find_block("python", "hesrpt.Client")
        printed = subprocess.run(
            [sys.executable, "-c", example], capture_output=True, text=True, check=True
        ).stdout.splitlines()
        assert printed[:4] == ["done", "a", "", "[3, 6, 9]"]


def test_the_reference_lists_exactly_the_routes(served: ServedQueue) -> None:
    document = served.connect().get("/api/v1/openapi.json").json()
    routes = {
        (method.upper(), path) for path, methods in document["paths"].items() for method in methods
    }
    listed = set(re.findall(r"^\| `(GET|POST|PATCH|DELETE) (\S+)` \|", _REFERENCE, re.MULTILINE))
    assert listed == routes


def test_the_api_is_described_with_examples(served: ServedQueue) -> None:
    document = served.connect().get("/api/v1/openapi.json").json()
    assert "cdn" not in str(document).lower()
    post = document["paths"]["/api/v1/jobs"]["post"]
    (content,) = post["requestBody"]["content"].values()
    for example in content["examples"].values():
        answer = served.connect().post("/api/v1/jobs", json=example["value"])
        assert answer.status_code == 201, answer.text
    shown = document["paths"]["/api/v1/jobs/{name}"]["get"]["responses"]["200"]
    example = shown["content"]["application/json"]["example"]
    name = served.add("true", name="like the example")
    assert len(example) > 15
    assert set(example) <= set(served.client.details(name))  # null is not shown in examples
