"""Hypothesis profiles, groups of tests that share a process, their order, and shared fixtures."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import settings
from support.paths import EXAMPLES
from support.served_queue import ServedQueue, serve_queue
from support.slurm_cluster import SEARCH_PATH, SlurmCluster, find_missing_programs

from hesrpt.traces import Trace, read_trace

if TYPE_CHECKING:
    from distributed import LocalCluster

# Settings of the terminal, of a CI service or of other tools would change what commands print, how
# figures are drawn and which Ray cluster is used. Remove them before any test reads them.
for _variable in (
    "COLUMNS",
    "LINES",
    "FORCE_COLOR",
    "NO_COLOR",
    "PY_COLORS",
    "GITHUB_ACTIONS",
    "TTY_COMPATIBLE",
    "TTY_INTERACTIVE",
    "MPLBACKEND",
    "RAY_ADDRESS",
):
    os.environ.pop(_variable, None)

# A shell starts what runs in the background with Ctrl-C ignored, and whatever the tests start would
# inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `make test` is reproducible; `make test-all` tries more examples, and new ones every time.
settings.register_profile("reproducible", deadline=None, derandomize=True, max_examples=20)
settings.register_profile("thorough", deadline=None, max_examples=300, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "reproducible"))


# Each of these groups runs in one process, and they come first. The first two share clusters of
# Dask and Ray, and a browser, and take the longest. The third compiles nearly all code that is ever
# compiled, unless it is on disk already: the files that come last then find it there.
_GROUPS = {
    "clusters": (
        "tests/integrations/test_joblib.py",
        "tests/engines/test_dask_items.py",
        "tests/engines/test_dask_security.py",
        "tests/engines/test_engines.py",
        "tests/engines/test_ray",
        "tests/pool/test_executor.py",
    ),
    "page": ("tests/service/page/",),
    "compiling": (
        "tests/cli/test_cli_errors.py",
        "tests/cli/test_cli_plan.py",
        "tests/cli/test_cli_simulate.py",
        "tests/cli/test_cli_whatif.py",
        "tests/optimal/test_all_orders.py",
        "tests/optimal/test_bounds.py",
        "tests/optimal/test_ordering.py",
    ),
}
_LAST = (
    "tests/optimal",
    "tests/paper",
    "tests/plotting",
    "tests/policies",
    "tests/simulator",
    "tests/speedups",
    "tests/test_documents.py",
    "tests/whatif",
    "docs",
    "src",
)


def _find_group(nodeid: str) -> str | None:
    return next((name for name, paths in _GROUPS.items() if nodeid.startswith(paths)), None)


def _find_place(item: pytest.Item) -> int:
    """Return whether a test runs in one of the groups, after them, or last."""
    group = _find_group(item.nodeid)
    if group is not None:
        return list(_GROUPS).index(group)
    return len(_GROUPS) + item.nodeid.startswith(_LAST)


class _ExamplesOnly:
    """Leaves out files that have neither tests nor examples: importing them takes long."""

    @staticmethod
    def pytest_ignore_collect(collection_path: Path) -> bool | None:
        path = collection_path
        if path.suffix != ".py" or path.name.startswith("test_") or b">>>" in path.read_bytes():
            return None
        return True


def pytest_configure(config: pytest.Config) -> None:
    """Let what is left out be left out everywhere, not only among the tests."""
    config.pluginmanager.register(_ExamplesOnly())


_NEEDS_SLURM = "needs a real Slurm"
# Their examples start Ray, which takes long.
_SLOW_DOCUMENTS = ("docs/how-to/use-a-cluster.md",)


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the tests into order, and skip those that need Slurm, unless they are selected."""
    items.sort(key=_find_place)
    for item in items:
        if item.nodeid.startswith(_SLOW_DOCUMENTS):
            item.add_marker(pytest.mark.slow)
    if "slurm" not in config.getoption("markexpr"):
        for item in items:
            if item.get_closest_marker("slurm"):
                item.add_marker(pytest.mark.skip(reason=_NEEDS_SLURM))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line how to run the tests that were skipped because they need Slurm."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum(_NEEDS_SLURM in str(report.longrepr) for report in skipped)
    if count:
        terminalreporter.line(
            f"{count} tests need a real Slurm and were skipped: "
            "'make test-slurm' installs one and runs them."
        )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Let ``--dist=loadfile`` keep the tests of a file together, and those of a group."""
    if config.getvalue("dist") != "loadfile":
        return None
    from xdist.scheduler import LoadFileScheduling

    class FileScheduling(LoadFileScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            return _find_group(nodeid) or super()._split_scope(nodeid)

    return FileScheduling(config, log)


@pytest.fixture(scope="session")
def example_trace() -> Trace:
    """Return the trace in the folder of examples."""
    return read_trace(EXAMPLES / "cluster.swf")


@pytest.fixture(scope="session")
def slurm_cluster() -> Iterator[SlurmCluster]:
    """Bring up a Slurm cluster of four nodes with four CPUs each, and end it afterwards."""
    missing = find_missing_programs()
    assert not missing, f"not installed: {', '.join(missing)}; 'make test-slurm' installs them"
    with SlurmCluster() as cluster:
        yield cluster


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


@pytest.fixture(scope="session")
def ray_directory() -> Iterator[Path]:
    """Let Ray use a new directory instead of its default one, and remove it afterwards.

    Ray's test clusters write their address into the default directory, which they do not create.
    That fails on a machine that never ran Ray. On any other machine, it would redirect the
    ``ray.init()`` of other programs to the test cluster.
    """
    # Not below pytest's directories: Ray puts sockets into it, whose paths must be short.
    directory = Path(tempfile.mkdtemp(prefix="hesrpt"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(directory))
        (directory / "ray").mkdir()
        yield directory
    shutil.rmtree(directory, ignore_errors=True)


@pytest.fixture(scope="session")
def start_cluster(ray_directory: Path) -> Iterator[Callable[[int], Any]]:
    """Return a function that starts a Ray cluster whose head node has a number of CPUs."""
    from ray.cluster_utils import Cluster

    clusters: list[Any] = []

    def start(cpus: int) -> Any:
        head = {"num_cpus": cpus, "include_dashboard": False, "object_store_memory": 100 * 2**20}
        clusters.append(Cluster(initialize_head=True, head_node_args=head))
        return clusters[-1]

    yield start
    for cluster in clusters:
        cluster.shutdown()


@pytest.fixture(scope="session")
def ray_address(start_cluster: Callable[[int], Any]) -> str:
    """Return the address of a cluster with one node of four CPUs."""
    return str(start_cluster(4).address)


@pytest.fixture(scope="session")
def dask_cluster() -> Iterator[LocalCluster]:
    """Start a Dask cluster with two workers of two threads."""
    from distributed import LocalCluster

    with LocalCluster(
        n_workers=2, threads_per_worker=2, dashboard_address="127.0.0.1:0"
    ) as cluster:
        yield cluster


@pytest.fixture
def dask_address(dask_cluster: LocalCluster) -> str:
    """Return the address of a Dask cluster with two workers of two threads."""
    return str(dask_cluster.scheduler_address)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedQueue]:
    """Serve a queue with two servers to the tests of a file, without a network."""
    with serve_queue(tmp_path_factory.mktemp("queue") / "state") as served:
        yield served
