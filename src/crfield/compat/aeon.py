"""aeon: a supervised segmenter that labels every time point by a chain.

aeon's segmenters find where a series changes; labels of a person can be learnt only by those that take ``y``. This
one takes one labelled series and labels others, ``returns_dense=False`` in aeon's words: a label for every time
point, so that the same activity has the same number wherever it comes again.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.estimators.chain.crf import ChainCRF

try:
    from aeon.segmentation.base import BaseSegmenter
except ImportError as error:  # pragma: no cover - told to whoever has no aeon
    raise ImportError("crfield.compat.aeon needs aeon: pip install 'crfield[motions]'.") from error


class ChainSegmenter(BaseSegmenter):
    """Label every time point of a series by a chain CRF that was trained on another.

    Parameters
    ----------
    estimator : chain model of crfield, optional
        What is trained; ``ChainCRF(standardize=True)`` by default. With ``features=SensorFeatures(…)`` it sees
        windows.

    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1, 0, 2], 50)
    >>> X = np.stack([y, -y]) + 0.3 * rng.normal(size=(2, 200))
    >>> found = ChainSegmenter().fit_predict(X, y)
    >>> bool((found == y).mean() > 0.95)
    True
    """

    _tags = {  # noqa: RUF012  (as aeon reads it)
        "capability:multivariate": True,
        "fit_is_empty": False,
        "requires_y": True,
        "returns_dense": False,
    }

    def __init__(self, estimator: Any = None) -> None:
        self.estimator = estimator
        super().__init__(axis=0)

    def _fit(self, X: np.ndarray, y: Any) -> ChainSegmenter:
        from sklearn.base import clone

        labels = np.asarray(y).reshape(-1)
        if len(labels) != len(X):
            raise ValueError(f"y must have a label for each of {len(X)} time points, got {len(labels)}.")
        model = ChainCRF(standardize=True) if self.estimator is None else clone(self.estimator)
        self.estimator_ = model.fit([_rows(X)], [labels.astype(np.int64).tolist()])
        return self

    def _predict(self, X: np.ndarray) -> np.ndarray:
        labels = self.estimator_.predict([_rows(X)])[0]
        return np.asarray(labels.tolist(), dtype=np.int64)

    @classmethod
    def _get_test_params(cls, parameter_set: str = "default") -> dict[str, Any]:
        return {"estimator": ChainCRF(standardize=True, max_iter=5, tol=0.1)}


def _rows(X: np.ndarray) -> np.ndarray:
    """(T, D) whatever the number of channels."""
    X = np.asarray(X, dtype=np.float64)
    return X[:, None] if X.ndim == 1 else X
