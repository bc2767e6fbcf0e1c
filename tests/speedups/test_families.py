"""Invalid parameters of speedups are reported."""

from __future__ import annotations

import pytest

from hesrpt import Amdahl, InputError, PowerLaw


@pytest.mark.parametrize(
    ("create", "message"),
    [
        (lambda: PowerLaw(0), r"p must lie in \(0, 1\), got 0"),
        (lambda: PowerLaw(1.2), r"p must lie in \(0, 1\), got 1.2"),
        (lambda: PowerLaw(float("nan")), "p must be finite, got nan"),
        (lambda: PowerLaw("half"), "p must be a number, got 'half'"),  # type: ignore[arg-type]
        (lambda: Amdahl(1.1), r"parallel_fraction must lie in \(0, 1\], got 1.1"),
        (lambda: Amdahl(0), "parallel_fraction must lie in"),
        (lambda: PowerLaw(0.5).limited(0), "limit of a speedup must be greater than 0, got 0"),
    ],
)
def test_invalid_parameters_are_reported(create: object, message: str) -> None:
    with pytest.raises(InputError, match=message):
        create()  # type: ignore[operator]
