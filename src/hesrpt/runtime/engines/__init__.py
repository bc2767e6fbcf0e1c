"""What runs items: on this machine, or nowhere (for tests)."""
