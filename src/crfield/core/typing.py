"""What the user hands in, by name: the types of X, y and weights in every signature.

Data come in many shapes (lists of dicts, arrays, sparse matrices, frames, graphs), and what is wrong with them is
said by the encoder that reads them, with the place. So the types below are wide: they tell a reader and an editor
what an argument *is*, and refuse what can never be data: a number, None, an iterator that can be read only once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, BinaryIO, Protocol, TypeAlias

import numpy as np


class Items(Protocol):
    """So many items, each of which can be asked for: a list, a tuple, an array, a column of a frame."""

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[Any]: ...

    def __getitem__(self, number: Any, /) -> Any: ...


Sequences: TypeAlias = Items  # X: one sequence after another, each with a step after another
Labels: TypeAlias = Items  # y: their labels, step by step; None is unknown, a set one of these
Tabular: TypeAlias = Items  # X of a classifier: one row of features after another
Graphlike: TypeAlias = Items  # X of a model of graphs: graphs, images, or sequences taken for chains
Weights: TypeAlias = Sequence[float] | np.ndarray | None  # one for each sequence, graph or row; None is 1 for each
FilePath: TypeAlias = str | os.PathLike[str]
File: TypeAlias = FilePath | BinaryIO  # a path, or a file that is open
Seed: TypeAlias = int | np.random.Generator | None
Feature: TypeAlias = Callable[[Any, int], Any]  # f(x, t)
LabelFeature: TypeAlias = Callable[[Any, Any, Any, int], float]  # f(y_before, y, x, t)
Parameters: TypeAlias = Mapping[str, Any]  # values of an estimator's parameters, by name
ClassWeights: TypeAlias = str | Mapping[Any, float] | None
Costs: TypeAlias = Mapping[tuple[Any, Any], float] | np.ndarray | Sequence[Sequence[float]] | None  # (true, taken)


class Transformer(Protocol):
    """X to another X, as scikit-learn's transformers do it."""

    def fit(self, X: Any, y: Any = None) -> Any:
        """Learn from X."""
        ...

    def transform(self, X: Any) -> Any:
        """The other X."""
        ...
