"""The columns that candidates read: selected, on the scale of the training steps, and clipped.

Everybody gets the same ones, so that models are compared and not their columns. Whoever is unlike all others should
not be given scores that nothing in training ever had, so what lies more than ``CLIP`` deviations from the mean is
taken for that far.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from crfield.selection.methods.separating import separating_columns
from crfield.storage.state import State, refuse

CLIP = 4.0
LOOKED_AT = 5_000  # steps that columns are ranked by: neighbours tell nearly the same


@dataclass(frozen=True, eq=False)
class ChosenColumns:
    """Which columns, and their means and deviations over the training steps.

    >>> table = np.array([[0.0, 5.0], [1.0, 5.0], [2.0, 5.0], [3.0, 5.0]])
    >>> columns = ChosenColumns.learnt([table], [np.array([0, 0, 1, 1])], most=2)
    >>> columns.numbers.tolist(), columns.apply(np.array([[1.5, 0.0], [99.0, 0.0]])).tolist()
    ([0], [[0.0], [4.0]])
    """

    numbers: np.ndarray  # (K,) int64
    mean: np.ndarray  # (K,)
    deviation: np.ndarray  # (K,)

    @classmethod
    def learnt(
        cls,
        rows: Sequence[np.ndarray],
        codes: Sequence[np.ndarray],
        *,
        most: int | None,
        most_alike: float = 1.0,
    ) -> ChosenColumns:
        """From all columns (n, F) and codes of labels (n,) of sequences, −1 where unknown; ``most`` None keeps all.

        Of all columns only the steps that rank them are copied, of the chosen ones all steps.
        """
        thin = max(1, sum(int((own >= 0).sum()) for own in codes) // LOOKED_AT)
        some = [np.flatnonzero(own >= 0)[::thin] for own in codes]
        table = np.concatenate([own[kept] for own, kept in zip(rows, some, strict=True)])
        truth = np.concatenate([own[kept] for own, kept in zip(codes, some, strict=True)])
        width = table.shape[1]
        numbers = separating_columns(table, truth, width if most is None else most, most_alike=most_alike)
        if not len(numbers):  # nothing varies: one column that says nothing is better than none
            numbers = np.zeros(1, np.int64)
        own = np.concatenate([part[:, numbers] for part in rows])
        deviation = own.std(axis=0)
        return cls(numbers, own.mean(axis=0), np.where(deviation > 0, deviation, 1.0))

    def apply(self, table: np.ndarray) -> np.ndarray:
        """(N, K) of all columns (N, F)."""
        with np.errstate(over="ignore"):  # what overflows is clipped
            scaled = (table[:, self.numbers] - self.mean) / self.deviation
        return np.ascontiguousarray(np.clip(scaled, -CLIP, CLIP))

    def state(self) -> State:
        """Arrays alone."""
        return State({}, {"numbers": self.numbers, "mean": self.mean, "deviation": self.deviation})

    @classmethod
    def from_state(cls, state: State, width: int) -> ChosenColumns:
        """The columns whose `state` this is, of ``width``; ModelFileError for whatever does not fit."""
        numbers = state.array("numbers", (None,), np.int64)
        if not len(numbers) or numbers.min() < 0 or numbers.max() >= width:
            refuse(f"the chosen columns must be some of {width}")
        mean, deviation = (state.array(name, (len(numbers),)) for name in ("mean", "deviation"))
        if (deviation <= 0).any():
            refuse("the deviations of the chosen columns must be above 0")
        return cls(numbers, mean, deviation)


def stacked(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Tables of sequences end to end, and where each but the first begins.

    >>> [part.tolist() for part in stacked([np.zeros((2, 1)), np.ones((1, 1))])]
    [[[0.0], [0.0], [1.0]], [2]]
    """
    return np.concatenate(rows), np.cumsum([len(own) for own in rows])[:-1]
