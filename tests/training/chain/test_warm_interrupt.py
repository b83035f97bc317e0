"""Ctrl-C while the stochastic epochs run: what they learnt is kept, and its objective is the whole one."""

from __future__ import annotations

import numpy as np
import pytest

import crfield
from crfield.errors import ConvergenceWarning
from crfield.training.likelihood import FusedChain


@pytest.mark.parametrize("epoch", [1, 3])
def test_epochs_so_far_are_kept(epoch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    phrases = crfield.make_phrases(400)
    X = [crfield.phrase_features(tokens) for tokens in phrases.tokens]
    plain, done = FusedChain.descend, []

    def descend(self: FusedChain, weights: np.ndarray, order: np.ndarray, **options: float) -> float:
        loss = plain(self, weights, order, **options)
        if len(order) == self.n_groups:  # trial steps of the search see only some groups
            done.append(loss)
            if len(done) == epoch:
                raise KeyboardInterrupt
        return loss

    monkeypatch.setattr(FusedChain, "descend", descend)
    with pytest.warns(ConvergenceWarning, match="best weights so far"):
        model = crfield.ChainCRF(solver="warm").fit(X, phrases.labels)
    assert model.stop_reason_ == "interrupted"
    assert np.abs(model.coef_).max() > 0.1
    ridge = 0.5 * float(model.coef_ @ model.coef_)
    assert model.objective_ == pytest.approx(ridge - model.log_prob(X, phrases.labels).sum(), rel=1e-9)
