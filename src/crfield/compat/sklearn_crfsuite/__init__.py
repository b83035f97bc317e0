"""The names of sklearn-crfsuite (Korobov 2015): ``CRF``, ``metrics``, ``scorers``, ``utils``.

    import crfield.compat.sklearn_crfsuite as sklearn_crfsuite

and a script written for that package runs, trained by the engine of this one. `CRF` says what is the same and what
is not.
"""

from crfield.compat.sklearn_crfsuite import metrics, scorers, utils
from crfield.compat.sklearn_crfsuite.estimator import CRF

__all__ = ["CRF", "metrics", "scorers", "utils"]
