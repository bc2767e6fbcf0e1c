"""What users see of errors in other processes: exceptions, tracebacks, causes, and the item."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hesrpt import Job, JobError, Pool
from hesrpt.engines.local.shared_objects import pickle_for_one
from hesrpt.jobs.text import add_source_lines
from hesrpt.scheduler.python_source import PythonSource, ReadAhead


@pytest.fixture(scope="module")
def pool() -> Iterator[Pool]:
    with Pool(servers=2) as created:
        yield created


def fail(pool: Pool, function: Callable[[Any], Any], item: Any, **options: Any) -> Job[Any]:
    """Add a job with one item, which fails."""
    job = pool.map(function, [item], name="job", retries=0, **options)
    assert job.wait(60)
    assert job.state == "failed"
    return job


def read_number(path: str) -> int:
    try:
        return {"x": 1}[path]
    except KeyError as error:
        raise ValueError(f"no number in {path}") from error


def test_traceback_shows_the_causes_as_in_concurrent_futures(pool: Pool) -> None:
    job = fail(pool, read_number, "y.txt")
    assert job.error == "item 0 ('y.txt'): ValueError: no number in y.txt"
    with pytest.raises(JobError, match=r"^job 'job.*' failed: item 0 \('y.txt'\): Val") as caught:
        job.results()
    cause = caught.value.__cause__
    assert isinstance(cause, ValueError)
    assert cause.args == ("no number in y.txt",)
    shown = "".join(traceback.format_exception(caught.value))
    parts = [
        '"""\nTraceback (most recent call last):\n',
        'return {"x": 1}[path]',
        "KeyError: 'y.txt'\n\nThe above exception was the direct cause of the following exception",
        "in read_number\n    raise ValueError",
        'ValueError: no number in y.txt\n"""\n\nThe above exception was the direct cause',
        "hesrpt.errors.JobError: job ",
    ]
    places = [shown.index(part) for part in parts]
    assert places == sorted(places)
    assert "worker.py" not in shown
    assert job.failures[0].traceback in shown


def test_source_lines_of_other_processes_stay_and_missing_ones_are_added(tmp_path: Path) -> None:
    script = tmp_path / "cell.py"
    script.write_text("first\n    second\n")
    text = (
        "  + Exception Group Traceback (most recent call last):\n"
        f'  |   File "{script}", line 1, in f\n'
        f'  |   File "{script}", line 2, in g\n'
        "  |     known\n"
        "  | ExceptionGroup: errors (1 sub-exception)\n"
        f'File "{script}", line 2, in <module>\n'
        f'File "{script}", line 9, in h\n'
        'File "<stdin>", line 1, in i\n'
        "ValueError: what\n"
    )
    lines = text.splitlines()
    lines.insert(2, "  |     first")
    lines.insert(7, "  second")
    assert add_source_lines(text).splitlines() == lines


