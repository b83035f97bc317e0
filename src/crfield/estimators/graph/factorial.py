"""`FactorialCRF`: several label layers over time, coupled.

    score(y) = Σ_layers [ Σ_t node(y_t) + Σ_t edge(y_t, y_{t+1}) ] + Σ_pairs of layers Σ_t edge(y_t, y'_t)

At each step there is one label of every layer: what a person does and where she is, the part of speech of a word and
the phrase it belongs to (Sutton, McCallum & Rohanimanesh 2007, *Dynamic conditional random fields*; figure 2 of Liao,
Choudhury, Fox & Kautz 2007). Layers that are told apart stay small: six motions and three places need tables of
6 × 6, 3 × 3 and 6 × 3 where one chain of all pairs needs 18 × 18. A junction tree is exact on two or three layers of
few labels; more of them need an approximation, and "auto" sees to that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crfield.core.parameters import learnt, parameter
from crfield.core.potentials import Potentials
from crfield.core.typing import Graphlike, Labels
from crfield.data.graphs.builders import layers as build_layers
from crfield.data.graphs.graph import Graph
from crfield.errors import InputError, ShapeError
from crfield.estimators.export.states import StateSteps
from crfield.estimators.export.step_scores import StepScorer, joined_steps
from crfield.estimators.graph.crf import GraphCRF
from crfield.estimators.graph.steps import (
    NodeSteps,
    dense_kinds,
    linear_steps,
    model_digest,
    over_states,
    over_time,
    relation_tables,
)
from crfield.storage.state import refuse


def check_layers(name: str, layers: Any) -> None:
    """InputError unless it is None or a list of different names.

    >>> check_layers("layers", ["place", "place"])
    Traceback (most recent call last):
    crfield.errors.InputError: layers must have different names, got ['place', 'place'].
    """
    if layers is None:
        return
    listed = isinstance(layers, Sequence) and not isinstance(layers, str) and len(layers) > 0
    if not listed or not all(isinstance(each, str) for each in layers):
        raise InputError(f"{name} must be a list of names, got {layers!r}.")
    if len(set(layers)) < len(layers):
        raise InputError(f"{name} must have different names, got {layers!r}.")


def _read_shared(found: Any) -> bool:
    if not isinstance(found, bool):
        refuse("the model file does not say whether its layers share their features")
    return found


class FactorialCRF(GraphCRF, kind="factorial_crf"):
    """Conditional random field with several coupled layers of labels over time.

    X holds one entry for each sequence: an array (T, D) whose features all layers see, or a dict
    ``{layer: features}`` with features of their own, in any of the forms of `Graph`. y holds dicts
    ``{layer: labels}``, or arrays (T, layers) with a column for each layer. Predictions are arrays (T, layers).

    Parameters
    ----------
    layers : list of str, optional
        Names of the layers, in the order of the columns. By default those of the first entry of y if that is a dict,
        else "layer 0", "layer 1", ….
    distances : tuple of int
        Steps in time that are joined within a layer.
    between : "all" or list of pairs of layers
        Layers that are joined at the same step.
    **options
        All parameters of `GraphCRF`.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import FactorialCRF
    >>> X = [np.array([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]])]
    >>> y = [{"motion": ["sit", "sit", "walk", "walk"], "place": ["in", "in", "out", "out"]}]
    >>> model = FactorialCRF(l2=0.1).fit(X, y)
    >>> model.predict(X)[0].tolist()
    [['sit', 'in'], ['sit', 'in'], ['walk', 'out'], ['walk', 'out']]
    >>> sorted(model.classes_)
    ['motion', 'place']
    """

    layers: Sequence[str] | None = parameter(check_layers, default=None)
    distances: Sequence[int] = parameter(default=(1,))  # the builder of layers says what these two may be
    between: str | Sequence[tuple[str, str]] = parameter(default="all")

    shared_: bool | None = learnt(  # whether all layers saw the same features; None where a file does not say
        stored="shared", from_json=_read_shared, missing=None
    )

    @property
    def layers_(self) -> list[str]:
        """Names of the layers, in the order of the columns of a prediction."""
        return list(self._coder.kinds)

    def _taught(self, X: Graphlike, y: Labels) -> tuple[Sequence[Graph], Labels]:
        if not hasattr(y, "__len__") or isinstance(y, str | Mapping) or len(y) == 0:
            raise InputError("y must hold the labels of the layers for each sequence: dicts or arrays (T, layers).")
        names = layers_of(y[0]) if self.layers is None else list(self.layers)
        self.shared_ = not any(isinstance(features, Mapping) for features in X)
        return self._layered(X, names), labels_by_layer(y, names)

    def _graphs(self, X: Graphlike) -> list[Graph]:
        return self._layered(X, self.layers_)

    def _labels(self, y: Labels, X: Graphlike) -> Labels:
        return labels_by_layer(y, self.layers_)

    def _layered(self, X: Graphlike, names: list[str]) -> list[Graph]:
        if isinstance(X, str | Mapping) or not hasattr(X, "__len__"):
            raise InputError(f"X must be a list of sequences, got {type(X).__name__}. Write [X] for a single one.")
        made = []
        for number, features in enumerate(X):
            if isinstance(features, Mapping):
                missing = [name for name in names if name not in features]
                if missing or len(features) != len(names):
                    raise InputError(
                        f"sequence {number}: the features must be those of the layers {names}, got {list(features)}."
                    )
                own = {name: features[name] for name in names}
            else:
                own = dict.fromkeys(names, features)
            try:
                made.append(build_layers(own, distances=self.distances, between=self.between))
            except InputError as error:
                raise type(error)(f"sequence {number}: {error}") from None
        return made

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        model, names = self._fitted, self.layers_
        schema, sizes, tables = model.encoder.schema, model.layout.sizes, relation_tables(model)
        if not dense_kinds(model.encoder):
            return over_time(self._node_steps(), schema, sizes, tables)
        inner = over_states(linear_steps(model, shared=bool(self.shared_)), schema, sizes, tables)
        return LayeredSteps(
            inner, names, [layout.n_dense for layout in model.layout.nodes], shared=bool(self.shared_)
        )

    def _node_steps(self) -> NodeSteps:
        model, names = self._fitted, self.layers_

        def potentials(rows: Sequence[Any]) -> Potentials:
            steps = [
                {name: joined_steps([row[name]]) for name in names} if _by_layer(row, names) else joined_steps([row])
                for row in rows
            ]
            return self.potentials(steps)

        return NodeSteps(potentials, model.layout.sizes, model_digest(model))

    def _shaped(self, rows: np.ndarray, X: Graphlike) -> np.ndarray:
        """Labels (T, layers); probabilities as dicts ``{layer: (T, labels)}``."""
        names, sizes = self.layers_, self._coder.sizes
        count = len(names)
        out = np.empty(len(rows), dtype=object)
        for number, values in enumerate(rows):
            steps = len(values) // count
            if values.ndim == 1:
                out[number] = values.reshape(count, steps).T
            else:
                parts = values.reshape(count, steps, values.shape[1])
                out[number] = {name: parts[k, :, : sizes[k]] for k, name in enumerate(names)}
        return out


class LayeredSteps(StateSteps):
    """Steps whose columns are those of all layers: one row for all, or a dict with a row for each layer."""

    def __init__(self, steps: StateSteps, names: Sequence[str], widths: Sequence[int], *, shared: bool) -> None:
        chain = {"start": steps.start, "end": steps.end, "transitions": steps.transitions}
        super().__init__(steps.inner, steps.states, parts=steps.parts, offset=steps.offset, **chain)
        self.layers, self.widths, self.shared = list(names), list(widths), shared

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Scores of rows, each for all layers or by layer."""
        return super().score([self.flat_row(row) for row in rows], pasts)

    def flat_row(self, row: Any) -> Any:
        """The columns of all layers, of one row for all or a dict of rows."""
        if _by_layer(row, self.layers):
            if self.shared:
                raise InputError(
                    "this FactorialCRF was trained on features that all layers see. Push one row of them, not a dict."
                )
            return [value for name in self.layers for value in row[name]]
        if self.shared or len(row) == sum(self.widths) or len(set(self.widths)) > 1:
            return row
        return [*row] * len(self.widths)


