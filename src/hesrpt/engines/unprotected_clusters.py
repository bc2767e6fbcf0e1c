"""Warnings about clusters to which others can connect, and so run code as their owner."""

from __future__ import annotations

import logging
from functools import cache

_LOG = logging.getLogger("hesrpt")


@cache  # once for each cluster, however many pools use it
def warn_of_unprotected_cluster(cluster: str, who: str, remedy: str) -> None:
    """Say who can run code in a cluster, and what to do about it."""
    _LOG.warning(
        "hesrpt: %s is not protected: %s can run code as the user who runs it; %s",
        cluster,
        who,
        remedy,
    )
