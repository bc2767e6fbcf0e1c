# A package, so that its tests can share a browser: pytest closes it after the last of them.
