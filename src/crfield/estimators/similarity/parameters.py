"""Parameters of the models that score by similarity: the kernel, and how many rows stand for all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from crfield.core.checks import Check, flag, integer, is_number, number, one_of
from crfield.core.estimator import Estimator
from crfield.core.parameters import parameter
from crfield.scoring.similarity import SIMILARITIES, GivenSimilarity, Similarity, similarity_of

EXACT_ROWS = 1000  # different rows up to which the basis "auto" takes all of them
OFFSET = number(0, hint="With a negative one the polynomial is no inner product.")
DEGREE = Check("an integer from 1 to 50", lambda value: is_number(value) and value in range(1, 51))


class OfSimilarity(Estimator):
    """The kernel, and the rows or waves that scores are made of."""

    similarity: str | Callable[[Any, Any], Any] = parameter(
        one_of(*SIMILARITIES) | Check("a function of (rows, others)", callable), default="rbf"
    )
    gamma: float | str = parameter(number(above=0) | "scale", default="scale")
    degree: int = parameter(DEGREE, default=3)
    offset: float = parameter(OFFSET, default=1.0)
    normalize: bool = parameter(flag, default=False)
    n_components: int = parameter(integer(1), default=500)

    def _similarity(self, rows: Any, weight: np.ndarray | None = None) -> Similarity | GivenSimilarity:
        """The kernel for rows (R, K), which count by ``weight`` (R,) for its scale."""
        return similarity_of(
            self.similarity,
            rows,
            gamma=self.gamma,
            degree=self.degree,
            offset=self.offset,
            normalize=bool(self.normalize),
            weight=weight,
        )
