"""The question asked of a model, as an algebra.

A path's score is a sum of local scores, and a question about all paths is a sum over paths in some semiring.
LOG adds with log-sum-exp and so counts every path by its weight (the total is log Z, its gradient the marginal
probabilities); MAX adds with max and so keeps the best path alone (the total is its score, its gradient the
path itself, one-hot). The same recursion serves both (Goodman 1999, *Semiring parsing*).
"""

from __future__ import annotations

from enum import Enum


class Semiring(Enum):
    """How path scores are added up.

    >>> Semiring.LOG.name, Semiring("max").name
    ('LOG', 'MAX')
    """

    LOG = "log"
    MAX = "max"
