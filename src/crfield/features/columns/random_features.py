"""Approximate kernel maps: Nyström landmarks and random Fourier features.

A kernel model of N rows has N coefficients a label and a Gram matrix of N² cells. Both maps here turn a row into D
columns φ(x) with ⟨φ(x), φ(z)⟩ ≈ k(x, z); a linear model of these columns with a ridge is then the kernel model with
its norm as penalty, and costs N · D.

- `Landmarks` (Williams & Seeger 2001, *Using the Nyström method to speed up kernel machines*): for M rows c that were
  picked, φ(x) = k(x, c) k(c, c)^{-1/2}. Exact on the span of the landmarks: with all rows as landmarks it *is* the
  kernel model, and its weights are those of the representer theorem, α = k(c, c)^{-1/2} w. It follows the data.
- `Waves` (Rahimi & Recht 2007, *Random features for large-scale kernel machines*): φ(x) = √(2/D) [cos ωx, sin ωx]
  with ω drawn from the kernel's Fourier transform, normal for the rbf and Cauchy for the laplacian. It looks at no
  data but their middle, about which phases are taken so that columns far from zero keep their digits; stores D/2 · K
  numbers, but wants more columns for the same accuracy.

A map knows a kernel only as something with ``gram(rows, others)``, so kernels may live elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from crfield.data.centred import centred
from crfield.errors import InputError, ModelFileError, ShapeError

FLAT = 1e-10  # directions of the landmarks' Gram matrix below this fraction of the largest are rounding
BLOCK = 2048  # rows whose similarities are held at a time
SMALL = 512  # the same where they are only passed on: they stay in the cache
WAVED = ("rbf", "laplacian")


class Gram(Protocol):
    """A kernel."""

    def gram(self, rows: Any, others: Any) -> np.ndarray:
        """(R, M) similarities."""
        ...


@dataclass(frozen=True, eq=False)
class Landmarks:
    """The map of landmarks ``centres`` (M, K); ``whiten`` (M, D) is k(c, c)^{-1/2} without directions of no length.

    >>> class Plain:
    ...     def gram(self, rows, others):
    ...         return rows @ others.T
    >>> rows = np.array([[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]])
    >>> columns = Landmarks.of(Plain(), rows[:2]).columns(rows)
    >>> (columns @ columns.T).round(12).tolist()
    [[1.0, 0.0, 1.0], [0.0, 4.0, 2.0], [1.0, 2.0, 2.0]]
    """

    similarity: Gram
    centres: Any  # (M, K) dense or CSR
    whiten: np.ndarray  # (M, D)

    @classmethod
    def of(cls, similarity: Gram, centres: Any) -> Landmarks:
        """The map of given landmarks."""
        own = similarity.gram(centres, centres)
        if not np.isfinite(own).all():
            raise InputError(
                f"the similarity of row {int(np.argmin(np.isfinite(own).all(axis=1)))} with others is no finite "
                "number: its features are too large. Rescale them, or lower gamma or degree."
            )
        size, direction = np.linalg.eigh((own + own.T) / 2)
        largest = float(size[-1]) if len(size) else 0.0
        if len(size) and size[0] < -1e-6 * max(largest, 1e-300):
            raise InputError(
                f"the similarity is no inner product: its Gram matrix has the eigenvalue {size[0]:.3g} beside "
                f"{largest:.3g}. Kernels of polynomials need offset ≥ 0; check a function of your own."
            )
        kept = size > FLAT * largest
        # row by row, as files hold it: products of the same numbers laid out otherwise differ in their last bits
        return cls(similarity, centres, np.ascontiguousarray(direction[:, kept] / np.sqrt(size[kept])))

    @property
    def width(self) -> int:
        """D."""
        return int(self.whiten.shape[1])

    def similarities(self, rows: Any, *, behind: int = 0) -> np.ndarray:
        """(R, M + ``behind``) of rows (R, K) with every landmark, and so many columns of zeros behind them."""
        size = self.whiten.shape[0]
        out = np.zeros((rows.shape[0], size + behind))
        for start in range(0, rows.shape[0], SMALL):
            out[start : start + SMALL, :size] = self.similarity.gram(rows[start : start + SMALL], self.centres)
        return out

    def columns(self, rows: Any) -> np.ndarray:
        """φ of rows (R, K) as (R, D), block by block."""
        out = np.empty((rows.shape[0], self.width))
        for start in range(0, rows.shape[0], BLOCK):
            block = self.similarity.gram(rows[start : start + BLOCK], self.centres)
            with np.errstate(over="ignore", invalid="ignore"):  # whoever asks looks for what is not finite
                np.matmul(block, self.whiten, out=out[start : start + BLOCK])
        return out

    def scores(self, rows: Any, weights: np.ndarray) -> np.ndarray:
        """φ(rows) · weights (D, L) as (R, L), the landmarks' coefficients first, since there are few labels."""
        coef, out = self.whiten @ weights, np.empty((rows.shape[0], weights.shape[1]))
        for start in range(0, rows.shape[0], SMALL):
            block = self.similarity.gram(rows[start : start + SMALL], self.centres)
            with np.errstate(over="ignore", invalid="ignore"):
                np.matmul(block, coef, out=out[start : start + SMALL])
        return out


