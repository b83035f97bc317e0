"""How alike two rows of features are: Mercer kernels, and the Gram blocks they make.

A kernel k(x, z) is an inner product of x and z after some map that nobody writes down, so a model that needs only
inner products can be linear there and bent here (Aizerman, Braverman & Rozonoer 1964). "Kernel" means a compiled loop
elsewhere in this package, hence the name.

    linear        ⟨x, z⟩
    polynomial    (gamma ⟨x, z⟩ + offset)^degree
    rbf           exp(−gamma ‖x − z‖²)
    laplacian     exp(−gamma ‖x − z‖₁)

``normalize`` divides by √(k(x, x) k(z, z)), so that every row is as long as any other: for a polynomial of pixels
this takes away that a letter in bold is like everything. Rows are dense arrays or CSR matrices, and so may be the
others; a Gram block is dense. Cost: one product of matrices, but for the laplacian, which looks at all pairs column
by column.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isfinite
from numbers import Real
from typing import Any

import numpy as np

from crfield.data.batch import Columns
from crfield.errors import InputError, ShapeError

SIMILARITIES = ("linear", "polynomial", "rbf", "laplacian")
BLOCK = 2048  # rows of a Gram block that is only passed through


@dataclass(frozen=True)
class Similarity:
    """A kernel with its parameters.

    >>> rows = np.array([[1.0, 0.0], [1.0, 1.0]])
    >>> Similarity("polynomial", degree=2).gram(rows, rows).tolist()
    [[4.0, 4.0], [4.0, 9.0]]
    >>> Similarity("rbf", gamma=np.log(2)).gram(rows, rows).tolist()
    [[1.0, 0.5], [0.5, 1.0]]
    >>> Similarity("linear", normalize=True).gram(rows, rows).round(3).tolist()
    [[1.0, 0.707], [0.707, 1.0]]
    """

    kind: str = "rbf"
    gamma: float = 1.0
    degree: int = 3
    offset: float = 1.0
    normalize: bool = False

    def __post_init__(self) -> None:
        if self.kind not in SIMILARITIES:
            raise InputError(f"similarity must be one of {', '.join(map(repr, SIMILARITIES))}, got {self.kind!r}.")
        if not _is_number(self.gamma) or self.gamma <= 0:
            raise InputError(f"gamma must be a finite number above 0, got {self.gamma!r}.")
        if not _is_number(self.degree) or self.degree not in range(1, 51):
            raise InputError(f"degree must be a whole number of 1 … 50, got {self.degree!r}.")
        if not _is_number(self.offset) or self.offset < 0:
            raise InputError(
                f"offset must be a finite number of at least 0, got {self.offset!r}. With a negative one the "
                "polynomial is no inner product."
            )

    def gram(self, rows: Any, others: Any) -> np.ndarray:
        """(R, M) k of every row (R, K) and every other (M, K)."""
        if rows.shape[1] != others.shape[1]:
            raise ShapeError(f"rows have {rows.shape[1]} columns and the others {others.shape[1]}.")
        block = self._plain(rows, others)
        if self.normalize and self.kind in ("linear", "polynomial"):
            block /= self._size(rows)[:, None]
            block /= self._size(others)[None, :]
        return block

    def diagonal(self, rows: Any) -> np.ndarray:
        """(R,) k(x, x) of every row.

        >>> Similarity("polynomial", degree=2).diagonal(np.array([[1.0, 1.0]])).tolist()
        [9.0]
        """
        if self.normalize or self.kind in ("rbf", "laplacian"):
            return np.ones(rows.shape[0])
        return self._own(rows)

    def _plain(self, rows: Any, others: Any) -> np.ndarray:
        if self.kind == "laplacian":
            from scipy.spatial.distance import cdist

            return np.exp(-self.gamma * cdist(_dense(rows), _dense(others), "cityblock"))
        block = _product(rows, others)
        if self.kind == "polynomial":
            block *= self.gamma
            block += self.offset
            return block if self.degree == 1 else block**self.degree
        if self.kind == "rbf":
            block *= -2.0
            block += squares(rows)[:, None]
            block += squares(others)[None, :]
            np.maximum(block, 0.0, out=block)
            block *= -self.gamma
            np.exp(block, out=block)
        return block

    def _own(self, rows: Any) -> np.ndarray:
        own = squares(rows)
        return (self.gamma * own + self.offset) ** self.degree if self.kind == "polynomial" else own

    def _size(self, rows: Any) -> np.ndarray:
        """√k(x, x), and one where that is zero: a row of zeros is like nothing, and stays so."""
        size = np.sqrt(self._own(rows))
        return np.where(size > 0, size, 1.0)

    def to_json(self) -> dict[str, Any]:
        """The parameters as JSON values."""
        return {
            "kind": self.kind,
            "gamma": float(self.gamma),
            "degree": int(self.degree),
            "offset": float(self.offset),
            "normalize": bool(self.normalize),
        }


@dataclass(frozen=True, eq=False)
class GivenSimilarity:
    """A kernel of the user's own: ``function(rows, others)`` gives a Gram block. It cannot be stored in a file.

    >>> same = GivenSimilarity(lambda rows, others: rows @ others.T)
    >>> same.gram(np.eye(2), np.eye(2)).tolist(), same.diagonal(np.eye(2)).tolist()
    ([[1.0, 0.0], [0.0, 1.0]], [1.0, 1.0])
    """

    function: Callable[[Any, Any], Any]

    def gram(self, rows: Any, others: Any) -> np.ndarray:
        """(R, M) what the function gives, checked."""
        block = np.asarray(self.function(rows, others), dtype=np.float64)
        if block.shape != (rows.shape[0], others.shape[0]):
            raise ShapeError(
                f"the similarity of {rows.shape[0]} rows and {others.shape[0]} others must be of that shape, got "
                f"{block.shape}. It is a function of two matrices, not of two rows."
            )
        if not np.isfinite(block).all():
            raise InputError("the similarity function gave values that are not finite.")
        return block

    def diagonal(self, rows: Any) -> np.ndarray:
        """(R,) k(x, x) of every row, block by block."""
        parts = [np.diagonal(self.gram(rows[a : a + 64], rows[a : a + 64])) for a in range(0, rows.shape[0], 64)]
        return np.concatenate(parts) if parts else np.zeros(0)


def similarity_of(
    kind: str | Callable[[Any, Any], Any],
    rows: Any,
    *,
    gamma: float | str = "scale",
    degree: int = 3,
    offset: float = 1.0,
    normalize: bool = False,
) -> Similarity | GivenSimilarity:
    """The kernel of these options; ``gamma="scale"`` is 1 / (K · variance of all cells), as the rows have it.

    >>> similarity_of("rbf", np.array([[0.0, 2.0], [2.0, 0.0]])).gamma
    0.5
    """
    if callable(kind):
        return GivenSimilarity(kind)
    if isinstance(gamma, str):
        if gamma != "scale":
            raise InputError(f"gamma must be 'scale' or a number above 0, got {gamma!r}.")
        gamma = 1.0 / spread(rows)
    return Similarity(kind, float(gamma) if _is_number(gamma) else gamma, degree, offset, bool(normalize))


def spread(rows: Any) -> float:
    """K · variance of all cells of (R, K); 1 where there is none.

    >>> spread(np.array([[0.0, 2.0], [2.0, 0.0]])), spread(np.ones((2, 2)))
    (2.0, 1.0)
    """
    cells = rows.shape[0] * rows.shape[1]
    if not cells:
        return 1.0
    found = float(squares(rows).sum()) / cells - (float(rows.sum()) / cells) ** 2
    return found * rows.shape[1] if found > 1e-12 else 1.0


def matrix_of(columns: Columns) -> Any:
    """Sparse and dense columns as one matrix (R, K), CSR if there are sparse ones.

    >>> matrix_of(Columns.from_rows([[0], [1]], width=2)).toarray().tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if columns.width == 0:
        return np.zeros((columns.n_rows, 0)) if columns.dense is None else columns.dense
    from scipy.sparse import csr_array, hstack

    values = np.ones(len(columns.indices)) if columns.values is None else columns.values
    sparse = csr_array((values, columns.indices, columns.indptr), shape=(columns.n_rows, columns.width))
    return sparse if columns.dense is None else hstack([sparse, columns.dense], format="csr")


def squares(rows: Any) -> np.ndarray:
    """(R,) ‖x‖² of every row.

    >>> squares(np.array([[3.0, 4.0]])).tolist()
    [25.0]
    """
    if isinstance(rows, np.ndarray):
        return np.einsum("rk,rk->r", rows, rows)
    return np.asarray(rows.multiply(rows).sum(axis=1), dtype=np.float64).ravel()


def _product(rows: Any, others: Any) -> np.ndarray:
    if isinstance(rows, np.ndarray) and not isinstance(others, np.ndarray):
        return np.ascontiguousarray((others @ rows.T).T)
    return _dense(rows @ others.T)


def _dense(matrix: Any) -> np.ndarray:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()


def _is_number(value: Any) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool | np.bool_) and isfinite(value)
