"""One evaluation of pseudo-likelihood on an image against one of logistic regression.

The image has 512 × 512 pixels with two labels, ten dense columns a pixel and two symmetric relations, across and
down. Given its neighbours' labels a pixel is a logistic regression on its columns and on the counts of its neighbours
by relation and label, so scikit-learn's loss and gradient on these 10 + 4 columns and an intercept is the same work,
and with weights to match gives the same number, which is checked. Ours is timed as training calls it: weights to
scores, objective, gradient back to weights. The rival's matrix is in the order that it is fastest with, and one
thread serves both.
"""

from __future__ import annotations

import numpy as np

from benchmarks.corpora import Bench
from benchmarks.table import Row, seconds
from benchmarks.timing import interleaved
from crfield.core.graphs import Graphs
from crfield.core.target import Target
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch, GraphSchema, NodeKind, Relation
from crfield.objectives.local import PseudoLikelihood
from crfield.scoring.graph_layout import GraphLayout
from crfield.scoring.graph_linear import GraphScorer

REQUIRED = 2.0
SIDE, DENSE = 512, 10


class Image:
    """The pixels, their columns, their labels, and who is next to whom."""

    def __init__(self, side: int, rng: np.random.Generator) -> None:
        pixels = np.arange(side * side).reshape(side, side)
        across = np.stack([pixels[:, :-1].ravel(), pixels[:, 1:].ravel()])
        down = np.stack([pixels[:-1].ravel(), pixels[1:].ravel()])
        self.relation = np.repeat([0, 1], [across.shape[1], down.shape[1]])
        self.tails, self.heads = np.concatenate([across, down], axis=1)
        smooth = rng.standard_normal((side, side))
        for _ in range(8):
            smooth = sum(np.roll(smooth, step, axis) for step in (-1, 1) for axis in (0, 1)) + smooth
        self.labels = (smooth > 0).ravel().astype(np.int32)
        self.dense = rng.standard_normal((side * side, DENSE)) + 0.3 * self.labels[:, None]

    def neighbours(self) -> np.ndarray:
        """(N, 4) neighbours across with label 0 and 1, and down with label 0 and 1."""
        counts = np.zeros((len(self.labels), 4))
        for own, other in ((self.tails, self.heads), (self.heads, self.tails)):
            np.add.at(counts, (own, 2 * self.relation + self.labels[other]), 1.0)
        return counts


class Ours:
    """Score, evaluate, pull."""

    def __init__(self, image: Image) -> None:
        relations = tuple(Relation(name, symmetric=True) for name in ("across", "down"))
        schema = GraphSchema((NodeKind("pixel", dense=(0, DENSE)),), relations)
        nodes = len(image.labels)
        graph = Graphs(np.array([0, nodes]), image.tails, image.heads)
        columns = Columns(np.zeros(nodes + 1, np.int64), np.zeros(0, np.int32), 0, dense=image.dense)
        batch = GraphBatch(graph, columns, np.zeros(nodes, np.int32), image.relation, (None, None))
        self.scorer = GraphScorer(GraphLayout.full(schema, [2]))
        self.batch, self.target = self.scorer.prepare(batch), Target(graph, 2, image.labels)

    def evaluate(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        """Value and gradient at weights."""
        potentials = self.scorer.score(weights, self.batch)
        result = PseudoLikelihood().evaluate(potentials, self.target)
        return result.value, self.scorer.pull(result.node, result.edge, self.batch)


def as_logistic(weights: np.ndarray, layout: GraphLayout) -> np.ndarray:
    """Our weights as the coefficients and the intercept of the log-odds of label 1."""
    dense = weights[layout.part["pixel/dense"]].reshape(DENSE, 2)
    bias = weights[layout.part["pixel/bias"]]
    odds = [dense[:, 1] - dense[:, 0]]
    for name in ("across", "down"):
        both_0, mixed, both_1 = weights[layout.part[f"{name}/table"]]
        odds.append(np.array([mixed - both_0, both_1 - mixed]))
    return np.concatenate([*odds, [bias[1] - bias[0]]])


def run(bench: Bench) -> list[Row]:
    """The ratio of the two, ours over the rival's."""
    from sklearn._loss import HalfBinomialLoss
    from sklearn.linear_model._linear_loss import LinearModelLoss

    rng = np.random.default_rng(0)
    image = Image(SIDE, rng)
    ours = Ours(image)
    weights = 0.3 * rng.standard_normal(ours.scorer.n_weights)
    rows = np.asfortranarray(np.concatenate([image.dense, image.neighbours()], axis=1))
    answers = image.labels.astype(np.float64)
    loss = LinearModelLoss(base_loss=HalfBinomialLoss(), fit_intercept=True)
    coefficients = as_logistic(weights, ours.scorer.layout)

    def theirs() -> tuple[float, np.ndarray]:
        value, gradient = loss.loss_gradient(coefficients, rows, answers, n_threads=1)
        return value, gradient

    (value, _), (expected, _) = ours.evaluate(weights), theirs()
    difference = abs(value / len(answers) - expected) / expected
    mine, rival = interleaved(lambda: ours.evaluate(weights), theirs, turns=15 if bench.quick else 60)
    return [
        Row(
            f"pseudo: {SIDE} × {SIDE} pixels, over logistic regression",
            mine.best / rival.best,
            required=REQUIRED,
            better="less",
            ours=seconds(mine.best),
            rival=seconds(rival.best),
            note=f"medians {mine.median / rival.median:.2f}×",
            detail={"ours": mine.seconds, "rival": rival.seconds},
        ),
        Row("pseudo: relative difference of the two values", difference, unit="", required=1e-9, better="less"),
    ]
