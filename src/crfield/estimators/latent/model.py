"""What the two fitted latent models hold, and their places in a model file.

Functions are code and are not stored: a model trained with feature functions is loaded with the same functions given
again.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np

from crfield.core.states import StateSpace
from crfield.core.topology import Chains
from crfield.core.typing import Parameters, Sequences
from crfield.data.batch import Batch, Columns, matrix_of
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_unbearable
from crfield.errors import ModelFileError
from crfield.estimators.chain.model import ColumnModel
from crfield.features.columns.step_windows import windowed
from crfield.features.detect import encoder_from_state
from crfield.features.encoder import Encoder
from crfield.scoring.latent import ClassScorer
from crfield.scoring.layout import Layout
from crfield.storage.state import State, refuse


@dataclass(frozen=True, eq=False)
class LatentChainModel:
    """Labels, the states of each, and the columns and weights of a chain of states."""

    labels: LabelCoder
    states: StateSpace
    columns: ColumnModel
    starts: np.ndarray  # (n_init,) the objective at the end of each start

    @property
    def encoder(self) -> Encoder:
        """X to columns."""
        return self.columns.encoder

    def state(self) -> State:
        """Header and arrays."""
        header = {
            "labels": self.labels.to_json(),
            "starts": _told(self.starts),
            "states": self.states.counts.tolist(),
        }
        state = self.columns.state()
        return State(state.header | header, state.arrays)

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels = LabelCoder.from_json(state.header.get("labels"))
        counts = state.listed("states")
        if len(counts) != labels.n_labels or not all(type(n) is int and 0 < n < 2**31 for n in counts):
            refuse("the file does not say how many states each label has")
        states = StateSpace.repeated(counts)
        columns = ColumnModel.over(labels, states.n_states, state, parameters)
        return cls(labels, states, columns, _starts(state))


@dataclass(frozen=True, eq=False)
class HiddenModel:
    """Labels, encoder and window, and the scorer of classes with its weights."""

    labels: LabelCoder
    encoder: Encoder
    window: int
    scorer: ClassScorer
    weights: np.ndarray
    starts: np.ndarray  # (n_init,) the objective at the end of each start

    def encode(self, X: Sequences) -> Batch:
        """Columns of X, those of neighbouring steps beside them, none too large."""
        batch = self.encoder.encode(X)
        refuse_unbearable(batch, self.encoder, self.weights)
        return with_window(batch, self.window)

    def state(self) -> State:
        """Header and arrays."""
        state = State({"labels": self.labels.to_json(), "starts": _told(self.starts)}, {"weights": self.weights})
        return state.with_part("encoder", self.encoder.state()).with_part("layout", self.scorer.columns.state())

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        labels, functions = LabelCoder.from_json(state.header.get("labels")), parameters["functions"]
        encoder = encoder_from_state(state.part("encoder").header, state.under("encoder"), functions=functions)
        layout = Layout.from_state(state.part("layout").header, state.under("layout"))
        scorer = ClassScorer(layout, labels.n_labels)
        weights = state.array("weights", (scorer.n_weights,))
        made = cls(labels, encoder, int(parameters["window"]), scorer, weights, _starts(state))
        if encoder.kind != "functions" or functions is not None:  # without its functions an encoder cannot encode
            node = made.encode([]).node
            empty = Batch(Chains.from_lengths([]), node)
            wanted = ClassScorer.of_batch(empty, n_classes=1, n_states=layout.n_labels).columns
            if wanted.state()[0] != layout.state()[0] or wanted.n_weights != layout.n_weights:
                raise ModelFileError("the weights of the model file do not fit its encoder: the file is damaged.")
        return made


def with_window(batch: Batch, reach: int) -> Batch:
    """The batch with the columns of the steps up to ``reach`` before and after beside those of each step.

    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [1]], width=2))
    >>> with_window(batch, 1).node.indices.tolist()
    [0, 5, 1, 2]
    """
    if not reach:
        return batch
    node, chains = batch.node, batch.topology
    dense = None if node.dense is None else windowed(node.dense, chains, reach=reach)
    if not node.width:
        return Batch(chains, Columns(node.indptr, node.indices, 0, None, dense))
    sparse = windowed(matrix_of(Columns(node.indptr, node.indices, node.width, node.values)), chains, reach=reach)
    sparse.sort_indices()
    values = None if node.values is None else sparse.data
    return Batch(chains, Columns(sparse.indptr, sparse.indices, sparse.shape[1], values, dense))


def _told(starts: np.ndarray) -> list[float | None]:
    return [float(value) if np.isfinite(value) else None for value in starts]


def _starts(state: State) -> np.ndarray:
    told = state.listed("starts")
    if not all(value is None or isinstance(value, float) for value in told):
        refuse("the list of starts is damaged")
    return np.array([np.nan if value is None else value for value in told])
