"""Platforms of SimGrid: how fast the nodes of a simulated machine are, and how many there are."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from hesrpt.traces.slurm_ids import count_tasks

_MAX_BYTES = 10_000_000
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_NODES = re.compile(r"<(cluster|host)\b([^>]*)>")
_SPEED = re.compile(r"""\bspeed\s*=\s*["']\s*([0-9.eE+]+)\s*([kMGTPE]?)f?\s*["']""")
_RADICAL = re.compile(r"""\bradical\s*=\s*["']([^"']*)["']""")
_UNITS = {unit: 1000.0**power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))}


@dataclass(frozen=True)
class Platform:
    """The compute nodes of a simulated machine."""

    speed: float  # flops per second of a node; NaN if nodes differ
    nodes: int


def find_platform(directory: Path) -> Platform | None:
    """Return the platform in a directory, or None unless it contains exactly one."""
    texts = []
    try:
        for path in directory.glob("*.xml"):
            if path.is_file() and path.stat().st_size <= _MAX_BYTES:
                text = path.read_text(errors="replace")
                if "<platform" in text:
                    texts.append(text)
    except OSError:
        return None
    return parse_platform(texts[0]) if len(texts) == 1 else None


def parse_platform(text: str) -> Platform | None:
    """Return the platform in an XML text. Hosts with speed 0 are not compute nodes.

    >>> parse_platform('<cluster radical="0-127" speed="100Gf"/><host id="disk" speed="0f"/>')
    Platform(speed=100000000000.0, nodes=128)
    """
    nodes: dict[float, int] = {}
    for kind, attributes in _NODES.findall(_COMMENT.sub("", text)):
        match, radical = _SPEED.search(attributes), _RADICAL.search(attributes)
        try:
            speed = float(match[1]) * _UNITS[match[2]] if match else 0.0
        except ValueError:
            return None
        if speed > 0:
            number = count_tasks(radical[1]) if kind == "cluster" and radical else 1
            nodes[speed] = nodes.get(speed, 0) + number
    if not nodes:
        return None
    return Platform(next(iter(nodes)) if len(nodes) == 1 else math.nan, sum(nodes.values()))
