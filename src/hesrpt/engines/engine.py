"""What every engine can do, and the tasks and outcomes that pass through it.

The driver sees one machine, a cluster and a test's fake engine through the same few methods.
"""

from __future__ import annotations

import contextlib
import queue
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias, TypeVar

import cloudpickle

from hesrpt.decisions.core import MAX_BATCH
from hesrpt.engines.item_reports import NO_DETAILS, ErrorDetails
from hesrpt.errors import InputError
from hesrpt.jobs.text import describe_value
from hesrpt.pickling import Pickled, dump_pieces
from hesrpt.storage.logs import LogPaths


def pickle_value(value: Any, pickler: type[cloudpickle.Pickler] = cloudpickle.Pickler) -> bytes:
    """Pickle a value for another process; lambdas and closures are allowed."""
    return b"".join(pickle_in_pieces(value, pickler))


def pickle_in_pieces(value: Any, pickler: type[cloudpickle.Pickler]) -> list[Pickled]:
    """Pickle a value for another process; large parts of it are not copied."""
    try:
        return dump_pieces(value, pickler)
    except Exception as error:
        subject = describe_value(value)
        raise InputError(f"{subject} cannot be sent to another process: {error}") from error


_function_numbers = count()


@dataclass(frozen=True, eq=False)
class PackedFunction:
    """A pickled function, which each worker receives once; items refer to it by number."""

    pickled: bytes  # empty if it is in a file
    number: int = field(default_factory=_function_numbers.__next__)
    #: Where modules are imported from. The script may have changed it since the worker started.
    path: list[str] = field(default_factory=lambda: list(sys.path))
    #: Files that it needs. Each worker receives copies of them.
    fds: Sequence[int] = ()
    #: Whether it is in the last of these files, because it is large.
    is_in_file: bool = False


@dataclass(frozen=True, kw_only=True)
class PythonTask:
    """A function and its argument, both packed by the engine that will run them."""

    function: Any
    argument: Any
    timeout: float | None = None
    log: Path | None = None
    keep_result: bool = False  # leave the result on the node that computed it
    variables: Mapping[str, str] = field(default_factory=dict)  # added to the environment
    holds_resources: bool = False  # besides a server


@dataclass(frozen=True)
class CommandTask:
    """A program with its arguments, or one line for the shell."""

    command: str | tuple[str, ...]
    _: KW_ONLY
    shell: tuple[str, ...] = ("/bin/sh",)  # which runs a line, with options
    variables: Mapping[str, str] = field(default_factory=dict)  # added to its environment
    directory: Path | None = None
    stdin: str | None = None  # what it reads from its standard input; None: nothing
    stdin_file: str | None = None  # or the file with that, relative to the directory
    timeout: float | None = None
    log: Path | None = None
    pin_cores: bool = False  # pin the command to as many cores as it has servers
    max_servers: int | None = None  # the most that it may ever have; None: no limit
    holds_resources: bool = False  # besides servers


Task: TypeAlias = PythonTask | CommandTask


@dataclass(eq=False)
class PythonTasks(Mapping[int, Task]):
    """The tasks of a batch that calls one function: an argument for each item.

    A job may have millions of short items, so there is no task object for each of them.
    """

    numbers: Sequence[int]
    arguments: Sequence[Any]
    _: KW_ONLY
    function: Any
    timeout: float | None = None
    logs: LogPaths | None = None
    keep_results: bool = False
    variables: Mapping[str, str] = field(default_factory=dict)  # added to the environment
    holds_resources: bool = False  # besides a server

    @classmethod
    def from_task(cls, item: int, task: PythonTask) -> PythonTasks:
        """Create the batch of one item."""
        logs = None if task.log is None else LogPaths(str(task.log), None)
        return cls(
            (item,),
            (task.argument,),
            function=task.function,
            timeout=task.timeout,
            logs=logs,
            keep_results=task.keep_result,
            variables=task.variables,
            holds_resources=task.holds_resources,
        )

    def slice(self, start: int, stop: int) -> PythonTasks:
        """Return a part of the batch."""
        numbers, arguments = self.numbers[start:stop], self.arguments[start:stop]
        return replace(self, numbers=numbers, arguments=arguments)

    def without(self, items: Container[int]) -> PythonTasks:
        """Return the batch without some of the items."""
        pairs = zip(self.numbers, self.arguments, strict=True)
        left = [(number, argument) for number, argument in pairs if number not in items]
        numbers, arguments = zip(*left, strict=True) if left else ((), ())
        return replace(self, numbers=numbers, arguments=arguments)

    def __getitem__(self, item: int) -> PythonTask:
        return PythonTask(
            function=self.function,
            argument=self.arguments[self.numbers.index(item)],
            timeout=self.timeout,
            log=None if self.logs is None else self.logs.get(item),
            keep_result=self.keep_results,
            variables=self.variables,
            holds_resources=self.holds_resources,
        )

    def __iter__(self) -> Iterator[int]:
        return iter(self.numbers)

    def __len__(self) -> int:
        return len(self.numbers)


