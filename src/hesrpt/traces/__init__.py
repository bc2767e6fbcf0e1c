"""Traces of clusters and workloads of simulators, in the formats of ``formats.py``."""

from hesrpt.traces.formats import read_trace
from hesrpt.traces.trace import Trace

__all__ = ["Trace", "read_trace"]