def _by_layer(row: Any, names: Sequence[str]) -> bool:
    return isinstance(row, Mapping) and set(row) == set(names)


def layers_of(labels: Any) -> list[str]:
    """Names of the layers of a sequence: those of its dict of labels, or numbers of its columns.

    >>> layers_of({"motion": [], "place": []}), layers_of([[1, 2]])
    (['motion', 'place'], ['layer 0', 'layer 1'])
    """
    if isinstance(labels, Mapping):
        names = list(labels)
    else:
        shape = np.shape(np.asarray(labels, dtype=object))
        names = [f"layer {k}" for k in range(shape[1] if len(shape) == 2 else 1)]
    check_layers("layers", names)
    return names


def labels_by_layer(y: Labels, names: list[str]) -> list[Mapping[str, Any]]:
    """The labels of every sequence as a dict of those of its layers."""
    out = []
    for number, labels in enumerate(y):
        if isinstance(labels, Mapping):
            out.append(labels)
            continue
        table = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
        if table.ndim != 2 or table.shape[1] != len(names):
            raise ShapeError(
                f"y[{number}] must be (T, {len(names)}), a column for each of the layers {names}, got shape "
                f"{table.shape}. Or give a dict of labels by layer."
            )
        out.append({name: table[:, k].tolist() for k, name in enumerate(names)})
    return out
