"""The examples for PBS and Kubernetes in the documentation, with fakes for what is not here."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml
from distributed import LocalCluster
from support.fake_slurm import install_fake_slurm
from support.paths import EXAMPLES, ROOT
from support.shell import call

from hesrpt import Pool
from hesrpt.engines import DaskEngine

PAGE = (ROOT / "docs" / "how-to" / "on-your-cluster.md").read_text()


def find_example(heading: str) -> str:
    """Return the Python lines below a heading of the page."""
    section = PAGE.partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    (block,) = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    return str(block)


class FakeKubeCluster(LocalCluster):  # type: ignore[misc]
    """Takes the arguments of Dask's ``KubeCluster``; its workers are threads of this process."""

    def __init__(self, *, name: str, image: str, n_workers: int) -> None:
        assert image
        super().__init__(
            n_workers=n_workers,
            threads_per_worker=1,
            processes=False,
            dashboard_address=":0",
        )


def test_example_for_kubernetes(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("dask_kubernetes.operator")
    module.KubeCluster = FakeKubeCluster
    monkeypatch.setitem(sys.modules, "dask_kubernetes", ModuleType("dask_kubernetes"))
    monkeypatch.setitem(sys.modules, "dask_kubernetes.operator", module)
    names: dict[str, Any] = {"Pool": Pool, "DaskEngine": DaskEngine}
    exec(find_example("Kubernetes"), names)
    assert names["lengths"] == [1, 2]
    assert len(names["cluster"].workers) == 4
    names["cluster"].close()


def test_manifest_for_kubernetes_agrees_with_itself(tmp_path: Path) -> None:
    cluster, job = yaml.safe_load_all((EXAMPLES / "kubernetes.yaml").read_text())
    assert (cluster["kind"], job["kind"]) == ("DaskCluster", "Job")
    service = cluster["spec"]["scheduler"]["service"]
    name, (port,) = cluster["metadata"]["name"], service["ports"]
    assert service["selector"]["dask.org/cluster-name"] == name
    (container,) = job["spec"]["template"]["spec"]["containers"]
    program, *words = container["args"]
    assert program == "hesrpt"
    assert f"tcp://{name}-scheduler:{port['port']}" in words
    # The command line is one that hesrpt understands: all that is missing is the jobs file.
    done = call(*words, cwd=tmp_path)
    assert done.stderr == "hesrpt: /jobs/jobs.toml: cannot be read: No such file or directory\n"


@pytest.mark.slow
def test_example_for_pbs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_fake_slurm(tmp_path)
    (tmp_path / "sbatch").rename(tmp_path / "qsub")
    (tmp_path / "scancel").rename(tmp_path / "qdel")
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    names: dict[str, Any] = {"Pool": Pool, "DaskEngine": DaskEngine}
    exec(find_example("PBS, LSF and others"), names)
    assert names["lengths"] == [1, 2]
    names["cluster"].close()
