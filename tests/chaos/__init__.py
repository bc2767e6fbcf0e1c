"""A campaign that kills parts of the live scheduler at random moments, and checks what is left.

Run it with ``make chaos``. It believes nothing that the scheduler says: items leave evidence of
their own, and the campaign compares it with what was reported.
"""
