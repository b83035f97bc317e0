"""The truth, kept apart from the scores so that it cannot leak into them.

A target says, for every node, which labels it may take: one (the usual gold label), several (the annotator was
unsure) or all (nobody looked). Training raises the total of what is allowed against the total of everything,
so one mechanism serves gold labels, partial labels and, later, the hidden states that belong to a label. It may also
say what each label would cost as an error (`crfield.core.costs`), for objectives that ask.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from crfield.core.graphs import Graphs
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ShapeError

UNKNOWN = -1


@dataclass(frozen=True, eq=False)
class Target:
    """Which labels each node may take, and how much each sequence counts.

    ``labels[n]`` is the only allowed label of node n, or −1 where row n of ``allowed`` decides. ``cost[n, l]`` is
    what label l costs at node n, 0 for what is allowed; without it every error costs the same.

    >>> import numpy as np
    >>> chains = Chains.from_lengths([2, 1])
    >>> target = Target(chains, 3, np.array([0, -1, 2]), np.array([[1, 0, 0], [1, 1, 0], [0, 0, 1]], bool))
    >>> target.complete.tolist(), target.mask.sum(axis=1).tolist()
    ([False, True], [1, 2, 1])
    """

    topology: Chains | Graphs
    n_labels: int
    labels: np.ndarray  # (N,) int32
    allowed: np.ndarray | None = None  # (N, L) bool
    weight: np.ndarray | None = None  # (B,)
    cost: np.ndarray | None = None  # (N, L)

    def __post_init__(self) -> None:
        nodes = self.topology.n_nodes
        labels = np.ascontiguousarray(self.labels, dtype=np.int32)
        if labels.shape != (nodes,):
            raise ShapeError(f"labels must have one entry for each of {nodes} nodes, got {labels.shape}.")
        if nodes and (labels.min() < UNKNOWN or labels.max() >= self.n_labels):
            raise LabelError(
                f"label codes must lie in -1 … {self.n_labels - 1}, got {labels.min()} … {labels.max()}."
            )
        object.__setattr__(self, "labels", labels)
        if self.allowed is not None:
            allowed = np.ascontiguousarray(self.allowed, dtype=bool)
            if allowed.shape != (nodes, self.n_labels):
                raise ShapeError(f"allowed must be ({nodes}, {self.n_labels}), got {allowed.shape}.")
            if nodes and not allowed.any(axis=1).all():
                raise LabelError(f"node {int(np.argmin(allowed.any(axis=1)))} allows no label at all.")
            object.__setattr__(self, "allowed", allowed)
        elif (labels == UNKNOWN).any():
            raise LabelError("unknown labels (-1) need the table `allowed` that says what they may be.")
        if self.weight is not None:
            weight = np.ascontiguousarray(self.weight, dtype=np.float64)
            if weight.shape != (self.topology.n_sequences,):
                raise ShapeError(
                    f"weight must have one entry for each of {self.topology.n_sequences} sequences, "
                    f"got {weight.shape}."
                )
            object.__setattr__(self, "weight", weight)
        if self.cost is not None:
            cost = np.ascontiguousarray(self.cost, dtype=np.float64)
            if cost.shape != (nodes, self.n_labels):
                raise ShapeError(f"cost must be ({nodes}, {self.n_labels}), got {cost.shape}.")
            if not np.isfinite(cost).all() or (cost < 0).any() or cost[self.mask].any():
                raise LabelError("costs must be finite, non-negative, and 0 for every allowed label.")
            object.__setattr__(self, "cost", cost)

    @cached_property
    def complete(self) -> np.ndarray:
        """(B,) whether every node of the sequence has exactly one allowed label."""
        unknown = np.concatenate([np.zeros(1, np.int64), np.cumsum(self.labels == UNKNOWN)])
        return unknown[self.topology.offsets[1:]] == unknown[self.topology.offsets[:-1]]

    @cached_property
    def mask(self) -> np.ndarray:
        """(N, L) bool, the allowed labels of every node."""
        known = np.flatnonzero(self.labels != UNKNOWN)
        if self.allowed is None:
            mask = np.zeros((len(self.labels), self.n_labels), dtype=bool)
        else:
            mask = self.allowed.copy()
            mask[known] = False
        mask[known, self.labels[known]] = True
        return mask


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
