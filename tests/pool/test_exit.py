"""How scripts end: submitted calls end first, nothing is left behind, and no traceback is printed.

Each script runs in a process of its own.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from uuid import uuid4

import psutil
import pytest
from support.waiting import wait_until

_VARIABLE = "HESRPT_TEST_SCRIPT"  # marks the processes of a script
_PRELUDE = """
import atexit, os, signal, sys, threading, time
from hesrpt import InputError, JobError, Pool

def slowly(text):
    time.sleep(0.3)
    print(text, flush=True)
    return text

def wait_for_start(path="started"):
    while not os.path.exists(path):
        time.sleep(0.01)

def sleep(_):
    open("started", "w").close()
    time.sleep(600)

def interrupt_soon():
    timer = threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT))
    timer.daemon = True
    timer.start()
"""


@dataclass(frozen=True)
class Script:
    """A script, and how it should end."""

    text: str
    prints: tuple[str, ...] = ()  # lines, in any order
    code: int = 0
    complains: tuple[str, ...] = ()  # what standard error must contain; nothing if empty
    may_warn: bool = False  # whether it depends on chance that a job is stopped


SCRIPTS = {
    "calls end before the interpreter": Script(
        """
        executor = Pool(2).executor()
        futures = [executor.submit(slowly, text) for text in "abc"]
        """,
        prints=("a", "b", "c"),
    ),
    "calls end though executor and pool are out of reach": Script(
        """
        def submit():
            with Pool(1).executor() as executor:
                pass
            executor = Pool(1).executor()
            executor.submit(slowly, "a")
            executor.submit(slowly, "b").add_done_callback(lambda f: print("called back"))
        submit()
        """,
        prints=("a", "b", "called back"),
    ),
    "calls end though the executor was shut down without waiting": Script(
        """
        executor = Pool(1).executor()
        executor.submit(slowly, "a")
        executor.shutdown(wait=False)
        """,
        prints=("a",),
    ),
    "waiting calls are cancelled on request": Script(
        """
        executor = Pool(1).executor()
        executor.submit(slowly, "a")
        cancelled = [executor.submit(sleep, k) for k in range(9)]
        executor.shutdown(wait=False, cancel_futures=True)
        """,
        prints=("a",),
    ),
    "a running job is stopped with a warning": Script(
        """
        pool = Pool(2)
        pool.map(sleep, range(4), name="endless")
        wait_for_start()
        """,
        complains=("hesrpt: the script has ended before job 'endless'", "call pool.wait()"),
    ),
    "a job that has ended is no reason to complain": Script(
        """
        pool = Pool(1)
        print(pool.map(abs, [-1]).results())
        """,
        prints=("[1]",),
    ),
    "sys.exit in the with block stops jobs": Script(
        """
        with Pool(2) as pool:
            pool.map(sleep, range(4))
            wait_for_start()
            sys.exit(3)
        """,
        code=3,
    ),
    "an error in the with block stops jobs": Script(
        """
        with Pool(2) as pool:
            pool.map(sleep, range(4))
            wait_for_start()
            raise LookupError("oops")
        """,
        code=1,
        complains=("LookupError: oops",),
    ),
    "after an error in the main thread, calls end and jobs are stopped": Script(
        """
        pool = Pool(2)
        pool.executor().submit(slowly, "a")
        pool.map(sleep, range(4))
        wait_for_start()
        raise LookupError("oops")
        """,
        prints=("a",),
        code=1,
        complains=("LookupError: oops",),
    ),
    "Ctrl-C stops jobs and calls": Script(
        """
        pool = Pool(2)
        call = pool.executor().submit(sleep, 0)
        job = pool.map(sleep, range(4))
        wait_for_start()
        interrupt_soon()
        job.results()
        """,
        code=-signal.SIGINT,
        complains=("KeyboardInterrupt",),
    ),
    "Ctrl-C in the with block stops jobs and calls": Script(
        """
        with Pool(2) as pool, pool.executor() as executor:
            call = executor.submit(sleep, 0)
            wait_for_start()
            interrupt_soon()
            call.result()
        """,
        code=-signal.SIGINT,
        complains=("KeyboardInterrupt",),
    ),
    "Ctrl-C while the interpreter waits for calls": Script(
        """
        call = Pool(2).executor().submit(sleep, 0)
        wait_for_start()
        interrupt_soon()
        """,
    ),
    "sys.exit in a thread ends only the thread": Script(
        """
        pool = Pool(1)
        def work():
            print(pool.map(abs, [-1]).results())
            sys.exit()
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        print(pool.map(abs, [-2]).results())
        """,
        prints=("[1]", "[2]"),
    ),
    "a thread goes on after the main thread": Script(
        """
        def work():
            time.sleep(0.3)  # the main thread has ended by now
            with Pool(1) as pool, pool.executor() as executor:
                print(pool.map(abs, [-1]).results(), executor.submit(abs, -2).result())
        threading.Thread(target=work).start()
        """,
        prints=("[1] 2",),
    ),
    "a daemon thread uses the pool until the end": Script(
        """
        pool, is_running = Pool(1), threading.Event()
        def work():
            try:
                while True:
                    pool.map(abs, [-1]).results()
                    is_running.set()
            except (InputError, JobError):  # the pool was closed
                pass
        threading.Thread(target=work, daemon=True).start()
        is_running.wait()
        """,
        may_warn=True,
    ),
    "the pool is a global variable of another module": Script(
        """
        with open("module.py", "w") as file:
            file.write("from hesrpt import Pool; pool = Pool(1); executor = pool.executor()")
        sys.path.insert(0, "")
        import module
        module.executor.submit(slowly, "a")
        """,
        prints=("a",),
    ),
    "calls end before a process of multiprocessing": Script(
        """
        import multiprocessing
        def work():
            Pool(1).executor().submit(slowly, "a")
        process = multiprocessing.get_context("fork").Process(target=work)
        process.start()
        process.join()
        sys.exit(process.exitcode)
        """,
        prints=("a",),
    ),
    "a function registered after the pool still uses it": Script(
        """
        pool = Pool(1)
        atexit.register(lambda: print(pool.map(abs, [-1]).results()))
        """,
        prints=("[1]",),
    ),
    "os._exit leaves nothing behind": Script(
        """
        pool = Pool(2)
        pool.map(sleep, range(4))
        wait_for_start()
        os._exit(4)
        """,
        code=4,
    ),
    "SIGTERM leaves nothing behind": Script(
        """
        pool = Pool(2)
        pool.map(sleep, range(4))
        wait_for_start()
        os.kill(os.getpid(), signal.SIGTERM)
        """,
        code=-signal.SIGTERM,
    ),
}


def find_processes(mark: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get(_VARIABLE) == mark and process.status() != "zombie":
                found.append(process)
        except psutil.Error:
            pass
    return found


#: What is similar to another script.
SLOW = {
    "calls end though the executor was shut down without waiting",
    "waiting calls are cancelled on request",
    "a job that has ended is no reason to complain",
    "an error in the with block stops jobs",
    "Ctrl-C in the with block stops jobs and calls",
    "sys.exit in a thread ends only the thread",
    "a thread goes on after the main thread",
    "the pool is a global variable of another module",
    "calls end before a process of multiprocessing",
    "a function registered after the pool still uses it",
    "os._exit leaves nothing behind",
}


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[pytest.mark.slow] if name in SLOW else []) for name in SCRIPTS],
)
def test_script_ends_cleanly(name: str, tmp_path: Path) -> None:
    script, mark = SCRIPTS[name], uuid4().hex
    (tmp_path / "script.py").write_text(_PRELUDE + textwrap.dedent(script.text))
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env={**os.environ, _VARIABLE: mark},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert sorted(done.stdout.splitlines()) == sorted(script.prints), done.stderr
    assert done.returncode == script.code, done.stderr
    for text in script.complains:
        assert text in done.stderr
    if not script.complains:
        assert done.stderr == "" or (script.may_warn and "ended before job" in done.stderr)
    assert done.stderr.count("Traceback") == (script.code in (1, -signal.SIGINT)), done.stderr
    wait_until(lambda: not find_processes(mark))
