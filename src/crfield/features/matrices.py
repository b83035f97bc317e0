"""Sequences of 2-D arrays, dense or sparse, to columns.

A sequence of T steps with D features is an array (T, D): sensor channels, embeddings, or a CSR matrix of
hashed or counted features. Dense ones are laid end to end by a single concatenation and become the dense
block; sparse ones keep their indices and become the sparse part, whose columns never seen in ``fit`` (or on
fewer than ``min_count`` rows) are dropped. The width is fixed in ``fit``. Numbers are checked to be finite
in one pass; the place of a bad one is looked for only when there is one.

Models that can do without a value (stumps, trees, densities) read NaN in a dense array as one that is missing. For
them an encoder is made with ``missing``: it lets NaN pass, and remembers which columns had any, so that reports can
say where these went.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import FeatureError, InputError, ModelFileError, NotFittedError, ShapeError
from crfield.features.columns.select import check_min_count, drop_rare, keep_columns, unless_ones
from crfield.features.columns.standardise import Scale
from crfield.features.encoder import Widths
from crfield.features.records import check_transition_features, read_options
from crfield.features.transitions import EdgeChoice, NamedEdges, rising

__all__ = ["MatrixEncoder", "is_sparse"]


def is_sparse(x: Any) -> bool:
    """Whether x is a scipy sparse matrix or array, told without importing scipy.

    >>> is_sparse([[0.0, 1.0]])
    False
    """
    return hasattr(x, "tocsr") and hasattr(x, "nnz")


class MatrixEncoder(NamedEdges):
    """Encoder of sequences of 2-D arrays (T, D), or of scipy sparse matrices (T, D).

    ``feature_names`` gives the D columns names, ``x[0]``, ``x[1]``, … otherwise. ``transition_features`` is
    None, "all", or a list of column numbers (or names): those are put on the edges too. With ``missing`` NaN is a
    missing value, with "dense" in dense arrays alone; nothing is then standardised.

    >>> import numpy as np
    >>> encoder = MatrixEncoder(standardize=True)
    >>> batch = encoder.fit([np.array([[1.0, 2.0], [3.0, 2.0]]), np.array([[2.0, 5.0]])])
    >>> batch.topology.lengths.tolist(), batch.node.dense.round(2).tolist()
    ([2, 1], [[-1.22, -0.71], [1.22, -0.71], [0.0, 1.41]])
    >>> encoder.encode([np.zeros((4, 3))])
    Traceback (most recent call last):
    crfield.errors.ShapeError: sequence 0 has 3 features per step, expected 2 as in fit. ...
    """

    kind = "matrix"
    missing: bool | str = False

    def __init__(
        self,
        *,
        transition_features: str | Sequence[int | str] | None = None,
        standardize: bool = False,
        feature_names: Sequence[str] | None = None,
        missing: bool | str = False,
    ) -> None:
        if missing and standardize:
            raise InputError("missing values have no scale: leave out standardize, or fill them in first.")
        self.missing = missing
        self.transition_features = check_transition_features(transition_features)
        self.standardize = bool(standardize)
        self.feature_names = None if feature_names is None else [str(name) for name in feature_names]
        self._width = -1
        self._kept: np.ndarray | None = None  # (K,) int32 the user's column of each sparse column; None: dense
        self._gaps: frozenset[int] = frozenset()  # the user's columns of which values were missing in fit
        self._scale: Scale | None = None
        self._edges: EdgeChoice | None = None

    def __repr__(self) -> str:
        return f"MatrixEncoder(transition_features={self.transition_features!r}, standardize={self.standardize})"

    def fit(self, X: Any, *, min_count: int = 1) -> Batch:
        """Fix the width and encode X; sparse columns seen on fewer than ``min_count`` rows are dropped."""
        min_count = check_min_count(min_count)
        matrices = matrices_of(X)
        sparse = _holds_sparse(matrices)
        width = _first_width(matrices)
        self._check_names(width)
        topology, node = self._stack(matrices, sparse, width)
        kept = None
        if sparse:
            node, remap = drop_rare(node, min_count)
            kept = np.flatnonzero(remap >= 0).astype(np.int32)
        scale = None
        if not self.missing and (node.values is not None or node.dense is not None):
            scale = Scale.learn(node)
            if self.standardize:
                node = scale.apply(node)
            else:
                scale.warn(lambda k: self._name(k if kept is None else int(kept[k])), self._name)
        edge = edges = None
        if self.transition_features is not None:
            edges, edge = self._chosen(width, kept).learn(topology, node, min_count)
        self._width, self._kept, self._edges = width, kept, edges
        self._gaps = _gaps(node, kept) if self.missing else frozenset()
        self._scale = scale if self.standardize else None
        return Batch(topology, node, edge)

    def encode(self, X: Any) -> Batch:
        """Encode X, whose matrices must be as wide as those of ``fit``."""
        self._check_fitted()
        topology, node = self._stack(matrices_of(X), self._kept is not None, self._width, fitted=True)
        if self._kept is not None and len(self._kept) < self._width:
            node = keep_columns(node, self._kept)
        if self._scale is not None:
            node = self._scale.apply(node)
        return Batch(topology, node, None if self._edges is None else self._edges.take(topology, node))

    @property
    def widths(self) -> Widths:
        """How many columns it makes."""
        self._check_fitted()
        sizes = (0, self._width) if self._kept is None else (len(self._kept), 0)
        return Widths(*sizes, *(() if self._edges is None else self._edges.widths))

    def node_name(self, column: int) -> str:
        """Name of a sparse node column."""
        self._check_fitted()
        if self._kept is None:
            raise InputError("these matrices were dense, so there are no sparse columns. Ask dense_name.")
        return self._name(int(self._kept[column]))

    def dense_name(self, column: int) -> str:
        """Name of a column of the dense block."""
        self._check_fitted()
        if self._kept is not None or not 0 <= column < self._width:
            raise IndexError(f"dense column {column} of {0 if self._kept is not None else self._width}")
        return self._name(column)

    def had_gaps(self, column: int) -> bool:
        """Whether values of a column, sparse or dense as the matrices are, were missing in ``fit``.

        >>> encoder = MatrixEncoder(missing=True)
        >>> _ = encoder.fit([np.array([[1.0, np.nan], [3.0, 2.0]])])
        >>> encoder.had_gaps(0), encoder.had_gaps(1)
        (False, True)
        """
        return (column if self._kept is None else int(self._kept[column])) in self._gaps

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header and the arrays from which ``from_state`` makes the same encoder again."""
        self._check_fitted()
        header = {
            "kind": self.kind,
            "transition_features": self.transition_features,
            "standardize": self.standardize,
            "feature_names": self.feature_names,
            "width": self._width,
            "sparse": self._kept is not None,
            "scaled": self._scale is not None,
        }
        if self.missing:
            header["missing"] = sorted(self._gaps)
        arrays: dict[str, np.ndarray] = {}
        if self._kept is not None:
            arrays["kept"] = self._kept
        for part in (self._edges, self._scale):
            arrays |= {} if part is None else part.to_arrays()
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> MatrixEncoder:
        """The encoder whose ``state`` this is; ModelFileError when it cannot be one."""
        encoder: MatrixEncoder = read_options(cls, header)
        width, names = header.get("width"), header.get("feature_names")
        if isinstance(width, bool) or not isinstance(width, int) or not 0 < width < 2**31:
            raise ModelFileError(f"the header must hold a width of 1 … 2³¹ − 1, got {width!r}. Was it edited?")
        if names is not None and (not isinstance(names, list) or len(names) != width):
            raise ModelFileError(f"the header must hold {width} feature names. Was the file edited?")
        encoder.feature_names = None if names is None else [str(name) for name in names]
        encoder._width = width
        gaps = header.get("missing")  # files of before know no missing values, and their models no side for them
        if gaps is not None:
            if not isinstance(gaps, list) or any(type(k) is not int or not 0 <= k < width for k in gaps):
                raise ModelFileError("the header must list the columns that had missing values. Was it edited?")
            encoder.missing, encoder._gaps = True, frozenset(gaps)
        if header.get("sparse"):
            encoder._kept = rising(arrays, "kept", width)
        sizes = {"width": 0, "n_dense": width}
        if encoder._kept is not None:
            sizes = {"width": len(encoder._kept), "n_dense": 0}
        if encoder.transition_features is not None:
            encoder._edges = EdgeChoice.from_arrays(arrays, **sizes)
        if header.get("scaled"):
            encoder._scale = Scale.from_arrays(arrays, **sizes)
        return encoder

    def _stack(
        self, matrices: list[Any], sparse: bool, width: int, *, fitted: bool = False
    ) -> tuple[Chains, Columns]:
        for i, matrix in enumerate(matrices):
            if matrix.shape[1] != width and matrix.shape != (0, 0):
                raise ShapeError(
                    f"sequence {i} has {matrix.shape[1]} features per step, expected {width} as in "
                    f"{'fit' if fitted else 'the sequences before it'}. Every sequence must be a matrix "
                    "(steps, features) made in the same way; is this one transposed, or is a column missing?"
                )
            if is_sparse(matrix) != sparse and matrix.shape != (0, 0):
                raise FeatureError(
                    f"sequence {i} is a {'dense' if sparse else 'sparse'} matrix, expected "
                    f"{'sparse' if sparse else 'dense'} ones as in {'fit' if fitted else 'those before it'}. "
                    f"Convert it with {'scipy.sparse.csr_array(x)' if sparse else 'x.toarray()'}."
                )
        topology = Chains.from_lengths([matrix.shape[0] for matrix in matrices])
        columns = _sparse(matrices, width) if sparse else _dense(matrices, width)
        self._check_finite(topology, columns)
        return topology, columns

    def _check_finite(self, topology: Chains, columns: Columns) -> None:
        numbers = columns.values if columns.dense is None else columns.dense
        # A sum is finite only if all its terms are; one that overflows merely leads to the longer way.
        with np.errstate(over="ignore", invalid="ignore"):
            if numbers is None or np.isfinite(numbers.sum()):
                return
        let_through = self.missing is True or (self.missing == "dense" and columns.dense is not None)
        bad = np.isinf(numbers) if let_through else ~np.isfinite(numbers)
        if not bad.any():
            return
        place = int(np.argmax(bad))
        if columns.dense is None:
            row, column = (
                int(np.searchsorted(columns.indptr, place, side="right")) - 1,
                int(columns.indices[place]),
            )
        else:
            row, column = divmod(place, columns.n_dense)
        sequence = int(topology.sequence_of_node[row])
        advice = (
            "Use NaN where a value is missing, or clip it."
            if self.missing
            else "Fill in the missing values first, for example with the column's mean, and mark them in a column of "
            "their own."
        )
        raise FeatureError(
            f"sequence {sequence}, step {row - int(topology.offsets[sequence])}: feature "
            f"{self._name(column)!r} must be a finite number, got {numbers.reshape(-1)[place]}. {advice}"
        )

    def _chosen(self, width: int, kept: np.ndarray | None) -> EdgeChoice:
        chosen = np.zeros(width, bool)
        if self.transition_features == "all":
            chosen[:] = True
        else:
            for feature in self.transition_features:
                column = feature
                if isinstance(feature, str) and feature in (self.feature_names or ()):
                    column = (self.feature_names or []).index(feature)
                if not isinstance(column, int) or not -width <= column < width:
                    raise InputError(
                        f"transition_features names the column {feature!r}, but the {width} columns are "
                        f"numbered 0 … {width - 1}. Give numbers, or names that are in feature_names."
                    )
                chosen[column] = True
        if kept is None:
            return EdgeChoice(np.zeros(0, np.int32), np.flatnonzero(chosen))
        return EdgeChoice(np.flatnonzero(chosen[kept]), np.zeros(0, np.int32))

    def _check_fitted(self) -> None:
        if self._width < 0:
            raise NotFittedError("this MatrixEncoder does not know its width yet. Call fit(X) first.")

    def _check_names(self, width: int) -> None:
        if self.feature_names is not None and len(self.feature_names) != width:
            raise ShapeError(
                f"feature_names must name each of the {width} columns of X, got {len(self.feature_names)} names."
            )

    def _name(self, column: int) -> str:
        return f"x[{column}]" if self.feature_names is None else self.feature_names[column]


