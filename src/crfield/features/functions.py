"""Features computed by the user's Python functions f(x, t).

Each function sees the raw sequence and a step and returns what a feature may be: a str, a number, a bool, a
list of str, a 1-D array, a dict of such, or None where it has nothing to say. Its name is the feature's
name, so the results of one step are a feature dict and `RecordEncoder` does the rest.
``transition_functions`` are features of an edge: called at its later step, t ≥ 1, and seen only by pairs of
labels, w(y₋₁, y) · g(x, t); list a function in both places to use it for both. This is the slow and easy
way: one Python call per function and step.

A model file holds no code. It stores the names of the functions and what was learnt of their results; an
encoder loaded from it wants the same functions again, in the same order (`FunctionEncoder.attach`, or the
argument ``functions`` of `encoder_from_state`), before it can encode. Names can be asked at once. Pickling
carries the functions along where they can be pickled.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from crfield.data.batch import Batch
from crfield.errors import FeatureError, InputError, ModelFileError
from crfield.features.encoder import Widths
from crfield.features.records import RecordEncoder

__all__ = ["FeatureFunction", "FunctionEncoder"]

FeatureFunction = Callable[[Any, int], Any]


class FunctionEncoder:
    """Encoder of raw sequences by feature functions, each given as f or as (name, f).

    >>> def word(x, t):
    ...     return x[t].lower()
    >>> def length(x, t):
    ...     return len(x[t])
    >>> encoder = FunctionEncoder([word, ("n", length)], transition_functions=[word])
    >>> batch = encoder.fit([["The", "dog"], ["the"]])
    >>> [encoder.node_name(k) for k in range(batch.node.width)]
    ['word=the', 'n', 'word=dog']
    >>> batch.node.values.tolist(), encoder.edge_name(0)
    ([1.0, 3.0, 1.0, 3.0, 1.0, 3.0], 'word=dog')
    """

    kind = "functions"

    def __init__(
        self,
        functions: Iterable[FeatureFunction | tuple[str, FeatureFunction]],
        *,
        transition_functions: Iterable[FeatureFunction | tuple[str, FeatureFunction]] = (),
        standardize: bool = False,
    ) -> None:
        self._functions: dict[str, FeatureFunction] | None = _named(functions, "functions")
        self._transitions: dict[str, FeatureFunction] | None = _named(transition_functions, "transition_functions")
        self.names = list(self._functions)
        self.transition_names = list(self._transitions)
        if not self.names and not self.transition_names:
            raise InputError("functions is empty, expected at least one feature function f(x, t).")
        self.standardize = bool(standardize)
        self._node = RecordEncoder(standardize=standardize)
        self._edge = _edge_encoder(RecordEncoder(standardize=standardize))

    def __repr__(self) -> str:
        return f"FunctionEncoder({self.names}, transition_functions={self.transition_names})"

    def attach(
        self,
        functions: Iterable[FeatureFunction | tuple[str, FeatureFunction]],
        *,
        transition_functions: Iterable[FeatureFunction | tuple[str, FeatureFunction]] = (),
    ) -> FunctionEncoder:
        """Give a loaded encoder its functions again; their names must be those it was fitted with."""
        named, transitions = (
            _named(functions, "functions"),
            _named(transition_functions, "transition_functions"),
        )
        for what, got, expected in (
            ("functions", list(named), self.names),
            ("transition_functions", list(transitions), self.transition_names),
        ):
            if got != expected:
                raise InputError(
                    f"{what} must be those the model was trained with, {expected}, got {got}. Give them in "
                    "the same order, as (name, f) where the name of f has changed."
                )
        self._functions, self._transitions = named, transitions
        return self

    def fit(self, X: Any, *, min_count: int = 1) -> Batch:
        """Call the functions on every step of X, learn the columns and encode."""
        return self._batch(X, lambda encoder, records: encoder.fit(records, min_count=min_count))

    def encode(self, X: Any) -> Batch:
        """Call the functions on every step of X and encode with the columns learnt in ``fit``."""
        return self._batch(X, lambda encoder, records: encoder.encode(records))

    @property
    def widths(self) -> Widths:
        """How many columns it makes; known without the functions, too."""
        edge = self._edge.widths[:2] if self.transition_names else (0, 0)
        return Widths(*self._node.widths[:2], *edge)

    def node_name(self, column: int) -> str:
        """Name of a sparse node column: ``f`` or ``f=value``."""
        return self._node.node_name(column)

    def dense_name(self, column: int) -> str:
        """Name of a column of the dense block: ``f[i]``."""
        return self._node.dense_name(column)

    def edge_name(self, column: int) -> str:
        """Name of a sparse edge column."""
        return self._edge.node_name(column)

    def edge_dense_name(self, column: int) -> str:
        """Name of a column of the dense block of the edges."""
        return self._edge.dense_name(column)

    def state(self) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
        """A JSON-able header with the functions' names, and arrays of what was learnt of their results."""
        node, node_arrays = self._node.state()
        header: dict[str, Any] = {
            "kind": self.kind,
            "functions": self.names,
            "transition_functions": self.transition_names,
            "standardize": self.standardize,
            "node": node,
        }
        arrays = {f"node_{name}": array for name, array in node_arrays.items()}
        if self.transition_names:
            header["edge"], edge_arrays = self._edge.state()
            arrays |= {f"edge_{name}": array for name, array in edge_arrays.items()}
        return header, arrays

    @classmethod
    def from_state(cls, header: dict[str, Any], arrays: dict[str, np.ndarray]) -> FunctionEncoder:
        """The encoder whose ``state`` this is, without its functions; see `attach`."""
        names: Any = header.get("functions")
        transitions: Any = header.get("transition_functions")
        for part in (names, transitions):
            if not isinstance(part, list) or not all(isinstance(name, str) for name in part):
                raise ModelFileError("the header must list the names of the feature functions. Was the file edited?")
        encoder = cls.__new__(cls)
        encoder.names, encoder.transition_names = names, transitions
        encoder.standardize = bool(header.get("standardize"))
        encoder._functions = encoder._transitions = None
        encoder._node = _part(header, arrays, "node")
        encoder._edge = _edge_encoder(_part(header, arrays, "edge") if transitions else RecordEncoder())
        return encoder

    def _batch(self, X: Any, encode: Callable[[RecordEncoder, Any], Batch]) -> Batch:
        if self._functions is None or self._transitions is None:
            raise FeatureError(
                f"this encoder comes from a model file, which holds no code: its feature functions "
                f"{self.names} {f'and {self.transition_names} ' if self.transition_names else ''}must be "
                "given again. Call attach(functions), or pass functions=[…] when loading."
            )
        lengths = [_length(x, s) for s, x in enumerate(_sequences(X))]
        batch = encode(self._node, _records(X, lengths, self._functions, first=0))
        if not self._transitions:
            return batch
        edge = encode(self._edge, _records(X, lengths, self._transitions, first=1))
        return Batch(batch.topology, batch.node, edge.node)


