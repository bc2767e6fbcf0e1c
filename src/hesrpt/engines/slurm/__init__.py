"""An engine that runs items in Slurm jobs of its own, called pilots."""