def matrices_of(X: Any) -> list[Any]:
    """X as a list of CSR matrices and 2-D arrays of real numbers; an empty sequence may come as (0, 0)."""
    if is_sparse(X) or (isinstance(X, np.ndarray) and X.ndim == 2 and X.dtype.kind in "biufc"):
        raise ShapeError(
            f"X must be a list of matrices, one per sequence, got a single matrix of shape {X.shape}. Write "
            "[X] if it is one sequence, or cut it: [X[:10], X[10:], …]."
        )
    if isinstance(X, str | bytes | dict) or not hasattr(X, "__iter__"):
        raise FeatureError(
            f"X must be a list of matrices (steps, features), one per sequence, got {type(X).__name__}."
        )
    return [_matrix(x, i) for i, x in enumerate(X)]


def _matrix(x: Any, number: int) -> Any:
    if is_sparse(x):
        matrix = x.tocsr()
        _check_real(matrix, number)
        if matrix.ndim == 2:
            return matrix
    else:
        try:
            matrix = np.asarray(x)
            if matrix.dtype.kind == "O":
                matrix = matrix.astype(np.float64)
        except (ValueError, TypeError) as error:
            raise ShapeError(
                f"sequence {number} must be a matrix (steps, features) of numbers, but cannot be made one: "
                f"{error}. Are all its rows equally long, and all its entries numbers?"
            ) from None
        if matrix.shape == (0,):
            return np.zeros((0, 0))
        _check_real(matrix, number)
        if matrix.ndim == 2:
            return matrix
    raise ShapeError(
        f"sequence {number} must be a 2-D matrix (steps, features), got {matrix.ndim} dimensions, shape "
        f"{matrix.shape}. Write x.reshape(-1, 1) for one feature per step, or [X] if X is a single sequence."
    )


