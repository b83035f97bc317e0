"""`MEMM`: the maximum-entropy Markov model, a chain of classifiers that see the label before.

    p(y | x) = Π_t p(y_t | y_{t-1}, x)        p(j | i, x) = exp(node_t(j) + edge_t(i, j)) / Z_t(i)

(McCallum, Freitag & Pereira 2000, *Maximum entropy Markov models for information extraction and segmentation*.) It
has the features, input and answers of `ChainCRF`; only the normaliser differs, one for each step and label before
instead of one for the sequence. Training is therefore a plain classification of N steps and needs no sum over paths,
and decoding is exact: the chain engine on scores that are lowered by the next step's normaliser
(`crfield.objectives.gold_past`). The price is the label bias: a label with few successors passes on all its
probability whatever is observed (Lafferty, McCallum & Pereira 2001). ``python examples/label_bias.py`` shows it.

The paper's form has weights of its own for each label before: ``transition_features="all"``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import one_of
from crfield.core.graphs import Graphs
from crfield.core.parameters import parameter
from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.core.typing import Labels, Sequences
from crfield.data.batch import Batch
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.chain.training import TrainedChain
from crfield.estimators.export.columns import plain_steps
from crfield.estimators.export.step_scores import DenseSteps, SequenceSteps, StepScorer
from crfield.estimators.export.written import Written, columns_read
from crfield.inference.chain import ChainEngine
from crfield.kernels.tagging import SequenceTagger
from crfield.objectives.gold_past import GoldPast, next_totals, normalised
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.chain.plan import ChainParts


class MEMM(TrainedChain, kind="memm", model=ColumnModel):
    """Maximum-entropy Markov model: every step a logistic regression that is told the label before.

    Training minimises −Σ weight · Σ_t log p(y_t | y_{t-1}, x) + ``l1`` ‖w‖₁ + ½ ``l2`` ‖w‖². Unknown labels and sets
    of labels are summed over.

    Parameters
    ----------
    l1, l2, features, template, functions, transition_functions, label_functions, transition_features, standardize,
    min_count, feature_pairs, transition_pairs, intercept, penalize_intercepts
        As of `ChainCRF`. There is one objective, no order, and nothing that ties neighbouring labels or weighs
        errors, since steps are normalised one by one.
    boundaries : bool
        Scores of the first step alone: a label is chosen looking back, so none is chosen because the sequence ends
        after it.
    solver : "auto", "lbfgs", "cg" or "projected_cg"
        How; ``solver_options`` are what only that solver knows.
    tol, max_iter, decode, warm_start, n_jobs, random_state, verbose, callback, checkpoint, checkpoint_every,
    validation_fraction, validation_score, patience
        As of `ChainCRF`.

    Examples
    --------
    >>> X = [[{"word": "the"}, {"word": "dog"}, {"word": "barks"}], [{"word": "a"}, {"word": "cat"}]]
    >>> y = [["DET", "NOUN", "VERB"], ["DET", "NOUN"]]
    >>> model = MEMM(l2=0.1).fit(X, y)
    >>> model.predict([[{"word": "the"}, {"word": "cat"}]])[0].tolist()
    ['DET', 'NOUN']
    """

    solver: str = parameter(one_of("auto", "lbfgs", "cg", "projected_cg"), default="auto")

    _likelihood = GoldPast()
    _sums_of_weights = False

    def _parts(self, model: ColumnModel, batch: Batch, target: Target) -> ChainParts:
        engine, layout = ChainEngine(self._jobs), model.layout
        return ChainParts(_Forward(layout), batch, target, engine, likelihood=self._likelihood, column_layout=layout)

    def potentials(self, X: Sequences) -> Potentials:
        """Log-probabilities of every label given the label before, as scores of edges."""
        return normalised(super().potentials(X))

    def _codes(self, X: Sequences, known: Labels | None = None) -> tuple[np.ndarray, Chains | Graphs]:
        return ChainAnswers._codes(self, X, known)  # packed weights know nothing of the normalisers

    def _only_path(self, X: Sequences) -> list[int] | None:
        return None  # for the same reason

    def _sequence_tagger(self) -> SequenceTagger | None:
        return None  # and here

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        return NormalisedSteps(plain_steps(self.column_model("stream"), history=history))


@dataclass(frozen=True, eq=False)
class _Forward:
    """The linear scorer without scores of a last step: their gradient is nothing, so they stay zero."""

    layout: Layout

    @property
    def n_weights(self) -> int:
        return self.layout.n_weights

    def score(self, weights: np.ndarray, batch: Batch) -> Potentials:
        return LinearScorer(self.layout).score(weights, batch)

    def pull(self, node: np.ndarray, edge: np.ndarray, batch: Batch) -> np.ndarray:
        gradient = LinearScorer(self.layout).pull(node, edge, batch)
        gradient[self.layout.part["end"]] = 0.0
        return gradient


_NORMALISED = """\
  double local[NAME_STATES * NAME_STATES];
  for (int i = 0; i < NAME_STATES; i++) { /* each label before has a distribution of its own over those that follow */
    const double *row = edge + i * NAME_STATES;
    double top = -INFINITY, sum = 0.0;
    for (int j = 0; j < NAME_STATES; j++) top = score[j] + row[j] > top ? score[j] + row[j] : top;
    for (int j = 0; j < NAME_STATES; j++) sum += exp(score[j] + row[j] - top);
    sum = top > -INFINITY ? top + log(sum) : 0.0;
    for (int j = 0; j < NAME_STATES; j++) local[i * NAME_STATES + j] = row[j] - sum;
  }
  edge = local;"""

_PYTHON_NORMALISED = """\
    totals = [log_sum([s + e for s, e in zip(score, row)]) for row in edge]
    edge = [[e - (total if total > -inf else 0.0) for e in row] for row, total in zip(edge, totals)]"""


class NormalisedSteps:
    """Scores of single steps whose edge tables carry the normaliser, since a stream cannot look ahead."""

    varied = True
    states: StateSpace | None = None  # scores are of labels

    def __init__(self, inner: DenseSteps | SequenceSteps) -> None:
        self.inner, self.dense = inner, getattr(inner, "dense", None)
        self.names, self.n_columns = getattr(inner, "names", None), getattr(inner, "n_columns", 0)
        self.start, self.end, self.transitions, self.reach = inner.start, inner.end, inner.transitions, inner.reach

    @property
    def columns_read(self) -> np.ndarray:
        """(D,) which columns are read."""
        return columns_read(self.inner, self.n_columns)

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray]:
        """Scores of rows, each with a table of its own."""
        node, edge = self.inner.score(rows, pasts)
        tables = np.repeat(self.transitions[None], len(node), axis=0) if edge is None else edge
        size = len(self.transitions)
        pairs = Potentials(
            np.stack([np.zeros((len(node), size)), node], axis=1).reshape(-1, size),
            tables,
            Chains.from_lengths([2] * len(node)),
            np.arange(len(node)),
        )
        return node, tables - next_totals(pairs)[:, :, None]

    def digest(self) -> str:
        """A word that differs between models."""
        return f"memm {self.inner.digest()}"

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name."""
        assert isinstance(self.inner, DenseSteps)
        return self.inner.tables()

    def written(self) -> Written:
        """How a step is scored."""
        assert isinstance(self.inner, DenseSteps)
        labels = len(self.start)
        return self.inner.written().then(_NORMALISED, _PYTHON_NORMALISED, labels * (8 * labels + 3))
