"""Speedup curves: power laws (Fig. 1), and laws fitted to measured speedups (Fig. 2)."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite, nan
from typing import Any

import numpy as np

from hesrpt.errors import FitError, FitWarning
from hesrpt.paper.claims import Claim, claim_of, judge_which
from hesrpt.paper.exhibits import NOT_RANDOM, Exhibit, Row
from hesrpt.plotting import paper_figures
from hesrpt.readers import Curve
from hesrpt.speedups import Amdahl, PowerLaw, fit_amdahl, fit_power_law

#: The paper's fits to PARSEC-3 benchmarks. It does not publish the measured points.
PARSEC = {"blackscholes": 0.89, "bodytrack": 0.82, "canneal": 0.69}

_DLPERF = (1, 8, 16, 32)
#: Published throughputs, as speedups. Training of neural networks on V100 GPUs: DLPerf benchmark
#: test report v1.0, 2020 (github.com/Oneflow-Inc/DLPerf), 32-bit floats, batches of 32 (BERT base)
#: and 128 (ResNet-50) on each GPU. Tensor contraction on the cores of one processor: the README of
#: github.com/galeselee/HOSCF.
PUBLISHED = tuple(
    Curve(application, tuple(map(float, servers)), tuple(rate / rates[0] for rate in rates))
    for application, servers, rates in (
        ("ResNet-50, PyTorch", _DLPERF, (354.40, 2719.07, 5307.21, 10632.33)),
        ("BERT, OneFlow", _DLPERF, (145.21, 1042.98, 1890.26, 3715.08)),
        ("BERT, TensorFlow", _DLPERF, (106.80, 806.56, 1090.20, 1923.68)),
        ("BERT, PaddlePaddle", _DLPERF, (132.64, 615.12, 1116.02, 2073.60)),
        ("BERT, MXNet", _DLPERF, (127.05, 928.03, 1136.44, 1895.50)),
        (
            "tensor contraction",
            (1, 2, 4, 8, 16, 32, 64),
            tuple(1 / ms for ms in (35338, 17916.3, 8895.6, 4657.5, 2326.4, 1138.6, 697.85)),
        ),
    )
)

_POWERS_SHOWN = (0.05, 0.3, 0.5, 0.7, 0.9, 1.0)
#: The number of measured curves on one page.
CURVES_PER_PAGE = 24


@dataclass(frozen=True)
class FittedCurve:
    """A measured curve with its fits; a law that cannot be fitted is None."""

    curve: Curve
    power_law: PowerLaw | None
    amdahl: Amdahl | None
    problem: str  # why a law could not be fitted

    @property
    def better(self) -> str:
        """The law with the higher R², or "neither" if a constant fits better than both."""
        power, amdahl = self.r_squared
        if not (power > 0 or amdahl > 0):
            return "neither"
        return "Amdahl" if amdahl > power or not isfinite(power) else "k^p"

    @property
    def r_squared(self) -> tuple[float, float]:
        """The R² of the power law and of Amdahl's law; NaN for one that cannot be fitted."""
        both = (law.r_squared if law else None for law in (self.power_law, self.amdahl))
        power, amdahl = (nan if value is None else value for value in both)
        return power, amdahl

    def get_row(self) -> Row:
        """Return the row of this curve in a table; unknown values are None."""
        power, amdahl = (value if isfinite(value) else None for value in self.r_squared)
        return {
            "application": self.curve.application,
            "points": len(self.curve.servers),
            "p": self.power_law.p if self.power_law else None,
            "r_squared_power_law": power,
            "parallel_fraction": self.amdahl.parallel_fraction if self.amdahl else None,
            "r_squared_amdahl": amdahl,
            "better": self.better,
            "problem": self.problem,
        }


def fit_curve(curve: Curve) -> FittedCurve:
    """Fit a power law and Amdahl's law to a measured curve."""
    servers, speedups = np.array(curve.servers), np.array(curve.speedups)
    laws: list[Any] = []
    problem = ""
    for fit in (fit_power_law, fit_amdahl):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", FitWarning)  # the table shows R²
            try:
                laws.append(fit(servers[speedups > 0], speedups[speedups > 0]))
            except FitError as error:
                laws.append(None)
                problem = str(error)
    return FittedCurve(curve, *laws, problem)