def _check_real(matrix: Any, number: int) -> None:
    if matrix.dtype.kind not in "biuf":
        raise FeatureError(
            f"sequence {number} must hold real numbers, got an array of type {matrix.dtype}. Convert it with "
            ".astype(float); give words as dicts or lists of feature strings instead."
        )


def _holds_sparse(matrices: list[Any]) -> bool:
    return next((is_sparse(matrix) for matrix in matrices if matrix.shape != (0, 0)), False)


def _first_width(matrices: list[Any]) -> int:
    for matrix in matrices:
        if matrix.shape[1]:
            return int(matrix.shape[1])
    raise ShapeError(
        f"X must hold at least one matrix with columns to fix the width, got {len(matrices)} sequences without any."
    )


def _gaps(node: Columns, kept: np.ndarray | None) -> frozenset[int]:
    """The user's columns that hold NaN."""
    if node.dense is not None:
        return frozenset(np.flatnonzero(np.isnan(node.dense).any(axis=0)).tolist())
    if node.values is None or kept is None:
        return frozenset()
    return frozenset(kept[np.unique(node.indices[np.isnan(node.values)])].tolist())


def _dense(matrices: list[Any], width: int) -> Columns:
    filled = [matrix for matrix in matrices if matrix.shape[0]]
    block = np.concatenate(filled, dtype=np.float64) if filled else np.zeros((0, width))
    return Columns(np.zeros(len(block) + 1, np.int64), np.zeros(0, np.int32), 0, None, block)


