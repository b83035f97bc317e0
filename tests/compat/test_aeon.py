"""aeon: a segmenter by its own rules, with the labels of the chain inside."""

from __future__ import annotations

import numpy as np
import pytest

import crfield

pytest.importorskip("aeon")

from crfield.compat.aeon import ChainSegmenter

RNG = np.random.default_rng(0)
Y = np.repeat([0, 2, 0, 1], 60)
X = np.stack([Y, Y**2, -Y]) + 0.4 * RNG.normal(size=(3, len(Y)))


def test_labels_are_those_of_the_chain() -> None:
    found = ChainSegmenter().fit(X, Y).predict(X)
    chain = crfield.ChainCRF(standardize=True).fit([X.T], [Y.tolist()])
    assert found.tolist() == chain.predict([X.T])[0].tolist()
    assert (found == Y).mean() > 0.95
    assert ChainSegmenter().fit(X.T, Y, axis=0).predict(X.T, axis=0).tolist() == found.tolist()


def test_one_channel_other_models_and_what_is_refused() -> None:
    segmenter = ChainSegmenter(crfield.HMM())
    assert (segmenter.fit_predict(X[0], Y) == Y).mean() > 0.9
    assert segmenter.get_params()["estimator"] is not segmenter.estimator_
    with pytest.raises(ValueError, match="a label for each of 240"):
        ChainSegmenter().fit(X, Y[:10])
    with pytest.raises(ValueError, match="requires_y"):
        ChainSegmenter().fit(X)
