"""Contract of tagging one sequence at a time: steps as Python objects in, label objects out, in one call.

    tag(steps) = [labels[k] for k in the best path through the scores of the steps]

It is what ``encode`` (`records`, `columns`), ``decode`` (`linear`) and the look-up of labels do one after the other,
without the arrays between them: for a sentence of four words these cost more than the work. Compiled, the reader of
the steps is in one module and the weights in another; they meet in a capsule (``native/sequence_tagger.hpp``).

``tag`` gives None where the sequence is not a usual one and the general way has to look at it, to refuse it in words,
to warn, or to read it: where the steps are no list or tuple, a step cannot be used, most steps have nothing that the
model knows (`few_known`), a cell is larger than ``largest``, or there is no path. So it needs no words of its own.

A tagger is never changed: any number of threads may use one. Long sequences release the GIL while the best path is
looked for.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any, Protocol

import numpy as np

from crfield.kernels import choice
from crfield.kernels.linear import Tagger
from crfield.kernels.records import RecordTable

_FEW = 200


class SequenceTagger(Protocol):
    """The labels of one sequence."""

    def tag(self, steps: Any) -> list[Hashable] | None:
        """Labels of the best path, or None where the general way is needed."""
        ...


def _compiled(body: Any) -> bool:
    """Whether a body is a compiled one; where a single module is missing they may be of both kinds."""
    return ".reference." not in body.__name__


def record_tagger(
    table: RecordTable, weights: Tagger, labels: Sequence[Hashable], *, joined: bool, largest: float
) -> SequenceTagger | None:
    """Steps are feature dicts or lists of feature strings, as `RecordTable.encode` reads them.

    ``weights`` are for the columns of the table, with no columns of edges. None where table and weights are of
    different bodies.

    >>> from types import SimpleNamespace
    >>> table = RecordTable()
    >>> _ = table.encode([[["a", "b"]]], grow=True)
    >>> layout = SimpleNamespace(n_labels=2, n_columns=2, feature_ptr=None, feature_label=None, n_dense=0, bias=False,
    ...     boundaries=False, pairs=np.zeros(0, np.int32), n_edge_columns=0, edge_ptr=None, edge_pair=None,
    ...     n_edge_dense=0, fixed=None)
    >>> weights = Tagger(layout, np.array([1.0, 0.0, 0.0, 1.0]))
    >>> tagger = record_tagger(table, weights, ["A", "B"], joined=False, largest=1e100)
    >>> tagger.tag([["a"], {"b": 2.0}, {"a": True, "b": 3}]), tagger.tag([["new"]]), tagger.tag([[1]])
    (['A', 'B', 'B'], None, None)
    """
    body, linear = choice.body("records"), choice.body("linear")
    same = isinstance(table._table, body.RecordTable) and isinstance(weights._tagger, linear.Tagger)
    if not same or _compiled(body) != _compiled(linear):
        return None
    return body.SequenceTagger(table._table, weights._tagger, tuple(labels), joined, largest)


def template_tagger(
    alphabet: Any,
    node: Any,
    edge: Any,
    weights: Tagger,
    labels: Sequence[Hashable],
    *,
    width: int,
    telling: np.ndarray,
    many: int,
) -> SequenceTagger | None:
    """Steps are rows of ``width`` strings or more, coded by an interner and read by templates (`columns`).

    ``node`` and ``edge`` (or None) are the tables of patterns. ``telling`` (K,) says which node columns are more than
    marks beyond the ends: ``many`` steps without any, and more than half of all, are not usual.
    """
    body, linear = choice.body("columns"), choice.body("linear")
    tables = [node] if edge is None else [node, edge]
    same = isinstance(alphabet, body.Interner) and all(isinstance(table, body.Templates) for table in tables)
    if not same or not isinstance(weights._tagger, linear.Tagger) or _compiled(body) != _compiled(linear):
        return None
    telling = np.ascontiguousarray(telling, bool)
    return body.SequenceTagger(alphabet, node, edge, weights._tagger, tuple(labels), width, telling, many)


def few_known(indptr: np.ndarray, indices: np.ndarray) -> bool:
    """Whether more than half of the rows have no entry, or two in the middle nothing but the same one, as of a bias.

    >>> few_known(np.array([0, 0, 0, 1]), np.array([1])), few_known(np.array([0, 1, 1, 2]), np.array([0, 1]))
    (True, False)
    >>> few_known(np.array([0, 2, 3, 4, 6]), np.array([0, 2, 0, 0, 0, 1]))
    True
    """
    rows = len(indptr) - 1
    if rows <= _FEW:  # as many different offsets as rows that are filled, and one; the quickest for a sentence
        if 2 * (len(set(indptr.tolist())) - 1) < rows:
            return True
    elif 2 * int(np.count_nonzero(indptr[1:] > indptr[:-1])) < rows:
        return True
    return rows > 1 and len(indices) < 2 * rows and alone(indptr, indices, rows // 2) is not None


def alone(indptr: np.ndarray, indices: np.ndarray, row: int) -> int | None:
    """The column that this row and the one before have alone and both; None where there is none.

    >>> alone(np.array([0, 1, 2]), np.array([5, 5]), 1), alone(np.array([0, 1, 2]), np.array([5, 4]), 1)
    (5, None)
    """
    start, middle, end = indptr[row - 1 : row + 2].tolist()
    if (start + 1, middle + 1) != (middle, end) or indices[start] != indices[middle]:
        return None
    return int(indices[middle])
