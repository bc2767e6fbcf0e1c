"""An engine that runs items on the servers of a Ray cluster."""
