"""How well a fitted speedup agrees with the points that it was fitted to."""

from __future__ import annotations

from dataclasses import dataclass

#: Below this R², a fit is bad: it explains less than half of the variation of the points.
MIN_R_SQUARED = 0.5


@dataclass(frozen=True)
class Fit:
    """How well a fitted speedup agrees with measured points.

    Points past the peak of a curve that falls again are left out, because no speedup of these
    families falls. R² is that of the points that were fitted.
    """

    r_squared: float  # NaN for a single point
    standard_error: float  # of the parameter; NaN if the points are too few to tell
    first: float  # the fewest servers of the points that were fitted …
    last: float  # … and the most
    points: int  # the number of points that were fitted
    left_out: int  # the number of points past the peak
    problem: str = ""  # why the fit is bad; empty if it is not

    @property
    def is_bad(self) -> bool:
        """Whether R² is below 0.5."""
        return bool(self.problem)


class Fitted:
    """A speedup that may have been fitted to points; ``fit`` is None if it was not."""

    fit: Fit | None

    @property
    def r_squared(self) -> float | None:
        """The R² of the fit; None for a speedup that was not fitted."""
        return None if self.fit is None else self.fit.r_squared

    @property
    def standard_error(self) -> float | None:
        """The standard error of the fitted parameter; None for a speedup that was not fitted."""
        return None if self.fit is None else self.fit.standard_error
