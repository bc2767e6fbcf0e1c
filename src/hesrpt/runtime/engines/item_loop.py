"""The loop in which a worker runs the items of a group, one after another.

There may be millions of items that take hardly any time, so the loop does as little as possible for
each: it calls the function, and writes the result to the worker's board if that is a number.
Whatever else happens interrupts the loop.

This module runs in workers, which must start quickly, so it imports little.
"""

from __future__ import annotations

import contextlib
import os
import pickle
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from hesrpt.runtime.engines.call_reports import (
    CallReport,
    read_clock,
    report_error,
    report_unwritable_output,
    run_and_report,
)
from hesrpt.runtime.engines.error_details import dump_result_pieces
from hesrpt.runtime.engines.output import OutputCapture
from hesrpt.runtime.engines.packed_results import INTEGERS, NUMBER_CODES, PICKLED
from hesrpt.runtime.engines.replies import Replies
from hesrpt.runtime.engines.result_board import MAX_RESULTS, ResultBoard
from hesrpt.runtime.engines.shared_files import LARGE_BYTES, Pickled
from hesrpt.runtime.text import describe_value

# How long results of short items are gathered before they are sent together, in seconds.
_GATHER_SECONDS = 0.005
_NUMBER_TYPES = {code: kind for kind, code in NUMBER_CODES.items()}
# The first byte of what was printed, if nobody wants to know that.
_NO_BYTE = (0,)
#: The note of a process that was forked from a worker.
FORK = "fork"

#: Returns the function of a group, which may have to be unpickled first.
FunctionLoader = Callable[[], Callable[[Any], Any]]