@dataclass(frozen=True, eq=False)
class Waves:
    """The map of random waves ``omega`` (K, D/2) about ``middle`` (K,), or about zero.

    >>> waves = Waves.draw("rbf", 2, 4000, gamma=0.5, rng=np.random.default_rng(0))
    >>> rows = np.array([[0.0, 0.0], [1.0, 0.0]])
    >>> columns = waves.columns(rows)
    >>> round(float(columns[0] @ columns[1]), 1), round(float(np.exp(-0.5)), 1)
    (0.6, 0.6)
    """

    omega: np.ndarray  # (K, D / 2)
    middle: np.ndarray | None = None  # (K,)

    @classmethod
    def draw(
        cls,
        kind: str,
        width: int,
        n_components: int,
        *,
        gamma: float,
        rng: np.random.Generator,
        middle: np.ndarray | None = None,
    ) -> Waves:
        """D = ``n_components`` columns (an even number of them) for rows of ``width`` features."""
        if kind not in WAVED:
            raise InputError(
                f"random waves exist for {' and '.join(map(repr, WAVED))} similarities, got {kind!r}. Use landmarks "
                "(basis='nystroem') instead."
            )
        half = max(1, n_components // 2)
        if kind == "rbf":
            return cls(rng.normal(scale=np.sqrt(2.0 * gamma), size=(width, half)), middle)
        return cls(rng.standard_cauchy(size=(width, half)) * gamma, middle)

    @property
    def width(self) -> int:
        """D."""
        return 2 * int(self.omega.shape[1])

    def columns(self, rows: Any) -> np.ndarray:
        """φ of rows (R, K) as (R, D)."""
        if rows.shape[1] != self.omega.shape[0]:
            raise ShapeError(f"rows have {rows.shape[1]} columns, the waves were drawn for {self.omega.shape[0]}.")
        with np.errstate(over="ignore", invalid="ignore"):  # whoever asks looks for what is not finite
            phase = np.asarray((rows if self.middle is None else centred(rows, self.middle)) @ self.omega)
            return np.concatenate([np.cos(phase), np.sin(phase)], axis=1) / np.sqrt(self.omega.shape[1])

    def scores(self, rows: Any, weights: np.ndarray) -> np.ndarray:
        """φ(rows) · weights (D, L) as (R, L)."""
        return self.columns(rows) @ weights


def pick_landmarks(rows: Any, n_components: int, rng: np.random.Generator) -> np.ndarray:
    """Numbers of up to ``n_components`` different rows, drawn at random, rising.

    >>> rows = np.array([[0.0], [1.0], [0.0], [1.0]])
    >>> len(pick_landmarks(rows, 3, np.random.default_rng(0)))
    2
    """
    order = rng.permutation(rows.shape[0])
    chosen: dict[bytes, int] = {}
    for number, key in zip(order.tolist(), _keys(rows, order)):
        if len(chosen) >= n_components:
            break
        chosen.setdefault(key, number)
    return np.sort(np.array(list(chosen.values()), dtype=np.int64))


def distinct(rows: Any, most: int | None = None) -> np.ndarray:
    """Numbers of the first of each group of equal rows, rising; with ``most`` it ends where there are more than that.

    >>> distinct(np.array([[2.0], [1.0], [2.0]])).tolist(), len(distinct(np.arange(9.0)[:, None], most=3))
    ([0, 1], 4)
    """
    first: dict[bytes, int] = {}
    for number, key in enumerate(_keys(rows, np.arange(rows.shape[0]))):
        first.setdefault(key, number)
        if most is not None and len(first) > most:
            break
    return np.array(sorted(first.values()), dtype=np.int64)


def map_to_arrays(found: Landmarks | Waves) -> dict[str, np.ndarray]:
    """The arrays of a map, for model files.

    >>> sorted(map_to_arrays(Waves(np.ones((1, 1)))))
    ['omega']
    """
    if isinstance(found, Waves):
        middle = {} if found.middle is None else {"middle": np.ascontiguousarray(found.middle)}
        return {"omega": np.ascontiguousarray(found.omega), **middle}
    centres = found.centres
    arrays = {"whiten": np.ascontiguousarray(found.whiten)}
    if isinstance(centres, np.ndarray):
        return arrays | {"centres": np.ascontiguousarray(centres, dtype=np.float64)}
    return arrays | {
        "centres_data": np.asarray(centres.data, np.float64),
        "centres_indices": np.asarray(centres.indices, np.int64),
        "centres_indptr": np.asarray(centres.indptr, np.int64),
        "centres_width": np.array([centres.shape[1]], np.int64),
    }


def map_from_arrays(arrays: dict[str, np.ndarray], similarity: Gram) -> Landmarks | Waves:
    """The map whose `map_to_arrays` this is; ModelFileError where it cannot be one.

    >>> map_from_arrays({"omega": np.ones((2, 1))}, None).width
    2
    """
    for name, value in arrays.items():
        wanted = np.float64 if name in ("omega", "middle", "whiten", "centres", "centres_data") else np.int64
        if value.dtype != wanted or (wanted is np.float64 and not np.isfinite(value).all()):
            raise ModelFileError(f"the model file's array {name} does not hold finite numbers: the file is damaged.")
    if "omega" in arrays:
        if arrays["omega"].ndim != 2:
            raise ModelFileError("the model file's waves are not a matrix: the file is damaged.")
        middle = arrays.get("middle")  # files of before have none, and mean zero
        if middle is not None and middle.shape != arrays["omega"].shape[:1]:
            raise ModelFileError("the model file's waves have a middle of another width: the file is damaged.")
        return Waves(arrays["omega"], middle)
    whiten, centres = arrays.get("whiten"), arrays.get("centres")
    if centres is None:
        centres = _sparse_centres(arrays)
    if whiten is None or whiten.ndim != 2 or len(centres.shape) != 2 or whiten.shape[0] != centres.shape[0]:
        raise ModelFileError("the model file's landmarks do not fit together: the file is damaged.")
    return Landmarks(similarity, centres, whiten)


def _sparse_centres(arrays: dict[str, np.ndarray]) -> Any:
    from scipy.sparse import csr_array

    names = ("data", "indices", "indptr", "width")
    parts = [arrays[f"centres_{name}"] for name in names if f"centres_{name}" in arrays]
    if len(parts) != len(names) or any(part.ndim != 1 for part in parts) or len(parts[-1]) != 1:
        raise ModelFileError("the model file lacks its landmarks: the file is damaged.")
    data, indices, indptr = parts[:3]
    width = int(parts[3][0])
    ok = len(indptr) >= 1 and indptr[0] == 0 and indptr[-1] == len(indices) == len(data)
    ok = ok and bool((np.diff(indptr) >= 0).all()) and 0 <= width < 2**31
    if not ok or (len(indices) and not (indices.min() >= 0 and indices.max() < width)):
        raise ModelFileError("the model file's landmarks are out of order: the file is damaged.")
    return csr_array((data, indices, indptr), shape=(len(indptr) - 1, width))


def _keys(rows: Any, order: np.ndarray) -> Iterator[bytes]:
    """Bytes that equal rows share, row by row in this order; those of dense ones are made many at a time."""
    if isinstance(rows, np.ndarray) and rows.shape[1]:
        for start in range(0, len(order), BLOCK):
            block = np.ascontiguousarray(rows[order[start : start + BLOCK]])
            yield from block.view(f"V{block.itemsize * block.shape[1]}").ravel().tolist()
        return
    for number in order.tolist():
        if isinstance(rows, np.ndarray):
            yield b""
            continue
        a, b = rows.indptr[number], rows.indptr[number + 1]
        yield rows.indices[a:b].tobytes() + b"|" + rows.data[a:b].tobytes()
