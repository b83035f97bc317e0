"""sklearn-crfsuite's scores: scikit-learn's on the labels of all sequences laid end to end.

They take lists, arrays of lists and what `ChainCRF.predict` returns. `crfield.metrics` has more: spans, segments,
reports of its own.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Any

import numpy as np

from crfield.compat.sklearn_crfsuite.utils import flatten
from crfield.errors import ShapeError

Labelled = Sequence[Iterable[Any]] | np.ndarray


def flat_accuracy_score(y_true: Labelled, y_pred: Labelled) -> float:
    """Share of the steps whose label is right.

    >>> flat_accuracy_score([["N", "V"], ["N"]], [["N", "N"], ["N"]])
    0.6666666666666666
    """
    from sklearn.metrics import accuracy_score

    return float(accuracy_score(*_flat(y_true, y_pred)))


def flat_precision_score(y_true: Labelled, y_pred: Labelled, **options: Any) -> Any:
    """`sklearn.metrics.precision_score` of the steps.

    >>> flat_precision_score([["N", "V"]], [["N", "N"]], pos_label="N")
    0.5
    """
    from sklearn.metrics import precision_score

    return precision_score(*_flat(y_true, y_pred), **options)


def flat_recall_score(y_true: Labelled, y_pred: Labelled, **options: Any) -> Any:
    """`sklearn.metrics.recall_score` of the steps.

    >>> flat_recall_score([["N", "V"]], [["N", "N"]], pos_label="N")
    1.0
    """
    from sklearn.metrics import recall_score

    return recall_score(*_flat(y_true, y_pred), **options)


def flat_f1_score(y_true: Labelled, y_pred: Labelled, **options: Any) -> Any:
    """`sklearn.metrics.f1_score` of the steps.

    >>> flat_f1_score([["O", "N", "V"]], [["O", "N", "N"]], average="micro", labels=["N", "V"])
    0.5
    """
    from sklearn.metrics import f1_score

    return f1_score(*_flat(y_true, y_pred), **options)


def flat_fbeta_score(y_true: Labelled, y_pred: Labelled, beta: float, **options: Any) -> Any:
    """`sklearn.metrics.fbeta_score` of the steps.

    >>> round(flat_fbeta_score([["N", "V"]], [["N", "N"]], 2, pos_label="N"), 4)
    0.8333
    """
    from sklearn.metrics import fbeta_score

    return fbeta_score(*_flat(y_true, y_pred), beta=beta, **options)


def flat_classification_report(
    y_true: Labelled, y_pred: Labelled, labels: Sequence[Hashable] | None = None, **options: Any
) -> Any:
    """`sklearn.metrics.classification_report` of the steps.

    >>> print(flat_classification_report([["N", "V"]], [["N", "V"]], labels=["V"], digits=1).splitlines()[2].split())
    ['V', '1.0', '1.0', '1.0', '1']
    """
    from sklearn.metrics import classification_report

    return classification_report(*_flat(y_true, y_pred), labels=labels, **options)


def sequence_accuracy_score(y_true: Labelled, y_pred: Labelled) -> float:
    """Share of the sequences that are right from the first step to the last; 0 where there are none.

    >>> sequence_accuracy_score([["N", "V"], ["N"]], [["N", "N"], ["N"]])
    0.5
    """
    if len(y_true) != len(y_pred):
        raise ShapeError(
            f"y_true has {len(y_true)} sequences and y_pred {len(y_pred)}: give both one entry for each."
        )
    right = sum(list(true) == list(found) for true, found in zip(y_true, y_pred))
    return right / len(y_true) if len(y_true) else 0.0


def _flat(y_true: Labelled, y_pred: Labelled) -> tuple[list[Any], list[Any]]:
    return flatten(y_true), flatten(y_pred)
