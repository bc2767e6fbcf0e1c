"""A real Slurm on this machine: a controller, several nodes and munge, all in one directory.

Nothing of it touches a Slurm that may be installed and running here: the ports are free ones, the
key and the socket of munge are its own, and every process is a child of the tests. It needs neither
systemd nor cgroups. Each node is a ``slurmd`` with a port of its own, and may have more CPUs than
the machine.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import psutil

from hesrpt.engines.local.processes import die_with_parent
from support.waiting import wait_until

PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scancel", "squeue", "sinfo")
#: Daemons are often in directories that ordinary users do not search.
SEARCH_PATH = os.pathsep.join([os.environ.get("PATH", os.defpath), "/usr/sbin", "/sbin"])


def find_missing_programs() -> list[str]:
    """Return the programs of Slurm and munge that are not installed."""
    return [name for name in PROGRAMS if shutil.which(name, path=SEARCH_PATH) is None]


class SlurmCluster:
    """A Slurm cluster with some nodes, for the duration of a ``with`` block."""

    def __init__(self, nodes: int = 4, cpus: int = 4) -> None:
        self.nodes = [f"node{number + 1}" for number in range(nodes)]
        self.cpus = cpus
        # Not below pytest's directories: munge wants each directory above its socket to be
        # accessible to all, and the path of a socket must be short.
        self.directory = Path(tempfile.mkdtemp(prefix="hesrpt-slurm-"))
        self.config = self.directory / "slurm.conf"
        self._daemons: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables with which Slurm's commands find this cluster."""
        return {"SLURM_CONF": str(self.config)}

    def __enter__(self) -> SlurmCluster:
        try:
            self._write_files()
            self._start_daemon(
                "munged",
                *("--foreground", "--num-threads=2"),
                f"--key-file={self.directory}/munge/key",
                f"--socket={self._munge_socket}",
                f"--pid-file={self.directory}/munge/pid",
                f"--log-file={self.directory}/log/munged",
                f"--seed-file={self.directory}/munge/seed",
            )
            wait_until(self._munge_socket.exists, 20)
            self._start_daemon("slurmctld", "-D", "-f", str(self.config))
            for node in self.nodes:
                self.start_node(node)
            wait_until(lambda: self._find_idle_nodes() == set(self.nodes), 60)
        except BaseException as error:
            logs = sorted((self.directory / "log").glob("*"))
            for log in logs:
                error.add_note(f"{log.name}: {log.read_text(errors='replace')[-1000:]}")
            self.close()
            raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """End all jobs and daemons, and remove the directory."""
        with contextlib.suppress(subprocess.SubprocessError, AssertionError):
            self.run("scancel", "--user", get_user())
            wait_until(lambda: not self.list_jobs("running"), 10)
        # What is left of jobs whose node was killed has no daemon above it any more.
        processes = list(self._find_processes())
        for process in processes:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        for daemon in self._daemons.values():
            daemon.kill()
            daemon.wait()
        psutil.wait_procs(processes, 5)
        shutil.rmtree(self.directory, ignore_errors=True)

    # --- what tests do with it ------------------------------------------------------------------

    def run(self, *command: str) -> str:
        """Run one of Slurm's commands and return what it prints."""
        done = subprocess.run(
            command,
            env={**os.environ, **self.environment, "PATH": SEARCH_PATH},
            capture_output=True,
            text=True,
            timeout=30,
            check=True,
        )
        return done.stdout

    def list_jobs(self, state: str = "all") -> dict[str, str]:
        """Return the node of each job that has not ended; "" for those that wait."""
        states = ["--states", state] if state != "all" else []
        lines = self.run("squeue", "--noheader", "--format=%i|%N", *states).splitlines()
        return {job: node for job, _, node in (line.strip().partition("|") for line in lines)}

    def start_node(self, node: str) -> None:
        """Start the daemon of a node."""
        self._start_daemon("slurmd", "-D", "-f", str(self.config), "-N", node, name=node)

    def restart_nodes(self) -> None:
        """Start the daemons of the nodes that were killed, and wait until all nodes are idle."""
        for node in self.nodes:
            if node not in self._daemons:
                self.start_node(node)
        wait_until(lambda: self._find_idle_nodes() == set(self.nodes))

    def kill_node(self, node: str) -> None:
        """Kill the daemon of a node and everything that runs there, as if it lost its power."""
        daemon = self._daemons.pop(node)
        jobs = {job for job, place in self.list_jobs().items() if place == node}
        daemon.send_signal(signal.SIGKILL)
        daemon.wait()
        for process in self._find_processes():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_JOB_ID") in jobs:
                    process.kill()

    # --- how it comes up ------------------------------------------------------------------------

    @property
    def _munge_socket(self) -> Path:
        return self.directory / "munge_socket" / "munge.sock"

    def _start_daemon(self, program: str, *arguments: str, name: str = "") -> None:
        path = shutil.which(program, path=SEARCH_PATH)
        assert path is not None, f"{program} is not installed"
        with open(self.directory / "log" / f"{name or program}.out", "wb") as output:
            self._daemons[name or program] = subprocess.Popen(
                [path, *arguments],
                env={**os.environ, **self.environment},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,  # Ctrl+C in the terminal of the tests ends them by `close`
                preexec_fn=end_with_tests,
            )

    def _find_idle_nodes(self) -> set[str]:
        with contextlib.suppress(subprocess.SubprocessError):  # the controller is not up yet
            return set(self.run("sinfo", "--noheader", "-N", "-t", "idle", "-o", "%N").split())
        return set()

    def _find_processes(self) -> Iterator[psutil.Process]:
        """Yield the processes of this cluster, even those that have lost their parents."""
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error):
                if process.environ().get("SLURM_CONF") == str(self.config):
                    yield process

    def _write_files(self) -> None:
        self.directory.chmod(0o755)
        for name in ("log", "state", "munge", "munge_socket"):
            (self.directory / name).mkdir(mode=0o755)
        for node in self.nodes:
            (self.directory / "spool" / node).mkdir(parents=True)
        (self.directory / "munge").chmod(0o700)
        key = self.directory / "munge" / "key"
        key.write_bytes(secrets.token_bytes(128))
        key.chmod(0o400)
        ports = find_free_ports(1 + len(self.nodes))
        self.config.write_text("\n".join(self._list_settings(ports)) + "\n")

    def _list_settings(self, ports: Sequence[int]) -> Iterator[str]:
        host, user = socket.gethostname().partition(".")[0], get_user()
        yield "ClusterName=hesrpt"
        yield f"SlurmctldHost={host}(127.0.0.1)"
        yield f"SlurmctldPort={ports[0]}"
        yield f"SlurmUser={user}"
        yield f"SlurmdUser={user}"
        yield "AuthType=auth/munge"
        yield f"AuthInfo=socket={self._munge_socket}"
        yield "CredType=cred/munge"
        yield f"StateSaveLocation={self.directory}/state"
        yield f"SlurmdSpoolDir={self.directory}/spool/%n"
        yield f"SlurmctldPidFile={self.directory}/slurmctld.pid"
        yield f"SlurmdPidFile={self.directory}/slurmd-%n.pid"
        yield f"SlurmctldLogFile={self.directory}/log/slurmctld"
        yield f"SlurmdLogFile={self.directory}/log/slurmd-%n"
        yield "ProctrackType=proctrack/linuxproc"  # no cgroups
        yield "TaskPlugin=task/none"
        yield "SlurmdParameters=config_overrides"  # nodes may have more CPUs than the machine
        yield "SelectType=select/cons_tres"
        yield "SelectTypeParameters=CR_Core"
        yield "MpiDefault=none"
        yield "AccountingStorageType=accounting_storage/none"
        yield "JobCompType=jobcomp/none"
        yield "ReturnToService=2"  # a node whose daemon comes back takes jobs again
        yield "SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0"
        yield "KillWait=2"
        yield "SlurmdTimeout=5"  # seconds until a silent node is taken to be down
        yield "MessageTimeout=5"
        yield "TCPTimeout=2"
        yield "MinJobAge=300"
        for node, port in zip(self.nodes, ports[1:], strict=True):
            yield (
                f"NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} "
                f"CPUs={self.cpus} RealMemory=4000 State=UNKNOWN"
            )
        yield "PartitionName=main Nodes=ALL Default=YES MaxTime=INFINITE State=UP"


def find_free_ports(count: int) -> list[int]:
    """Return ports on which nobody listens now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]


def end_with_tests() -> None:
    """Let a daemon be killed when the tests are: then nobody else would end it."""
    die_with_parent(signal.SIGKILL)


def get_user() -> str:
    """Return the name of the user who runs the tests, whatever the environment says."""
    return pwd.getpwuid(os.geteuid()).pw_name