def reserve(
    tasks: Mapping[int, Task], variables: Mapping[str, str], *, holds_resources: bool
) -> Mapping[int, Task]:
    """Return tasks with variables added to their environments."""
    if isinstance(tasks, PythonTasks):
        tasks.variables, tasks.holds_resources = variables, holds_resources
        return tasks
    return {
        item: replace(
            task, variables={**task.variables, **variables}, holds_resources=holds_resources
        )
        for item, task in tasks.items()
    }


@dataclass(frozen=True)
class Outcome:
    """How an item ended: with a pickled result, a reference to a result, or an error.

    A lost item ended without any of these, for instance because its node died, and has to run
    again. An item that failed or was lost is reported when its processes and all their descendants
    are gone, so it can start again without meeting them.
    """

    job: str
    item: int
    seconds: float
    _: KW_ONLY
    result: Pickled = b""
    error: str | None = None
    details: ErrorDetails = NO_DETAILS  # of the error
    reference: Any = None
    is_lost: bool = False
    was_started: bool = True  # False for a lost item that certainly never ran

    @property
    def is_done(self) -> bool:
        """Whether the item ended without an error."""
        return self.error is None and not self.is_lost


class FinishedItems(NamedTuple):
    """Several items of a batch that have ended with results, in ascending order."""

    job: str
    items: Sequence[int]
    seconds: Sequence[float]
    results: Sequence[Pickled]


class Engine(ABC):
    """Runs items and reports the outcome of each exactly once.

    One thread calls all methods, except :meth:`wake`, :meth:`pack_function`,
    :meth:`pack_argument` and :meth:`fetch`, which any thread may call.

    An engine must define the abstract methods. The others have defaults, for engines with a fixed
    number of servers that can do nothing else.
    """

    #: Seconds of work to send to a server at once; 0 sends one item at a time.
    batch_seconds: float = 0.0
    #: The most items to send to a server at once.
    max_batch: int = MAX_BATCH
    #: Whether :meth:`resize` can change the servers of a running command.
    can_resize: bool = False
    #: Whether :meth:`suspend` can suspend a running command.
    can_suspend: bool = False
    #: Whether :meth:`request_servers` may change the number of servers.
    can_grow: bool = False
    #: Whether results can stay on the node that computed them.
    can_keep_results: bool = False
    #: Whether workers are replaced after a call of a function whose ``needs_new_worker`` is True.
    can_replace_workers: bool = False

    # --- servers ------------------------------------------------------------------------------

    @abstractmethod
    def capacity(self) -> int:
        """Return the current number of servers."""

    def max_capacity(self) -> float:
        """Return the most servers that there can ever be; infinity if nothing limits them."""
        return self.capacity()

    def widest_command(self) -> int:
        """Return the most servers that one command can have now."""
        return self.capacity()

    def max_command_width(self) -> float:
        """Return the most servers that one command can ever have."""
        return self.max_capacity()

    def request_servers(self, servers: int) -> None:  # noqa: B027 (most engines cannot grow)
        """Report how many servers the jobs could use; an engine that can grow may do so."""

    def resource_totals(self) -> Mapping[str, float]:
        """Return how much there is of each resource beside servers that items may need."""
        return {}

    # --- functions, arguments and results -----------------------------------------------------

    def pack_function(self, function: Any) -> Any:
        """Pack a function for tasks; data it carries is sent to each worker only once."""
        return function

    def pack_argument(self, argument: Any) -> Any:
        """Pack an argument for a task."""
        return argument

    def fetch(self, reference: Any) -> Any:
        """Return the result that a reference refers to."""
        return reference

    # --- running items ------------------------------------------------------------------------

    def claim(self, directory: Path) -> None:  # noqa: B027 (most engines leave nothing behind)
        """Kill what an earlier run in this state directory has left behind.

        Called before anything is started, by the one scheduler that has locked the directory.
        """

    @abstractmethod
    def start(self, job: str, tasks: Mapping[int, Task], servers: int) -> None:
        """Start a batch of items, keyed by item number; they run one after another.

        They may have to wait in the engine, for a server, or for the end of an earlier attempt
        that was stopped. Each item is reported soon after it has ended. If one ends its server, the
        items after it are reported as lost.
        """

    @abstractmethod
    def stop(self, job: str, item: int) -> None:
        """Stop an item, without waiting for its end.

        It is reported only if it was done before it could be stopped. The item may be started again
        at once: the engine waits until the stopped one is gone, and if that turns out to be done,
        this is the outcome.
        """

    def stop_items(self, job: str, items: Sequence[int]) -> None:
        """Stop several items of a batch."""
        for item in items:
            self.stop(job, item)

    def is_stopping(self, job: str) -> bool:
        """Return whether stopped items of a job are not gone yet, or have still to be reported.

        :meth:`wait_for_outcomes` returns as soon as that is no longer so.
        """
        return False

    def resize(self, job: str, item: int, servers: int) -> None:
        """Change the number of servers of a running command, if ``can_resize``."""
        raise NotImplementedError

    def suspend(self, job: str, item: int) -> None:
        """Suspend a running command with all its descendants, and free its servers.

        Its time limit stands still, and the outcome does not count the time in its seconds. Called
        only if ``can_suspend``.
        """
        raise NotImplementedError

    def resume(self, job: str, item: int, servers: int) -> None:
        """Let a suspended command go on, with this many servers."""
        raise NotImplementedError

    # --- waiting ------------------------------------------------------------------------------

    def now(self) -> float:
        """Return the current time in seconds, on the clock that times items."""
        return time.monotonic()

    @abstractmethod
    def wait_for_outcomes(self, timeout: float) -> Sequence[Outcome | FinishedItems]:
        """Return the outcomes of items that have ended since the last call.

        If there are none, wait up to ``timeout`` seconds for one, or until :meth:`wake` is called.
        """

    @abstractmethod
    def wake(self) -> None:
        """Make :meth:`wait_for_outcomes` return immediately."""

    @abstractmethod
    def close(self) -> Sequence[Outcome | FinishedItems]:
        """Stop everything that is running, and leave no process behind.

        Returns the outcomes of items that were done before they could be stopped.
        """

    def close_after_fork(self) -> None:  # noqa: B027 (most engines have no files)
        """In a process forked from the engine's: close its files, and affect nothing else."""


