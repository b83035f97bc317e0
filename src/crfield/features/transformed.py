"""Data that a transformer reads first: words to features, then features to columns, as one encoder.

    sentences  →  TextFeatures  →  names  →  RecordEncoder  →  Batch

``ChainCRF(features=…)`` hands X to this encoder as it is, so that whatever asks the model asks it of sentences, and a
model file holds both halves. Transformers of this package have ``state`` and ``from_state``, as encoders have; any
other with ``fit`` and ``transform`` serves as well, as long as it is not saved: its class is code.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from crfield.data.batch import Batch
from crfield.errors import InputError, ModelFileError, NotFittedError
from crfield.features.encoder import Encoder, Widths
from crfield.features.matrices import MatrixEncoder
from crfield.features.records import RecordEncoder

__all__ = ["TransformedEncoder", "transformer_from_state", "transformer_state"]

SENSORS = "sensor_features"
TRANSFORMERS = {  # by the word in a file; imported when one is met
    "text_features": ("crfield.features.text.transformer", "TextFeatures"),
    SENSORS: ("crfield.features.sensors.transformer", "SensorFeatures"),
    "reading_features": ("crfield.features.sensors.places.transformer", "ReadingFeatures"),
}
INNER: dict[str, Any] = {encoder.kind: encoder for encoder in (RecordEncoder, MatrixEncoder)}
_INNER = "encoder/"
_OWN = "features/"


class TransformedEncoder:
    """A transformer, and the encoder of what it gives.

    ``choose`` makes the encoder once the transformed data can be looked at.

    >>> from crfield.features.text.transformer import TextFeatures
    >>> encoder = TransformedEncoder(TextFeatures(word=0, lower=None), lambda X: RecordEncoder())
    >>> batch = encoder.fit([["La", "Paz"]])
    >>> encoder.node_name(0), encoder.encode([["Paz"]]).topology.n_nodes
    ('word=La', 1)
    """

    kind = "transformed"

    def __init__(self, transformer: Any, choose: Callable[[Any], Encoder] | None = None) -> None:
        if isinstance(transformer, type) or not hasattr(transformer, "fit") or not hasattr(transformer, "transform"):
            raise InputError(
                "features must be a transformer with fit and transform, such as TextFeatures(), got "
                f"{transformer!r:.60}."
            )
        self.transformer, self._choose = transformer, choose
        self._inner: Encoder | None = None

    @property
    def inner(self) -> Encoder:
        """The encoder of what the transformer gives."""
        if self._inner is None:
            raise NotFittedError("this TransformedEncoder has no columns yet. Call fit(X) first.")
        return self._inner

    def fit(self, X: Any, *, min_count: int = 1) -> Batch:
        """Fit a copy of the transformer, then an encoder to what it gives."""
        from sklearn.base import clone

        fitted = clone(self.transformer, safe=False)
        given = fitted.fit(X).transform(X)
        assert self._choose is not None  # only encoders of files come without, and they are fitted
        inner = self._choose(given)
        if isinstance(inner, MatrixEncoder) and getattr(fitted, "kind", None) in TRANSFORMERS:
            inner.feature_names = [str(name) for name in fitted.get_feature_names_out()]
        batch = inner.fit(given, min_count=min_count)
        self.transformer, self._inner = fitted, inner
        return batch

    def encode(self, X: Any) -> Batch:
        """The columns of X, as learnt in ``fit``."""
        inner = self.inner
        return inner.encode(self.transformer.transform(X))

    @property
    def widths(self) -> Widths:
        """How many columns it makes."""
        return self.inner.widths

    def with_inner(self, inner: Encoder) -> TransformedEncoder:
        """The same transformer before another encoder."""
        made = copy.copy(self)
        made._inner = inner
        return made

    def node_name(self, column: int) -> str:
        """Name of a sparse node column."""
        return self.inner.node_name(column)

    def dense_name(self, column: int) -> str:
        """Name of a column of the dense block of the nodes."""
        return self.inner.dense_name(column)

    def edge_name(self, column: int) -> str:
        """Name of a sparse edge column."""
        return self.inner.edge_name(column)

    def edge_dense_name(self, column: int) -> str:
        """Name of a column of the dense block of the edges."""
        return self.inner.edge_dense_name(column)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """The states of both halves."""
        own, own_arrays = transformer_state(self.transformer)
        header, arrays = self.inner.state()
        joined = {f"{_OWN}{name}": array for name, array in own_arrays.items()}
        joined |= {f"{_INNER}{name}": array for name, array in arrays.items()}
        return {"kind": self.kind, "features": own, "encoder": header}, joined

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: Mapping[str, np.ndarray]) -> TransformedEncoder:
        """The encoder whose `state` this is; ModelFileError where it cannot be one."""
        inner = header.get("encoder")
        kind = inner.get("kind") if isinstance(inner, dict) else None
        if not isinstance(kind, str) or kind not in INNER:
            raise ModelFileError("the encoder of transformed data in the file lacks the encoder within.")
        made = cls(transformer_from_state(header.get("features"), _under(arrays, _OWN)))
        if not made.transformer.__sklearn_is_fitted__():
            raise ModelFileError("the transformer in the file is not fitted: the file is damaged.")
        made._inner = INNER[kind].from_state(inner, _under(arrays, _INNER))
        return made

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_choose": None}

    def __repr__(self) -> str:
        return f"TransformedEncoder({self.transformer!r}, {self._inner!r})"


def transformer_state(transformer: Any) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """Header and arrays of a transformer of this package; InputError for any other.

    >>> from crfield.features.text.transformer import TextFeatures
    >>> transformer_state(TextFeatures())[0]["kind"]
    'text_features'
    """
    kind = getattr(transformer, "kind", None)
    if not isinstance(kind, str) or kind not in TRANSFORMERS or type(transformer) is not _class_of(kind):
        raise InputError(
            f"features of class {type(transformer).__name__} cannot be saved: a model file holds no code and knows "
            f"only {', '.join(name for _, name in TRANSFORMERS.values())}. Keep the model with joblib, or train it "
            "on what the features give."
        )
    state: tuple[dict[str, Any], dict[str, np.ndarray]] = transformer.state()
    return state


def transformer_from_state(header: Any, arrays: Mapping[str, np.ndarray]) -> Any:
    """The transformer whose `transformer_state` this is; ModelFileError where it cannot be one."""
    kind = header.get("kind") if isinstance(header, dict) else None
    if not isinstance(kind, str) or kind not in TRANSFORMERS:
        raise ModelFileError(
            f"the file holds features of kind {kind!r:.40}; this version knows {', '.join(sorted(TRANSFORMERS))}."
        )
    return _class_of(kind).from_state(header, arrays)


def _class_of(kind: str) -> Any:
    module, name = TRANSFORMERS[kind]
    return getattr(import_module(module), name)


def _under(arrays: Mapping[str, np.ndarray], prefix: str) -> dict[str, np.ndarray]:
    return {name.removeprefix(prefix): arrays[name] for name in arrays if name.startswith(prefix)}
