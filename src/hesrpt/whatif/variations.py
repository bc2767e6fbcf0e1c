"""Studies repeated with one thing varied, which accompany a study if they were asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from hesrpt.whatif.fractions import FractionSweep
from hesrpt.whatif.sensitivity import Sensitivity


@dataclass(frozen=True)
class Variations:
    """The variations of a study that were asked for."""

    sensitivity: Sensitivity | None = None
    fractions: FractionSweep | None = None

    def describe(self) -> list[str]:
        """Return what they show, in sentences."""
        sentences = [] if self.fractions is None else self.fractions.describe()
        return sentences + ([] if self.sensitivity is None else self.sensitivity.describe_limits())

    def as_json(self) -> dict[str, Any]:
        """Return them as JSON values."""
        values = {"sensitivity": self.sensitivity, "fractions": self.fractions}
        return {name: value.rows() for name, value in values.items() if value is not None}
