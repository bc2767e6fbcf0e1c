"""Running policies on jobs in virtual time: exactly, event by event, and fast."""

from hesrpt.simulator.comparison import Comparison, compare
from hesrpt.simulator.simulation import Simulation, simulate

__all__ = ["Comparison", "Simulation", "compare", "simulate"]
