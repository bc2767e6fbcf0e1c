"""``python -m hesrpt`` is the same as ``hesrpt``."""

from hesrpt.cli.main import main

main()
