"""Our side: the training problem behind `ChainCRF`, with its parts within reach.

Benchmarks that time one evaluation, or evaluate weights that another program trained, need the parts that the
estimator keeps to itself: encoder, layout, problem.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.corpora import Labelled, Rows, Strings, Tags
from benchmarks.crfsuite_model import CrfsuiteModel
from crfield import ChainCRF
from crfield.core.target import Target
from crfield.data.batch import Batch
from crfield.data.labels import LabelCoder
from crfield.features.records import RecordEncoder
from crfield.features.templates.encoder import TemplateEncoder
from crfield.kernels.linear import Tagger
from crfield.optimize.history import Result
from crfield.optimize.penalty import Penalty
from crfield.scoring.layout import Layout
from crfield.training.chain import warm_start
from crfield.training.likelihood import FusedChain, fit_likelihood

# CRFsuite has no scores for labels alone and none for the first and last step; its c2 = 1 is l2 = 2.
LIKE_CRFSUITE: dict[str, Any] = {"l2": 2.0, "intercept": False, "boundaries": False}


def chain(template: str, **options: Any) -> ChainCRF:
    """A `ChainCRF` with the model that CRFsuite has, on one thread."""
    return ChainCRF(template=template, **{**LIKE_CRFSUITE, "n_jobs": 1, **options})


@dataclass(frozen=True, eq=False)
class Ours:
    """A training set encoded by a template or from strings, and its likelihood as a function of the weights."""

    encoder: TemplateEncoder | RecordEncoder
    coder: LabelCoder
    layout: Layout
    problem: FusedChain

    @classmethod
    def build(cls, data: Labelled, template: str, *, pairs: str = "observed", n_jobs: int = 1) -> Ours:
        """Encode and lay out; ``pairs`` are the (feature, label) and (label, label) pairs that have a weight."""
        encoder = TemplateEncoder(template)
        return cls._of(encoder, encoder.fit(data.rows), data.tags, pairs=pairs, n_jobs=n_jobs)

    @classmethod
    def of_strings(cls, strings: Strings, tags: Tags) -> Ours:
        """The same from lists of strings, with the pairs that occur, on one thread."""
        encoder = RecordEncoder()
        return cls._of(encoder, encoder.fit(strings), tags, pairs="observed", n_jobs=1)

    @classmethod
    def _of(
        cls, encoder: TemplateEncoder | RecordEncoder, batch: Batch, tags: Tags, *, pairs: str, n_jobs: int
    ) -> Ours:
        coder = LabelCoder().fit(tags)
        target = Target(batch.topology, coder.n_labels, *coder.encode(tags, batch.topology.lengths))
        layout = Layout.observe(
            batch, target, feature_pairs=pairs, transition_pairs=pairs, bias=False, boundaries=False
        )
        return cls(encoder, coder, layout, FusedChain(layout, batch, target, n_jobs=n_jobs))

    @property
    def n_weights(self) -> int:
        """W."""
        return self.layout.n_weights

    def half_trained(self, epochs: int = 2) -> np.ndarray:
        """Weights as they are during training: after a few stochastic epochs."""
        rng = np.random.default_rng(0)
        weights = np.zeros(self.n_weights)
        warm_start.descend(self.problem, weights, l2=2.0, epochs=epochs, rng=rng)
        return weights

    def minimise(self, *, l1: float = 0.0, l2: float = 2.0, tol: float, max_iter: int = 3000) -> Result:
        """Train to a tolerance."""
        return fit_likelihood(
            self.problem,
            Penalty(l1=l1, l2=l2),
            tol=tol,
            max_iter=max_iter,
            n_jobs=self.problem.n_jobs,
            rng=np.random.default_rng(0),
        )

    def weights_of(self, model: CrfsuiteModel) -> np.ndarray:
        """CRFsuite's weights in our order (W,); an error if it has one that we have not."""
        code = {label: k for k, label in enumerate(self.coder.labels)}
        labels = np.array([code[label] for label in model.labels], dtype=np.int64)
        number = {self.encoder.node_name(k): k for k in range(self.layout.n_columns)}
        columns = np.array([number[name] for name in model.attributes], dtype=np.int64)
        n_labels = self.layout.n_labels
        column, label = self.layout.node_features()
        weights = np.zeros(self.n_weights)
        for part, ours, theirs, values in (
            (
                "node",
                column.astype(np.int64) * n_labels + label,
                columns[model.state["source"]] * n_labels + labels[model.state["target"]],
                model.state["weight"],
            ),
            (
                "transitions",
                self.layout.pairs.astype(np.int64),
                labels[model.transition["source"]] * n_labels + labels[model.transition["target"]],
                model.transition["weight"],
            ),
        ):
            place = np.searchsorted(ours, theirs)
            if place.size and (place.max() >= len(ours) or (ours[place] != theirs).any()):
                raise ValueError(f"CRFsuite has {part} weights that our layout has not.")
            weights[self.layout.part[part]][place] = values
        return weights

    def objective(self, weights: np.ndarray, *, l1: float = 0.0, l2: float = 2.0) -> float:
        """−Σ log p + l1 ‖w‖₁ + ½ l2 ‖w‖²."""
        value = self.problem.evaluate(weights, np.empty(self.n_weights))
        return value + l1 * float(np.abs(weights).sum()) + 0.5 * l2 * float(weights @ weights)

    def tag(self, weights: np.ndarray, rows: Rows) -> Tags:
        """The best labels under these weights."""
        batch = self.encoder.encode(rows)
        codes, _ = Tagger(self.layout, weights).decode(batch)
        return [tags.tolist() for tags in self.coder.decode(codes, batch.topology.offsets)]
