"""The engine that runs items in processes of this machine, and ends whatever these start."""
