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
from typing import Any, Self, Unpack

import numpy as np

from crfield.data.graphs.builders import layers as build_layers
from crfield.data.graphs.graph import Graph
from crfield.errors import InputError, ShapeError
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.graph.crf import GraphCRF, GraphOptions, takes_options_of


class FactorialCRF(GraphCRF):
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

    _name = "FactorialCRF"
    file_kind = "factorial_crf"

    @takes_options_of(GraphCRF)
    def __init__(
        self,
        *,
        layers: Sequence[str] | None = None,
        distances: Sequence[int] = (1,),
        between: Any = "all",
        **options: Unpack[GraphOptions],
    ) -> None:
        super().__init__(**options)
        self.layers = layers
        self.distances = distances
        self.between = between

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn from sequences X and the labels y of their layers."""
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        if not hasattr(y, "__len__") or isinstance(y, str | Mapping) or len(y) == 0:
            raise InputError("y must hold the labels of the layers for each sequence: dicts or arrays (T, layers).")
        names = self.layers
        if names is None:
            first = y[0]
            if isinstance(first, Mapping):
                names = list(first)
            else:
                shape = np.shape(np.asarray(first, dtype=object))
                names = [f"layer {k}" for k in range(shape[1] if len(shape) == 2 else 1)]
        if isinstance(names, str) or not all(isinstance(name, str) for name in names) or not names:
            raise InputError(f"layers must be a list of names, got {names!r}.")
        if len(set(names)) < len(names):
            raise InputError(f"layers must have different names, got {names!r}.")
        before = getattr(self, "_names", None)
        self._names: list[str] | None = list(names)
        try:
            return super().fit(X, y, sample_weight)
        except BaseException:
            self._names = before
            raise

    @property
    def layers_(self) -> list[str]:
        """Names of the layers, in the order of the columns of a prediction."""
        names = getattr(self, "_names", None)
        return list(self._coder.kinds) if names is None else names

    def _graphs(self, X: Any) -> list[Graph]:
        if isinstance(X, str | Mapping) or not hasattr(X, "__len__"):
            raise InputError(f"X must be a list of sequences, got {type(X).__name__}. Write [X] for a single one.")
        names = self.layers_
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

    def _labels(self, y: Any, X: Any) -> Any:
        out = []
        for number, labels in enumerate(y):
            if isinstance(labels, Mapping):
                out.append(labels)
                continue
            table = labels if isinstance(labels, np.ndarray) else np.asarray(labels, dtype=object)
            if table.ndim != 2 or table.shape[1] != len(self.layers_):
                raise ShapeError(
                    f"y[{number}] must be (T, {len(self.layers_)}), a column for each of the layers {self.layers_}, "
                    f"got shape {table.shape}. Or give a dict of labels by layer."
                )
            out.append({name: table[:, k].tolist() for k, name in enumerate(self.layers_)})
        return out

    def _shaped(self, rows: np.ndarray, X: Any) -> np.ndarray:
        """Labels (T, layers); probabilities as dicts ``{layer: (T, labels)}``."""
        count, sizes = len(self.layers_), self._coder.sizes
        out = np.empty(len(rows), dtype=object)
        for number, values in enumerate(rows):
            steps = len(values) // count
            if values.ndim == 1:
                out[number] = values.reshape(count, steps).T
            else:
                parts = values.reshape(count, steps, values.shape[1])
                out[number] = {name: parts[k, :, : sizes[k]] for k, name in enumerate(self.layers_)}
        return out