T = TypeVar("T")


def take_all(messages: queue.SimpleQueue[T], timeout: float) -> Iterator[T]:
    """Yield what is in a queue; if it is empty, wait up to ``timeout`` seconds for something."""
    with contextlib.suppress(queue.Empty):
        yield messages.get(timeout=timeout)
        while True:
            yield messages.get_nowait()


#: Read by NVIDIA's libraries, and by AMD's.
_CUDA, _HIP = "CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES"


def choose_gpu_variables(gpus: Sequence[int], environment: Mapping[str, str]) -> dict[str, str]:
    """Return the variables for a process that may use these GPUs, and no others.

    If the scheduler itself may use only some GPUs, indices count among these.

    >>> choose_gpu_variables((0, 1), {})
    {'CUDA_VISIBLE_DEVICES': '0,1', 'HIP_VISIBLE_DEVICES': '0,1'}
    >>> choose_gpu_variables((1,), {"CUDA_VISIBLE_DEVICES": "4,5"})
    {'CUDA_VISIBLE_DEVICES': '5', 'HIP_VISIBLE_DEVICES': '5'}
    >>> choose_gpu_variables((), {})
    {'CUDA_VISIBLE_DEVICES': '', 'HIP_VISIBLE_DEVICES': '-1'}
    """
    if not gpus:
        return {_CUDA: "", _HIP: "-1"}  # an empty text would not hide AMD's
    allowed = [name for name in environment.get(_CUDA, "").split(",") if name.strip()]
    names = [allowed[gpu].strip() if gpu < len(allowed) else str(gpu) for gpu in gpus]
    return {_CUDA: ",".join(names), _HIP: ",".join(names)}


def check_server_resources(resources: Mapping[str, float]) -> dict[str, float]:
    """Return the resources of a server as a dictionary, or raise an error.

    >>> check_server_resources({"CPU": 1, "GPU": 0.5})
    {'CPU': 1, 'GPU': 0.5}
    """
    if not isinstance(resources, Mapping) or not resources:
        raise InputError(f"must be like {{'CPU': 1}}, got {resources!r}", argument="resources")
    for name, amount in resources.items():
        is_number = isinstance(amount, int | float) and not isinstance(amount, bool)
        if not is_number or not 1e-4 <= amount < 1e15:
            raise InputError(
                f"must hold 0.0001 to 1e15 of {name!r}, got {amount!r}", argument="resources"
            )
    return dict(resources)
