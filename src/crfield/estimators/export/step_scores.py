"""Scores of single steps: what a stream needs of a model.

Offline, a model scores whole sequences. A stream has one observation, and perhaps a few before it, and wants the
node scores (L,) of this step and the table (L, L) of the edge that leads to it, without the scores of a first or last
step, which are told apart as ``start`` and ``end``. Two classes do that for
models of weighted columns (`crfield.estimators.export.columns`):

- `DenseSteps`: weights times numbers, the case of robots and sensors. A step costs a few microseconds, and the same
  tables can be exported (`crfield.estimators.export.export`);
- `SequenceSteps`: anything that can score a short sequence. The observation is laid behind those that its features
  look back at, and the scores of the last row are taken. Slower, and as general as the model.

Stumps and trees are in `crfield.estimators.export.trees`, densities in `crfield.estimators.markov.steps`, and what
makes states of scores of labels in `crfield.estimators.export.states`.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace
from crfield.core.typing import Sequences
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.estimators.export.written import Written
from crfield.features.matrices import is_sparse
from crfield.kernels.stream import Scores


class StepScorer(Protocol):
    """Scores of a step from its observation and the ``reach`` observations before it."""

    @property
    def start(self) -> np.ndarray:
        """(L,) scores of a first step."""
        ...

    @property
    def end(self) -> np.ndarray:
        """(L,) scores of a last step."""
        ...

    @property
    def transitions(self) -> np.ndarray:
        """(L, L) the table of every edge unless ``varied``."""
        ...

    @property
    def varied(self) -> bool:
        """Whether every step has an edge table of its own."""
        ...

    @property
    def reach(self) -> int:
        """How many earlier observations are looked back at."""
        ...

    @property
    def states(self) -> StateSpace | None:
        """The states of each label where scores are of states; None where they are of labels."""
        ...

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Node scores (k, L) and, if ``varied``, edge tables (k, L, L) of one step of k streams."""
        ...

    def digest(self) -> str:
        """A word that differs between models."""
        ...


_LINEAR = """\
  for (int j = 0; j < NAME_SCORES; j++) score[j] = NAME_bias[j];
  for (int d = 0; d < NAME_COLUMNS; d++) {
    double z = (x[d] - NAME_mean[d]) / NAME_deviation[d];
    for (int j = 0; j < NAME_SCORES; j++) score[j] += z * NAME_weights[d * NAME_SCORES + j];
  }"""

_LINKED = """\
  double table[NAME_STATES * NAME_STATES];
  memcpy(table, NAME_transitions, sizeof table);
  for (int g = 0; g < NAME_LINKED; g++) {
    int d = NAME_linked[g];
    double z = (x[d] - NAME_mean[d]) / NAME_deviation[d];
    for (int p = 0; p < NAME_STATES * NAME_STATES; p++)
      table[p] += z * NAME_link_weights[g * NAME_STATES * NAME_STATES + p];
  }
  edge = table;"""

_PYTHON_LINEAR = """\
    z = [(value - m) / d for value, m, d in zip(x, MEAN, DEVIATION)]
    score = list(BIAS)
    for value, row in zip(z, WEIGHTS):
        for j in range(SCORES):
            score[j] += value * row[j]"""

_PYTHON_LINKED = """\
    edge = [list(row) for row in TRANSITIONS]
    for d, table in zip(LINKED, LINK_WEIGHTS):
        for i in range(STATES):
            for j in range(STATES):
                edge[i][j] += z[d] * table[i][j]"""


