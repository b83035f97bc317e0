"""What a fitted `MaxentClassifier` holds: classes, how X is read, and weights.

X is a matrix, a list of records, or anything with functions. A record is a step of a sequence that stands alone, so
records are read by the encoder of sequences, each a sequence of one. Functions f(o, y) are the textbook's functions
of two labels without the label before.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from crfield.core.typing import Parameters, Tabular
from crfield.data.batch import matrix_of
from crfield.errors import FeatureError, InputError
from crfield.estimators.base.rows import RowTask
from crfield.features.detect import encoder_for, encoder_from_state
from crfield.features.encoder import Encoder
from crfield.scoring.tables import tabulate
from crfield.storage.state import State, refuse


@dataclass(frozen=True, eq=False)
class MaxentModel:
    """Classes, a reader of rows, and weights: those of columns, then one for each class alone if there are such."""

    task: RowTask
    reader: RowReader
    weights: np.ndarray

    @property
    def has_intercept(self) -> bool:
        """Whether classes have a weight of their own."""
        return self.reader.kind != "functions" and len(self.weights) > len(self.task.classes) * self.reader.width

    @property
    def coef(self) -> np.ndarray:
        """Weights (n_classes, n_columns) or (n_functions,), a view."""
        if self.reader.kind == "functions":
            return self.weights.view()
        size = len(self.task.classes)
        return self.weights[: size * self.reader.width].reshape(-1, size).T

    @property
    def intercept(self) -> np.ndarray:
        """(n_classes,) weights of the classes alone, about their mean, which has no effect."""
        size = len(self.task.classes)
        return self.weights[-size:] - self.weights[-size:].mean() if self.has_intercept else np.zeros(size)

    def state(self) -> State:
        """Header and arrays; InputError where functions, which are code, would have to be among them."""
        if self.reader.kind == "functions":
            raise InputError(
                "a model of functions f(o, y) cannot be written to a model file, which holds no code. Use joblib, or "
                "keep the functions in a module and store coef_."
            )
        header = self.task.state().header | {"rows": self.reader.kind, "width": self.reader.width}
        state = State(header, {"weights": np.ascontiguousarray(self.weights)})
        return state if self.reader.encoder is None else state.with_part("encoder", self.reader.encoder.state())

    @classmethod
    def from_state(cls, state: State, parameters: Parameters) -> Self:
        """The value whose `state` this is; ModelFileError for whatever does not fit."""
        task, width = RowTask.from_state(state), state.integer("width")
        reader = RowReader(state.word("rows", ("matrix", "records")), width=width)
        made = task.n_columns
        if reader.kind == "records":
            reader.encoder = encoder_from_state(state.part("encoder").header, state.under("encoder"))
            made = reader.encoder.widths.of_steps
        if made != width:
            refuse(f"the model file reads {made} columns and has weights for {width}")
        weights, size = state.array("weights", (None,)), len(task.classes)
        if len(weights) not in (width * size, (width + 1) * size):
            refuse(f"the model file's weights do not fit {width} columns and {size} classes")
        return cls(task, reader, weights)


class RowReader:
    """X to a matrix (N, D), or with functions to their table (J, N, K).

    >>> RowReader("records").rows([["a", "b"], ["b"]], fit=True).toarray().tolist()
    [[1.0, 1.0], [0.0, 1.0]]
    """

    def __init__(self, kind: str, functions: Any = None, encoder: Encoder | None = None, width: int = 0) -> None:
        self.kind, self.encoder, self.width = kind, encoder, width
        self.functions = {} if functions is None else named_functions(functions)
        self.labels: list[Any] = []

    def for_classes(self, labels: list[Any]) -> RowReader:
        """The reader with the classes that functions are asked about."""
        self.labels = labels
        return self

    def rows(self, X: Tabular, *, fit: bool = False) -> Any:
        """The matrix or table of X; ``fit`` learns the columns."""
        if self.kind == "functions":
            return self._table(X)
        if self.kind == "matrix":
            matrix: Any = X
            if not isinstance(X, np.ndarray):
                from scipy.sparse import csr_array

                matrix = csr_array(X)
                matrix.sum_duplicates()
            self.width = matrix.shape[1] if fit else self.width
            return matrix
        if not fit and not (hasattr(X, "__len__") and len(X)):
            return np.zeros((0, self.width))
        alone = [[x] for x in X]
        if fit:
            self.encoder = encoder_for(alone)
            columns = self.encoder.fit(alone).node
        else:
            self.encoder.row = "row"  # type: ignore[union-attr]
            columns = self.encoder.encode(alone).node  # type: ignore[union-attr]
        made = matrix_of(columns)
        self.width = made.shape[1] if fit else self.width
        return made

    def _table(self, X: Tabular) -> np.ndarray:
        if isinstance(X, str | bytes) or not hasattr(X, "__len__"):
            raise FeatureError(f"X must be a list of observations, got {type(X).__name__}.")

        def of_pair(function: Callable[[Any, Any], Any]) -> Callable[[Any, Any, Any, int], float]:
            def called(before: Any, label: Any, x: Any, t: int) -> float:
                return function(x[0], label)

            called.__name__ = getattr(function, "__name__", "f")
            return called

        return tabulate([of_pair(f) for f in self.functions.values()], self.labels, [[o] for o in X]).first

    def names(self, given: Any = None) -> list[str]:
        """Names of columns or functions."""
        if self.kind == "functions":
            return list(self.functions)
        if self.kind == "matrix":
            return [f"x[{k}]" for k in range(self.width)] if given is None else [str(name) for name in given]
        encoder: Any = self.encoder
        sparse = encoder.widths.sparse
        return [encoder.node_name(k) if k < sparse else encoder.dense_name(k - sparse) for k in range(self.width)]


def looks_like_records(X: Tabular) -> bool:
    """Whether X is a list of dicts or of lists of strings.

    >>> looks_like_records([{"a": 1}]), looks_like_records([["x", "y"], []]), looks_like_records([[1.0, 2.0]])
    (True, True, False)
    """
    if not isinstance(X, list | tuple):
        return False
    first = next((x for x in X if not hasattr(x, "__len__") or len(x)), None)
    if isinstance(first, Mapping | set | frozenset):
        return True
    return isinstance(first, list | tuple) and all(isinstance(item, str) for item in first)


def named_functions(functions: Any) -> dict[str, Callable[[Any, Any], Any]]:
    """Functions by name; a list of them is named by what they are called in the code.

    >>> def ends(o, y):
    ...     return o[-1] == y
    >>> list(named_functions([ends, lambda o, y: 1]))
    ['ends', 'f1']
    """
    if isinstance(functions, Mapping):
        named = dict(functions)
    elif isinstance(functions, Sequence) and not isinstance(functions, str):
        named = {}
        for k, function in enumerate(functions):
            name = getattr(function, "__name__", "")
            named[name if name.isidentifier() and name not in named else f"f{k}"] = function
    else:
        raise InputError(f"functions must be a list of f(o, y), or a dict of them by name, got {functions!r:.60}.")
    if not named or not all(isinstance(name, str) and callable(f) for name, f in named.items()):
        raise InputError(
            f"functions must hold at least one function f(o, y) and nothing else, got {functions!r:.80}."
        )
    return named
