"""Scores of single steps: what a stream needs of a model.

Offline, a model scores whole sequences. A stream has one observation, and perhaps a few before it, and wants the
node scores (L,) of this step and the table (L, L) of the edge that leads to it, without the scores of a first or last
step, which are told apart as ``start`` and ``end``. Two classes do that:

- `DenseSteps`: weights times numbers, the case of robots and sensors. A step costs a few microseconds, and the same
  tables can be exported (`crfield.estimators.export.export`);
- `SequenceSteps`: anything that can score a short sequence. The observation is laid behind those that its features
  look back at, and the scores of the last row are taken. Slower, and as general as the model.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.typing import Sequences
from crfield.errors import FeatureError, InputError, ShapeError
from crfield.estimators.chain.model import ColumnModel
from crfield.features.matrices import is_sparse
from crfield.features.templates.encoder import TemplateEncoder
from crfield.features.transformed import TransformedEncoder
from crfield.kernels import linear
from crfield.kernels.stream import Scores
from crfield.scoring.layout import Layout


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

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Node scores (k, L) and, if ``varied``, edge tables (k, L, L) of one step of k streams."""
        ...

    def digest(self) -> str:
        """A word that differs between models."""
        ...


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

    @classmethod
    def of_columns(cls, model: ColumnModel) -> DenseSteps:
        """The tables of a fitted model of dense columns; see `is_dense`."""
        layout, weights = model.layout, model.weights
        labels, part, arrays = layout.n_labels, layout.part, model.encoder.state()[1]

        def table(name: str, *shape: int) -> np.ndarray | None:
            return weights[part[name]].reshape(shape) if weights[part[name]].size else None

        node = table("dense", layout.n_dense, labels)
        start, transitions, end = chain_tables(layout, weights)
        return cls(
            np.zeros((layout.n_dense, labels)) if node is None else node,
            transitions,
            bias=table("bias", labels),  # type: ignore[arg-type]
            start=start,
            end=end,
            mean=arrays.get("scale_dense_mean"),  # type: ignore[arg-type]
            deviation=arrays.get("scale_dense_deviation"),  # type: ignore[arg-type]
            linked=arrays.get("edge_dense"),  # type: ignore[arg-type]
            link_weights=table("edge_dense", layout.n_edge_dense, labels, labels),  # type: ignore[arg-type]
            names=tuple([model.encoder.dense_name(k) for k in range(layout.n_dense)]),
        )


class SequenceSteps:
    """The last step of short sequences, scored by a model that reads sequences.

    ``potentials`` scores a list of sequences. With ``repeat=1`` it must leave out the scores of first and last steps,
    and a sequence is the past and the observation; with 3 the observation stands three times and the middle is taken,
    which serves any model whose scores look at nothing but their own step.
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
    ) -> None:
        self.potentials, self.reach, self.repeat = potentials, reach, repeat
        self.start, self.end, self.transitions, self.varied = start, end, transitions, varied
        self._digest = digest

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of the last step of each past with its observation."""
        sequences = [_joined([*past, *[row] * self.repeat]) for row, past in zip(rows, pasts, strict=True)]
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


def is_dense(model: ColumnModel) -> bool:
    """Whether a fitted model is weights times plain numbers."""
    return model.encoder.kind == "matrix" and not model.encoder.state()[0]["sparse"]