class ItemLoop:
    """Runs items, and reports what becomes of them.

    Parameters
    ----------
    notes
        Is empty unless an item has forked, in the new process, which must not run further items, or
        has printed something that is not written yet.
    """

    def __init__(self, board: ResultBoard, replies: Replies, notes: Collection[object]) -> None:
        self._board, self._replies, self._notes = board, replies, notes

    def run_alone(self, load_function: FunctionLoader, argument: Any, log: Path) -> None:
        """Run one item, whose output goes directly to its log."""
        began = self._begin()
        work = partial(self._call, load_function, argument)
        report = run_and_report(work, log, partial(_describe, argument))
        if report.error is not None:
            self._replies.send_failure(report)
            return
        assert report.result is not None
        self._add(_Group(iter(())), *report.result, began)
        self._end(report.result[0])

    def _call(
        self, load_function: FunctionLoader, argument: Any
    ) -> tuple[Callable[[Any], Any], Any, list[Pickled]]:
        """Return a function, what it returns, and the pickled form of that."""
        try:
            function = load_function()
            result = function(pickle.loads(argument) if type(argument) is bytes else argument)
            return function, result, dump_result_pieces(result)
        finally:
            self._end_fork()

    def run_group(
        self,
        load_function: FunctionLoader,
        arguments: Sequence[Any],
        *,
        has_pickled: bool,
        output: OutputCapture | None = None,
    ) -> None:
        """Run items one after another. If some are ``pickled``, these are bytes."""
        group = _Group(iter(arguments), has_pickled, output)
        group.can_be_numbers = True
        while group.done < len(arguments):
            began = self._begin()
            try:
                function = load_function()
            except BaseException as error:
                self._fail(group, 0, error, next(group.arguments), began)
                group.done += 1
                continue
            self._run_some(group, function, began)

    def _begin(self) -> float:
        """Let the next item begin; return when that is."""
        if not self._board.can_begin:
            self._replies.send_results()
        began = read_clock()
        self._board.begin(began)
        return began

    def _run_some(self, group: _Group, function: Callable[[Any], Any], began: float) -> None:
        """Run items until something else is to be done, and do that."""
        board, notes, clock, loads = self._board, self._notes, read_clock, pickle.loads
        started, ends, base = board.started, board.ends, board.base + 1
        number_type, numbers = _NUMBER_TYPES.get(board.code), board.numbers.get(board.code)
        first_byte = _NO_BYTE if group.output is None else group.output.watch()
        has_pickled, send_at = group.has_pickled, self._replies.sent_at + _GATHER_SECONDS
        first = place = board.finished
        # Functions that may need a new worker are asked after each item.
        limit = first + 1 if _can_ask(function) else MAX_RESULTS
        for place, argument in zip(range(first, limit), group.arguments, strict=False):
            started[0] = base + place
            try:
                if has_pickled and type(argument) is bytes:
                    result = function(loads(argument))
                else:
                    result = function(argument)
            except BaseException as error:  # even sys.exit(): an item must not end its worker
                self._end_fork()
                before = ends[place - 1] if place > first else began
                self._fail(group, place - first, error, argument, before)
                break
            if type(result) is number_type and not notes and not first_byte[0]:
                try:
                    numbers[place] = result  # type: ignore[index]
                except ValueError:  # it has more than 64 bits
                    pass
                else:
                    ends[place] = ended = clock()
                    if ended > send_at:
                        break
                    continue
            if notes:
                self._end_fork()
            before = ends[place - 1] if place > first else began
            if not self._finish(group, place - first, function, argument, result, before):
                break
        group.done += place - first + 1
        self._end(function)

    def _finish(
        self,
        group: _Group,
        place: int,
        function: Callable[[Any], Any],
        argument: Any,
        result: Any,
        started: float,
    ) -> bool:
        """Finish the running item, which may have printed something, or has returned no number.

        Returns whether the next item can follow at once.
        """
        try:
            pieces = dump_result_pieces(result)
        except BaseException as error:
            self._end_fork()
            self._fail(group, place, error, argument, started)
            return False
        if group.output is not None:
            try:
                group.save_output(place)
            except OSError as error:
                self._replies.send_failure(report_unwritable_output(error))
                return False
        can_follow = self._add(group, function, result, pieces, started)
        return can_follow and read_clock() <= self._replies.sent_at + _GATHER_SECONDS

    def _end(self, function: Callable[[Any], Any]) -> None:
        """Let the running item end, and send results if that is due."""
        self._board.pause()
        if _needs_new_worker(function):
            self._replies.send_last_results()
        elif read_clock() > self._replies.sent_at + _GATHER_SECONDS:
            self._replies.send_results()

    def _add(
        self,
        group: _Group,
        function: Callable[[Any], Any],
        result: Any,
        pieces: list[Pickled],
        started: float,
    ) -> bool:
        """Add the result of the running item, which is not of the same kind as those before.

        Returns whether other results of the same kind can be added after it.
        """
        board, ended = self._board, read_clock()
        if sum(map(len, pieces)) > LARGE_BYTES:
            is_last = _needs_new_worker(function)
            self._replies.send_large_result(ended - started, pieces, is_last=is_last)
            return False
        pickled = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        place = board.finished
        for code in {_find_code(result), group.choose_code(result)}:
            if place > 0 and code == board.code and self._write(code, result, pickled, place):
                board.ends[place] = ended
                return True
        self._replies.send_results()
        board.note_start(started)
        board.use(code := group.choose_code(result))
        self._write(code, result, pickled, 0)
        board.ends[0] = ended
        group.can_be_numbers = False
        return False

    def _write(self, code: str, result: Any, pickled: Pickled, place: int) -> bool:
        """Write a result to the board; return False if there is no room for it."""
        if code == PICKLED:
            return self._board.add_pickled(pickled, place)
        self._board.numbers[code][place] = result
        return True

    def _fail(
        self, group: _Group, place: int, error: BaseException, argument: Any, started: float
    ) -> None:
        """Report that the running item has raised an error."""
        report: CallReport[Any] = report_error(
            error,
            read_clock() - started,
            partial(_describe, argument),
            is_logged=group.output is not None,
        )
        if group.output is not None:
            with contextlib.suppress(OSError):
                group.save_output(place)
        self._replies.send_failure(report)

    def _end_fork(self) -> None:
        """End this process if an item has forked, and this is the child."""
        if FORK in self._notes:
            os._exit(0)


class _Group:
    """The items of a group that are still to be run."""

    def __init__(
        self,
        arguments: Iterator[Any],
        has_pickled: bool = True,
        output: OutputCapture | None = None,
    ) -> None:
        self.arguments, self.has_pickled, self.output = arguments, has_pickled, output
        self.done = 0  # how many have been run
        self.can_be_numbers = False  # whether its next result may be written as a number

    def save_output(self, place: int) -> None:
        """Save what an item has printed, given how many have been run since the last was done."""
        assert self.output is not None
        self.output.save(self.done + place)

    def choose_code(self, result: Any) -> str:
        """Choose how to write a result if that is not of the same kind as those before.

        Each change costs a message, so after one change all results of the group are pickled.
        """
        return _find_code(result) if self.can_be_numbers else PICKLED


def _find_code(result: Any) -> str:
    """Return how to write a result, if it were the only one."""
    code = NUMBER_CODES.get(type(result), PICKLED)
    return PICKLED if code == INTEGERS and result.bit_length() > 63 else code


def _can_ask(function: Callable[[Any], Any]) -> bool:
    # Ask its class, because objects of others may do anything when they are asked.
    return hasattr(type(function), "needs_new_worker")


def _needs_new_worker(function: Callable[[Any], Any]) -> bool:
    return _can_ask(function) and bool(function.needs_new_worker)  # type: ignore[attr-defined]


def _describe(argument: Any) -> str:
    return describe_value(pickle.loads(argument) if type(argument) is bytes else argument)
