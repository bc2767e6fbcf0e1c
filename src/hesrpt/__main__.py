"""``python -m hesrpt`` is the same as ``hesrpt``."""

from hesrpt.cli import main

main()
