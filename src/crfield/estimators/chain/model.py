"""What a fitted chain estimator holds: something that turns the user's X into potentials and paths.

Two kinds: columns with a linear layout (all data that an encoder can read), and functions of two labels (teaching).
Both are plain values; compiled state is made when first needed, never stored and never pickled.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace
from crfield.core.topology import Chains
from crfield.core.typing import Parameters, Sequences
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.data.large import USUAL, refuse_unbearable
from crfield.errors import FeatureError, InputError, LabelError, ModelFileError
from crfield.features.detect import encoder_from_state
from crfield.features.encoder import Encoder
from crfield.inference.chain import ChainEngine
from crfield.kernels import linear
from crfield.kernels.tagging import SequenceTagger
from crfield.scoring.higher_order import HigherOrderLayout, HigherOrderScores, higher_order_from_state
from crfield.scoring.layout import Layout
from crfield.scoring.tables import FunctionTables, LabelFunction, TableScorer, tabulate
from crfield.storage.state import State, check_numbers, check_table


@dataclass(frozen=True, eq=False)
class ColumnModel:
    """Labels, an encoder, a layout and weights."""

    labels: LabelCoder
    encoder: Encoder
    layout: Layout
    weights: np.ndarray
    encoded: Batch | None = None  # the columns of the one X that it is asked about, where they were made before

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("tagger", "_single")}

    @cached_property
    def tagger(self) -> linear.Tagger:
        """Weights laid out for the kernels, made once."""
        layout = self.layout.plain if isinstance(self.layout, HigherOrderLayout) else self.layout
        return linear.Tagger(layout, self.weights[: layout.n_weights])

    def check_columns(self) -> None:
        """ModelFileError where encoder and layout, from a file, do not fit together."""
        made, layout = self.encoder.widths, self.layout
        wanted = (layout.n_columns, layout.n_dense, layout.n_edge_columns, layout.n_edge_dense)
        if made != wanted:
            raise ModelFileError(
                f"the model file's encoder makes {tuple(made)} columns (sparse and dense, of steps and of edges) and "
                f"its weights are for {wanted}. The file was edited or put together wrongly: save the model again."
            )

    @property
    def higher_order(self) -> bool:
        """Whether a label looks back at more than one."""
        return isinstance(self.layout, HigherOrderLayout)

    def plain(self) -> ColumnModel:
        """The model without the weights of longer runs, as what is grown by new features."""
        if not isinstance(self.layout, HigherOrderLayout):
            return self
        plain = self.layout.plain
        return replace(self, layout=plain, weights=self.weights[: plain.n_weights])

    @property
    def states(self) -> StateSpace | None:
        """The runs of labels that scores are over, where the order is above 1."""
        if not isinstance(self.layout, HigherOrderLayout):
            return None
        return StateSpace(self.layout.runs.label, self.labels.n_labels, one_path=True)

    @property
    def forbidden(self) -> np.ndarray | None:
        """(L, L) bool, the pairs of labels that constraints forbid; None where they forbid nothing."""
        fixed = self.layout.fixed
        return None if fixed is None or not fixed.forbids else np.isneginf(fixed.edge)

    def encode(self, X: Sequences) -> Batch:
        """Columns of X, none too large."""
        if self.encoded is not None:
            return self.encoded
        batch = self.encoder.encode(X)
        if batch.numeric:
            refuse_unbearable(batch, self.encoder, self.weights)
        return batch

    def sequence_tagger(self, labels: Sequence[Hashable] | None = None) -> SequenceTagger | None:
        """One call from the steps of a sequence to its labels, where encoder and layout are plain ones."""
        make = getattr(self.encoder, "sequence_tagger", None)
        if make is None or self.higher_order or self.encoded is not None:
            return None
        self.encode([])  # do encoder and weights fit together?
        return make(self.tagger, self.labels.labels if labels is None else labels, largest=USUAL)

    @cached_property
    def _single(self) -> SequenceTagger | None:
        """The same with codes for labels."""
        return self.sequence_tagger(range(self.layout.n_labels))

    def run_scores(self, X: Sequences, *, n_jobs: int) -> HigherOrderScores:
        """Scores of X for a layout of higher order."""
        assert isinstance(self.layout, HigherOrderLayout)
        return HigherOrderScores.of(self.layout, self.weights, self.encode(X), n_jobs=n_jobs)

    def potentials(self, X: Sequences, *, n_jobs: int) -> Potentials:
        """Scores of X; those of states where the order is above 1."""
        if self.higher_order:
            return self.run_scores(X, n_jobs=n_jobs).potentials()
        batch = self.encode(X)
        return Potentials(*self.tagger.scores(batch, n_jobs=n_jobs), batch.topology)

    def only_path(self, X: Sequences) -> list[Any] | None:
        """Codes of the best path where X is a list of one usual sequence: `best_paths` without its arrays, which cost
        more than the answer. None for all else.
        """
        if type(X) is list and len(X) == 1 and self._single is not None:
            return self._single.tag(X[0])
        return None

    def best_paths(self, X: Sequences, *, n_jobs: int) -> tuple[np.ndarray, Chains]:
        """Codes of the best path (N,) and the chains they lie on; scores are never written out."""
        codes = self.only_path(X)
        if codes is not None:
            return np.array(codes, np.int32), Chains(np.array([0, len(codes)]))
        batch = self.encode(X)
        if isinstance(self.layout, HigherOrderLayout):
            total, path = HigherOrderScores.of(self.layout, self.weights, batch, n_jobs=n_jobs).best(n_jobs=n_jobs)
        else:
            path, total = self.tagger.decode(batch, n_jobs=n_jobs)
        if np.isneginf(total).any():
            raise LabelError(
                f"sequence {int(np.argmin(total))} has no labelling that the constraints allow. Relax them."
            )
        return path, batch.topology

    def state(self) -> State:
        """Header and arrays."""
        return (
            State({"labels": self.labels.to_json()}, {"weights": self.weights})
            .with_part("encoder", self.encoder.state())
            .with_part("layout", self.layout.state())
        )

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; feature functions, which are code, come with the parameters."""
        labels = LabelCoder.from_json(state.header.get("labels"))
        return cls.over(labels, labels.n_labels, state, parameters)

    @classmethod
    def over(cls, labels: LabelCoder, n_states: int, state: State, parameters: Parameters) -> Self:
        """Encoder, layout and weights over labels or their states, checked against each other."""
        held = sum(a.nbytes for name, a in state.arrays.items() if name == "weights" or name.startswith("layout/"))
        check_table(8 * n_states**2, held + 32 * n_states, f"the transitions of {n_states:,} labels")
        part = state.part("layout")
        layout = Layout.from_state(part.header, dict(part.arrays))
        if "order" in part.header:
            layout = higher_order_from_state(layout, part.header, dict(part.arrays))
        if layout.n_labels != n_states:
            raise ModelFileError(f"the model file has {n_states} labels but a layout for {layout.n_labels}.")
        weights = state.array("weights", (layout.n_weights,))
        check_numbers({"weights": weights})
        part = state.part("encoder")
        encoder = encoder_from_state(
            part.header,
            dict(part.arrays),
            functions=parameters.get("functions"),
            transition_functions=parameters.get("transition_functions", ()),
        )
        model = cls(labels, encoder, layout, weights)
        model.check_columns()
        return model


