"""Speedup curves: k^p (Fig. 1), and what measured ones are like (Fig. 2)."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from math import ceil, isfinite
from typing import Any

import numpy as np
from matplotlib import colormaps
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from hesrpt.errors import FitError
from hesrpt.paper.exhibits import NOT_RANDOM, Exhibit, Row
from hesrpt.plotting.style import add_legend_below
from hesrpt.readers import Curve
from hesrpt.speedups import Amdahl, PowerLaw, Speedup, fit_amdahl, fit_power_law

#: The paper's fits to the PARSEC-3 benchmarks; it does not publish the points.
PARSEC = {"blackscholes": 0.89, "bodytrack": 0.82, "canneal": 0.69}

_DLPERF = (1, 8, 16, 32)
#: Measured throughputs that were published, as speedups. Training of neural networks on V100 GPUs:
#: DLPerf benchmark test report v1.0, 2020 (github.com/Oneflow-Inc/DLPerf), 32-bit floats, batches
#: of 32 (BERT base) and 128 (ResNet-50) on each GPU. Tensor contraction on the cores of one
#: processor: read me of github.com/galeselee/HOSCF.
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
#: Curves on a page.
PER_PAGE = 24
# Not the colours of policies.
_POWER_COLOUR, _AMDAHL_COLOUR = "#332288", "#AA4499"


def family() -> Exhibit:
    """Return Fig. 1: k^p for several p."""
    k = np.linspace(1, 32, 125)
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    rows: list[Row] = []
    for p, colour in zip(_POWERS_SHOWN, [*_shades(len(_POWERS_SHOWN) - 1), "grey"], strict=True):
        axes.plot(k, k**p, color=colour, linestyle="--" if p == 1 else "-")
        axes.annotate(f" p = {p:g}", (k[-1], k[-1] ** p), va="center", fontsize="small")
        rows += [{"p": p, "servers": n, "speedup": n**p} for n in k.tolist()]
    axes.set_xlim(1, 36.5)
    axes.set_ylim(0, 33)
    axes.set_xlabel("servers k")
    axes.set_ylabel("speedup s(k) = k^p")
    sentence = (
        "All of these speedups are concave and lie below the straight line, p = 1, of jobs that "
        "make perfect use of every server."
    )
    return Exhibit(
        "fig1_speedups",
        "Figure 1: speedup functions k^p",
        sentence,
        figure,
        rows,
        {"seed": NOT_RANDOM},
    )


@dataclass(frozen=True)
class Fitted:
    """A measured curve with the power law and Amdahl's law closest to it; None where none fits."""

    curve: Curve
    power_law: PowerLaw | None
    amdahl: Amdahl | None
    trouble: str

    @classmethod
    def to(cls, curve: Curve) -> Fitted:
        """Fit both to a curve."""
        found: list[Speedup | None] = []
        trouble = ""
        usable = [(k, s) for k, s in zip(curve.servers, curve.speedups, strict=True) if s > 0]
        for fit in (fit_power_law, fit_amdahl):
            try:
                found.append(fit([k for k, _ in usable], [s for _, s in usable]))
            except FitError as error:
                found.append(None)
                trouble = str(error)
        power_law, amdahl = found
        assert power_law is None or isinstance(power_law, PowerLaw)
        assert amdahl is None or isinstance(amdahl, Amdahl)
        return cls(curve, power_law, amdahl, trouble)

    @property
    def better(self) -> str:
        """Which of the two leaves less of the points unexplained."""
        power, amdahl = self.r_squared
        if not (power > 0 or amdahl > 0):  # a constant explains the points better
            return "neither"
        return "Amdahl" if amdahl > power or not isfinite(power) else "k^p"

    @property
    def r_squared(self) -> tuple[float, float]:
        """The R² of the power law and of Amdahl's law; NaN where there is none."""
        both = (fit.r_squared if fit else None for fit in (self.power_law, self.amdahl))
        power, amdahl = (float("nan") if value is None else value for value in both)
        return power, amdahl

    def row(self) -> Row:
        """Return what a table says of it; None where there is nothing to say."""
        power, amdahl = (value if isfinite(value) else None for value in self.r_squared)
        return {
            "application": self.curve.application,
            "points": len(self.curve.servers),
            "p": self.power_law.p if self.power_law else None,
            "r_squared_power_law": power,
            "parallel_fraction": self.amdahl.parallel_fraction if self.amdahl else None,
            "r_squared_amdahl": amdahl,
            "better": self.better,
            "trouble": self.trouble,
        }


