"""The cluster whose block this is: what every ``fit`` asks, so it costs no import of what a cluster needs."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from crfield.training.cluster.session import Cluster

CURRENT: ContextVar[Cluster | None] = ContextVar("cluster", default=None)