@dataclass(frozen=True, eq=False)
class FunctionModel:
    """Labels, functions of two of them, and weights."""

    labels: LabelCoder
    functions: list[LabelFunction]
    weights: np.ndarray

    states = None
    forbidden = None
    higher_order = False

    def potentials(self, X: Sequences, *, n_jobs: int) -> Potentials:
        """Scores of X."""
        scorer = TableScorer(len(self.functions), self.labels.n_labels)
        return scorer.score(self.weights, self._tables(X))

    def best_paths(self, X: Sequences, *, n_jobs: int) -> tuple[np.ndarray, Chains]:
        """Codes of the best path (N,) and the chains they lie on."""
        scorer, tables = TableScorer(len(self.functions), self.labels.n_labels), self._tables(X)
        return ChainEngine(n_jobs).best_path(scorer.score(self.weights, tables))[1], tables.topology

    def _tables(self, X: Sequences) -> FunctionTables:
        return tabulate_sequences(self.functions, self.labels.labels, X)

    def state(self) -> State:
        """There is none: functions are code."""
        raise InputError(
            "a model of functions of two labels cannot be saved: its functions are code. Keep them in a module and "
            "store coef_ with numpy, or write the features as f(x, t), which can be saved."
        )


def tabulate_sequences(
    functions: Sequence[LabelFunction], labels: Sequence[Hashable], X: Sequences
) -> FunctionTables:
    """The functions written out over X, which must be a list of sequences with a length."""
    if isinstance(X, str | bytes) or not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
        raise FeatureError(f"X must be a list of sequences, got {type(X).__name__}. Write [X] for a single one.")
    for number, x in enumerate(X):
        if not hasattr(x, "__len__"):
            raise FeatureError(
                f"sequence {number} must have a length, its number of steps, got {x!r:.40} of type "
                f"{type(x).__name__}. Write [X] if X is a single sequence."
            )
    return tabulate(functions, labels, X)