def exhibit_power_laws() -> Exhibit:
    """Return Fig. 1: k^p for several p."""
    servers = np.linspace(1, 32, 125)
    return Exhibit(
        name="fig1_speedups",
        title="Figure 1: speedup functions k^p",
        sentence=(
            "Every power law with p < 1 is concave and lies below the line p = 1, the speedup of "
            "jobs that use every server perfectly."
        ),
        figure=paper_figures.draw_power_laws(_POWERS_SHOWN, servers),
        rows=[
            {"p": p, "servers": k, "speedup": k**p} for p in _POWERS_SHOWN for k in servers.tolist()
        ],
        parameters={"seed": NOT_RANDOM},
    )


def exhibit_paper_fits() -> Exhibit:
    """Return the part of Fig. 2 that the paper publishes: three fits, without their points."""
    servers = np.geomspace(1, 64, 61)
    return Exhibit(
        name="fig2_fits",
        title="Figure 2: power laws fitted by the paper",
        sentence=(
            "The paper's fits to three PARSEC-3 benchmarks have p between 0.69 and 0.89. It does "
            "not publish the measured points."
        ),
        figure=paper_figures.draw_fitted_power_laws(PARSEC, servers),
        rows=[
            {"application": name, "p": p, "servers": k, "speedup": k**p}
            for name, p in PARSEC.items()
            for k in servers.tolist()
        ],
        parameters={"seed": NOT_RANDOM},
    )


def exhibit_measured_curves(fits: Sequence[FittedCurve], source: str) -> Exhibit:
    """Return measured curves with both fits, on as many pages as they need."""
    first, *further = (
        paper_figures.draw_measured_curves(fits[start : start + CURVES_PER_PAGE])
        for start in range(0, len(fits), CURVES_PER_PAGE)
    )
    powers = [fit.power_law.p for fit in fits if fit.power_law and fit.r_squared[0] > 0]
    amdahl = sum(fit.better == "Amdahl" for fit in fits)
    neither = sum(fit.better == "neither" for fit in fits)
    median = f" (median p = {np.median(powers):.2f})" if powers else ""
    return Exhibit(
        name="fig2_measured",
        title="Figure 2 with other measurements: speedups and fitted laws",
        sentence=(
            f"A power law has R² > 0 for {len(powers)} of {len(fits)} measured curves{median}; "
            f"Amdahl's law fits {amdahl} of them better"
            + (f", and a constant fits {neither} better than both." if neither else ".")
        ),
        figure=first,
        further_pages=further,
        rows=[
            {"application": fit.curve.application, "servers": k, "speedup": s}
            for fit in fits
            for k, s in zip(fit.curve.servers, fit.curve.speedups, strict=True)
        ],
        table=[fit.get_row() for fit in fits],
        parameters={"curves": source, "seed": NOT_RANDOM},
        note=(
            "Each fit minimises the relative deviations and gives outliers less weight. Past its "
            "peak a curve is treated as flat, because a job need not use servers that slow it "
            "down. R² is computed from the measured points; it is negative if their mean would "
            "fit better."
        ),
    )


@claim_of("Section 1, Figure 2")
def check_power_laws_fit(fits: Sequence[FittedCurve]) -> Claim:
    """A power law k^p fits a variety of measured speedups."""
    power = np.array([fit.r_squared[0] for fit in fits])
    good = int(np.sum(power >= 0.9))
    amdahl = sum(fit.better == "Amdahl" for fit in fits)
    return Claim(
        computed=f"the fit has R² ≥ 0.9 for {good} of {len(fits)} measured curves and R² > 0 for "
        f"{int(np.sum(power > 0))}; Amdahl's law fits {amdahl} better (holds if R² ≥ 0.9 for 90% "
        "of the curves, roughly if for half of them)",
        judgement=judge_which(good >= 0.9 * len(fits), good >= len(fits) / 2),
        values={"good": good, "curves": len(fits)},
        possible_reason="many measured curves flatten, or fall past a peak; no power law does",
    )
