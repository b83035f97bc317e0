"""sklearn-crfsuite's ``utils``."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain
from typing import Any


def flatten(y: Iterable[Iterable[Any]]) -> list[Any]:
    """The labels of all sequences in one list.

    >>> flatten([["N", "V"], ["N"]])
    ['N', 'V', 'N']
    """
    return list(chain.from_iterable(y))
