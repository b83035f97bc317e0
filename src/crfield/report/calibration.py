"""Calibration: a reliability table of a model's marginal probabilities.

Steps are put into bins by the probability of their predicted label. In a calibrated model the share of right labels
in a bin is the mean probability in it; the *expected calibration error* is the mean distance of the two, weighted by
the size of the bins (Niculescu-Mizil & Caruana 2005; Guo et al. 2017). Spans have probabilities too, and the table
takes any pairs of probability and outcome.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from crfield.core.checks import integer
from crfield.errors import InputError, ShapeError
from crfield.metrics.notebook import ShownAsTables, Table


@dataclass(frozen=True, eq=False)
class Reliability(ShownAsTables):
    """Bins of probability: how many, how sure on average, how often right."""

    edges: np.ndarray  # (K + 1,)
    count: np.ndarray  # (K,) int
    confidence: np.ndarray  # (K,) mean probability, NaN in empty bins
    accuracy: np.ndarray  # (K,) share of right ones, NaN in empty bins

    @property
    def error(self) -> float:
        """Expected calibration error, Σ count |accuracy − confidence| / Σ count; 0 without any."""
        filled = self.count > 0
        gap = np.abs(self.accuracy[filled] - self.confidence[filled])
        return float(self.count[filled] @ gap / self.count.sum()) if filled.any() else 0.0

    def rows(self) -> list[dict[str, float]]:
        """One dict for every bin that is not empty."""
        return [
            {"from": low, "to": high, "count": int(n), "probability": p, "right": r}
            for low, high, n, p, r in zip(
                self.edges[:-1].tolist(),
                self.edges[1:].tolist(),
                self.count.tolist(),
                self.confidence.tolist(),
                self.accuracy.tolist(),
            )
            if n
        ]

    def _tables(self) -> list[Table]:
        note = f"expected calibration error {self.error:.4f}"
        return [Table.of_dicts(self.rows(), ("from", "to", "count", "probability", "right"), left=0, note=note)]

    def __repr__(self) -> str:
        lines = ["probability     count   mean p  right"]
        lines += [
            f"{r['from']:.2f} – {r['to']:.2f} {r['count']:>9,}   {r['probability']:.3f}   {r['right']:.3f}"
            for r in self.rows()
        ]
        return "\n".join([*lines, f"expected calibration error {self.error:.4f}"])


def reliability(probability: Iterable[float], right: Iterable[bool], *, bins: int = 10) -> Reliability:
    """The table of given probabilities and of whether each came true.

    >>> table = reliability([0.9, 0.8, 0.9, 0.2], [True, True, False, False], bins=5)
    >>> table
    probability     count   mean p  right
    0.20 – 0.40         1   0.200   0.000
    0.80 – 1.00         3   0.867   0.667
    expected calibration error 0.2000
    """
    integer(1)("bins", bins)
    p = np.asarray(list(probability), dtype=np.float64)
    hit = np.asarray(list(right), dtype=bool)
    if p.shape != hit.shape:
        raise ShapeError(f"there must be one outcome for each of {len(p)} probabilities, got {len(hit)}.")
    if len(p) and not (p.min() >= 0 and p.max() <= 1 + 1e-9):
        raise InputError("probabilities must lie in 0 … 1.")
    place = np.minimum((p * bins + 1e-9).astype(np.int64), bins - 1)
    count = np.bincount(place, minlength=bins)
    with np.errstate(invalid="ignore"):
        confidence = np.bincount(place, weights=p, minlength=bins) / count
        accuracy = np.bincount(place, weights=hit, minlength=bins) / count
    return Reliability(np.linspace(0.0, 1.0, bins + 1), count, confidence, accuracy)


def label_reliability(model: Any, X: Any, y: Any, *, bins: int = 10) -> Reliability:
    """The table of a fitted chain model's marginals: the most probable label of every step, unknown steps left out.

    >>> import crfield
    >>> X, y = [[["a"], ["b"], ["a"]]], [["A", "B", "A"]]
    >>> label_reliability(crfield.ChainCRF(l2=0.1).fit(X, y), X, y, bins=2).count.tolist()
    [0, 3]
    """
    tables = model.predict_proba(X)
    if len(tables) != len(y):
        raise ShapeError(f"y must have one list of labels for each of {len(tables)} sequences, got {len(y)}.")
    labels = list(model.classes_)
    chances: list[float] = []
    hits: list[bool] = []
    for s, (table, truth) in enumerate(zip(tables, y)):
        if len(table) != len(truth):
            raise ShapeError(f"sequence {s} has {len(table)} steps but {len(truth)} labels.")
        best = table.argmax(axis=1)
        for row, k, gold in zip(table, best.tolist(), truth):
            if gold is not None:
                chances.append(float(row[k]))
                hits.append(labels[k] in gold if isinstance(gold, set | frozenset) else bool(labels[k] == gold))
    return reliability(np.minimum(chances, 1.0), hits, bins=bins)