@dataclass(frozen=True, eq=False)
class DenseSteps:
    """Weights times the numbers of a step.

        z = (x − mean) / deviation    node = z W + bias    edge = transitions + Σ_g z_{linked g} Q_g

    >>> import numpy as np
    >>> steps = DenseSteps(np.array([[0.5, -0.5]]), np.zeros((2, 2)))
    >>> steps.score([[4.0]], [[]])[0].tolist()
    [[2.0, -2.0]]
    """

    weights: np.ndarray  # (D, L)
    transitions: np.ndarray  # (L, L)
    bias: np.ndarray = None  # type: ignore[assignment]  # (L,)
    start: np.ndarray = None  # type: ignore[assignment]  # (L,)
    end: np.ndarray = None  # type: ignore[assignment]  # (L,)
    mean: np.ndarray = None  # type: ignore[assignment]  # (D,)
    deviation: np.ndarray = None  # type: ignore[assignment]  # (D,)
    linked: np.ndarray = None  # type: ignore[assignment]  # (G,) columns on the edges
    link_weights: np.ndarray = None  # type: ignore[assignment]  # (G, L, L)
    names: tuple[str, ...] | None = None  # of the D columns

    states = None  # scores are of labels

    @property
    def reach(self) -> int:
        """Nothing is looked back at."""
        return 0

    @property
    def dense(self) -> DenseSteps:
        """Itself: what a stream asks for names of columns."""
        return self

    def __post_init__(self) -> None:
        columns, labels = self.weights.shape
        filled = {
            "bias": np.zeros(labels),
            "start": np.zeros(labels),
            "end": np.zeros(labels),
            "mean": np.zeros(columns),
            "deviation": np.ones(columns),
            "linked": np.zeros(0, np.int32),
            "link_weights": np.zeros((0, labels, labels)),
        }
        for name, value in filled.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)

    @property
    def varied(self) -> bool:
        """Whether columns are linked to transitions."""
        return len(self.linked) > 0

    @cached_property
    def _scores(self) -> Scores:
        return Scores(
            self.mean, self.deviation, self.weights, self.bias, self.transitions, self.linked, self.link_weights
        )

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of rows (k, D)."""
        return self._scores.score(observed_rows(rows, len(self.mean)))

    def digest(self) -> str:
        """A word that differs between models."""
        return hashed(["linear"], list(self.tables().values()))

    @property
    def n_columns(self) -> int:
        """D."""
        return len(self.mean)

    @property
    def columns_read(self) -> np.ndarray:
        """(D,) which columns have a weight; an exported file computes no others."""
        read = (self.weights != 0).any(axis=1)
        read[self.linked] = True
        return np.asarray(read)

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__ if name != "names"}

    def written(self) -> Written:
        """How a step is scored."""
        (columns, labels), linked = self.weights.shape, len(self.linked)
        made = Written(_LINEAR, _PYTHON_LINEAR, 2 * columns * (labels + 1))
        if not linked:
            return made
        return made.then(_LINKED, _PYTHON_LINKED, 2 * linked * (labels**2 + 1), {"LINKED": linked})


class SequenceSteps:
    """The last step of short sequences, scored by a model that reads sequences.

    ``potentials`` scores a list of sequences. With ``repeat=1`` it must leave out the scores of first and last steps,
    and a sequence is the past and the observation; with 3 the observation stands three times and the middle is taken,
    which serves any model whose scores look at nothing but their own step. ``why`` says why such a model cannot be
    exported, where that is not for the form of X.
    """

    def __init__(
        self,
        potentials: Callable[[list[Any]], Potentials],
        *,
        start: np.ndarray,
        end: np.ndarray,
        transitions: np.ndarray,
        varied: bool,
        digest: str,
        reach: int = 0,
        repeat: int = 1,
        why: str | None = None,
    ) -> None:
        self.potentials, self.reach, self.repeat, self.why = potentials, reach, repeat, why
        self.start, self.end, self.transitions, self.varied = start, end, transitions, varied
        self.states: StateSpace | None = None
        self._digest = digest

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of the last step of each past with its observation."""
        sequences = [joined_steps([*past, *[row] * self.repeat]) for row, past in zip(rows, pasts, strict=True)]
        scores = self.potentials(sequences)
        offsets = scores.topology.offsets
        taken = offsets[1:] - (2 if self.repeat > 2 else 1)
        node = np.ascontiguousarray(scores.node[taken])
        if not self.varied:
            return node, None
        edge = np.tile(self.transitions, (len(node), 1, 1))
        later = np.flatnonzero(taken > offsets[:-1])
        # chain s has one edge fewer than steps, so edges into step n of it are number n − s − 1
        if len(scores.edge):
            edge[later] = scores.edge[scores.tables[taken[later] - later - 1]]
        return node, edge

    def digest(self) -> str:
        """A word that differs between models."""
        return self._digest


class Scoring(Protocol):
    """An estimator that scores sequences."""

    def potentials(self, X: Sequences) -> Potentials:
        """The scores of X."""
        ...


def single_steps(
    model: Scoring,
    tables: dict[str, np.ndarray],
    *,
    varied: bool,
    window: int,
    more: Sequence[np.ndarray],
    why: str | None = None,
) -> SequenceSteps:
    """Scores of single steps of any model with ``potentials`` whose scores look at their own step alone.

    ``window`` is how far they look around otherwise: such a model waits for steps that a stream has not seen. The
    tables of start, end and transitions, and ``more`` arrays, tell the model from others.
    """
    refuse_window(model, window)
    digest = hashed([type(model).__name__, repr(model)], [*tables.values(), *more])
    return SequenceSteps(
        model.potentials,
        start=tables["start"],
        end=tables["end"],
        transitions=tables["transitions"],
        varied=varied,
        digest=digest,
        repeat=3,
        why=why,
    )


def refuse_window(model: object, window: int) -> None:
    """InputError where a model sees the columns of steps to come."""
    if window:
        raise InputError(
            f"{type(model).__name__}(window={window}) sees {window} steps ahead, which a stream does not know yet. "
            "Train with window=0 and columns that look back only."
        )


def observed_rows(rows: Sequence[Any], columns: int) -> np.ndarray:
    """(k, D) float64."""
    try:
        x = np.ascontiguousarray(rows, np.float64)
    except (TypeError, ValueError) as error:
        raise FeatureError(f"an observation must be {columns} numbers, as in fit: {error}.") from None
    if x.ndim != 2 or x.shape[1] != columns:
        raise ShapeError(f"an observation must be {columns} numbers, one for each column, got shape {x.shape[1:]}.")
    return x


def observed_or_missing(rows: Sequence[Any], columns: int) -> np.ndarray:
    """(k, D) float64 in which NaN is a missing value; FeatureError for infinite ones."""
    x = observed_rows(rows, columns)
    if np.isinf(x).any():
        row, column = divmod(int(np.argmax(np.isinf(x))), columns)
        raise FeatureError(
            f"column {column} of row {row} must be a finite number, or NaN where it is missing, got {x[row, column]}."
        )
    return x


def hashed(headers: list[Any], arrays: Sequence[np.ndarray]) -> str:
    made = hashlib.sha256(json.dumps(headers, sort_keys=True, default=str).encode())
    for array in arrays:
        made.update(str((array.dtype.str, array.shape)).encode() + np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


def joined_steps(steps: list[Any]) -> Any:
    """A sequence of these observations, in the form that fit read."""
    if is_sparse(steps[0]):
        from scipy.sparse import csr_array, vstack

        return vstack([csr_array(step.reshape(1, -1)) for step in steps], format="csr")
    if isinstance(steps[0], np.ndarray) and steps[0].dtype.kind in "biuf":
        return np.stack(steps)
    return steps
