"""Real jobs under the policies of the simulator, on a real clock.

Decisions are made without I/O: events and jobs go into the core, which asks the policy (allocation)
and learns sizes and speedups (learning). Around it, the driver has the clock, the engine runs the
items, sources supply them, and the journal records every outcome. Users see the pool and the
handles of their jobs. ``hesrpt run`` adds jobs files (batch_run), and other commands read state
directories (inspection).
"""
