"""What a trainer that looks into the data is told besides the data: for what, from where, how long, who watches."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.optimize.history import Step

Callback = Callable[[Step, np.ndarray], bool | None]


@dataclass(frozen=True, eq=False)
class Job:
    """One run of a trainer of chains; see `crfield.training.chain.plan`.

    >>> Job("hinge", max_iter=3).max_iter
    3
    """

    objective: str
    start: np.ndarray | None = None  # weights, or None for zeros
    tol: float = 1e-4
    max_iter: int = 500
    n_jobs: int = 1
    rng: np.random.Generator = field(default_factory=lambda: np.random.default_rng(0))
    callback: Callback | None = None
    options: Mapping[str, Any] = field(default_factory=dict)  # only names that the trainer lists
