"""A state directory that cannot be written to: no item is reported as done, and nothing is lost."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.inline_engine import InlineEngine

import hesrpt
from hesrpt import Pool, StateError
from hesrpt.reports.inspection import read_status
from hesrpt.storage.journal import Journal
from hesrpt.storage.journal_entries import Changes

ITEMS, RESULT_BYTES = 60, 100_000

HESRPT = (sys.executable, "-m", "hesrpt")
IN_NEW_MOUNTS = ("unshare", "--mount", "--map-root-user", "sh", "-c")

# Runs a job whose results do not fit, and prints what the caller sees.
SCRIPT = """
import resource, sys
from pathlib import Path
from support.inline_engine import InlineEngine
from hesrpt import Pool, StateError

state, result_bytes, limit, items = Path(sys.argv[1]), *map(int, sys.argv[2:])
if limit:
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
pool = Pool(state=state, engine=InlineEngine())
job = pool.map(lambda item: bytes([item]) * result_bytes, range(items), name="job")
for _ in range(2):  # it fails in the same way whenever it is asked for
    try:
        job.results()
    except StateError as error:
        print(job.state, error)
try:
    pool.wait()
except StateError as error:
    print(job.state, error)
try:
    pool.map(len, ["more"])
except StateError as error:
    print(job.state, error)
