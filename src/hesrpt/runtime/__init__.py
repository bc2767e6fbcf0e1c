"""Running real work: the same policies as in the simulator, with a real clock."""
