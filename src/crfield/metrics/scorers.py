"""The scores of this room as scikit-learn scorers.

A scorer is called with a fitted estimator, data and gold labels, and returns a number of which more is
better; hand one to ``GridSearchCV(scoring=...)`` or ``cross_val_score``. scikit-learn's own ``make_scorer``
would check and flatten labels as if they were one column, which sequences of labels are not. Scorers here
are frozen values that hold a function of this room and its options, so they pickle, copy and compare.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from crfield.core.checks import one_of
from crfield.metrics.schemes import check_mode, check_scheme_name
from crfield.metrics.scores import AVERAGES
from crfield.metrics.segment_scores import check_overlap, edit_score, segment_f1
from crfield.metrics.sequences import sequence_accuracy
from crfield.metrics.span_scores import span_f1
from crfield.metrics.tokens import label_f1, token_accuracy


@dataclass(frozen=True)
class SequenceScorer:
    """``scorer(estimator, X, y)``: the metric of what the estimator predicts for X, against y.

    >>> class Parrot:
    ...     def predict(self, X):
    ...         return X
    >>> token_accuracy_scorer(Parrot(), [["a", "b"]], [["a", "a"]])
    0.5
    """

    metric: Callable[..., float]
    options: tuple[tuple[str, Any], ...] = field(default=())

    def __call__(self, estimator: Any, X: Any, y: Iterable[Iterable[Any]]) -> float:
        return self.metric(y, estimator.predict(X), **dict(self.options))

    def __repr__(self) -> str:
        options = "".join(f", {key}={value!r}" for key, value in self.options)
        return f"SequenceScorer({self.metric.__name__}{options})"


token_accuracy_scorer = SequenceScorer(token_accuracy)
sequence_accuracy_scorer = SequenceScorer(sequence_accuracy)
edit_scorer = SequenceScorer(edit_score)


def span_f1_scorer(*, scheme: str = "iob2", mode: str = "conlleval", average: str = "micro") -> SequenceScorer:
    """Scorer of the span F1; see `span_f1`.

    >>> span_f1_scorer(scheme="bioes", mode="strict")
    SequenceScorer(span_f1, scheme='bioes', mode='strict', average='micro')
    """
    _check_average(average)
    options = (("scheme", check_scheme_name(scheme)), ("mode", check_mode(mode)), ("average", average))
    return SequenceScorer(span_f1, options)


def label_f1_scorer(*, average: str = "weighted", labels: Sequence[Hashable] | None = None) -> SequenceScorer:
    """Scorer of the label F1, over all labels or those in ``labels``; see `label_f1`.

    >>> label_f1_scorer(average="macro", labels=["N", "V"])
    SequenceScorer(label_f1, average='macro', labels=('N', 'V'))
    """
    _check_average(average)
    chosen = tuple(labels) if labels is not None and not isinstance(labels, str) else labels
    return SequenceScorer(label_f1, (("average", average), ("labels", chosen)))


def segment_f1_scorer(*, overlap: float = 0.5) -> SequenceScorer:
    """Scorer of the F1 of segments that overlap by at least so much; see `segment_f1`.

    >>> segment_f1_scorer(overlap=0.25)
    SequenceScorer(segment_f1, overlap=0.25)
    """
    return SequenceScorer(segment_f1, (("overlap", check_overlap(overlap)),))


def _check_average(average: str) -> None:
    one_of(*AVERAGES)("average", average)
