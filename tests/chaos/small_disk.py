"""A disk that is soon full."""

from __future__ import annotations

import subprocess
from pathlib import Path

# The size of the disk, until it grows.
_BYTES = 5_000_000


class SmallDisk:
    """A state directory on a disk of a few megabytes, where mounting one is allowed."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.mkdir(mode=0o700)
        self.is_mounted = self._mount(f"size={_BYTES},mode=700")
        self.is_small = self.is_mounted

    def _mount(self, options: str) -> bool:
        command = ["mount", "-t", "tmpfs", "-o", options, "hesrpt-chaos", str(self.path)]
        try:
            return subprocess.run(command, capture_output=True, check=False).returncode == 0
        except OSError:
            return False

    def grow(self) -> None:
        """Make room, so that the run can go on."""
        if self.is_small:
            self._mount("remount,size=2g,mode=700")
            self.is_small = False

    def remove(self) -> None:
        """Unmount the disk."""
        if self.is_mounted:
            subprocess.run(["umount", "--lazy", str(self.path)], capture_output=True, check=False)
