"""The live scheduler: runs real jobs, in real time, under the same policies as the simulator.

The core makes the decisions and does no I/O: it handles events, asks the policy for an allocation,
and learns sizes and speedups. Around it, the driver keeps the clock, the engine runs the items,
sources supply them, and the journal records every outcome. Users work with the pool and the handles
of their jobs. ``hesrpt run`` adds jobs files (batch_run), and other commands read state directories
(inspection).
"""
