"""What runs items: processes of this machine, a Ray cluster, or a fake for tests."""
