"""Scores of single steps of hidden Markov models.

Normal densities have tables of their own, so that they can be exported; any other family is asked row by row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.data.large import ADVICE, ROOM
from crfield.errors import FeatureError
from crfield.estimators.export.step_scores import Scoring, StepScorer, hashed, observed_rows, single_steps
from crfield.features.encoder import Encoder
from crfield.scoring.densities.gaussian import DiagonalGaussian, most_deviant


@dataclass(frozen=True, eq=False)
class GaussianSteps:
    """Independent normal columns given the label: the steps of a hidden Markov model.

        node(j) = bias(j) − ½ Σ_d ((x_d − mean(d, j)) / deviation(d, j))²

    ``bias`` holds the rest of the log density. Squares stay about the means, so that nothing cancels. A missing cell
    (NaN) takes neither its square nor its part of the bias.

    >>> import numpy as np
    >>> steps = GaussianSteps(np.array([[0.0, 2.0]]), np.ones((1, 2)), np.zeros(2), np.zeros((2, 2)), np.zeros(2))
    >>> steps.score([[2.0]], [[]])[0].tolist()
    [[-2.0, 0.0]]
    """

    mean: np.ndarray  # (D, L)
    deviation: np.ndarray  # (D, L), positive
    bias: np.ndarray  # (L,)
    transitions: np.ndarray  # (L, L)
    start: np.ndarray  # (L,)
    end: np.ndarray = None  # type: ignore[assignment]  # (L,)
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.end is None:
            object.__setattr__(self, "end", np.zeros(len(self.start)))

    @property
    def varied(self) -> bool:
        """All steps share one table."""
        return False

    @property
    def reach(self) -> int:
        """Nothing is looked back at."""
        return 0

    @property
    def n_columns(self) -> int:
        """D."""
        return len(self.mean)

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of rows (k, D)."""
        x = observed_rows(rows, self.n_columns)
        if np.isinf(x).any():
            row, column = divmod(int(np.argmax(np.isinf(x))), self.n_columns)
            raise FeatureError(f"column {column} of row {row} must be a finite number or NaN, got {x[row, column]}.")
        missing = np.isnan(x)
        with np.errstate(over="ignore"):
            squares = ((x[:, :, None] - self.mean) / self.deviation) ** 2
            if missing.any():
                parts = -np.log(self.deviation) - 0.5 * np.log(2 * np.pi)
                node = ~missing @ parts - 0.5 * np.where(missing[:, :, None], 0.0, squares).sum(axis=1)
            else:
                node = self.bias - 0.5 * squares.sum(axis=1)
        lost = node < -ROOM
        if lost.any():
            if lost.all(axis=1).any():
                row = int(lost.all(axis=1).argmax())
                column = most_deviant(x[row], self.mean.T, self.deviation.T)
                name = f"x[{column}]" if self.names is None else self.names[column]
                raise FeatureError(
                    f"sequence {row}, step 0: feature {name!r} is {x[row, column]:.6g}, so far from what every label "
                    f"was seen with that no density has a number for it. {ADVICE}."
                )
            node[lost] = -np.inf
        return node, None

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "names"}

    def digest(self) -> str:
        """A word that differs between models."""
        return hashed(["gaussian"], list(self.tables().values()))


def density_steps(
    model: Scoring, encoder: Encoder, emissions: Any, start: np.ndarray, transitions: np.ndarray
) -> StepScorer:
    """Scores of single steps of a hidden Markov model with log probabilities (L,) and (L, L)."""
    header = encoder.state()[0]
    if isinstance(emissions, DiagonalGaussian) and header["kind"] == "matrix" and not header["sparse"]:
        columns = emissions.n_columns
        return GaussianSteps(
            np.ascontiguousarray(emissions.mean.T),
            np.ascontiguousarray(emissions.deviation.T),
            -np.log(emissions.deviation).sum(axis=1) - 0.5 * columns * np.log(2 * np.pi),
            transitions,
            start,
            names=tuple([encoder.dense_name(k) for k in range(columns)]),
        )
    tables = {"start": start, "end": np.zeros(len(start)), "transitions": transitions}
    return single_steps(model, tables, varied=False, window=0, more=list(emissions.to_arrays().values()))
