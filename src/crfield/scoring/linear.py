"""The linear scorer: weights times columns, and its adjoint."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.core.potentials import Potentials
from crfield.data.batch import Batch
from crfield.kernels import linear
from crfield.scoring.layout import Layout


@dataclass(frozen=True, eq=False)
class LinearScorer:
    """Scores that are sums of weights, one for each active feature.

    ``score`` is linear in the weights and ``pull`` is its transpose: for every direction v and gradient g,
    ⟨score(v), g⟩ = ⟨v, pull(g)⟩.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Columns
    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [1]], width=2))
    >>> scorer = LinearScorer(Layout(n_labels=2, n_columns=2, edge_ptr=np.zeros(1, np.int64),
    ...                              edge_pair=np.zeros(0, np.int32)))
    >>> scorer.score(np.array([1.0, 2.0, 3.0, 4.0]), batch).node.tolist()
    [[1.0, 2.0], [3.0, 4.0]]
    """

    layout: Layout

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    def score(self, weights: np.ndarray, batch: Batch) -> Potentials:
        """Potentials of a batch."""
        node, edge = linear.Tagger(self.layout, weights).scores(batch)
        return Potentials(node, edge, batch.topology)

    def pull(self, node: np.ndarray, edge: np.ndarray, batch: Batch) -> np.ndarray:
        """A gradient in the shape of the potentials, as a gradient of the weights (W,)."""
        return linear.pull(self.layout, batch, node, edge)
