"""What explanations are made of: scores of one encoded sequence, decoded under masks, and the names of weights."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

import numpy as np

from crfield.core.potentials import Potentials
from crfield.data.batch import Batch
from crfield.estimators.chain.model import ColumnModel
from crfield.inference.chain import ChainEngine
from crfield.inference.max_marginals import MaxMarginals
from crfield.report.explain import PAIRS, Contribution, LabelRun
from crfield.report.weights import LabelPair
from crfield.scoring.contributions import Term
from crfield.scoring.higher_order import HigherOrderLayout, HigherOrderScores


@dataclass(frozen=True, eq=False)
class StepScores:
    """Scores of one encoded sequence, plain or of higher order, with masked decoding."""

    node: np.ndarray  # (T, L)
    scores: Potentials | HigherOrderScores

    @classmethod
    def of(cls, model: ColumnModel, batch: Batch) -> StepScores:
        """The scores that the model gives the batch."""
        if isinstance(model.layout, HigherOrderLayout):
            scores: Potentials | HigherOrderScores = HigherOrderScores.of(model.layout, model.weights, batch)
        else:
            scores = Potentials(*model.tagger.scores(batch), batch.topology)
        return cls(scores.node, scores)

    def only(self, step: int, allowed: np.ndarray) -> np.ndarray:
        """Node scores in which the step may only have the labels allowed (L,) bool."""
        node = self.node.copy()
        node[step, ~allowed] = -np.inf
        return node

    def best(self, node: np.ndarray) -> tuple[float, np.ndarray]:
        """Score and labels of the best labelling under node scores."""
        if isinstance(self.scores, HigherOrderScores):
            total, path = self.scores.best(node)
        else:
            total, path = ChainEngine().best_path(Potentials(node, self.scores.edge, self.scores.topology))
        return float(total[0]), path

    @property
    def transitions(self) -> np.ndarray:
        """(T − 1, S, L) scores of a label after a state, or (1, S, L) for all edges alike."""
        return self.scores.score[None] if isinstance(self.scores, HigherOrderScores) else self.scores.edge

    def max_marginals(self, node: np.ndarray) -> MaxMarginals:
        """The best score of every label at every step under node scores."""
        if isinstance(self.scores, HigherOrderScores):
            runs = self.scores.runs
            return MaxMarginals.of(node, self.transitions, after=runs.after, label=runs.label)
        return MaxMarginals.of(node, self.transitions)


def contribution(
    model: ColumnModel, labels: list[Hashable], term: Term, path: np.ndarray, other: np.ndarray
) -> Contribution:
    """A term with the name of its feature and the labels that it scores."""
    t, kind = term.step, term.kind

    def scored(own: np.ndarray) -> Hashable:
        if kind == "runs":
            return LabelRun(labels[k] for k in own[t - term.column + 1 : t + 1])
        return LabelPair(labels[own[t - 1]], labels[own[t]]) if kind in PAIRS else labels[own[t]]

    name = feature_name(model, kind, term.column)
    return Contribution(name, t, scored(path), scored(other), term.value, term.weight, term.other, term.amount, kind)


def feature_name(model: ColumnModel, kind: str, column: int = -1) -> str:
    """Name of a column, or of what else has a score."""
    encoder = model.encoder
    named = {
        "node": encoder.node_name,
        "dense": encoder.dense_name,
        "edge": encoder.edge_name,
        "edge_dense": encoder.edge_dense_name,
    }
    if kind in named:
        return named[kind](column)
    if kind == "runs":
        return f"({column} labels in a row)"
    others = {"transitions": "(transition)", "fixed_edge": "(rule)"}
    return others.get(kind, "(" + kind.replace("fixed_", "rule of the ") + ")")
