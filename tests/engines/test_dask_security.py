"""Who can connect to Dask clusters: our own let nobody in, and others are warned about."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import dask
import psutil
import pytest
from distributed import LocalCluster
from distributed.security import Security

from hesrpt import InputError, Pool
from hesrpt.engines import DaskEngine
from hesrpt.engines.dask.dask_connection import warn_of_unprotected_cluster
from hesrpt.engines.slurm.slurm_engine import create_security


@pytest.fixture(autouse=True)
def forget_warnings() -> Iterator[None]:
    """Let other tests and these see all warnings."""
    warn_of_unprotected_cluster.cache_clear()
    yield
    warn_of_unprotected_cluster.cache_clear()


def list_warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return our warnings; Dask logs much of its own."""
    return [record.getMessage() for record in caplog.records if record.name == "hesrpt"]


def list_listeners() -> set[tuple[int, int]]:
    """Return the process and the port of all sockets in which we or our children listen."""
    process = psutil.Process()
    return {
        (member.pid, connection.laddr.port)
        for member in (process, *process.children(recursive=True))
        for connection in member.net_connections("inet")
        if connection.status == psutil.CONN_LISTEN
    }


def test_nobody_can_connect_to_a_cluster_of_our_own(caplog: pytest.LogCaptureFixture) -> None:
    before = list_listeners()
    engine = DaskEngine(2)
    with Pool(engine=engine) as pool:
        assert pool.map(abs, [-1, 2, -3]).results() == [1, 2, 3]
        assert list_listeners() == before
        assert engine.widest_command() == 2
        client = engine.connection.client
        workers = list(client.scheduler_info()["workers"])
        for address in (client.scheduler.address, *workers):
            assert address.startswith("inproc://"), "which only this process can reach"
    assert list_warnings(caplog) == []


def test_cluster_of_our_own_needs_no_keys_where_dask_requires_encryption() -> None:
    with (
        dask.config.set({"distributed.comm.require-encryption": True}),
        Pool(1, engine="dask") as pool,
    ):
        assert pool.map(abs, [-1]).results() == [1]


def test_address_without_tls_is_warned_about_once(
    dask_address: str, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in range(2):
        Pool(1, engine="dask", address=dask_address).close()
    (message,) = list_warnings(caplog)
    assert message.startswith(f"hesrpt: the Dask cluster at {dask_address} is not protected")


def configure_client(security: Security) -> dict[str, str]:
    """Return the settings of Dask with which a client can connect."""
    return {
        "distributed.comm.tls.ca-file": security.tls_ca_file,
        "distributed.comm.tls.client.cert": security.tls_client_cert,
        "distributed.comm.tls.client.key": security.tls_client_key,
    }


def test_tls_address_needs_certificates_in_the_settings_of_dask(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    security = create_security(tmp_path)
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        protocol="tls://",
        security=security,
        dashboard_address="127.0.0.1:0",
    ) as cluster:
        address = cluster.scheduler_address
        with pytest.raises(InputError, match=r"'tls://.* needs certificates: set distributed\."):
            Pool(1, engine="dask", address=address)
        with (
            dask.config.set(configure_client(security)),
            Pool(1, engine="dask", address=address) as pool,
        ):
            assert pool.map(abs, [-1]).results() == [1]
    assert list_warnings(caplog) == []


def test_keys_can_be_read_by_their_owner_only(tmp_path: Path) -> None:
    create_security(tmp_path)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in tmp_path.iterdir()}
    assert modes == {
        "tls_ca_file.pem": "0o600",
        "tls_worker_cert.pem": "0o600",
        "tls_worker_key.pem": "0o600",
    }
