"""Steps of a training on a cluster: those of the optimiser, with what the cluster did for each.

    >>> ClusterStep(1, 2, 12.5, 0.1, 1.0, 7, 0.02, n_workers=2, n_bytes=4000).n_bytes
    4000

They stand in ``history_`` in the place of plain steps and make the progress line of a cluster. Checkpoints keep plain
steps: a training that goes on elsewhere has plain ones up to there.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from crfield.optimize.history import Result, Step
from crfield.training.cluster.session import Cluster

Callback = Callable[[Step, np.ndarray], bool | None]


@dataclass(frozen=True)
class ClusterStep(Step):
    """A step, and what it took of the cluster."""

    n_workers: int = 0  # at work
    n_bytes: int = 0  # of arrays that went to and from workers since the step before
    n_losses: int = 0  # workers lost and replaced so far


def watched(cluster: Cluster, callback: Callback | None, run: Callable[[Callback], Result]) -> Result:
    """``run(callback)`` with steps that tell of the cluster, to the callback and in the history."""
    crew, made = cluster.crew, dict[int, tuple[Step, ClusterStep]]()
    first = before = crew.traffic

    def after(step: Step, weights: np.ndarray) -> bool | None:
        nonlocal before
        now = crew.traffic
        told: dict[str, Any] = {field.name: getattr(step, field.name) for field in fields(Step)}
        moved = now.sent + now.received - before.sent - before.received
        full = ClusterStep(**told, n_workers=crew.n_workers, n_bytes=moved, n_losses=now.losses - first.losses)
        made[id(step)], before = (step, full), now
        return None if callback is None else callback(full, weights)

    result = run(after)
    return replace(result, history=[made[id(step)][1] if id(step) in made else step for step in result.history])
