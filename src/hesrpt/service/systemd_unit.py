"""A systemd user unit that keeps the service running."""

from __future__ import annotations

import shlex
from collections.abc import Sequence

_UNIT = """\
# Save as ~/.config/systemd/user/hesrpt.service (mkdir -p ~/.config/systemd/user), then:
#   systemctl --user enable --now hesrpt
#   loginctl enable-linger        # run without a login session
[Unit]
Description=hesrpt: one queue for this machine

[Service]
ExecStart={command}
WorkingDirectory={directory}
Restart=on-failure
RestartSec=2
KillMode=mixed
TimeoutStopSec={timeout}
PrivateTmp=no
NoNewPrivileges=yes

[Install]
WantedBy=default.target
"""


def write_unit(command: Sequence[str], directory: str, drain_timeout: float) -> str:
    """Return the unit that runs a command; a stop may take as long as draining does."""
    words = [word.replace("%", "%%").replace("$", "$$") for word in command]
    return _UNIT.format(
        command=shlex.join(words),
        directory=directory.replace("%", "%%"),
        timeout=int(drain_timeout) + 30,
    )
