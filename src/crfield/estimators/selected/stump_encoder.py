"""`StumpEncoder`: every column becomes the one question about it that tells most about the labels.

Continuous sensor readings are hard for a linear model: what matters is often whether a value is above some level. The
papers on boosted random fields compare with "all observations" rows, in which every column is replaced by a decision
stump chosen by information gain (Fayyad & Irani 1993, *Multi-interval discretization*), and the field is then trained
by likelihood or pseudo-likelihood on the 0/1 answers:

    threshold_f = argmax_t  H(y) − Σ_side P(side) H(y | side)          x_f ↦ 1[x_f > threshold_f]

It reads flat rows, sequences and graphs (`crfield.boosting.weak_learners.stump_columns`), so
``make_pipeline(StumpEncoder(), ChainCRF())`` is a model. Cuts are looked for among quantiles
(`crfield.boosting.weak_learners.candidates`); a column that cannot be cut is left out. A missing value (NaN) answers
as is better in training, or is itself the question; in a column where nothing was missing then it answers no.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Self

import numpy as np

from crfield.boosting.weak_learners.candidates import BINS, Candidates
from crfield.boosting.weak_learners.stump_columns import (
    ONE_KIND,
    LabelledTable,
    Question,
    Questions,
    StumpColumns,
    labelled_tables,
)
from crfield.core.checks import resolve_jobs, threads
from crfield.core.estimator import TransformerMixin
from crfield.core.parameters import parameter
from crfield.errors import InputError
from crfield.estimators.base.fitted import Fitted
from crfield.kernels.boost import histograms


class StumpTransformer(TransformerMixin, Fitted[StumpColumns], model=StumpColumns):
    """Columns to the answers of stumps: flat rows, sequences and graphs in and out.

    A subclass chooses the questions about rows of a kind, and says what each is worth: ``_choose``.
    """

    max_bins: int = parameter(BINS, default=32)
    n_jobs: int | None = parameter(threads, default=None)
    reported = ()

    def _choose(self, table: LabelledTable) -> tuple[list[Question], np.ndarray]:
        raise NotImplementedError

    def fit(self, X: Any, y: Any) -> Self:
        """Learn questions from labelled rows (N, F) and (N,), or from lists of arrays or graphs and their labels.

        Labels that are unknown (None, or a set of several) are left out.
        """
        self.check()
        if y is None:
            raise InputError(
                f"{type(self).__name__} requires y to be passed, but the target y is None: it chooses by the labels, "
                "so fit(X, y) needs y."
            )
        tables, names = labelled_tables(X, y)
        kinds = {kind: Questions(*self._choose(table), table.rows.shape[1]) for kind, table in tables.items()}
        return self._learn(StumpColumns(kinds, names))

    @property
    def questions_(self) -> Any:
        """The questions, or a dict of them by kind of nodes."""
        found = {kind: questions.asked for kind, questions in self._fitted.kinds.items()}
        return found.get(ONE_KIND, found)

    @property
    def gains_(self) -> Any:
        """What each question is worth (n,), or a dict of it by kind of nodes."""
        found = {kind: questions.worth for kind, questions in self._fitted.kinds.items()}
        return found.get(ONE_KIND, found)

    @property
    def n_features_in_(self) -> int:
        """Columns of the rows that were seen; of the first kind of nodes, where there are several."""
        return next(iter(self._fitted.kinds.values())).width

    def transform(self, X: Any) -> Any:
        """0/1 columns, in the form that X has: an array for flat rows, a list for sequences or graphs."""
        return self._fitted.transform(X, type(self).__name__)

    def get_feature_names_out(self, input_features: Iterable[str] | None = None) -> np.ndarray:
        """The questions, by names of columns if given; those of a graph's kinds one after the other."""
        given = None if input_features is None else list(input_features)
        return np.array(self._fitted.names_out(given), dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = True
        tags.input_tags.allow_nan = True
        tags.input_tags.sparse = True
        tags.input_tags.two_d_array = True
        return tags


class StumpEncoder(StumpTransformer, kind="stump_encoder"):
    """One stump for each column, chosen by information gain about the labels.

    Parameters
    ----------
    max_bins : int
        A column with more values is cut at quantiles: ``max_bins − 1`` thresholds are tried.
    n_jobs : int, optional
        Threads.

    Attributes
    ----------
    questions_ : list of Question, or a dict of lists by kind of nodes
        Column and threshold of every stump.
    gains_ : array, or a dict of arrays
        Information gain of each about the label, in nats.

    Examples
    --------
    >>> import numpy as np
    >>> from crfield import ChainCRF, StumpEncoder
    >>> from sklearn.pipeline import make_pipeline
    >>> rng = np.random.default_rng(0)
    >>> y = [rng.integers(0, 2, 30) for _ in range(6)]
    >>> X = [np.stack([3.0 * labels + rng.normal(size=30), rng.normal(size=30)], axis=1) for labels in y]
    >>> encoder = StumpEncoder().fit(X, y)
    >>> encoder.get_feature_names_out().tolist(), encoder.transform(X)[0].shape
    (['x[0] > 1.59632', 'x[1] > 0.188015'], (30, 2))
    >>> make_pipeline(StumpEncoder(), ChainCRF()).fit(X, y).score(X, y) > 0.9
    True
    """

    def _choose(self, table: LabelledTable) -> tuple[list[Question], np.ndarray]:
        jobs = resolve_jobs(self.n_jobs)
        cut = Candidates.of(table.rows, max_bins=self.max_bins, n_jobs=jobs)
        counts, offsets = class_counts(cut, table.codes, table.n_classes, n_jobs=jobs), cut.packed.offsets
        questions, gains = [], []
        for f in range(cut.n_columns):
            gain, threshold, missing = _best_threshold(counts[offsets[f] : offsets[f + 1]], cut.thresholds[f])
            if threshold is not None:
                questions.append(Question(f, threshold, missing))
                gains.append(gain)
        return questions, np.array(gains)


def class_counts(cut: Candidates, codes: np.ndarray, n_classes: int, *, n_jobs: int = 1) -> np.ndarray:
    """How many rows of each class (T, K) fall into each bin.

    >>> class_counts(Candidates.of([[0.0], [1.0], [1.0]]), np.array([0, 1, 0]), 2).tolist()
    [[1.0, 0.0], [1.0, 1.0]]
    """
    half = (n_classes + 1) // 2
    pairs = np.zeros((half, len(codes), 2))  # the kernel adds pairs: two classes at a time
    pairs[codes // 2, np.arange(len(codes)), codes % 2] = 1.0
    sums = histograms(cut.packed, pairs, n_jobs=n_jobs)
    return sums.transpose(1, 0, 2).reshape(sums.shape[1], 2 * half)[:, :n_classes].round()


def _best_threshold(counts: np.ndarray, thresholds: np.ndarray) -> tuple[float, float | None, bool]:
    """Information gain and threshold of the best cut, and whether missing values are above it.

    They go with the better side, or are the question (+∞); where that makes no difference they are not above.
    """
    n = len(thresholds) + 1
    missing = counts[n:].sum(axis=0)
    total = counts.sum(axis=0)
    above = counts[:n].sum(axis=0) - np.cumsum(counts[: n - 1], axis=0)  # (n - 1, K)
    if missing.any():
        above = np.concatenate([above, above + missing, missing[None]])
    below = total - above
    useful = (above.sum(axis=1) > 0) & (below.sum(axis=1) > 0)
    if not useful.any():
        return 0.0, None, False
    gain = np.where(useful, _disorder(total[None]) - _disorder(above) - _disorder(below), -np.inf) / total.sum()
    best = int(np.argmax(gain >= gain.max() - 1e-12))
    if best == 2 * (n - 1):
        return float(max(gain[best], 0.0)), np.inf, False
    return float(max(gain[best], 0.0)), float(thresholds[best % (n - 1)]), best >= n - 1


def _disorder(counts: np.ndarray) -> np.ndarray:
    """n · H in nats from counts (…, K)."""
    total = counts.sum(axis=-1)

    def times_log(x: np.ndarray) -> np.ndarray:
        return x * np.log(np.where(x > 0, x, 1.0))

    return np.asarray(times_log(total) - times_log(counts).sum(axis=-1))
