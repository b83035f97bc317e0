"""`SemiMarkovCRF`: a conditional random field over segments as a scikit-learn estimator.

    p(s | x) = exp( Σ_k segment(x, start_k, stop_k, y_k) + Σ_k edge(y_{k-1}, y_k) ) / Z(x)

(Sarawagi & Cohen 2005.) A label belongs to a whole segment, so features may look at all of it: how long it is, what
it contains, how it begins and ends, its text. Training and prediction are exact, at a cost linear in length × longest
segment.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any, Self

import numpy as np

from crfield.core.checks import Check, flag, one_of, resolve_jobs, threads
from crfield.core.parameters import learnt, parameter
from crfield.core.segments import Segmentation
from crfield.core.semiring import Semiring
from crfield.core.target import check_weights
from crfield.core.topology import Chains
from crfield.data.batch import Batch
from crfield.data.label_json import counts_from_json, counts_to_json
from crfield.data.labels import LabelCoder
from crfield.data.large import refuse_large
from crfield.errors import DataWarning, InputError
from crfield.estimators.base.groups import Optimised, Paired, Penalised
from crfield.estimators.base.sequences import without_weightless
from crfield.estimators.export.step_scores import StepScorer
from crfield.estimators.export.streaming import Streaming
from crfield.estimators.segments.labels import (
    RUNS,
    Segment,
    read_segments,
    says_segments,
    segment_scheme,
    segmentation_of,
    written_segments,
    written_tags,
)
from crfield.estimators.segments.lengths import Lengths, check_max_length, length_bins, length_choice, length_limits
from crfield.estimators.segments.model import SegmentModel
from crfield.features.columns.segment_features import Symbol, Trie, check_symbols, symbols_of
from crfield.features.encoder import Encoder
from crfield.inference.decode import DECODERS, best_marginals
from crfield.inference.segments import SegmentEngine, segmentation_scores
from crfield.report.weights import TransitionTable
from crfield.scoring.segments import ROLES, SegmentLayout
from crfield.training.segments import FusedSegments, fit_segments

OFTEN = 0.01  # of the gold segments: when more are longer than max_length, somebody should know


def _names_roles(given: Any) -> bool:
    listed = isinstance(given, Sequence) and not isinstance(given, str)
    return listed and all(role in ROLES for role in given) and len(set(given)) == len(given)


roles = Check(f"a tuple of {', '.join(map(repr, ROLES))}, none of them twice", _names_roles)


def segment_texts(name: str, given: object) -> None:
    """InputError unless texts of segments can be made of it."""
    check_symbols(given)


class SemiMarkovCRF(Streaming, Paired[SegmentModel], Penalised, Optimised, kind="semi_markov", model=SegmentModel):
    """Semi-Markov conditional random field: labels of segments.

    Training minimises −Σ weight · log p(s | x) + ``l1`` ‖w‖₁ + ½ ``l2`` ‖w‖². Gold segments longer than
    ``max_length`` are cut into pieces of that length and a rest, for training and for `log_prob`; ``n_split_`` counts
    them, and a `DataWarning` says so when they are more than one in a hundred. Where y says labels of steps, two
    neighbouring segments have one label only if the first is such a piece, so that a labelling is one segmentation.

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

    max_length: Lengths = parameter(check_max_length, default=10, to_json=counts_to_json, from_json=counts_from_json)
    scheme: str = parameter(segment_scheme, default=RUNS)
    step_features: Sequence[str] = parameter(roles, default=("sum", "first", "last"), from_json=tuple)
    length_features: str | Sequence[int] = parameter(length_choice, default="each")
    segment_text: Sequence[Symbol] = parameter(segment_texts, default=(), from_json=tuple)
    decode: str = parameter(one_of(*DECODERS), default="viterbi")
    warm_start: bool = parameter(flag, default=False)
    n_jobs: int | None = parameter(threads, default=None)

    classes_: np.ndarray = learnt()
    n_split_: int = learnt()
    objective_: float = learnt()
    n_iter_: int = learnt()
    n_evaluations_: int = learnt()
    converged_: bool = learnt()
    stop_reason_: str = learnt()
    reported = (*Paired.reported, "n_split_")

    # ------------------------------------------------------------------ fitting

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Learn the weights from sequences X and their tags or segments y.

        ``sample_weight`` has one number for each sequence; 0 leaves it out. Ctrl-C ends training with the best
        weights so far.
        """
        self.check()
        X, y, sample_weight = without_weightless(X, y, sample_weight)
        before = self._fitted if self.warm_start and self.__sklearn_is_fitted__() else None
        encoder, batch = self._read_columns(X, before)
        chains = batch.topology
        if chains.n_nodes == 0:
            raise InputError("X holds no steps at all; at least one sequence with one step is needed to train.")
        weight = None if sample_weight is None else check_weights(sample_weight, chains.n_sequences)
        start, stop, names = read_segments(y, chains, self.scheme)
        labels = LabelCoder().fit([names]) if before is None else before.labels
        meant = Segmentation(chains, start, stop, labels.encode([names], [len(names)])[0])
        joins = self.scheme == RUNS and not says_segments(y)
        if before is None:
            model = self._begun(labels, encoder, batch, meant, X, joins)
        else:
            model = replace(before, layout=replace(before.layout, runs=joins), joins=joins)
        gold, n_split = model.pieces(meant)
        problem = FusedSegments(
            model.layout, model.marked(batch, X), gold, weight=weight, n_jobs=resolve_jobs(self.n_jobs)
        )
        penalty = self._penalty(spared=None if self.penalize_intercepts else model.layout.intercepts)
        with self._watched() as watch:
            result = fit_segments(
                problem, penalty, model.weights, tol=self.tol, max_iter=self.max_iter, callback=watch
            )
        self.n_split_ = n_split
        self._learn(replace(model, weights=result.weights), result)
        if model.layout.max_length > 1 and n_split > OFTEN * len(start):  # with one step it is meant to be a chain
            warnings.warn(
                f"{n_split} of {len(start)} gold segments are longer than max_length={self.max_length!r} and "
                "were cut into pieces. Raise max_length; training costs in proportion.",
                DataWarning,
                stacklevel=2,
            )
        self._warn_unless_converged(result)
        return self

    def _read_columns(self, X: Any, before: SegmentModel | None) -> tuple[Encoder, Batch]:
        """An encoder and the columns of X; a model that goes on from an earlier fit keeps its own."""
        if before is None:
            return self._learn_columns(X)
        batch = before.encoder.encode(X)
        refuse_large(batch, before.encoder)
        return before.encoder, batch

    def _begun(
        self, labels: LabelCoder, encoder: Encoder, batch: Batch, meant: Segmentation, X: Any, joins: bool
    ) -> SegmentModel:
        """A model with weights of zero for what X and its segments show."""
        limit = length_limits(self.max_length, labels.labels, self.scheme)
        gold, _ = meant.limited(limit)
        sources = check_symbols(self.segment_text)
        found = [Trie.learn(symbols_of(X, source), gold, min_count=self.min_count) for source in sources]
        tries, texts = tuple(trie for trie, _ in found), None
        if found:  # (runs, M) columns of the gold segments' texts, all tries numbered through
            base = np.cumsum([0, *(trie.n_columns for trie in tries)])
            texts = np.stack([np.where(own >= 0, own + b, -1) for (_, own), b in zip(found, base)]), int(base[-1])
        layout = SegmentLayout.observe(
            batch,
            gold,
            limit=limit,
            bins=length_bins(self.length_features, int(limit.max())),
            roles=tuple(self.step_features),
            texts=texts,
            feature_pairs=self.feature_pairs,
            transition_pairs=self._pairs(encoder),
            bias=bool(self.intercept),
            boundaries=bool(self.boundaries),
            runs=joins,
        )
        return SegmentModel(labels, encoder, tries, sources, layout, np.zeros(layout.n_weights), joins)

    # --------------------------------------------------------------- prediction

    @property
    def coef_(self) -> np.ndarray:
        """(W,) the weights, read-only; ``lengths_`` and ``transitions_`` give some of them names."""
        weights = self._fitted.weights.view()
        weights.flags.writeable = False
        return weights

    def _cut(self, X: Any) -> Segmentation:
        model, jobs = self._fitted, resolve_jobs(self.n_jobs)
        self.check("decode")
        if self.decode == "viterbi":
            cut = model.best(X, n_jobs=jobs)
        else:
            cut = _likeliest(*model.steps(X, n_jobs=jobs))
        return cut.joined() if model.joins else cut

    def _step_scorer(self, *, history: int | None = None) -> StepScorer:
        self._fitted  # noqa: B018  (says so where nothing is fitted)
        raise InputError(
            "SemiMarkovCRF cannot stream: it scores whole segments, and a stream does not know yet where one "
            "ends. Use predict on whole sequences; ChainCRF streams, and so does HMM(min_duration=…), whose "
            "labels last."
        )

    def predict(self, X: Any) -> np.ndarray:
        """Tags of every sequence, in the scheme of the model: a 1-D object array with one array for each."""
        return written_tags(self._cut(X), self.scheme, self._fitted.labels)

    def predict_segments(self, X: Any) -> list[list[Segment]]:
        """Segments (start, stop, label) of every sequence; under a tag scheme without the steps outside."""
        return written_segments(self._cut(X), self.scheme, self._fitted.labels)

    def predict_proba(self, X: Any) -> np.ndarray:
        """Probability that each step lies in a segment of each label: a 1-D object array of arrays (steps, classes).

        Columns are ``classes_``, the labels of segments, also where ``predict`` writes tags.
        """
        chains, inside, _ = self._fitted.steps(X, n_jobs=resolve_jobs(self.n_jobs))
        return _by_sequence([inside[a:b] for a, b in pairwise(chains.offsets.tolist())])

    def predict_marginals(self, X: Any) -> list[list[dict[Hashable, float]]]:
        """The same as one dict ``{label: probability}`` for each step."""
        tables = self.predict_proba(X)
        labels = self._fitted.labels.labels
        return [[dict(zip(labels, row)) for row in table.tolist()] for table in tables]

    def segment_marginals(self, X: Any) -> np.ndarray:
        """Probability of every possible segment: a 1-D object array of arrays (steps, lengths, classes).

        Entry [t, d − 1, j] is of the segment of label j whose d steps end with step t.
        """
        found: list[np.ndarray] = []
        for chains, beliefs in self._fitted.beliefs(X, n_jobs=resolve_jobs(self.n_jobs)):
            found += [beliefs.segment[a:b] for a, b in pairwise(chains.offsets.tolist())]
        return _by_sequence(found)

    def segment_proba(self, X: Any, segments: Sequence[Sequence[Segment]]) -> list[list[float]]:
        """The probability of each given segment (start, stop, label), say of those that `predict_segments` found."""
        tables, codes = self.segment_marginals(X), {label: k for k, label in enumerate(self._fitted.labels.labels)}
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

    def log_prob(self, X: Any, y: Any) -> np.ndarray:
        """log p(s | x) of the segmentation that y says, (B,); segments longer than ``max_length`` are cut first.

        Where ``fit`` read labels of steps, it is log p of that labelling: those of all labellings sum to one.
        """
        model, found, first, jobs = self._fitted, [np.zeros(0)], 0, resolve_jobs(self.n_jobs)
        for states, scores in model.scores(X, n_jobs=jobs):
            chains = scores.topology
            own = y[first : first + chains.n_sequences]
            gold, _ = model.pieces(segmentation_of(own, chains, self.scheme, model.labels))
            free = SegmentEngine(jobs).infer(scores, Semiring.LOG).total
            # Two large numbers that may round past each other; no part weighs more than the whole.
            found.append(np.minimum(segmentation_scores(scores, states.of_cut(gold)) - free, 0.0))
            first += chains.n_sequences
        if first != len(y):
            raise InputError(f"X has {first} sequences and y has {len(y)}: give both one entry per sequence.")
        return np.concatenate(found)

    def score(self, X: Any, y: Any, sample_weight: Any = None) -> float:
        """Share of steps whose tag is predicted right. For spans see `crfield.metrics.span_f1`."""
        cut = self._cut(X)
        chains, coder = cut.topology, self._fitted.labels
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
        return TransitionTable(self._fitted.labels.labels, base.transitions(model.weights[model.layout.part["base"]]))

    @property
    def lengths_(self) -> np.ndarray:
        """(D, classes) the score of each length of a segment, −∞ beyond what a label may last."""
        model = self._fitted
        return model.layout.lengths(model.weights)

    def top_texts(self, n: int = 20) -> list[tuple[str, Hashable, float]]:
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
            out.append((text, self._fitted.labels.labels[model.layout.item_label[k]], float(weights[k])))
        return out

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.two_d_array = False
        tags.input_tags.allow_nan = False
        tags.no_validation = True
        return tags


def _by_sequence(tables: list[np.ndarray]) -> np.ndarray:
    """A 1-D object array of one table for each sequence."""
    out = np.empty(len(tables), dtype=object)
    for s, table in enumerate(tables):
        out[s] = table
    return out


def _likeliest(chains: Chains, inside: np.ndarray, starts: np.ndarray) -> Segmentation:
    """The likeliest label of each step; a segment begins where that changes, or a beginning is likelier than not."""
    codes = best_marginals(inside)
    rows = np.arange(len(codes))
    begins = starts[rows, codes] > 0.5 * inside[rows, codes]
    begins[1:] |= codes[1:] != codes[:-1]
    begins[chains.offsets[:-1][chains.lengths > 0]] = True
    start = np.flatnonzero(begins)
    return Segmentation(chains, start, np.append(start, len(codes))[1:], codes[start])
