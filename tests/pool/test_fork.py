"""Forks of a script with an open pool: they cannot use it, and the parent never notices them."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import psutil
import pytest
from support.waiting import wait_until

from hesrpt import Pool

_PRELUDE = """
import asyncio, gc, multiprocessing, os, signal, sys, threading, time
from hesrpt import InputError, Pool

def expect_refusal(use):
    try:
        use()
    except InputError as error:
        assert f"belongs to process {os.getppid()}" in str(error), error
        return
    raise AssertionError("the forked process could use the pool")

def reap(pid):
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert code == 0, f"the forked process ended with code {code}"

def linger(_):
    "Wait until the parent creates a file: the fork is made meanwhile."
    while not os.path.exists("go"):
        time.sleep(0.01)

async def wait_for(job):
    return await job

def check(pool):
    "Check that the parent can still use its pool."
    assert pool.map(lambda x: x * x, range(20)).results(timeout=60) == [x * x for x in range(20)]
    with pool.executor() as executor:
        assert list(executor.map(abs, range(-20, 0))) == list(range(20, 0, -1))
    print("parent done", flush=True)
"""

SCRIPTS = {
    "every use is refused": """
        with Pool(2) as pool, pool.executor() as executor:
            job = pool.map(linger, range(4), size=2)
            call = executor.submit(linger, 0)
            while job.eta is None:
                assert not job.wait(0.02)
            repr(pool), pool._repr_html_()
            assert not {"numba", "rich", "IPython"} & set(sys.modules)  # a repr loads nothing
            if (pid := os.fork()) == 0:
                signal.alarm(60)
                for use in (
                    lambda: pool.map(abs, [1]),
                    lambda: pool.executor(),
                    lambda: executor.submit(abs, 1),
                    lambda: pool.wait(),
                    lambda: list(pool.as_completed()),
                    lambda: pool.snapshot(),
                    lambda: pool.predict_ends(),
                    lambda: pool.progress(),
                    lambda: job.wait(),
                    lambda: job.results(),
                    lambda: next(job.iter_results()),
                    lambda: asyncio.run(wait_for(job)),
                    lambda: job.add_done_callback(print),
                    lambda: job.cancel(),
                    lambda: call.result(),
                    lambda: call.exception(),
                ):
                    expect_refusal(use)
                assert repr(pool).startswith(f"<Pool: of process {os.getppid()}, 2 servers")
                assert repr(job).startswith("<Job 'linger': "), repr(job)
                pool._repr_html_(), job._repr_html_(), job.state, job.eta, pool.jobs
                executor.shutdown()
                pool.close()
                sys.exit(0)
            reap(pid)
            open("go", "w").close()
            assert job.results(timeout=60) == [None] * 4 and call.result(60) is None
            check(pool)
        """,
    "the fork leaves the with block and ends": """
        with Pool(2, state="state") as pool:
            job = pool.map(time.sleep, [0.5] * 4)
            pid = os.fork()
            signal.alarm(60)
            if pid > 0:
                reap(pid)
                check(pool)
                assert job.results(timeout=60) == [None] * 4
        """,
    "the fork raises an error in the with block": """
        pid = None
        try:
            with Pool(2) as pool:
                job = pool.map(time.sleep, [0.5] * 4)
                pid = os.fork()
                if pid == 0:
                    raise LookupError
                reap(pid)
                check(pool)
        except LookupError:
            pass
        """,
    "the fork drops everything": """
        pool = Pool(2, state="state")
        job, executor = pool.map(time.sleep, [0.5] * 4), pool.executor()
        call = executor.submit(time.sleep, 0.5)
        if (pid := os.fork()) == 0:
            signal.alarm(60)
            del pool, job, executor, call
            gc.collect()
            sys.exit(0)
        reap(pid)
        assert job.results(timeout=60) == [None] * 4 and call.result(60) is None
        check(pool)
        """,
    "what had ended before the fork can be read": """
        pool = Pool(2)
        job, call = pool.map(abs, [-1, -2]), pool.executor().submit(abs, -3)
        assert job.wait(60) and call.result(60) == 3
        if (pid := os.fork()) == 0:
            assert job.results() == [1, 2] and call.result() == 3
            assert asyncio.run(wait_for(job)) == list(job.iter_results()) == [1, 2]
            job.add_done_callback(lambda job: os._exit(0))
        reap(pid)
        check(pool)
        """,
    "multiprocessing forks": """
        pool = Pool(2)
        def use_pool():
            expect_refusal(lambda: pool.map(abs, [1]))
        process = multiprocessing.get_context("fork").Process(target=use_pool)
        process.start()
        process.join(60)
        assert process.exitcode == 0
        check(pool)
        """,
    "a fork with a terminal": """
        pool = Pool(2)
        pid, terminal = os.forkpty()
        if pid == 0:
            expect_refusal(lambda: pool.map(abs, [1]))
            sys.exit(0)
        reap(pid)
        check(pool)
        """,
    "the fork has a pool of its own": """
        pool = Pool(2)
        if (pid := os.fork()) == 0:
            signal.alarm(60)
            with Pool(1) as other:
                assert other.map(abs, [-1, -2]).results(timeout=60) == [1, 2]
            Pool(1).executor().submit(abs, -1).result(60)
            sys.exit(0)
        reap(pid)
        check(pool)
        """,
    "locks are held while the process forks": """
        sys.setswitchinterval(1e-5)
        pool = Pool(2)
        executor = pool.executor()
        is_done = threading.Event()
        def submit():
            while not is_done.is_set():
                executor.submit(abs, -1).result()
        def add():
            while not is_done.is_set():
                pool.map(abs, range(5)).results()
                pool.snapshot()
        threads = [threading.Thread(target=target) for target in (submit, add, submit, add)]
        for thread in threads:
            thread.start()
        executor.submit(abs, -1).result()
        for _ in range(5):
            if (pid := os.fork()) == 0:
                signal.alarm(60)  # ends a fork that waits for a lock
                expect_refusal(lambda: executor.submit(abs, 1))
                expect_refusal(lambda: pool.map(abs, [1]))
                executor.shutdown()
                pool.close()
                del executor, pool
                gc.collect()
                sys.exit(0)
            reap(pid)
        is_done.set()
        for thread in threads:
            thread.join()
        check(pool)
        """,
}


#: What is similar to another script.
SLOW = {
    "the fork leaves the with block and ends",
    "the fork raises an error in the with block",
    "what had ended before the fork can be read",
    "a fork with a terminal",
    "the fork has a pool of its own",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in SCRIPTS],
)
def test_parent_goes_on(name: str, tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(_PRELUDE + textwrap.dedent(SCRIPTS[name]))
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "script.py"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "parent done\n", "")


def test_fork_keeps_nothing_alive_after_its_parent_was_killed(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(
        _PRELUDE
        + textwrap.dedent("""
        pool = Pool(2, state="state")
        def work(_):
            with open("workers", "a") as file:
                file.write(f"{os.getpid()}\\n")
            time.sleep(600)
        pool.map(work, range(2), name="work", retries=0)
        while not os.path.exists("workers") or len(open("workers").readlines()) < 2:
            time.sleep(0.01)
        if (pid := os.fork()) == 0:
            time.sleep(600)
        print(pid, flush=True)
        time.sleep(600)
        """)
    )
    parent = subprocess.Popen(
        [sys.executable, "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    fork = psutil.Process(int(parent.stdout.readline()))
    try:
        workers = [int(line) for line in (tmp_path / "workers").read_text().splitlines()]
        os.kill(parent.pid, signal.SIGKILL)
        parent.wait()
        wait_until(lambda: not any(map(psutil.pid_exists, workers)))
        with Pool(1, state=tmp_path / "state", resume=True) as pool:
            pool.map(abs, [-1], name="other").results(timeout=60)
        assert fork.is_running()
    finally:
        fork.kill()
        parent.stdout.close()
