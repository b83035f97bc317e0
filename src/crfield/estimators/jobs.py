"""How many threads ``n_jobs`` means."""

from __future__ import annotations

import os
from numbers import Integral

from crfield.errors import InputError

MOST = 1024  # threads; a larger number is a slip, or a model file that was edited


def resolve_jobs(n_jobs: int | None) -> int:
    """Threads for an ``n_jobs`` in scikit-learn's manner: None is 1, -1 all processors, -2 all but one.

    >>> resolve_jobs(None), resolve_jobs(3), resolve_jobs(-1) >= 1
    (1, 3, True)
    """
    if n_jobs is None:
        return 1
    if isinstance(n_jobs, bool) or not isinstance(n_jobs, Integral) or n_jobs == 0 or n_jobs > MOST:
        raise InputError(
            f"n_jobs must be a positive number up to {MOST}, -1 for all processors, or None for 1; got {n_jobs!r}."
        )
    if n_jobs > 0:
        return int(n_jobs)
    available = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, available + 1 + n_jobs)
