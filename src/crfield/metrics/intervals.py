"""How far a score may be off: intervals of ratios of counts, by drawing the sequences again.

Precision, recall, F1 and accuracy are all a ratio of two counts summed over sequences. Steps of one sequence are not
independent and sequences mostly are, so sequences are what is drawn with replacement (the bootstrap of Efron 1979):
each drawing weighs every sequence by how often it came, sums both counts and divides. Of many drawings the middle 95
% are the interval. It says what other sequences of the same sort would do to the score, and nothing of another
training. Of very few sequences a drawing knows no more than they do, and the interval is far too narrow: below eight
there is none.
"""

from __future__ import annotations

import numpy as np

from crfield.errors import ShapeError

LEVEL = 0.95
FEWEST = 8  # sequences of which there are intervals
_CELLS = 2_000_000  # weights held at once


def ratio_intervals(part: np.ndarray, whole: np.ndarray, *, n_draws: int = 500, seed: int = 0) -> np.ndarray:
    """(K, 2) low and high ends of Σ part / Σ whole for K ratios whose counts (S, K) come from S sequences.

    NaN where there are fewer than eight sequences, or where a drawing has nothing to divide by.

    >>> counts = np.array([[1.0], [1.0], [0.0], [1.0]] * 10)
    >>> ratio_intervals(counts, np.ones((40, 1))).round(2).tolist()
    [[0.6, 0.88]]
    >>> ratio_intervals(counts[:1], np.ones((1, 1))).tolist()
    [[nan, nan]]
    """
    part, whole = np.asarray(part, np.float64), np.asarray(whole, np.float64)
    if part.shape != whole.shape or part.ndim != 2:
        raise ShapeError(f"part and whole must be (sequences, ratios) alike, got {part.shape} and {whole.shape}.")
    size, count = part.shape
    if size < FEWEST:
        return np.full((count, 2), np.nan)
    rng, drawn = np.random.default_rng(seed), []
    at_once = max(_CELLS // size, 1)
    for first in range(0, n_draws, at_once):
        weight = rng.multinomial(size, np.full(size, 1.0 / size), size=min(at_once, n_draws - first)).astype(
            np.float64
        )
        with np.errstate(invalid="ignore", divide="ignore"):
            drawn.append((weight @ part) / (weight @ whole))
    ratios = np.concatenate(drawn)  # (n_draws, K)
    missing = np.isnan(ratios).mean(axis=0) > (1 - LEVEL) / 2
    ends = np.full((count, 2), np.nan)
    if not missing.all():
        tails = [(1 - LEVEL) / 2, (1 + LEVEL) / 2]
        ends[~missing] = np.nanquantile(ratios[:, ~missing], tails, axis=0).T
    return ends


def score_intervals(correct: np.ndarray, predicted: np.ndarray, support: np.ndarray, **options: int) -> np.ndarray:
    """(K, 3, 2) ends of precision, recall and F1 for K rows, from counts (S, K) of sequences.

    >>> right, said, meant = np.array([[2], [1], [2]]), np.array([[2], [2], [2]]), np.array([[2], [1], [2]])
    >>> score_intervals(right, said, meant).shape
    (1, 3, 2)
    """
    pairs = ((correct, predicted), (correct, support), (2 * correct, predicted + support))
    return np.stack([ratio_intervals(part, whole, **options) for part, whole in pairs], axis=1)
