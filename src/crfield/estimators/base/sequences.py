"""The user's sequences, labels and weights as every model of them reads them: checked, and made into a `Target`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from crfield.core.estimator import Estimator, Tags
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.core.typing import Labels, Sequences, Weights
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ShapeError


def sequence_target(chains: Chains, labels: LabelCoder, y: Labels, sample_weight: Weights) -> Target:
    """The target of labels y on chains; InputError where X holds no steps at all.

    >>> target = sequence_target(Chains.from_lengths([2]), LabelCoder().fit([["a", "b"]]), [["b", None]], None)
    >>> target.labels.tolist()
    [1, -1]
    """
    codes, allowed = labels.encode(y, chains.lengths)
    if chains.n_nodes == 0:
        raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
    weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
    return Target(chains, labels.n_labels, codes, allowed, weight)


def check_weights(sample_weight: Sequence[float] | np.ndarray, n_sequences: int) -> np.ndarray:
    """(B,) float64: one finite weight of at least 0 for each sequence, not all of them 0.

    >>> check_weights([1, 0, 2.5], 3).tolist()
    [1.0, 0.0, 2.5]
    """
    try:
        weight = np.asarray(sample_weight, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"sample_weight must be one number for each sequence: {error}.") from None
    if weight.shape != (n_sequences,):
        raise ShapeError(
            f"sample_weight must have one number for each of {n_sequences} sequences, got shape {weight.shape}. "
            "Weights belong to sequences, not to steps."
        )
    good = np.isfinite(weight) & (weight >= 0)
    if not good.all():
        bad = int(np.argmin(good))
        raise InputError(f"sample_weight must be finite and not negative, got {weight[bad]} for sequence {bad}.")
    if n_sequences and not weight.any():
        raise InputError(f"sample_weight is 0 for all {n_sequences} sequences, which leaves nothing to work with.")
    return weight


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