pool.close()
print(job.state)
"""

needs_mounts = pytest.mark.skipif(
    shutil.which("unshare") is None
    or subprocess.run(
        [*IN_NEW_MOUNTS, "mount -t tmpfs none /mnt"],
        capture_output=True,
        check=False,
    ).returncode
    != 0,
    reason="this system does not let us mount file systems",
)


def compute_results(state: Path, *, result_bytes: int = RESULT_BYTES) -> tuple[list[bytes], int]:
    """Resume the job in this process; return its results, and how many items were done again."""
    engine = InlineEngine()
    # The function does the same as that of the script, but it is not the same.
    with Pool(state=state, resume=True, on_change="keep", engine=engine) as pool:
        job = pool.map(lambda item: bytes([item]) * result_bytes, range(ITEMS), name="job")
        return job.results(), engine.calls


def get_environment() -> dict[str, str]:
    paths = [str(Path(__file__).parents[1]), str(Path(hesrpt.__file__).parents[1])]
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths)}


def run_script(*arguments: str, items: int = ITEMS, prefix: tuple[str, ...] = ()) -> list[str]:
    done = subprocess.run(
        [*prefix, sys.executable, "-c", SCRIPT, *arguments, str(items)],
        env=get_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.splitlines()


def on_small_disk(folder: Path, size: str) -> tuple[str, ...]:
    """Return what to write before a command so that ``disk`` is a small file system meanwhile.

    Afterwards, ``copy`` holds what was on it.
    """
    (folder / "disk").mkdir()
    script = f"""
    mount -t tmpfs -o size={size},mode=700 none {folder}/disk && "$@"; code=$?
    cp -a {folder}/disk {folder}/copy; exit $code
    """
    return (*IN_NEW_MOUNTS, script, "sh")


def check_failures(lines: list[str], file: str, reason: str) -> None:
    *failures, end = lines
    assert end == "cancelled"
    assert len(failures) == 4
    for failure in failures:
        # Whether it waits for items to be read is a matter of chance.
        assert re.fullmatch(f"(running|waiting) {file}: .*{reason}", failure), failure


def check_resume(state: Path, *, result_bytes: int = RESULT_BYTES) -> None:
    results, calls = compute_results(state, result_bytes=result_bytes)
    assert results == [bytes([item]) * result_bytes for item in range(ITEMS)]
    assert 0 < calls < ITEMS


def test_limit_on_file_sizes(tmp_path: Path) -> None:
    state = tmp_path / "s"
    lines = run_script(str(state), str(RESULT_BYTES), "2000000")
    check_failures(lines, f"{state}/state.db", r"2000000 bytes is reached \(ulimit -f\)")
    check_resume(state)


def test_last_outcome_of_a_job_that_cannot_be_written(tmp_path: Path) -> None:
    lines = run_script(str(tmp_path / "s"), "900000", "500000", items=1)
    check_failures(lines, f"{tmp_path}/s/state.db", r"\(ulimit -f\)")
    assert [(job.state, job.done) for job in read_status(tmp_path / "s").jobs] == [("waiting", 0)]


@pytest.mark.slow
def test_limit_on_file_sizes_and_a_large_result(tmp_path: Path) -> None:
    state = tmp_path / "s"
    *failures, _ = run_script(str(state), "3000000", "2000000")
    for failure in failures:
        assert re.fullmatch(
            f"running {state}/results/1-[0-9a-f]+: cannot be written: File too large", failure
        )
    assert list((state / "results").iterdir()) == []
    results, calls = compute_results(state, result_bytes=3_000_000)
    assert (len(results), calls) == (ITEMS, ITEMS)


@needs_mounts
def test_full_disk(tmp_path: Path) -> None:
    lines = run_script(
        f"{tmp_path}/disk/s", str(RESULT_BYTES), "0", prefix=on_small_disk(tmp_path, "3m")
    )
    check_failures(lines, f"{tmp_path}/disk/s/state.db", "full")
    check_resume(tmp_path / "copy" / "s")


@needs_mounts
def test_full_disk_and_large_results(tmp_path: Path) -> None:
    lines = run_script(f"{tmp_path}/disk/s", "1100000", "0", prefix=on_small_disk(tmp_path, "9m"))
    check_failures(lines, f"{tmp_path}/disk/s/results/1-[0-9a-f]+", "No space left on device")
    check_resume(tmp_path / "copy" / "s", result_bytes=1_100_000)


@needs_mounts
def test_disk_that_is_filled_by_the_output_of_items(tmp_path: Path) -> None:
    jobs = tmp_path / "jobs.toml"
    jobs.write_text(
        f'[[job]]\nname = "a"\nitems = {{range = [0, {ITEMS}]}}\n'
        f'command = "head -c {RESULT_BYTES} /dev/zero && echo {{item}} >> ran"\n'
    )
    done = subprocess.run(
        [
            *on_small_disk(tmp_path, "3m"),
            *HESRPT,
            "run",
            str(jobs),
            "--state",
            f"{tmp_path}/disk/s",
        ],
        env=get_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    state = tmp_path / "copy" / "s"
    (before,) = read_status(state).jobs
    assert 0 < before.done < ITEMS
    subprocess.run(
        [*HESRPT, "run", "--state", str(state)],
        env=get_environment(),
        capture_output=True,
        timeout=60,
        check=True,
    )
    (after,) = read_status(state).jobs
    assert (after.state, after.done) == ("done", ITEMS)
    assert {int(line) for line in (tmp_path / "ran").read_text().split()} == set(range(ITEMS))


@needs_mounts
def test_read_only_directory(tmp_path: Path) -> None:
    Pool(state=tmp_path / "s", engine=InlineEngine()).close()
    script = (
        f"mount --bind {tmp_path} {tmp_path} && mount -o remount,ro,bind {tmp_path} && " + '"$@"'
    )
    done = subprocess.run(
        [*IN_NEW_MOUNTS, script, "sh", *HESRPT, "run", "--state", f"{tmp_path}/s"],
        env=get_environment(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "state.db: unable to open database file: the directory cannot be written to" in (
        done.stderr
    )


def test_removed_directory(tmp_path: Path) -> None:
    with Pool(state=tmp_path / "s", engine=InlineEngine()) as pool:
        assert pool.map(abs, [-1], name="first").results() == [1]
        shutil.rmtree(tmp_path / "s")
        job = pool.map(abs, [-2], name="second")
        with pytest.raises(StateError, match=r"/s: was removed while the scheduler was running"):
            job.results()
        pool.close()


def test_job_has_not_ended_before_its_last_outcome_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reached, may_go_on = threading.Event(), threading.Event()
    write = Journal.write

    def write_slowly(journal: Journal, changes: Changes) -> None:
        if any(record.ended is not None for record in changes.jobs):
            reached.set()
            assert may_go_on.wait(60)
        write(journal, changes)

    monkeypatch.setattr(Journal, "write", write_slowly)
    with Pool(state=tmp_path / "s", engine=InlineEngine()) as pool:
        job = pool.map(abs, [-1, -2])
        assert reached.wait(60)
        assert job.state == "running"
        assert not job.wait(timeout=0.01)
        assert not read_status(tmp_path / "s").jobs[0].has_ended
        may_go_on.set()
        assert job.results() == [1, 2]
        assert read_status(tmp_path / "s").jobs[0].state == "done"