def _edge_encoder(encoder: RecordEncoder) -> RecordEncoder:
    encoder.first_step = 1
    encoder.row = "edge"
    return encoder


def _named(functions: Iterable[Any], what: str) -> dict[str, FeatureFunction]:
    if callable(functions) or isinstance(functions, str) or not isinstance(functions, Iterable):
        raise InputError(f"{what} must be a list of functions f(x, t), got {functions!r}. Write [f] for one.")
    named: dict[str, FeatureFunction] = {}
    for entry in functions:
        name, function = entry if isinstance(entry, tuple) and len(entry) == 2 else (None, entry)
        if not callable(function):
            raise InputError(f"{what} must hold functions f(x, t) or pairs (name, f), got {entry!r}.")
        name = getattr(function, "__name__", type(function).__name__) if name is None else name
        if not isinstance(name, str):
            raise InputError(f"{what}: the name of a feature function must be a str, got {name!r}.")
        if name in named:
            raise InputError(
                f"{what} holds two functions called {name!r}. Give one of them another name: ('other', f)."
            )
        named[name] = function
    return named


def _sequences(X: Any) -> Any:
    if isinstance(X, str) or not hasattr(X, "__len__") or not hasattr(X, "__getitem__"):
        raise FeatureError(f"X must be a list of sequences, got {type(X).__name__}. Write [X] for a single one.")
    return X


def _length(x: Any, sequence: int) -> int:
    try:
        return len(x)
    except TypeError:
        raise FeatureError(
            f"sequence {sequence} must have a length, its number of steps, got {type(x).__name__}. Give each "
            "sequence as a list or an array whose first axis is time."
        ) from None


def _records(
    X: Any, lengths: list[int], functions: dict[str, FeatureFunction], *, first: int
) -> list[list[dict[str, Any]]]:
    """The feature dicts of steps ``first`` … of every sequence."""
    sequences = []
    for s, (x, length) in enumerate(zip(X, lengths)):
        steps = []
        for t in range(first, length):
            step = {}
            for name, function in functions.items():
                try:
                    value = function(x, t)
                except Exception as error:
                    raise FeatureError(
                        f"sequence {s}, step {t}: the feature function {name!r} failed with "
                        f"{type(error).__name__}: {error}. It is called as {name}(x, t) with the whole "
                        f"sequence and a step in 0 … {length - 1}; does it look beyond the ends?"
                    ) from error
                if value is not None:
                    step[name] = value
            steps.append(step)
        sequences.append(steps)
    return sequences


def _part(header: dict[str, Any], arrays: dict[str, np.ndarray], name: str) -> RecordEncoder:
    inner = header.get(name)
    if not isinstance(inner, dict):
        raise ModelFileError(f"the header lacks the part {name!r} of the feature functions. Was it edited?")
    prefix = name + "_"
    own = {key[len(prefix) :]: array for key, array in arrays.items() if key.startswith(prefix)}
    return RecordEncoder.from_state(inner, own)
