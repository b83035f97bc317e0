"""Sequences as `IncompleteBoost` reads them: laid end to end, and answers cut into sequences again.

The model scores rows. Data that are sequences come as all models of this package take them, a list with one array of
steps for each, and labels and hidden parts as lists of lists; or as rows with their ``lengths``, as others have it.
Answers have the form of the question.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.features.matrices import is_sparse, matrices_of


@dataclass(frozen=True, eq=False)
class Steps:
    """The rows of all steps, and the lengths of the sequences; ``listed`` where X came as a list of them.

    >>> steps = Steps.of([[[1.0], [2.0]], [[3.0]]])
    >>> steps.X.tolist(), steps.lengths.tolist(), steps.flat("y", [["a", "b"], ["c"]])
    ([[1.0], [2.0], [3.0]], [2, 1], ['a', 'b', 'c'])
    >>> [part.tolist() for part in steps.cut(np.array([7, 8, 9]))]
    [[7, 8], [9]]
    """

    X: Any  # (N, D)
    lengths: Any  # (B,), or as the user gave them
    listed: bool

    @classmethod
    def of(cls, X: Any, lengths: Any = None) -> Steps:
        """A list of sequences laid end to end; rows as they are."""
        if not is_list_of_sequences(X):
            return cls(X, lengths, listed=False)
        if lengths is not None:
            raise InputError(
                "X is a list of sequences, which says how long they are. Leave lengths out, or give X as one table."
            )
        matrices = [matrix for matrix in matrices_of(X) if matrix.shape != (0, 0)]
        for number, matrix in enumerate(matrices):
            if matrix.shape[1] != matrices[0].shape[1]:
                raise ShapeError(
                    f"sequence {number} has {matrix.shape[1]} columns and sequence 0 has {matrices[0].shape[1]}. "
                    "Give all of them the same ones."
                )
        if any(is_sparse(matrix) for matrix in matrices):
            from scipy.sparse import vstack

            table = vstack(matrices, format="csr")
        else:
            table = np.concatenate(matrices)
        return cls(table, np.array([x.shape[0] if hasattr(x, "shape") else len(x) for x in X], np.int64), listed=True)

    def flat(self, name: str, given: Any) -> Any:
        """One entry for each step, of a list for each sequence; where there is None, None for all its steps."""
        if not self.listed or given is None:
            return given
        own = list(given)
        if len(own) != len(self.lengths):
            raise ShapeError(
                f"X has {len(self.lengths)} sequences and {name} has {len(own)} entries: give one for each."
            )
        out: list[Any] = []
        for number, (entries, length) in enumerate(zip(own, self.lengths.tolist())):
            if entries is None:
                entries = [None] * length
            if isinstance(entries, str | bytes) or not hasattr(entries, "__len__") or len(entries) != length:
                raise ShapeError(
                    f"sequence {number} has {length} steps, so {name} needs {length} entries for it, got "
                    f"{entries!r:.60}."
                )
            out.extend(entries)
        return out

    def weights(self, given: Any) -> Any:
        """The weight of each step, of one for each sequence."""
        if not self.listed or given is None or np.ndim(given) == 0:
            return given
        if len(given) != len(self.lengths):
            raise ShapeError(f"sample_weight must be one number for each of {len(self.lengths)} sequences of X.")
        return np.repeat(np.asarray(given), self.lengths)

    def cut(self, rows: np.ndarray) -> np.ndarray:
        """What was found for the steps, in the form of the question: rows, or an object array of one for each."""
        if not self.listed:
            return rows
        out = np.empty(len(self.lengths), dtype=object)
        for number, part in enumerate(np.split(rows, np.cumsum(self.lengths)[:-1])):
            out[number] = part
        return out


def is_list_of_sequences(X: Any) -> bool:
    """Whether X is a list of tables and not one table.

    >>> is_list_of_sequences([[[1.0], [2.0]]]), is_list_of_sequences([[1.0], [2.0]]), is_list_of_sequences(np.eye(2))
    (True, False, False)
    """
    if isinstance(X, np.ndarray) and X.dtype != object:
        return X.ndim == 3
    if not isinstance(X, list | tuple | np.ndarray):
        return False
    first = next((x for x in X if not isinstance(x, list | tuple) or len(x)), None)
    return is_sparse(first) or _depth(first) == 2


def _depth(x: Any) -> int:
    if isinstance(x, list | tuple):
        return 1 + (_depth(x[0]) if len(x) else 0)
    return int(getattr(x, "ndim", 0))