def _sparse(matrices: list[Any], width: int) -> Columns:
    indptr, indices, values = [np.zeros(1, np.int64)], [np.zeros(0, np.int32)], [np.zeros(0)]
    total = 0
    for i, matrix in enumerate(matrices):
        if not matrix.shape[0]:
            continue
        ends, columns = np.asarray(matrix.indptr, np.int64), matrix.indices
        if (
            len(ends) != matrix.shape[0] + 1
            or ends[0] != 0
            or (ends[1:] < ends[:-1]).any()
            or ends[-1] > min(len(columns), len(matrix.data))
            or (ends[-1] and (columns[: ends[-1]].min() < 0 or columns[: ends[-1]].max() >= width))
        ):
            raise ShapeError(
                f"sequence {i} is not a valid CSR matrix: its indptr and indices do not fit its shape "
                f"{matrix.shape}. Was it put together by hand? Try x.check_format()."
            )
        indptr.append(ends[1:] + total)
        indices.append(columns[: ends[-1]])
        values.append(matrix.data[: ends[-1]])
        total += int(ends[-1])
    numbers = np.concatenate(values, dtype=np.float64)
    columns = np.concatenate(indices, dtype=np.int32, casting="unsafe")
    return Columns(np.concatenate(indptr), columns, width, unless_ones(numbers))
