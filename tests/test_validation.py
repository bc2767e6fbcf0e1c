"""Argument checks, and the errors they raise."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import numpy as np
import pytest

from hesrpt.errors import FitError, InputError
from hesrpt.validation import (
    check_at_least,
    check_between,
    check_choice,
    check_flag,
    check_non_negative_vector,
    check_number,
    check_positive,
    check_positive_vector,
    check_same_length,
    check_vector,
    check_whole_number,
    is_number,
)


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_number("n", "4"), "n must be a number, got '4'"),
        (lambda: check_number("n", None), "n must be a number, got None"),
        (lambda: check_number("n", float("nan")), "n must be finite, got nan"),
        (lambda: check_number("n", "x" * 100), "n must be a number, got '" + "x" * 58 + "…"),
        (lambda: check_positive("n", 0), "n must be greater than 0, got 0"),
        (lambda: check_at_least("n", 1.5, 2), "n must be at least 2, got 1.5"),
        (lambda: check_between("n", 3, 0, 2), "n must lie between 0 and 2, got 3"),
        (
            lambda: check_whole_number("n", 2.5, 1),
            "n must be a whole number of at least 1",
        ),
        (lambda: check_whole_number("n", 0, 1), "n must be a whole number of at least 1, got 0"),
        (lambda: check_choice("n", "c", ["a", "b"]), "n must be one of a, b, got 'c'"),
        (lambda: check_choice("n", 3, ["a", "b"]), "n must be one of a, b, got 3"),
        (lambda: check_flag("n", "no"), "n must be True or False, got 'no'"),
        (lambda: check_vector("n", ["1"]), "n must be a list of numbers, got ['1']"),
        (lambda: check_vector("n", [True]), "n must be a list of numbers, got [True]"),
        (lambda: check_vector("n", [[1.0]]), "n must be a flat list of numbers, got [[1.0]]"),
        (lambda: check_vector("n", [1, np.inf]), "n[1] must be finite, got inf"),
        (lambda: check_positive_vector("n", [1, 0]), "n[1] must be greater than 0, got 0"),
        (lambda: check_non_negative_vector("n", [-1]), "n[0] must be at least 0, got -1"),
        (lambda: check_same_length("n", [1], 2), "n must have one entry per job: 2 expected, 1"),
    ],
)
def test_errors_name_the_argument_and_the_value(check: Callable[[], object], message: str) -> None:
    with pytest.raises(InputError) as raised:
        check()
    assert str(raised.value).startswith(message)
    assert raised.value.argument is not None
    assert str(raised.value) == f"{raised.value.argument} {raised.value.problem}"


def test_valid_values_are_converted() -> None:
    assert check_number("n", np.int64(3)) == 3.0
    assert isinstance(check_whole_number("n", 3.0, 0), int)
    assert check_flag("n", np.True_) is True
    assert check_choice("n", "a", ["a", "b"]) == "a"
    assert check_vector("n", iter([1, 2])).tolist() == [1.0, 2.0]  # type: ignore[arg-type]
    assert is_number("1e3")
    assert not is_number("many")


def test_vectors_are_copied() -> None:
    values = np.array([1.0, 2.0])
    check_vector("n", values)[0] = 5.0
    assert values.tolist() == [1.0, 2.0]


@pytest.mark.parametrize(
    "error", [InputError("no"), InputError("must be 1", argument="n"), FitError("no fit")], ids=str
)
def test_errors_survive_pickling(error: InputError) -> None:
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is type(error)
    assert (str(copy), copy.problem, copy.argument) == (str(error), error.problem, error.argument)
