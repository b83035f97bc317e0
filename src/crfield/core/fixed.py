"""Scores that nobody learns: what the user says of neighbouring labels before any data is seen.

    score(y) += start(y_0) + Σ_t edge(y_{t-1}, y_t) + end(y_{T-1})

A constant of −∞ forbids, a finite one is a cost or a reward. They are added to the scores of a chain wherever scores
are made, in training and in decoding alike, so whatever trains or decodes knows them without being told.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from crfield.core.target import UNKNOWN, Target
from crfield.errors import InputError, ShapeError

FIXED = ("fixed_edge", "fixed_start", "fixed_end")  # the tables by the names they have in a model file


@dataclass(frozen=True, eq=False)
class FixedScores:
    """Constants of label pairs and of the ends of a chain; each is finite, or −∞ where forbidden.

    >>> import numpy as np
    >>> fixed = FixedScores(np.array([[0.0, -np.inf], [0.0, 0.0]]), np.zeros(2), np.array([-1.5, 0.0]))
    >>> fixed.n_labels, fixed.forbids, fixed.of_path([1, 0])
    (2, True, -1.5)
    """

    edge: np.ndarray  # (L, L)
    start: np.ndarray  # (L,)
    end: np.ndarray  # (L,)

    def __post_init__(self) -> None:
        edge = np.ascontiguousarray(self.edge, dtype=np.float64)
        start, end = (np.ascontiguousarray(x, dtype=np.float64) for x in (self.start, self.end))
        labels = len(start)
        if start.shape != (labels,) or end.shape != (labels,) or edge.shape != (labels, labels):
            raise ShapeError(
                f"fixed scores must be edge (L, L), start (L,) and end (L,), got {edge.shape}, {start.shape} and "
                f"{end.shape}."
            )
        for name, scores in (("edge", edge), ("start", start), ("end", end)):
            if not (scores < np.inf).all():
                raise InputError(f"fixed {name} scores must be finite or -inf, got NaN or +inf.")
            object.__setattr__(self, name, scores)

    @classmethod
    def none(cls, n_labels: int) -> FixedScores:
        """All zero: nothing is said.

        >>> FixedScores.none(2).edge.tolist()
        [[0.0, 0.0], [0.0, 0.0]]
        """
        return cls(np.zeros((n_labels, n_labels)), np.zeros(n_labels), np.zeros(n_labels))

    @property
    def n_labels(self) -> int:
        """L."""
        return len(self.start)

    @property
    def forbids(self) -> bool:
        """Whether anything is −∞."""
        return any(bool(np.isneginf(x).any()) for x in (self.edge, self.start, self.end))

    def within(self) -> FixedScores:
        """The same without what is said of first and last steps.

        >>> import numpy as np
        >>> FixedScores(np.zeros((1, 1)), np.ones(1), np.ones(1)).within().start.tolist()
        [0.0]
        """
        zeros = np.zeros(self.n_labels)
        return FixedScores(self.edge, zeros, zeros)

    def scaled(self, factor: float) -> FixedScores:
        """All finite scores times a factor above 0; what is forbidden stays so.

        >>> import numpy as np
        >>> FixedScores(np.array([[-2.0]]), np.array([-np.inf]), np.zeros(1)).scaled(0.5).edge.tolist()
        [[-1.0]]
        """
        return FixedScores(self.edge * factor, self.start * factor, self.end * factor)

    def of_path(self, path: np.ndarray | list[int]) -> float:
        """What one labelling of a whole sequence gets."""
        codes = np.asarray(path, dtype=np.int64)
        if not len(codes):
            return 0.0
        return float(self.start[codes[0]] + self.edge[codes[:-1], codes[1:]].sum() + self.end[codes[-1]])

    def first_broken(self, target: Target) -> tuple[int, int] | None:
        """Sequence and step where gold labels first do what is forbidden; a step of T means the end of the sequence.

        Steps with several allowed labels break nothing here as long as the labels beside them do not.

        >>> import numpy as np
        >>> from crfield.core.topology import Chains
        >>> fixed = FixedScores(np.array([[0.0, -np.inf], [0.0, 0.0]]), np.zeros(2), np.zeros(2))
        >>> fixed.first_broken(Target(Chains.from_lengths([1, 3]), 2, np.array([1, 0, 0, 1])))
        (1, 2)
        """
        topology, labels = target.topology, target.labels
        kept = topology.lengths > 0 if target.weight is None else (topology.lengths > 0) & (target.weight > 0)
        broken = np.zeros((topology.n_nodes, 2), dtype=bool)  # before the step, after it
        firsts, lasts = topology.offsets[:-1][kept], topology.offsets[1:][kept] - 1
        broken[firsts, 0] = (labels[firsts] != UNKNOWN) & np.isneginf(self.start[labels[firsts]])
        broken[lasts, 1] = (labels[lasts] != UNKNOWN) & np.isneginf(self.end[labels[lasts]])
        heads = topology.heads[kept[topology.sequence_of_edge]]
        before, after = labels[heads - 1], labels[heads]
        broken[heads, 0] = (before != UNKNOWN) & (after != UNKNOWN) & np.isneginf(self.edge[before, after])
        if not broken.any():
            return None
        node, side = divmod(int(np.argmax(broken)), 2)
        sequence = int(topology.sequence_of_node[node])
        return sequence, node - int(topology.offsets[sequence]) + side

    def arrays(self) -> dict[str, np.ndarray]:
        """The three tables by the names they have in a model file."""
        return dict(zip(FIXED, (self.edge, self.start, self.end)))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray], n_labels: int) -> FixedScores | None:
        """The scores whose `arrays` these are among; None if none of them is there, InputError if some do not fit."""
        found = [arrays.get(name) for name in FIXED]
        if all(x is None for x in found):
            return None
        shapes = ((n_labels, n_labels), (n_labels,), (n_labels,))
        if any(x is None or x.dtype != np.float64 or x.shape != shape for x, shape in zip(found, shapes)):
            raise ShapeError(f"fixed scores of {n_labels} labels lack a table, or one has another shape.")
        return cls(*found)  # type: ignore[arg-type]
