"""Contract of the stream kernels: chains that grow by one step at a time.

`Scores` turns dense columns of single steps into scores,

    z = (x − mean) / deviation
    node(j) = Σ_d z_d W(d, j) + bias(j)        edge(i, j) = T(i, j) + Σ_g z_{linked g} Q(g, i, j)

and `Recursion` holds the messages of B streams of L labels. Everything it remembers lies in arrays of fixed size:

    steps (B,), total (B,)              steps so far, log Z of what was seen
    alpha, nodes (B, H, L)              log filtered distributions and node scores of the last H = lag + 1 steps
    edges (B, H or 0, L, L)             edge tables of the same steps where every step has its own
    delta (B, L), back (B, M, L)        best score of a path into each label, where it came from; M = max_lag + 1 or 0
    origin (B, L), oldest (B,)          the label each survivor has at the oldest step that is not committed yet

The arrays belong to the caller, so a stream is saved by copying them. Step t of a ring lives at slot t mod H. The
kernel keeps the GIL, because two threads in one stream would tear its state, and a step is over in microseconds.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import FeatureError, InputError, ShapeError
from crfield.kernels import choice


class Scores:
    """Scores of rows (k, D) of dense columns.

    >>> import numpy as np
    >>> scores = Scores(np.ones(1), np.ones(1), np.array([[1.0, 2.0]]), np.zeros(2), np.zeros((2, 2)),
    ...                 np.zeros(0, np.int32), np.zeros((0, 2, 2)))
    >>> scores.score(np.array([[3.0]]))[0].tolist()
    [[2.0, 4.0]]
    """

    def __init__(
        self,
        mean: np.ndarray,
        deviation: np.ndarray,
        weights: np.ndarray,
        bias: np.ndarray,
        transitions: np.ndarray,
        linked: np.ndarray,
        link_weights: np.ndarray,
    ) -> None:
        numbers = [np.ascontiguousarray(a, np.float64) for a in (mean, deviation, weights, bias, transitions)]
        self.n_columns, self.n_labels = numbers[2].shape
        self.varied = len(linked) > 0
        self._body = choice.body("stream").Scores(
            *numbers, np.ascontiguousarray(linked, np.int32), np.ascontiguousarray(link_weights, np.float64)
        )

    def score(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray | None]:
        """``node`` (k, L) and ``edge`` (k, L, L), None when no column is linked to transitions."""
        rows, labels = len(x), self.n_labels
        node = np.empty((rows, labels))
        edge = np.empty((rows, labels, labels)) if self.varied else None
        bad = self._body.score(x, node, edge)
        if bad >= 0:
            row, column = divmod(bad, self.n_columns)
            raise FeatureError(f"column {column} of row {row} must be a finite number, got {x[row, column]}.")
        return node, edge


class Recursion:
    """Filter, fixed-lag smoother and survivors of B streams; ``max_lag`` None leaves Viterbi out.

    >>> import numpy as np
    >>> two = Recursion(1, np.zeros(2), np.log([[0.9, 0.1], [0.1, 0.9]]), lag=0, max_lag=None, varied=False)
    >>> two.push(np.zeros(1, np.int64), np.log([[0.5, 0.5]]), None)[0].tolist()
    [[0.5, 0.5]]
    >>> two.push(np.zeros(1, np.int64), np.log([[0.8, 0.2]]), None)[0].round(6).tolist()
    [[0.8, 0.2]]
    """

    NAMES = ("steps", "total", "alpha", "nodes", "edges", "delta", "back", "origin", "oldest")

    def __init__(
        self,
        n_streams: int,
        start: np.ndarray,
        transitions: np.ndarray,
        *,
        lag: int,
        max_lag: int | None,
        varied: bool,
    ) -> None:
        labels, slots = len(start), 0 if max_lag is None else max_lag + 1
        if min(n_streams, labels) < 1 or lag < 0 or slots < 0:
            raise ShapeError(f"expected n_streams ≥ 0, labels ≥ 0 and lag ≥ 0, got {n_streams}, {labels}, {lag}.")
        tables = (np.ascontiguousarray(start, np.float64), np.ascontiguousarray(transitions, np.float64))
        window = lag + 1
        self.steps = np.zeros(n_streams, np.int64)
        self.total = np.zeros(n_streams)
        self.alpha = np.zeros((n_streams, window, labels))
        self.nodes = np.zeros((n_streams, window, labels))
        self.edges = np.zeros((n_streams, window if varied else 0, labels, labels))
        self.delta = np.zeros((n_streams, labels))
        self.back = np.zeros((n_streams, slots, labels), np.int32)
        self.origin = np.zeros((n_streams, labels), np.int32)
        self.oldest = np.zeros(n_streams, np.int64)
        self.committed = np.zeros((n_streams, slots), np.int32)
        self.counts = np.zeros((n_streams, 2), np.int64)
        self._body = choice.body("stream").Recursion(*tables, *self.arrays().values())
        self._push = self._body.push

    def arrays(self) -> dict[str, np.ndarray]:
        """Everything that is remembered, by name; not copies."""
        return {name: getattr(self, name) for name in self.NAMES}

    def push(
        self, which: np.ndarray, node: np.ndarray, edge: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """One step of the streams ``which`` (k,) int64, rising, from scores (k, L) and (k, L, L).

        Filtered (k, L); smoothed (k, L), NaN before step ``lag``; committed labels (k, M), valid until the next call,
        and counts (k, 2): how many of them, and how many of those were forced.
        """
        rows = len(node)
        probabilities, smoothed = np.empty_like(node), np.empty_like(node)
        committed, counts = self.committed[:rows], self.counts[:rows]
        try:
            self._push(which, node, edge, probabilities, smoothed, committed, counts)
        except ValueError as error:
            raise InputError(f"the stream cannot take this step: {error}.") from None
        return probabilities, smoothed, committed, counts
