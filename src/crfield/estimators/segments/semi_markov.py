"""`SemiMarkovCRF`: a conditional random field over segments as a scikit-learn estimator.

    p(s | x) = exp( Σ_k segment(x, start_k, stop_k, y_k) + Σ_k edge(y_{k-1}, y_k) ) / Z(x)

(Sarawagi & Cohen 2005.) A label belongs to a whole segment, so features may look at all of it: how long it is, what
it contains, how it begins and ends, its text. Training and prediction are exact, at a cost linear in length × longest
segment.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from crfield.core.checks import resolve_jobs
from crfield.core.estimator import Estimator
from crfield.core.segments import Segmentation
from crfield.core.topology import Chains
from crfield.data.labels import LabelCoder
from crfield.errors import ConvergenceWarning, DataWarning, InputError, NotFittedError
from crfield.estimators.base.progress import Progress
from crfield.estimators.base.sequences import check_weights, without_weightless
from crfield.estimators.segments.checks import check_semi_markov
from crfield.estimators.segments.fit import Prepared, prepare
from crfield.estimators.segments.labels import (
    RUNS,
    read_segments,
    says_segments,
    segmentation_of,
    written_segments,
    written_tags,
)
from crfield.estimators.segments.model import SegmentModel, joined
from crfield.features.templates.template import Template
from crfield.inference.decode import best_marginals, check_decoder
from crfield.inference.segments import segmentation_scores
from crfield.optimize.history import INTERRUPTED, Result, Step
from crfield.optimize.penalty import Penalty
from crfield.report.weights import TransitionTable
from crfield.training.segments import fit_segments

OFTEN = 0.01  # of the gold segments: when more are longer than max_length, somebody should know


class SemiMarkovCRF(Estimator):
    """Semi-Markov conditional random field: labels of segments.

    Training minimises −Σ weight · log p(s | x) + ``l1`` ‖w‖₁ + ½ ``l2`` ‖w‖². Gold segments longer than
    ``max_length`` are cut into pieces of that length and a rest, for training and for `log_prob`; ``n_split_`` counts
    them, and a `DataWarning` says so when they are more than one in a hundred.

    Parameters
    ----------
    max_length : int or dict
        The most steps of a segment; a dict gives it for each label. Under a tag scheme segments outside ("O") have
        one step.
    scheme : "runs", "iob2", "iob1", "bioes" or "bilou"
        What y and ``predict`` say: the label of each step, where a segment is a longest run of one; or tags, where it
        is a span. Under any of them y may be lists of segments (start, stop, label) instead.
    step_features : tuple of "sum", "mean", "first", "last"
        How columns of steps enter the score of a segment, each with weights of its own: summed or averaged over it,
        or those of its first or last step.
    length_features : "each", "none" or list of int
        A weight for each length and label, for none, or for bins that begin at the given lengths.
    segment_text : list of str, int or f(x, t)
        What the text of a segment is made of: an entry of the steps' dicts, a column of token rows, or a function.
        Each gives a feature for every text that a gold segment has.
    l1, l2 : float
        Strengths of the penalties.
    features, template, functions, transition_functions, transition_features, standardize, min_count :
        How X becomes columns: see `ChainCRF`. Features of transitions score two segments that meet. ``min_count``
        counts texts of gold segments too.
    feature_pairs, transition_pairs : "observed" or "all"
        Which (feature, label) pairs and which pairs of neighbouring segments' labels have a weight; transitions may
        also be "none".
    intercept, boundaries, penalize_intercepts : bool
        A score for each label at every step; at the first and at the last one; whether penalties touch these.
    tol : float
        Training stops when the objective is estimated to be within this fraction of its optimum.
    max_iter : int
        Most steps of the optimiser.
    decode : "viterbi" or "marginal"
        What ``predict`` returns: the best segmentation, or the best label of each step, cut where a beginning is more
        likely than not.
    warm_start : bool
        Go on from the weights of the last ``fit``: features, labels and texts are then those of it.
    n_jobs : int or None
        Threads; -1 for all processors.
    verbose : int
        1 shows a progress line, 2 a line for every step.
    callback : callable(step, weights), optional
        Called after every step of the optimiser; returning True ends training.

    Examples
    --------
    >>> X = [[{"word": w} for w in text.split()] for text in ("he saw New York", "New York saw Ann", "Ann saw him")]
    >>> y = [["O", "O", "B-LOC", "I-LOC"], ["B-LOC", "I-LOC", "O", "B-PER"], ["B-PER", "O", "O"]]
    >>> model = SemiMarkovCRF(max_length=3, scheme="iob2", segment_text=["word"], l2=0.1).fit(X, y)
    >>> X_new = [[{"word": w} for w in "Ann saw New York".split()]]
    >>> model.predict_segments(X_new), model.predict(X_new)[0].tolist()
    ([[(0, 1, 'PER'), (2, 4, 'LOC')]], ['B-PER', 'O', 'B-LOC', 'I-LOC'])
    """

    _model: SegmentModel
    _coder: LabelCoder
    _joins: bool  # whether neighbours of one label are one segment, as where y said labels of steps

    def __init__(
        self,
        *,
        max_length: int | Mapping[Any, int] = 10,
        scheme: str = RUNS,
        step_features: Sequence[str] = ("sum", "first", "last"),
        length_features: str | Sequence[int] = "each",
        segment_text: Sequence[Any] = (),
        l1: float = 0.0,
        l2: float = 1.0,
        features: Any = None,
        template: str | os.PathLike[str] | Template | None = None,
        functions: Sequence[Any] | None = None,
        transition_functions: Sequence[Any] = (),
        transition_features: str | Sequence[Any] | None = None,
        standardize: bool = False,
        min_count: int = 1,
        feature_pairs: str = "observed",
        transition_pairs: str = "observed",
        intercept: bool = True,
        boundaries: bool = True,
        penalize_intercepts: bool = True,
        tol: float = 1e-4,
        max_iter: int = 500,
        decode: str = "viterbi",
        warm_start: bool = False,
        n_jobs: int | None = None,
        verbose: int = 0,
        callback: Callable[[Step, np.ndarray], bool | None] | None = None,
    ) -> None:
        self.max_length = max_length
        self.scheme = scheme
        self.step_features = step_features
        self.length_features = length_features
        self.segment_text = segment_text
        self.l1 = l1
        self.l2 = l2
        self.features = features
        self.template = template
        self.functions = functions
        self.transition_functions = transition_functions
        self.transition_features = transition_features
        self.standardize = standardize
        self.min_count = min_count
        self.feature_pairs = feature_pairs
        self.transition_pairs = transition_pairs
        self.intercept = intercept
        self.boundaries = boundaries
        self.penalize_intercepts = penalize_intercepts
        self.tol = tol
        self.max_iter = max_iter
        self.decode = decode
        self.warm_start = warm_start
        self.n_jobs = n_jobs
        self.verbose = verbose
        self.callback = callback

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the weights from sequences X and their tags or segments y.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. Ctrl-C ends training with the best
        weights so far.
        """
        check_semi_markov(self.get_params(deep=False))
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        before = (self._model, self._coder) if self.warm_start and self.__sklearn_is_fitted__() else None
        made = prepare(self, X, y, sample_weight, before)
        result = self._train(made)
        self._model, self._coder = replace(made.model, weights=result.weights), made.coder
        self._joins = self.scheme == RUNS and not says_segments(y)
        self.classes_ = made.coder.classes_
        self.n_split_ = made.n_split
        self.objective_ = float(result.value)
        self.n_iter_ = result.n_iter
        self.n_evaluations_ = result.n_evaluations
        self.history_ = result.history
        self.converged_ = result.converged
        self.stop_reason_ = result.reason
        self._warn(result, made.n_segments)
        return self

    def _train(self, made: Prepared) -> Result:
        penalised = None if self.penalize_intercepts else (~made.model.layout.intercepts).astype(np.uint8)
        with Progress(self.verbose, total=self.max_iter, description="SemiMarkovCRF") as progress:

            def after(step: Step, weights: np.ndarray) -> bool | None:
                progress.update(step)
                return self.callback(step, weights) if self.callback is not None else None

            return fit_segments(
                made.problem,
                Penalty(l1=self.l1, l2=self.l2, penalised=penalised),
                made.model.weights,
                tol=self.tol,
                max_iter=self.max_iter,
                callback=after if self.callback is not None or self.verbose else None,
            )

    def _warn(self, result: Result, n_segments: int) -> None:
        # With segments of one step the model is meant to be a chain.
        if self._model.layout.max_length > 1 and self.n_split_ > OFTEN * n_segments:
            warnings.warn(
                f"{self.n_split_} of {n_segments} gold segments are longer than max_length={self.max_length!r} and "
                "were cut into pieces. Raise max_length; training costs in proportion.",
                DataWarning,
                stacklevel=3,
            )
        if not result.converged and result.reason != "callback":
            advice = (
                "The best weights so far are kept"
                if result.reason == INTERRUPTED
                else "Raise max_iter or tol, or scale numeric features (standardize=True)"
            )
            warnings.warn(
                f"training stopped before the tolerance {self.tol:g} was met ({result.reason}, {result.n_iter} "
                f"steps, objective {result.value:.6g}). {advice}.",
                ConvergenceWarning,
                stacklevel=3,
            )

    # --------------------------------------------------------------- prediction

    @property
    def _fitted(self) -> SegmentModel:
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("this SemiMarkovCRF is not fitted yet. Call fit(X, y) first, or load a model file.")
        return self._model

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; ``lengths_`` and ``transitions_`` give some of them names."""
        weights = self._fitted.weights.view()
        weights.flags.writeable = False
        return weights

    def _cut(self, X: Any) -> Segmentation:
        model, jobs = self._fitted, resolve_jobs(self.n_jobs)
        if check_decoder(self.decode) == "viterbi":
            cut = model.best(X, n_jobs=jobs)
        else:
            cut = joined([_likeliest(p.topology, beliefs) for p, beliefs in model.beliefs(X, n_jobs=jobs)])
        return cut.joined() if self._joins else cut

    def predict(self, X: Any) -> np.ndarray:
        """Tags of every sequence, in the scheme of the model: a 1-D object array with one array for each."""
        return written_tags(self._cut(X), self.scheme, self._coder)

    def predict_segments(self, X: Any) -> list[list[tuple[int, int, Any]]]:
        """Segments (start, stop, label) of every sequence; under a tag scheme without the steps outside."""
        return written_segments(self._cut(X), self.scheme, self._coder)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability that each step lies in a segment of each label: a 1-D object array of arrays (steps, classes).

        Columns are ``classes_``, the labels of segments, also where ``predict`` writes tags.
        """
        return self._tables(X, "node")

    def predict_marginals(self, X: Any) -> list[list[dict[Hashable, float]]]:
        """The same as one dict ``{label: probability}`` for each step."""
        tables = self.predict_proba(X)
        labels = self._coder.labels
        return [[dict(zip(labels, row)) for row in table.tolist()] for table in tables]

    def segment_marginals(self, X: Any) -> np.ndarray:
        """Probability of every possible segment: a 1-D object array of arrays (steps, lengths, classes).

        Entry [t, d − 1, j] is of the segment of label j whose d steps end with step t.
        """
        return self._tables(X, "segment")

    def segment_proba(self, X: Any, segments: Sequence[Sequence[tuple[int, int, Any]]]) -> list[list[float]]:
        """The probability of each given segment (start, stop, label), say of those that `predict_segments` found."""
        tables, codes = self.segment_marginals(X), {label: k for k, label in enumerate(self._coder.labels)}
        if len(tables) != len(segments):
            raise InputError(f"X has {len(tables)} sequences and segments has {len(segments)}.")
        out = []
        for s, (table, asked) in enumerate(zip(tables, segments)):
            row = []
            for start, stop, label in asked:
                if label not in codes or not 0 <= start < stop <= len(table):
                    raise InputError(
                        f"{(start, stop, label)!r} is no segment of sequence {s}, which has {len(table)} steps and "
                        f"labels {list(codes)[:20]}."
                    )
                long = stop - start
                row.append(float(table[stop - 1, long - 1, codes[label]]) if long <= table.shape[1] else 0.0)
            out.append(row)
        return out

    def _tables(self, X: Any, name: str) -> np.ndarray:
        found = []
        for scores, beliefs in self._fitted.beliefs(X, n_jobs=resolve_jobs(self.n_jobs)):
            table, offsets = getattr(beliefs, name), scores.topology.offsets
            found += [table[a:b] for a, b in pairwise(offsets.tolist())]
        out = np.empty(len(found), dtype=object)
        for s, table in enumerate(found):
            out[s] = table
        return out

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(s | x) of the segmentation that y says, (B,); segments longer than ``max_length`` are cut first."""
        found, first = [], 0
        for scores, beliefs in self._fitted.beliefs(X, n_jobs=resolve_jobs(self.n_jobs)):
            own = y[first : first + scores.topology.n_sequences]
            first += scores.topology.n_sequences
            meant = segmentation_of(own, scores.topology, self.scheme, self._coder)
            gold, _ = meant.limited(self._model.layout.limit)
            # Two large numbers that may round past each other; no part weighs more than the whole.
            found.append(np.minimum(segmentation_scores(scores, gold) - beliefs.total, 0.0))
        if first != len(y):
            raise InputError(f"X has {first} sequences and y has {len(y)}: give both one entry per sequence.")
        return np.concatenate([np.zeros(0), *found])

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of steps whose tag is predicted right. For spans see `crfield.metrics.span_f1`."""
        cut = self._cut(X)
        chains, coder = cut.topology, self._coder
        truth = y
        if says_segments(y):
            truth = written_tags(segmentation_of(y, chains, self.scheme, coder), self.scheme, coder)
        else:
            read_segments(y, chains, self.scheme)  # refuses what cannot be read
        said = written_tags(cut, self.scheme, coder)
        right = [[a == b for a, b in zip(one.tolist(), other)] for one, other in zip(said, truth)]
        weight = np.ones(chains.n_sequences)
        if sample_weight is not None:
            weight = check_weights(sample_weight, chains.n_sequences)
        total = float(weight @ chains.lengths)
        return float(weight @ np.array([sum(row) for row in right], np.float64) / total) if total > 0 else 0.0

    # -------------------------------------------------------------- explanation

    @property
    def transitions_(self) -> TransitionTable:
        """Weights of labels of neighbouring segments; NaN where a pair has none."""
        model = self._fitted
        base = model.layout.base
        return TransitionTable(self._coder.labels, base.transitions(model.weights[model.layout.part["base"]]))

    @property
    def lengths_(self) -> np.ndarray:
        """(D, classes) the score of each length of a segment, −∞ beyond what a label may last."""
        model = self._fitted
        return model.layout.lengths(model.weights)

    def top_texts(self, n: int = 20) -> list[tuple[str, Any, float]]:
        """The segment texts of largest absolute weight, as (text, label, weight).

        >>> X, y = [[{"w": "New"}, {"w": "York"}], [{"w": "Ann"}]], [["LOC", "LOC"], ["PER"]]
        >>> SemiMarkovCRF(segment_text=["w"]).fit(X, y).top_texts(1)[0][:2]
        ('New York', 'LOC')
        """
        model = self._fitted
        weights = model.weights[model.layout.part["texts"]]
        column = np.repeat(np.arange(len(model.layout.item_ptr) - 1), np.diff(model.layout.item_ptr))
        base = np.cumsum([0, *(trie.n_columns for trie in model.tries)])
        out = []
        for k in np.argsort(-np.abs(weights), kind="stable")[: max(0, n)].tolist():
            number = int(np.searchsorted(base, column[k], side="right")) - 1
            text = model.tries[number].text(int(column[k] - base[number]))
            out.append((text, self._coder.labels[model.layout.item_label[k]], float(weights[k])))
        return out

    # ------------------------------------------------------------------ storage

    def save(self, path: Any) -> None:
        """Write the model to one file, atomically; `crfield.load` reads it. Feature functions are code and are not
        stored: models that use them are kept with joblib.
        """
        from crfield.estimators.segments.file import save_semi_markov

        self._fitted  # noqa: B018
        save_semi_markov(self, path)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = False
        tags.no_validation = True
        return tags

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_model")


def _likeliest(chains: Chains, beliefs: Any) -> Segmentation:
    """The likeliest label of each step; a segment begins where that changes, or a beginning is likelier than not."""
    codes = best_marginals(beliefs.node)
    rows = np.arange(len(codes))
    begins = beliefs.starts[rows, codes] > 0.5 * beliefs.node[rows, codes]
    begins[1:] |= codes[1:] != codes[:-1]
    begins[chains.offsets[:-1][chains.lengths > 0]] = True
    start = np.flatnonzero(begins)
    return Segmentation(chains, start, np.append(start, len(codes))[1:], codes[start])
