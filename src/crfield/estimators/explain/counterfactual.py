"""Which present features must go for another label to be predicted: a greedy search that is checked by decoding.

Candidates are the active columns of the steps near the one in question, of nodes and of edges. In each round the
exact margin after taking away each candidate alone is read from max-marginals (two pairs of sweeps over these
steps for all of them; what is best outside them stays as it is), and the one that lowers it most is set aside,
until the model's own ``predict`` gives another label. If one feature alone is enough, the first round finds it.
Then each of the set is put back in turn, the least effective first, and left out of the set if the label is still
another: what remains is needed, every one of it. A smaller set of other features may exist; finding the smallest
is hard in general.

Columns of the encoded sequence are set aside, the user's x is not touched. Setting a numeric column aside means 0,
which is its mean where ``standardize`` made it so. A feature that also scores pairs of labels has a column of its own
there.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple, Protocol, Self

import numpy as np

from crfield.core.typing import Sequences
from crfield.data.batch import Batch, Columns
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.explain.margins import StepScores, feature_name
from crfield.inference.max_marginals import MaxMarginals
from crfield.report.explain import Flip, RemovedFeature
from crfield.scoring.contributions import WeightedColumns

_GAIN = 1e-12  # a removal that lowers the margin by less does nothing


class Answering(Protocol):
    """A fitted chain that can be asked with other columns."""

    def holding(self, model: ColumnModel) -> Self:
        """A copy that answers by another model."""
        ...

    def predict(self, X: Sequences) -> np.ndarray:
        """Labels of every sequence."""
        ...


class Candidate(NamedTuple):
    """An active column of a step or of an edge."""

    kind: str
    row: int
    column: int
    value: float
    scores: np.ndarray  # (L,) or (L · L,): what it adds to the score of each label or pair


def find_flip(
    chain: Answering, model: ColumnModel, batch: Batch, step: int, chosen: int, *, removals: int, reach: int | None
) -> Flip:
    """The features to set aside, at most ``removals``, for the label ``chosen`` (code) of the step to be another."""
    labels = model.labels.labels
    near = _near(batch, step, reach)
    left = candidates(model, batch, near)
    count = len(left)
    removed: list[Candidate] = []
    now, margin = batch, _margin(model, batch, step, chosen)
    if np.isinf(margin):
        left = []
    code = chosen
    scores = StepScores.of(model, batch)
    best = scores.max_marginals(scores.node) if left else None
    while best is not None and left and len(removed) < removals and code == chosen:
        after = _margins_without(best, near, StepScores.of(model, now), left, step, chosen)
        k = int(np.argmin(after))
        if not after[k] < margin - _GAIN:
            break
        removed.append(left.pop(k))
        now = without(batch, removed)
        margin, code = _margin(model, now, step, chosen), _predicted(chain, model, now, step)
    if code == chosen:
        return Flip(labels[chosen], None, (), margin, count, len(removed))
    tried = len(removed)
    removed, code = _needed(chain, model, batch, step, chosen, removed, code)
    named = tuple(
        RemovedFeature(feature_name(model, c.kind, c.column), _step_of(c), c.value, c.kind) for c in removed
    )
    margin = _margin(model, without(batch, removed), step, chosen)
    return Flip(labels[chosen], labels[code], named, margin, count, tried)


def _needed(
    chain: Answering, model: ColumnModel, batch: Batch, step: int, chosen: int, removed: list[Candidate], code: int
) -> tuple[list[Candidate], int]:
    """The set without what is not needed, and the label without the rest."""
    again = True
    while again:  # what was needed in a larger set may not be in a smaller one
        again = False
        for item in removed[::-1]:  # the last ones did least
            fewer = [other for other in removed if other is not item]
            if fewer and (found := _predicted(chain, model, without(batch, fewer), step)) != chosen:
                removed, code, again = fewer, found, True
    return removed, code


def _near(batch: Batch, step: int, reach: int | None) -> tuple[int, int]:
    """The first and the last step that is at most ``reach`` away."""
    end = batch.topology.n_nodes - 1
    return (0, end) if reach is None else (max(step - reach, 0), min(step + reach, end))


def candidates(model: ColumnModel, batch: Batch, near: tuple[int, int]) -> list[Candidate]:
    """The active columns of the steps from the first to the last, and of edges between them, that have a weight."""
    first, last = near
    out = []
    nodes = WeightedColumns.of_nodes(model.layout, model.weights, batch)
    edges = WeightedColumns.of_edges(model.layout, model.weights, batch)
    for own, kinds, rows in (
        (nodes, ("node", "dense"), range(first, last + 1)),
        (edges, ("edge", "edge_dense"), range(first, last)),
    ):
        for row in rows if own is not None else ():
            found, values = own.active(row)  # type: ignore[union-attr]
            table = own.sparse(found)  # type: ignore[union-attr]
            for column, value, weights in zip(found.tolist(), values.tolist(), table):
                out.append(Candidate(kinds[0], row, column, value, value * weights))
            dense = own.columns.dense  # type: ignore[union-attr]
            if dense is not None:
                for column, value in enumerate(dense[row].tolist()):
                    out.append(Candidate(kinds[1], row, column, value, value * own.dense[column]))  # type: ignore[union-attr]
    return [candidate for candidate in out if candidate.scores.any()]


def without(batch: Batch, removed: Collection[Candidate]) -> Batch:
    """The batch with some columns set aside at their steps."""
    node = _fewer(batch.node, [c for c in removed if c.kind in ("node", "dense")])
    if batch.edge is None:
        return Batch(batch.topology, node)
    return Batch(batch.topology, node, _fewer(batch.edge, [c for c in removed if c.kind in ("edge", "edge_dense")]))


def _fewer(columns: Columns, removed: Collection[Candidate]) -> Columns:
    row = np.repeat(np.arange(columns.n_rows), np.diff(columns.indptr))
    kept = np.ones(len(columns.indices), dtype=bool)
    dense = None if columns.dense is None else columns.dense.copy()
    for c in removed:
        if c.kind in ("node", "edge"):
            kept &= (row != c.row) | (columns.indices != c.column)
        elif dense is not None:
            dense[c.row, c.column] = 0.0
    before = np.concatenate([np.zeros(1, np.int64), np.cumsum(kept)])
    values = None if columns.values is None else columns.values[kept]
    return Columns(before[columns.indptr], columns.indices[kept], columns.width, values, dense)


def _margins_without(
    before: MaxMarginals, near: tuple[int, int], scores: StepScores, left: list[Candidate], step: int, chosen: int
) -> np.ndarray:
    """(n,) the margin after taking away each candidate alone; ``before`` is of when none was taken away."""
    own = np.arange(scores.node.shape[1]) == chosen
    sides = [before.within(*near, scores.only(step, allowed), scores.transitions) for allowed in (own, ~own)]
    best: dict[tuple[bool, int], list[np.ndarray]] = {}
    out = np.empty(len(left))
    for k, c in enumerate(left):
        pairs = c.kind in ("edge", "edge_dense")
        if (pairs, c.row) not in best:
            best[pairs, c.row] = [side.pairs(c.row).ravel() if pairs else side.labels(c.row) for side in sides]
        with_chosen, with_other = (float((tops - c.scores).max()) for tops in best[pairs, c.row])
        out[k] = with_chosen - with_other
    return out


def _margin(model: ColumnModel, batch: Batch, step: int, chosen: int) -> float:
    scores, own = StepScores.of(model, batch), np.arange(model.layout.n_labels) == chosen
    totals = [scores.best(scores.only(step, allowed))[0] for allowed in (own, ~own)]
    return totals[0] - totals[1]


def _predicted(chain: Answering, model: ColumnModel, batch: Batch, step: int) -> int:
    """The code of the label that the estimator's own ``predict`` gives the step of an encoded sequence."""
    fitted = replace(model, encoded=batch)
    fitted.__dict__["tagger"] = model.tagger  # the same weights, so they need not be laid out again
    labels = chain.holding(fitted).predict([None])
    return int(model.labels.encode(labels, batch.topology.lengths)[0][step])


def _step_of(candidate: Candidate) -> int:
    return candidate.row + (candidate.kind in ("edge", "edge_dense"))
