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

rbf and laplacian know differences only, so where columns lie does not matter to them, and must not in rounding: an
rbf is taken about the middle of the others, and rows that are too far away for ‖x‖² − 2⟨x, z⟩ + ‖z‖² to keep its
digits are compared pair by pair. Linear and polynomial kernels mean the distance from zero; they stay as given.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import is_number, number, one_of
from crfield.data.centred import centred, column_variances, middle_of
from crfield.errors import DataWarning, InputError, ShapeError

SIMILARITIES = ("linear", "polynomial", "rbf", "laplacian")
BLOCK = 2048  # rows of a Gram block that is only passed through
WITHIN = 5e5  # gamma ‖x‖² up to which the product form of a distance moves an exponent by less than 1e-9
NEAR = 1e-9  # of the squared distance from zero, the least variance that a kernel of products tells apart
MOST = 1e280  # of a product of rows, so that sums of them stay finite
DENSE_CELLS = 2**24  # of sparse rows that are written out for being compared pair by pair


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
        one_of(*SIMILARITIES)("similarity", self.kind)
        number(above=0)("gamma", self.gamma)
        if not is_number(self.degree) or self.degree not in range(1, 51):
            raise InputError(f"degree must be an integer from 1 to 50, got {self.degree!r}.")
        number(0, hint="With a negative one the polynomial is no inner product.")("offset", self.offset)

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
        if self.kind == "rbf":
            block = squared_distances(rows, others, WITHIN / self.gamma)
            block *= -self.gamma
            return np.exp(block, out=block)
        with np.errstate(over="ignore", invalid="ignore"):  # whoever asks looks for what is not finite
            block = _product(rows, others)
            if self.kind == "polynomial":
                block *= self.gamma
                block += self.offset
                return block if self.degree == 1 else block**self.degree
        return block

    def _own(self, rows: Any) -> np.ndarray:
        with np.errstate(over="ignore"):
            own = squares(rows)
            return (self.gamma * own + self.offset) ** self.degree if self.kind == "polynomial" else own

    def too_large(self, rows: Any) -> np.ndarray:
        """Numbers of the rows whose products, with themselves and so with others, leave the range of numbers.

        >>> Similarity("polynomial").too_large(np.array([[1.0], [1e100]])).tolist()
        [1]
        """
        if self.kind not in ("linear", "polynomial"):
            return np.zeros(0, np.int64)
        return np.flatnonzero(~(self._own(rows) < MOST))

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

    def too_large(self, rows: Any) -> np.ndarray:
        """None: ``gram`` refuses what is not finite."""
        return np.zeros(0, np.int64)

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
    weight: np.ndarray | None = None,
) -> Similarity | GivenSimilarity:
    """The kernel of these options; ``gamma="scale"`` is 1 / `spread` of the rows, which count by ``weight`` (R,).

    >>> similarity_of("rbf", np.array([[0.0, 2.0], [2.0, 0.0]])).gamma
    0.5
    """
    if callable(kind):
        return GivenSimilarity(kind)
    products = kind in ("linear", "polynomial")
    if products and rows.shape[0]:
        _warn_of_far(kind, rows)
    if isinstance(gamma, str):
        if gamma != "scale":
            raise InputError(f"gamma must be 'scale' or a finite number > 0, got {gamma!r}.")
        gamma = 1.0 / spread(rows, weight=weight, around_zero=products)
    return Similarity(kind, float(gamma) if is_number(gamma) else gamma, degree, offset, bool(normalize))


def _warn_of_far(kind: str, rows: Any) -> None:
    """`DataWarning` where rows differ by less than rounding beside their distance from zero."""
    middle = np.asarray(rows.mean(axis=0)).ravel()
    away, around = float((middle**2).sum()), float(column_variances(rows).sum())
    if 0 < around < NEAR * away:
        warnings.warn(
            f"similarity={kind!r} is a product, with its origin at zero, and the columns lie "
            f"{(away / around) ** 0.5:.1e} deviations away from it, beside which their differences are rounding. "
            "Take the columns' means away, or use 'rbf', which knows differences only.",
            DataWarning,
            stacklevel=3,
        )


def spread(rows: Any, *, weight: np.ndarray | None = None, around_zero: bool = False) -> float:
    """The sum of the variances of the columns of (R, K); 1 where there is none.

    For kernels that look at products, ``around_zero``, it is K · the variance of all cells, which has the differences
    between the columns' means in it.

    >>> spread(np.array([[0.0, 2.0], [2.0, 0.0]])), spread(np.ones((2, 2)))
    (2.0, 1.0)
    >>> rows = np.array([[1e9, 0.0], [1e9 + 2, 2.0]])
    >>> spread(rows), round(spread(rows, around_zero=True) / 5e17, 3)
    (2.0, 1.0)
    """
    if not rows.shape[0] or not rows.shape[1]:
        return 1.0
    found = float(column_variances(rows, weight).sum())
    if around_zero:
        means = np.asarray(rows.mean(axis=0) if weight is None else weight @ rows / weight.sum()).ravel()
        found += float(((means - means.mean()) ** 2).sum())
    return found if found > 1e-300 else 1.0


def squared_distances(rows: Any, others: Any, within: float) -> np.ndarray:
    """(R, M) ‖x − z‖² of every row (R, K) and every other (M, K), infinite where it is no number.

    One product about the middle of the others, in which rows of ‖x‖² < ``within`` keep the digits that matter; others
    are compared pair by pair.

    >>> far = np.array([[1e9], [1e9 + 3]])
    >>> squared_distances(far, far, 1e6).tolist(), squared_distances(far, far - 1e200, 1e6).tolist()
    ([[0.0, 9.0], [9.0, 0.0]], [[inf, inf], [inf, inf]])
    """
    middle = middle_of(others)
    a, b = centred(rows, middle), centred(others, middle)
    with np.errstate(over="ignore", invalid="ignore"):
        one, two = squares(a), squares(b)
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):  # [x, ‖x‖², 1] · [−2 z, 1, ‖z‖²]: one pass
            block = np.column_stack([a, one, np.ones(len(a))]) @ np.column_stack([-2.0 * b, np.ones(len(b)), two]).T
        else:
            block = _product(a, b)
            block *= -2.0
            block += one[:, None]
            block += two[None, :]
    np.maximum(block, 0.0, out=block)
    close, near = one < within, two < within
    if close.all() and near.all():
        return block
    if isinstance(a, np.ndarray) or (a.shape[0] + b.shape[0]) * a.shape[1] <= DENSE_CELLS:
        from scipy.spatial.distance import cdist

        x, z = _dense(rows), _dense(others)
        block[~close] = cdist(x[~close], z, "sqeuclidean")
        block[:, ~near] = cdist(x, z[~near], "sqeuclidean")
    block[np.isnan(block)] = np.inf
    return block


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
