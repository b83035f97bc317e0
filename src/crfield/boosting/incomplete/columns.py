"""Sparse columns conjoined with labels: scores of a weight table, and its two adjoints.

A feature is a column times an indicator of a label, f_(a, y')(x, y) = x_a 1[y = y'], so a table of weights (D, Y)
holds them all. The gradient needs one product with the transpose. A⁺ and A⁻, the parts that push a weight up and
down, need two when all values are at least zero, and four when some are not, because a negative value turns them
around:

    A⁺(a, y') = Σ_i [x_ia]₊ V_i(y') 1[ỹ_i ≠ y'] + [x_ia]₋ T_i 1[ỹ_i = y']        T_i = Σ_{y ≠ ỹ} V_i(y)
    A⁻(a, y') = Σ_i [x_ia]₊ T_i 1[ỹ_i = y']     + [x_ia]₋ V_i(y') 1[ỹ_i ≠ y']

No feature is ever looked at alone, so the cost is O(nnz Y).
"""

from __future__ import annotations

from functools import cached_property
from typing import Any

import numpy as np


class Conjoined:
    """Columns (N, D) in sparse form, ready for products from both sides.

    >>> columns = Conjoined(np.array([[1.0, 0.5], [0.0, -1.0]]))
    >>> columns.scores(np.array([[1.0, 0.0], [0.0, 2.0]])).tolist()
    [[1.0, 0.0], [1.0, -2.0]]
    >>> columns.pull(np.eye(2)).tolist()
    [[1.0, 0.0], [0.5, -1.0]]
    >>> columns.mass.tolist()
    [1.5, 1.0]
    """

    def __init__(self, columns: Any) -> None:
        from scipy.sparse import csr_array

        self.rows = csr_array(columns, dtype=np.float64)
        self.rows.sum_duplicates()

    @property
    def n_columns(self) -> int:
        """D."""
        return int(self.rows.shape[1])

    @cached_property
    def mass(self) -> np.ndarray:
        """(N,) Σ_a |x_a| of each row."""
        return np.asarray(abs(self.rows).sum(axis=1)).ravel()

    @cached_property
    def _transposed(self) -> Any:
        return self.rows.T.tocsr()

    @cached_property
    def _parts(self) -> tuple[Any, Any]:
        """The transposes of the positive and of the negative part, None where there is none of the latter."""
        if self.rows.nnz == 0 or self.rows.data.min() >= 0:
            return self._transposed, None
        up, down = self._transposed.copy(), self._transposed.copy()
        up.data, down.data = np.maximum(up.data, 0.0), np.maximum(-down.data, 0.0)
        return up, down

    def scores(self, table: np.ndarray) -> np.ndarray:
        """(Y, N) scores of a table of weights (D, Y)."""
        return np.ascontiguousarray((self.rows @ table).T)

    def pull(self, residual: np.ndarray) -> np.ndarray:
        """(D, Y) from a residual (Y, N): the adjoint of `scores`."""
        return self._transposed @ np.ascontiguousarray(residual.T)

    def counts(self, off: np.ndarray, on: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """A⁺ and A⁻ (D, Y) from V off the label and T on it, both (Y, N)."""
        off, on = np.ascontiguousarray(off.T), np.ascontiguousarray(on.T)
        up, down = self._parts
        plus, minus = up @ off, up @ on
        if down is not None:
            plus += down @ on
            minus += down @ off
        return plus, minus


def split_by_label(heavy: np.ndarray, labels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """V (Y, M), which is W off the label, and T (Y, M), their sum over labels placed on the label. Overwrites W.

    >>> off, on = split_by_label(np.array([[0.2, 0.5], [0.8, 0.5]]), np.array([1, 0]))
    >>> off.tolist(), on.tolist()
    ([[0.2, 0.0], [0.0, 0.5]], [[0.0, 0.5], [0.2, 0.0]])
    """
    at = np.arange(len(labels))
    heavy[labels, at] = 0.0
    on = np.zeros_like(heavy)
    on[labels, at] = heavy.sum(axis=0)
    return heavy, on
