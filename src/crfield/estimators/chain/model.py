"""What a fitted chain estimator holds: something that turns the user's X into potentials and paths.

Two kinds: columns with a linear layout (all data that an encoder can read), and functions of two labels (teaching).
Both are plain values; compiled state is made when first needed, never stored and never pickled.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.large import refuse_unbearable
from crfield.errors import FeatureError, LabelError, ModelFileError
from crfield.features.detect import encoder_from_state
from crfield.features.encoder import Encoder
from crfield.features.templates.encoder import TemplateEncoder
from crfield.features.transformed import transformer_from_state
from crfield.inference.chain import ChainEngine
from crfield.kernels import linear
from crfield.scoring.higher_order import RunLayout, RunScores, runs_from_state
from crfield.scoring.layout import Layout
from crfield.scoring.tables import FunctionTables, LabelFunction, TableScorer, tabulate
from crfield.storage.checked import check_numbers, check_table, reading


class ColumnModel:
    """An encoder, a layout and weights."""

    def __init__(self, encoder: Encoder, layout: Layout, weights: np.ndarray) -> None:
        self.encoder, self.layout, self.weights = encoder, layout, weights
        self._tagger: linear.Tagger | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_tagger": None}

    @property
    def tagger(self) -> linear.Tagger:
        """Weights laid out for the kernels, made once."""
        if self._tagger is None:
            layout = self.layout.plain if isinstance(self.layout, RunLayout) else self.layout
            self._tagger = linear.Tagger(layout, self.weights[: layout.n_weights])
        return self._tagger

    def with_layout(self, layout: Layout) -> ColumnModel:
        """The same encoder and weights under another layout of as many weights."""
        return ColumnModel(self.encoder, layout, self.weights)

    def encode(self, X: Any) -> Batch:
        """Columns of X, none too large; ModelFileError where encoder and layout, from a file, do not fit together."""
        batch, layout = self.encoder.encode(X), self.layout
        edge = (0, 0) if batch.edge is None else (batch.edge.width, batch.edge.n_dense)
        made = (batch.node.width, batch.node.n_dense, *edge)
        wanted = (layout.n_columns, layout.n_dense, layout.n_edge_columns, layout.n_edge_dense)
        if made != wanted:
            raise ModelFileError(
                f"the model file's encoder makes {made} columns (sparse and dense, of steps and of edges) and its "
                f"weights are for {wanted}. The file was edited or put together wrongly: save the model again."
            )
        refuse_unbearable(batch, self.encoder, self.weights)
        return batch

    def run_scores(self, X: Any, *, n_jobs: int) -> RunScores:
        """Scores of X for a layout of higher order."""
        assert isinstance(self.layout, RunLayout)
        return RunScores.of(self.layout, self.weights, self.encode(X), n_jobs=n_jobs)

    def potentials(self, X: Any, *, n_jobs: int) -> Potentials:
        """Scores of X; those of states where the order is above 1."""
        if isinstance(self.layout, RunLayout):
            return self.run_scores(X, n_jobs=n_jobs).potentials()
        batch = self.encode(X)
        return Potentials(*self.tagger.scores(batch, n_jobs=n_jobs), batch.topology)

    def best_paths(self, X: Any, *, n_jobs: int) -> tuple[np.ndarray, Chains]:
        """Codes of the best path (N,) and the chains they lie on; scores are never written out."""
        batch = self.encode(X)
        if isinstance(self.layout, RunLayout):
            total, path = RunScores.of(self.layout, self.weights, batch, n_jobs=n_jobs).best(n_jobs=n_jobs)
        else:
            path, total = self.tagger.decode(batch, n_jobs=n_jobs)
        if np.isneginf(total).any():
            raise LabelError(
                f"sequence {int(np.argmin(total))} has no labelling that the constraints allow. Relax them."
            )
        return path, batch.topology


class FunctionModel:
    """Functions of two labels and their weights."""

    def __init__(self, functions: Sequence[LabelFunction], labels: Sequence[Hashable], weights: np.ndarray) -> None:
        self.functions, self.labels, self.weights = list(functions), list(labels), weights

    def potentials(self, X: Any, *, n_jobs: int) -> Potentials:
        """Scores of X."""
        scorer = TableScorer(len(self.functions), len(self.labels))
        return scorer.score(self.weights, self._tables(X))

    def best_paths(self, X: Any, *, n_jobs: int) -> tuple[np.ndarray, Chains]:
        """Codes of the best path (N,) and the chains they lie on."""
        scorer, tables = TableScorer(len(self.functions), len(self.labels)), self._tables(X)
        return ChainEngine(n_jobs).best_path(scorer.score(self.weights, tables))[1], tables.topology

    def _tables(self, X: Any) -> FunctionTables:
        return tabulate_sequences(self.functions, self.labels, X)


def tabulate_sequences(functions: Sequence[LabelFunction], labels: Sequence[Hashable], X: Any) -> FunctionTables:
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


def stored_template(encoder: Encoder) -> dict[str, str | None]:
    """The parameter ``template`` for a model file: the text that was used, wherever it came from."""
    return {"template": encoder.template.text if isinstance(encoder, TemplateEncoder) else None}


def restore_input(model: Any, header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> None:
    """Parameters of a model of a file that say how X is read: ``features``, which its encoder's state holds.

    A template is text here, never the path of a file: a line end says so to whoever trains the model again.
    """
    encoder = header.get("encoder")
    if isinstance(model.template, str) and "\n" not in model.template:
        model.template += "\n"
    if isinstance(encoder, dict) and "features" in encoder and hasattr(model, "features"):
        prefix = "encoder/features/"
        own = {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
        model.features = transformer_from_state(encoder["features"], own)


def build_columns(
    header: dict[str, Any],
    arrays: Mapping[str, np.ndarray],
    functions: Sequence[Any] | None,
    transition_functions: Sequence[Any],
    n_labels: int,
) -> ColumnModel:
    """Encoder, layout and weights out of the arrays, checked against each other."""
    with reading("the model file", given=functions is not None):
        return _build_columns(header, arrays, functions, transition_functions, n_labels)


def _build_columns(
    header: dict[str, Any],
    arrays: Mapping[str, np.ndarray],
    functions: Sequence[Any] | None,
    transition_functions: Sequence[Any],
    n_labels: int,
) -> ColumnModel:
    def under(prefix: str) -> dict[str, np.ndarray]:
        return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}

    held = sum(array.nbytes for name, array in arrays.items() if name == "weights" or name.startswith("layout/"))
    check_table(8 * n_labels**2, held + 32 * n_labels, f"the transitions of {n_labels:,} labels")
    layout = Layout.from_state(header["layout"], under("layout/"))
    if "order" in header["layout"]:
        layout = runs_from_state(layout, header["layout"], under("layout/"))
    encoder = encoder_from_state(
        header.get("encoder"),  # type: ignore[arg-type]
        under("encoder/"),
        functions=functions,
        transition_functions=transition_functions,
    )
    weights = arrays.get("weights")
    if weights is None or weights.dtype != np.float64 or weights.shape != (layout.n_weights,):
        raise ModelFileError(f"the model file's weights do not fit its layout of {layout.n_weights}.")
    if not np.isfinite(weights).all():
        raise ModelFileError("the model file's weights are not all finite numbers.")
    if layout.n_labels != n_labels:
        raise ModelFileError(f"the model file has {n_labels} labels but a layout for {layout.n_labels}.")
    check_numbers({"weights": weights})
    model = ColumnModel(encoder, layout, weights)
    try:
        model.tagger  # noqa: B018  (what the kernels would refuse is refused here)
    except (ValueError, IndexError, OverflowError, MemoryError) as error:
        raise ModelFileError(f"the model file's layout of the weights is damaged: {error}.") from None
    if encoder.kind != "functions" or functions is not None:  # without its functions an encoder cannot encode
        model.encode([])
    return model
