"""Engines, which run items: on this machine, on a Ray cluster, or as a fake for tests."""
