"""`ChainTagger`: a fitted chain that labels one sequence at a time.

`predict` takes a list of sequences and gives arrays, as scikit-learn's models do. For one sentence of four words the
arrays on the way there and back cost more than the answer, and a service that has one request at a time has nothing
to batch. A tagger goes from the Python objects of one sequence to label objects in one compiled call
(`crfield.kernels.tagging`) and gives a list, as python-crfsuite's does: plain labels, ready for JSON, which an array
would first have to be turned into again.

The labels are those of `predict`, always. What the kernel does not do itself (scores of trees or states, marginal
decoding, functions, sequences that must be refused or warned about) takes the way of `predict`, and its errors are
those of `predict` for a list of this one sequence.

A tagger holds a copy of the estimator, which shares the fitted model: models are values, so that nobody changes it.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from crfield.estimators.chain.answers import ChainAnswers


class ChainTagger:
    """Labels of one sequence at a time; made by ``model.tagger()``, used by any number of threads.

    >>> from crfield import ChainCRF
    >>> model = ChainCRF().fit([[["the"], ["dog"]], [["a"], ["cat"]]], [["D", "N"], ["D", "N"]])
    >>> tagger = model.tagger()
    >>> tagger.tag([["the"], ["cat"]])
    ['D', 'N']
    >>> [tagger(x) for x in ([["a"]], [])]
    [['D'], []]
    """

    __slots__ = ("_model", "_quick")

    def __init__(self, model: ChainAnswers[Any]) -> None:
        model._fitted  # noqa: B018  (what is still on disk is read now)
        self._model = copy.copy(model)
        kernel = self._model._sequence_tagger()
        self._quick = _never if kernel is None else kernel.tag

    def tag(self, x: Any) -> list[Hashable]:
        """The labels of one sequence, in any form that ``predict`` takes a list of."""
        labels = self._quick(x)
        return self._model.predict([x])[0].tolist() if labels is None else labels

    __call__ = tag

    @property
    def labels(self) -> list[Hashable]:
        """What the labels may be, in the order of ``classes_``."""
        return self._model._coder.labels

    def __reduce__(self) -> tuple[Any, ...]:
        return ChainTagger, (self._model,)

    def __repr__(self) -> str:
        return f"ChainTagger({self._model!r})"


def _never(x: Any) -> None:
    """The answer of a kernel that does nothing itself."""
