"""The live scheduler: runs real jobs, in real time, under the same policies as the simulator.

The core makes the decisions and does no I/O. Around it, the driver keeps the clock, the engine runs
the items, sources supply them, and the journal records every outcome.
"""