def parsec() -> Exhibit:
    """Return Fig. 2 as far as the paper publishes it: three fits, without their points."""
    figure = Figure(figsize=(6, 4), layout="constrained")
    axes = figure.subplots()
    k = np.geomspace(1, 64, 61)
    rows: list[Row] = []
    for (name, p), colour in zip(PARSEC.items(), _shades(len(PARSEC)), strict=True):
        axes.plot(k, k**p, linestyle=":", color=colour, label=f"{name}: p = {p:g}")
        rows += [{"application": name, "p": p, "servers": n, "speedup": n**p} for n in k.tolist()]
    axes.plot(k, k, color="grey", linestyle="--", linewidth=0.8, label="p = 1")
    _logarithmic(axes)
    axes.set_xlabel("servers")
    axes.set_ylabel("speedup")
    axes.legend()
    sentence = (
        "The paper's fits to three PARSEC-3 benchmarks lie between p = 0.69 and p = 0.89; it does "
        "not publish the points that they were fitted to."
    )
    return Exhibit(
        "fig2_fits",
        "Figure 2: power laws fitted by the paper",
        sentence,
        figure,
        rows,
        {"seed": NOT_RANDOM},
    )


def measured(fits: Sequence[Fitted], source: str) -> Exhibit:
    """Return measured curves with both fits, as many to a page as can be read."""
    pages = [_page(fits[start : start + PER_PAGE]) for start in range(0, len(fits), PER_PAGE)]
    powers = [fit.power_law.p for fit in fits if fit.power_law and fit.r_squared[0] > 0]
    amdahl = sum(fit.better == "Amdahl" for fit in fits)
    none = sum(fit.better == "neither" for fit in fits)
    sentence = (
        f"Of {len(fits)} measured curves, a power law explains {len(powers)} (R² > 0)"
        + (f", with a median p of {np.median(powers):.2f}" if powers else "")
        + f"; Amdahl's law is better for {amdahl}"
        + (f", and for {none} neither is better than a constant." if none else ".")
    )
    rows = [
        {"application": fit.curve.application, "servers": k, "speedup": s}
        for fit in fits
        for k, s in zip(fit.curve.servers, fit.curve.speedups, strict=True)
    ]
    return Exhibit(
        "fig2_measured",
        "Figure 2, for other curves: measured speedups and the laws closest to them",
        sentence,
        pages[0],
        rows,
        {"curves": source, "seed": NOT_RANDOM},
        pages[1:],
        [fit.row() for fit in fits],
        "Fits minimise relative deviations, with outliers weighed down, after a curve is made flat "
        "past its peak: a job need not use servers that slow it down. R² compares them with the "
        "points as they were measured, and is negative where their mean would be closer.",
    )


def _page(fits: Sequence[Fitted]) -> Figure:
    columns = min(4 if len(fits) > 6 else 3, len(fits))
    lines = ceil(len(fits) / columns)
    figure = Figure(figsize=(3 * columns, 2.5 * lines + 0.5), layout="constrained")
    panels = figure.subplots(lines, columns, squeeze=False).ravel()
    for axes, fit in zip(panels, fits, strict=False):
        _panel(axes, fit)
    for axes in panels[len(fits) :]:
        axes.set_visible(False)
    for axes in panels[max(len(fits) - columns, 0) : len(fits)]:
        axes.set_xlabel("servers", fontsize="small")
    for axes in panels[::columns]:
        axes.set_ylabel("speedup", fontsize="small")
    panels[0].plot([], [], "o", color="black", markersize=3, label="measured")
    panels[0].plot([], [], color=_POWER_COLOUR, label="power law k^p")
    panels[0].plot([], [], color=_AMDAHL_COLOUR, linestyle="--", label="Amdahl")
    add_legend_below(figure, panels[0])
    return figure


def _panel(axes: Axes, fit: Fitted) -> None:
    servers, speedups = np.array(fit.curve.servers), np.array(fit.curve.speedups)
    k = np.geomspace(servers.min(), servers.max(), 60)
    labels = []
    if fit.power_law is not None:
        axes.plot(k, fit.power_law.rate(k), color=_POWER_COLOUR)
        labels.append(f"p = {fit.power_law.p:.2f}, R² {_brief(fit.r_squared[0])}")
    if fit.amdahl is not None:
        axes.plot(k, fit.amdahl.rate(k), color=_AMDAHL_COLOUR, linestyle="--")
        labels.append(f"f = {fit.amdahl.parallel_fraction:.3f}, R² {_brief(fit.r_squared[1])}")
    axes.plot(servers, speedups, "o", color="black", markersize=3)
    _logarithmic(axes)
    top = max(float(speedups.max()) * 2.2, 2.2)
    axes.set_ylim(min(float(speedups[speedups > 0].min(initial=1.0)), 1.0) * 0.8, top)
    axes.annotate(
        "\n".join(labels) or "does not grow", (0.04, 0.96), xycoords="axes fraction", va="top",
        fontsize="x-small",
    )  # fmt: skip
    name = fit.curve.application.replace("$", r"\$") or "measured"
    axes.set_title(
        "\n".join(textwrap.wrap(name, 34, max_lines=2, placeholder=" …")), fontsize="small"
    )


def _shades(count: int) -> list[Any]:
    return list(colormaps["viridis"](np.linspace(0.0, 0.8, count)))


def _brief(r_squared: float) -> str:
    return f"{r_squared:.3f}" if r_squared > -10 else "below −10"


def _logarithmic(axes: Axes) -> None:
    """Set logarithmic axes that are labelled with plain numbers, at powers of two."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter("{x:g}")
        axis.set_minor_locator(NullLocator())
    axes.tick_params(labelsize="small")
