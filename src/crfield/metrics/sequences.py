"""How many sequences are right from the first step to the last.

The strictest score, and the one that Viterbi decoding maximises in expectation: a sequence counts only when
every step is right. Steps whose gold label is None are not judged; a sequence without a judged step (an
empty one, say) is left out rather than counted as a success.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from crfield.metrics.coding import UNKNOWN, code_pair
from crfield.metrics.scores import ratio


def sequence_accuracy(
    y_true: Iterable[Iterable[Any]], y_pred: Iterable[Iterable[Any]], *, zero_division: float = 0.0
) -> float:
    """Share of the sequences in which every known step is predicted right.

    >>> sequence_accuracy([["a", "b"], ["b"]], [["a", "a"], ["b"]])
    0.5
    """
    pair = code_pair(y_true, y_pred)
    known = pair.gold != UNKNOWN
    sequence = pair.topology.sequence_of_node
    judged = np.bincount(sequence[known], minlength=pair.topology.n_sequences) > 0
    wrong = known & (pair.gold != pair.predicted)
    spoilt = np.bincount(sequence[wrong], minlength=pair.topology.n_sequences) > 0
    return ratio(int((judged & ~spoilt).sum()), int(judged.sum()), zero_division)
