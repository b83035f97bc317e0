"""`StumpEncoder`: every column becomes the one question about it that tells most about the labels.

Continuous sensor readings are hard for a linear model: what matters is often whether a value is above some level. The
papers on boosted random fields compare with "all observations" rows, in which every column is replaced by a decision
stump chosen by information gain (Fayyad & Irani 1993, *Multi-interval discretization*), and the field is then trained
by likelihood or pseudo-likelihood on the 0/1 answers:

    threshold_f = argmax_t  H(y) − Σ_side P(side) H(y | side)          x_f ↦ 1[x_f > threshold_f]

It reads flat rows, sequences and graphs (`crfield.estimators.selected.stump_columns`), so
``make_pipeline(StumpEncoder(), ChainCRF())`` is a model. Cuts are looked for among quantiles
(`crfield.boosting.weak_learners.candidates`); a column that cannot be cut is left out.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.boosting.weak_learners.candidates import Candidates
from crfield.core.checks import resolve_jobs
from crfield.core.estimator import Estimator
from crfield.estimators.selected.stump_columns import Question, StumpColumns
from crfield.kernels.boost import histograms


class StumpEncoder(StumpColumns, Estimator):
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

    file_kind = "stump_encoder"

    def __init__(self, *, max_bins: int = 32, n_jobs: int | None = None) -> None:
        self.max_bins = max_bins
        self.n_jobs = n_jobs

    def _choose(self, table: Any, codes: np.ndarray, n_classes: int) -> tuple[list[Question], np.ndarray]:
        jobs = resolve_jobs(self.n_jobs)
        cut = Candidates.of(table, max_bins=self.max_bins, n_jobs=jobs)
        counts = class_counts(cut, codes, n_classes, n_jobs=jobs)
        questions, gains = [], []
        for f in range(cut.n_columns):
            own = counts[cut.packed.offsets[f] : cut.packed.offsets[f + 1]]
            gain, threshold = _best_threshold(own, cut.thresholds[f])
            if threshold is not None:
                questions.append(Question(f, threshold))
                gains.append(gain)
        return questions, np.array(gains)

    def save(self, path: Any) -> None:
        """Write the encoder to one file, atomically; `crfield.load` reads it."""
        from crfield.estimators.boosted.boost_file import save_encoder

        save_encoder(self, path)


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


def _best_threshold(counts: np.ndarray, thresholds: np.ndarray) -> tuple[float, float | None]:
    """Information gain and threshold of the best cut; missing values count as "not above", or are the question."""
    n = len(thresholds) + 1
    missing = counts[n:].sum(axis=0)
    total = counts.sum(axis=0)
    above = counts[:n].sum(axis=0) - np.cumsum(counts[: n - 1], axis=0)  # (n - 1, K)
    if missing.any():
        above = np.concatenate([above, missing[None]])
    below = total - above
    useful = (above.sum(axis=1) > 0) & (below.sum(axis=1) > 0)
    if not useful.any():
        return 0.0, None
    gain = np.where(useful, _disorder(total[None]) - _disorder(above) - _disorder(below), -np.inf) / total.sum()
    best = int(np.argmax(gain >= gain.max() - 1e-12))
    return float(max(gain[best], 0.0)), (float(thresholds[best]) if best < n - 1 else np.inf)


def _disorder(counts: np.ndarray) -> np.ndarray:
    """n · H in nats from counts (…, K)."""
    total = counts.sum(axis=-1)

    def times_log(x: np.ndarray) -> np.ndarray:
        return x * np.log(np.where(x > 0, x, 1.0))

    return np.asarray(times_log(total) - times_log(counts).sum(axis=-1))
