"""The Slurm that the other tests use: jobs run, nodes die and come back, nothing is left."""

from __future__ import annotations

import pytest
from support.slurm_cluster import SlurmCluster
from support.waiting import wait_until

pytestmark = pytest.mark.slurm


def test_tasks_run_on_all_nodes(slurm_cluster: SlurmCluster) -> None:
    printed = slurm_cluster.run("srun", "-N4", "-n4", "sh", "-c", "echo $SLURMD_NODENAME")
    assert sorted(printed.split()) == slurm_cluster.nodes


def test_cluster_leaves_nothing_behind() -> None:
    with SlurmCluster(nodes=2) as cluster:
        cluster.run("sbatch", "--output=/dev/null", "--wrap=sleep 1000")
        wait_until(lambda: set(cluster.list_jobs().values()) & set(cluster.nodes) != set())
        (node,) = cluster.list_jobs().values()
        cluster.kill_node(node)
    assert not cluster.directory.exists()
    assert list(cluster._find_processes()) == []