def test_cause_is_the_same_in_another_thread(pool: Pool) -> None:
    job = fail(pool, read_number, "y.txt")
    causes = []

    def read() -> None:
        try:
            job.results()
        except JobError as error:
            causes.append(error.__cause__)

    threads = [threading.Thread(target=read) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(causes) == 2
    assert all(isinstance(cause, ValueError) for cause in causes)


class LockedError(Exception):
    """Cannot be pickled."""

    def __init__(self, message: str) -> None:
        super().__init__(message, threading.Lock())


class StrictError(Exception):
    """Can be pickled, but not unpickled: its arguments are not those of its class."""

    def __init__(self, name: str, place: str) -> None:
        super().__init__(f"{name} is not in {place}")


@pytest.mark.parametrize(
    ("error", "problem"),
    [
        (lambda: LockedError("stuck"), "LockedError cannot be pickled: TypeError: cannot pickle"),
        (lambda: StrictError("a", "b"), "StrictError cannot be pickled: TypeError: "),
        (lambda: OSError(bytes(2**21)), "OSError cannot be pickled: 2,097,"),
    ],
)
def test_exception_that_cannot_be_pickled_is_named(
    pool: Pool, error: Callable[[], Exception], problem: str
) -> None:
    def function(_: int) -> None:
        raise error()

    (failure,) = fail(pool, function, 1).failures
    assert isinstance(failure.exception, pickle.PicklingError)
    assert problem in str(failure.exception)
    assert "in function\n    raise error()" in str(failure.exception.__cause__)


def test_syntax_error_is_named_in_the_first_line(pool: Pool) -> None:
    job = fail(pool, eval, "1 +")
    assert job.error == "item 0 ('1 +'): SyntaxError: invalid syntax (<string>, line 1)"


def test_result_that_cannot_be_pickled_is_named(pool: Pool) -> None:
    job = fail(pool, lambda x: (y for y in range(x)), 3)
    problem = "its result, a generator, cannot be pickled: TypeError: cannot pickle 'generator'"
    assert str(job.error).startswith(f"item 0 (3): {problem}")
    assert str(job.failures[0].exception).startswith(problem)


def test_argument_that_cannot_be_pickled_fails_only_its_item(pool: Pool, tmp_path: Path) -> None:
    def generate() -> Iterator[Any]:
        yield 1
        yield (x for x in "abc")
        yield 3

    job = pool.map(lambda x: x, generate(), on_error="keep")
    first, error, last = job.results(errors="return")
    assert (first, last) == (1, 3)
    problem = "its argument, a generator, cannot be pickled: TypeError: cannot pickle 'generator'"
    assert str(error).startswith(problem)
    assert "item 1 (<generator object" in str(job.error)
    assert problem in str(job.error)


@dataclass(frozen=True)
class Photo:
    name: str


def kill_worker(_: object) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def test_item_is_named_even_if_its_process_was_killed(pool: Pool) -> None:
    job = fail(pool, kill_worker, Path("a/x.png"))
    end = "the process ended (ended by signal 9, SIGKILL) before the item did"
    assert job.error == f"item 0 (PosixPath('a/x.png')): {end}"


def test_items_are_described_without_running_code_of_others() -> None:
    described = {
        "x.png": "'x.png'",
        ("a", (1, 2.5)): "('a', (1, 2.5))",
        "a\x1b[31m\n" * 50: r"'a\x1b[31m\na\x1b[31m\na",
        Photo("x"): "",  # its class would have to be imported
    }
    source = PythonSource(
        None,
        (),
        pack_argument=pickle_for_one,
        read_ahead=lambda: ReadAhead(9, 9),
    )
    for number, (item, text) in enumerate(described.items()):
        source.unfinished[number] = pickle_for_one(item)
        assert source.describe_value(number).startswith(text)
        assert len(source.describe_value(number)) < 110
    assert source.describe_value(3) == ""


def test_item_of_any_class_is_named_if_it_raises_an_exception(pool: Pool) -> None:
    def function(photo: Photo) -> None:
        raise ValueError("bad")

    assert fail(pool, function, Photo("x")).error == "item 0 (Photo(name='x')): ValueError: bad"


def test_time_limit_is_named(pool: Pool) -> None:
    job = fail(pool, time.sleep, 60, timeout=0.2)
    assert job.error == "item 0 (60): exceeded its time limit of 0.2 s (timeout=0.2)"
    with pytest.raises(JobError) as caught:
        job.results()
    assert isinstance(caught.value.__cause__, TimeoutError)


SCRIPT = """
from hesrpt import JobError, Pool

class OwnError(Exception):
    pass

def fail(x):
    raise OwnError(x)

for resume in (False, True):
    with Pool(1, state="state", resume=resume) as pool:
        try:
            pool.map(fail, ["a"], retries=0).results()
        except JobError as error:
            assert type(error.__cause__) is OwnError, error.__cause__
            last = error
raise last
"""


def test_exception_of_a_script_keeps_its_class_also_after_a_resume(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, "script.py"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    last = "hesrpt.errors.JobError: job 'fail' failed: item 0 ('a'): OwnError: a"
    assert done.stderr.splitlines()[-1] == last, done.stderr
    assert "line 8, in fail\n    raise OwnError(x)" in done.stderr
