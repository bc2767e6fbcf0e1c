"""Simulating policies in virtual time: exact, event by event, and compiled."""

from hesrpt.simulator.comparison import Comparison, compare
from hesrpt.simulator.simulation import Simulation, simulate

__all__ = ["Comparison", "Simulation", "compare", "simulate"]