def column_steps(model: ColumnModel, *, history: int | None) -> DenseSteps | SequenceSteps:
    """Scores of single steps of a fitted model of columns."""
    if "runs" in model.layout.part:
        raise InputError("streams and exports remember one label; train with order=1 for them.")
    if is_dense(model):
        return DenseSteps.of_columns(model)
    layout, encoder = model.layout, model.encoder
    varied = layout.n_edge_columns + layout.n_edge_dense > 0
    reach, repeat = 0, 1 + varied
    if isinstance(encoder, TemplateEncoder):
        rows = [row for pattern in encoder.template.patterns for row, _ in pattern.macros]
        if max(rows, default=0) > 0:
            raise InputError(
                f"the template looks {max(rows)} steps ahead, which a stream does not know yet. Train with one "
                "whose rows are 0 or below, or tag whole sequences with predict."
            )
        reach, repeat = max(-min(rows, default=0), int(varied)), 1
    elif isinstance(encoder, TransformedEncoder):
        back, ahead = getattr(encoder.transformer, "reach", (0, None))
        if ahead is None or ahead > 0:
            far = "at more than its own step" if ahead is None else f"{ahead} steps ahead"
            raise InputError(
                f"{type(encoder.transformer).__name__} may look {far}, which a stream does not know yet. Use windows "
                "of places such as (-1, 0), borders=0 and conjunctions that look back, or tag whole sequences with "
                "predict."
            )
        reach, repeat = max(back, int(varied)), 1
    elif encoder.kind == "functions":
        if history is None:
            raise InputError(
                "feature functions f(x, t) may look anywhere in x, and a stream has only the past. Pass history=k if "
                "they look at most k steps back, never ahead and not at t itself: they then see the last k + 1 steps."
            )
        reach, repeat = max(history, int(varied)), 1
    inner = model.weights.copy()
    for name in ("start", "end"):
        inner[layout.part[name]] = 0.0
    fixed = None if layout.fixed is None else layout.fixed.within()
    tagger = linear.Tagger(replace(layout, fixed=fixed), inner)

    def potentials(sequences: list[Any]) -> Potentials:
        batch = model.encode(sequences)
        return Potentials(*tagger.scores(batch), batch.topology)

    header, arrays = encoder.state()
    start, transitions, end = chain_tables(layout, model.weights)
    return SequenceSteps(
        potentials,
        start=start,
        end=end,
        transitions=transitions,
        varied=varied,
        digest=hashed([header, layout.state()[0]], [model.weights, *arrays.values(), *layout.state()[1].values()]),
        reach=reach,
        repeat=repeat,
    )


def chain_tables(layout: Layout, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of a first step (L,), of transitions (L, L) and of a last step (L,): weights and fixed scores."""
    zeros, fixed, part = np.zeros(layout.n_labels), layout.fixed, layout.part
    start, end = (weights[part[name]] if layout.boundaries else zeros for name in ("start", "end"))
    transitions = np.nan_to_num(layout.transitions(weights), nan=0.0)
    if fixed is None:
        return start, transitions, end
    return start + fixed.start, transitions + fixed.edge, end + fixed.end


class Scoring(Protocol):
    """An estimator that scores sequences."""

    def potentials(self, X: Sequences) -> Potentials:
        """The scores of X."""
        ...


def single_steps(
    model: Scoring, tables: dict[str, np.ndarray], *, varied: bool, window: int, more: Sequence[np.ndarray]
) -> SequenceSteps:
    """Scores of single steps of any model with ``potentials`` whose scores look at their own step alone.

    ``window`` is how far they look around otherwise: such a model waits for steps that a stream has not seen. The
    tables of start, end and transitions, and ``more`` arrays, tell the model from others.
    """
    if window:
        raise InputError(
            f"{type(model).__name__}(window={window}) sees {window} steps ahead, which a stream does not know yet. "
            "Train with window=0 and columns that look back only."
        )
    digest = hashed([type(model).__name__, repr(model)], [*tables.values(), *more])
    return SequenceSteps(
        model.potentials,
        start=tables["start"],
        end=tables["end"],
        transitions=tables["transitions"],
        varied=varied,
        digest=digest,
        repeat=3,
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


def hashed(headers: list[Any], arrays: Sequence[np.ndarray]) -> str:
    made = hashlib.sha256(json.dumps(headers, sort_keys=True, default=str).encode())
    for array in arrays:
        made.update(str((array.dtype.str, array.shape)).encode() + np.ascontiguousarray(array).tobytes())
    return made.hexdigest()


def _joined(steps: list[Any]) -> Any:
    """A sequence of these observations, in the form that fit read."""
    if is_sparse(steps[0]):
        from scipy.sparse import csr_array, vstack

        return vstack([csr_array(step.reshape(1, -1)) for step in steps], format="csr")
    if isinstance(steps[0], np.ndarray) and steps[0].dtype.kind in "biuf":
        return np.stack(steps)
    return steps
