"""The user's sequences, labels and weights as every model of them reads them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.core.estimator import Estimator, Tags
from crfield.core.target import Target, check_weights
from crfield.core.typing import Labels, Sequences, Weights


def without_weightless(X: Sequences, y: Labels, sample_weight: Weights) -> tuple[Sequences, Labels, Weights]:
    """X, y and weights without the sequences of weight 0, which then leave no feature, label or scale behind.

    >>> without_weightless(["ab", "c"], [[1, 2], [3]], [0.0, 2.0])
    (['c'], [[3]], array([2.]))
    """
    if sample_weight is None or not hasattr(X, "__len__") or not hasattr(y, "__len__") or len(X) != len(y):
        return X, y, sample_weight
    weight = check_weights(sample_weight, len(X))
    kept = np.flatnonzero(weight)
    if len(kept) == len(weight):
        return X, y, weight
    return taken(X, kept), taken(y, kept), weight[kept]


def taken(sequences: Sequences, numbers: Sequence[int] | np.ndarray) -> Sequences:
    """The sequences of these numbers, as a list or as what they came in.

    >>> taken(["a", "b", "c"], [2, 0])
    ['c', 'a']
    """
    chosen: Any = np.asarray(numbers)
    if hasattr(sequences, "shape"):
        return sequences[chosen]
    return [sequences[k] for k in chosen.tolist()]


def right_share(codes: np.ndarray, target: Target, sample_weight: Weights) -> float:
    """Share of nodes whose label the target allows, as their sequences are weighted; unknown ones are left out.

    >>> from crfield.core.topology import Chains
    >>> right_share(np.array([1, 0]), Target(Chains.from_lengths([2]), 2, np.array([1, 1])), None)
    0.5
    """
    topology = target.topology
    counted = (target.labels >= 0) | ~target.mask.all(axis=1)
    right = target.mask[np.arange(len(codes)), codes]
    weight = np.ones(len(codes))
    if sample_weight is not None:
        weight = np.repeat(check_weights(sample_weight, topology.n_sequences), topology.lengths)
    total = float(weight[counted].sum())
    return float(weight[counted & right].sum() / total) if total > 0 else 0.0


class StructuredData(Estimator, group=True):
    """What models of sequences and graphs tell scikit-learn: X is no table, and y is needed."""

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = False
        tags.no_validation = True
        return tags
