"""What every encoder promises: the user's data in, a `Batch` of columns out.

An encoder learns its alphabet in ``fit`` and is locked afterwards: a feature never seen in training has no
column and is dropped by ``encode``. Names are made only when asked for. Its whole state is a JSON-able header
and a few arrays, so that a model file needs no pickle.
"""

from __future__ import annotations

from typing import Any, NamedTuple, Protocol

import numpy as np

from crfield.data.batch import Batch


class Widths(NamedTuple):
    """How many columns an encoder makes, sparse and dense, of steps and of edges.

    >>> Widths(3, dense=2).of_steps
    5
    """

    sparse: int
    dense: int = 0
    edge: int = 0
    edge_dense: int = 0

    @property
    def of_steps(self) -> int:
        """Columns of a step, sparse and dense together."""
        return self.sparse + self.dense


class Encoder(Protocol):
    """The protocol of the classes in this room that read data."""

    kind: str  # the word that names the class in a model file

    def fit(self, X: Any, *, min_count: int = 1) -> Batch:
        """Learn the columns from X and encode it; columns seen on fewer than ``min_count`` rows are dropped."""
        ...

    def encode(self, X: Any) -> Batch:
        """Encode X with the columns learnt in ``fit``."""
        ...

    @property
    def widths(self) -> Widths:
        """How many columns it makes, once it is fitted."""
        ...

    def node_name(self, column: int) -> str:
        """Name of a sparse node column."""
        ...

    def dense_name(self, column: int) -> str:
        """Name of a column of the dense block of the nodes."""
        ...

    def edge_name(self, column: int) -> str:
        """Name of a sparse edge column."""
        ...

    def edge_dense_name(self, column: int) -> str:
        """Name of a column of the dense block of the edges."""
        ...

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header and the arrays from which ``from_state`` makes the same encoder again."""
        ...

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> Encoder:
        """The encoder whose ``state`` this is; checks what it reads, since files may be damaged."""
        ...
