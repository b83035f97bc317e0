"""How long segments may be and which lengths have a weight: parameters ``max_length`` and ``length_features``."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

import numpy as np

from crfield.core.checks import Check, integer, is_integer, one_of
from crfield.errors import InputError
from crfield.estimators.segments.labels import OUTSIDE, RUNS, check_segment_scheme

LONGEST = 1 << 20  # steps of a segment; more is a slip, or a model file that was edited
Lengths = int | Mapping[Hashable, int]
_LIMIT = integer(1, most=LONGEST, meaning="the most steps of a segment")


def check_max_length(name: str, given: Lengths) -> None:
    """InputError unless it is a length, or a mapping with one for each label.

    >>> check_max_length("max_length", 0)
    Traceback (most recent call last):
    crfield.errors.InputError: max_length must be an integer from 1 to 1,048,576 (the most steps of a segment), got 0.
    """
    for value in given.values() if isinstance(given, Mapping) else (given,):
        _LIMIT(name, value)


def length_limits(given: Lengths, labels: Sequence[Hashable], scheme: str) -> np.ndarray:
    """(L,) the most steps of each label; outside all spans it is one unless the dict says otherwise.

    >>> length_limits(5, ["O", "PER"], "iob2").tolist()
    [1, 5]
    >>> length_limits({"walk": 9, "sit": 3}, ["sit", "walk"], "runs").tolist()
    [3, 9]
    """
    tagged = check_segment_scheme(scheme) != RUNS
    out = []
    for label in labels:
        outside = tagged and label == OUTSIDE
        if isinstance(given, Mapping):
            if label not in given and not outside:
                raise InputError(f"max_length says nothing of the label {label!r}; it knows {list(given)[:20]}.")
            out.append(given.get(label, 1))
        else:
            out.append(1 if outside else given)
    return np.array(out, dtype=np.int32)


def _begins_bins(given: object) -> bool:
    listed = isinstance(given, Sequence | np.ndarray) and not isinstance(given, str) and len(given) > 0
    return listed and all(is_integer(cut) and cut >= 1 for cut in given)  # type: ignore[attr-defined]


length_choice = one_of("each", "none") | Check("a list of integers ≥ 1 (where bins of lengths begin)", _begins_bins)


def length_bins(given: str | Sequence[int], most: int) -> np.ndarray:
    """(D,) the bin of each length, −1 where lengths have no weight.

    >>> length_bins("each", 4).tolist(), length_bins((1, 2, 5), 6).tolist(), length_bins("none", 2).tolist()
    ([0, 1, 2, 3], [0, 1, 1, 1, 2, 2], [-1, -1])
    """
    if isinstance(given, str):
        return np.arange(most, dtype=np.int32) if given == "each" else np.full(most, -1, np.int32)
    cuts = np.unique(np.array([1, *given], dtype=np.int64))
    return (np.searchsorted(cuts, np.arange(1, most + 1), side="right") - 1).astype(np.int32)
