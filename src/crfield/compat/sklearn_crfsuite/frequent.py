"""A `ChainCRF` that leaves out rare weights, pair by pair, as CRFsuite's ``feature.minfreq`` does.

`ChainCRF` drops columns that are rare; CRFsuite drops rare pairs of a feature and a label, and rare transitions. The
difference matters to somebody who wants the same model as there, and to nobody else, so it stands apart. How often a
pair occurs is the sum of its values, as there; but of their sizes, for CRFsuite adds up negative values as they are
and so loses the features that have them.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.errors import InputError
from crfield.estimators.chain.crf import ChainCRF
from crfield.scoring.layout import Layout


class _FrequentChain(ChainCRF):
    """A chain in which a pair that occurs less than ``_least`` times has no weight."""

    _least = 0.0

    def read_training(self, labels: LabelCoder, X: Any, y: Any, sample_weight: Any = None, before: Any = None) -> Any:
        model, batch, target, places = super().read_training(labels, X, y, sample_weight, before)
        if before is None and self._least > 0:
            layout = frequent_layout(model.layout, batch, target, self._least)
            model = replace(model, layout=layout, weights=np.zeros(layout.n_weights))
        return model, batch, target, places


def frequent_chain(least: float, **parameters: Any) -> ChainCRF:
    """An unfitted `ChainCRF` with weights only for pairs that occur at least so often.

    >>> X, y = [[["a"], ["a"], ["b"]]], [["N", "N", "V"]]
    >>> frequent_chain(2, intercept=False, boundaries=False).fit(X, y).coef_.shape
    (1,)
    """
    chain = _FrequentChain(**parameters)
    chain._least = least
    return chain


def frequent_layout(layout: Layout, batch: Batch, target: Target, least: float) -> Layout:
    """The layout with only the (column, label) pairs and transitions that occur ``least`` times or more."""
    if target.allowed is not None or batch.edge is not None:
        raise InputError(
            "rare pairs are left out of models with known labels and without features of transitions only."
        )
    labels = layout.n_labels
    rows = np.repeat(np.arange(batch.node.n_rows), np.diff(batch.node.indptr))
    cells, which = np.unique(batch.node.indices.astype(np.int64) * labels + target.labels[rows], return_inverse=True)
    sizes = None if batch.node.values is None else np.abs(batch.node.values)
    cells = cells[np.bincount(which, sizes, minlength=len(cells)) >= least]
    heads = target.topology.heads
    codes = target.labels.astype(np.int64)
    pairs, counts = np.unique(codes[heads - 1] * labels + codes[heads], return_counts=True)
    return replace(
        layout,
        feature_ptr=np.searchsorted(cells, np.arange(layout.n_columns + 1) * labels).astype(np.int64),
        feature_label=(cells % labels).astype(np.int32),
        pairs=np.intersect1d(pairs[counts >= least], layout.pairs).astype(np.int32),
    )
