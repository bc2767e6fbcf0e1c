"""What the tests on a real Slurm share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from support.slurm_cluster import SEARCH_PATH, SlurmCluster


@pytest.fixture
def slurm(
    slurm_cluster: SlurmCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[SlurmCluster]:
    """Return a Slurm cluster without jobs, to which all commands in this process refer."""
    for name, value in slurm_cluster.environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PATH", SEARCH_PATH)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    (tmp_path / "home").mkdir()
    yield slurm_cluster
    slurm_cluster.restart_nodes()
