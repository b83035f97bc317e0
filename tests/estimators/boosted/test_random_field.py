"""Boosted random fields: rounds that listen, replayed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import BoostedRandomField, VirtualEvidenceBoosting, chain, layers
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.responses import centred, working_responses
from crfield.boosting.weak_learners.stumps import best_stump
from crfield.errors import InputError
from crfield.simulate.order_chains import make_order_chains
from tests.cases.estimators import some_layers


def softmax(scores: np.ndarray) -> np.ndarray:
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return np.asarray(powers / powers.sum(axis=1, keepdims=True))


def summed(beliefs: np.ndarray) -> np.ndarray:
    """Beliefs of the step before and the step after, of one chain."""
    out = np.zeros_like(beliefs)
    out[1:] += beliefs[:-1]
    out[:-1] += beliefs[1:]
    return out


@pytest.mark.parametrize("learner", ["linear", "stump"])
@pytest.mark.parametrize("labels", [2, 3])
def test_the_rounds_written_out(learner: str, labels: int) -> None:
    """Torralba's algorithm with loops, against the model's beliefs on the data that it learnt from."""
    rng = np.random.default_rng(labels)
    y = np.repeat(rng.integers(0, labels, 40), 5)
    x = np.eye(labels)[y] + rng.normal(scale=1.5, size=(200, labels))
    model = BoostedRandomField(n_rounds=6, learner=learner, ridge=2.0, start="zero").fit([x], [y])
    scores, beliefs, cut = np.zeros((200, labels)), np.full((200, labels), 1.0 / labels), Candidates.of(x)
    heard: list[Any] = []
    for _ in range(6):
        weight, response = working_responses(beliefs, y)
        stump = best_stump(cut, weight, response, ridge=2.0)
        assert stump is not None
        scores += centred(stump.values)[stump.leaves(x)]
        left = response - stump.values[stump.leaves(x)]
        near = summed(beliefs)
        if learner == "linear":
            inputs = np.concatenate([near, np.ones((200, 1))], axis=1)
            values = np.stack(
                [
                    np.linalg.solve(
                        (inputs * weight[:, [c]]).T @ inputs + 2.0 * np.eye(labels + 1),
                        inputs.T @ (weight[:, c] * left[:, c]),
                    )
                    for c in range(labels)
                ],
                axis=1,
            )
            values = centred(values)
            heard.append(lambda b, v=values: np.concatenate([b, np.ones((200, 1))], axis=1) @ v)
        else:
            second = best_stump(Candidates.of(near), weight, left, ridge=2.0)
            assert second is not None
            heard.append(lambda b, s=second: centred(s.values)[s.leaves(b)])
        beliefs = softmax(scores + sum(g(near) for g in heard))
    np.testing.assert_allclose(model.predict_proba([x])[0], beliefs, rtol=0, atol=1e-8)
    assert model.rounds_[-1].nll == pytest.approx(-np.log(beliefs[np.arange(200), y]).mean(), abs=1e-8)


def test_neighbours_help_and_virtual_evidence_helps_more() -> None:
    """Strong coupling, weak observations: beliefs of neighbours alone fall short of messages."""
    data = make_order_chains(0.99, n_chains=5, length=1_000, random_state=3)
    X, y = data.features, data.labels
    alone = VirtualEvidenceBoosting(mode="paper", relations=()).fit(X[1:], y[1:]).score(X[:1], y[:1])
    linear, stump = (
        BoostedRandomField(learner=learner).fit(X[1:], y[1:]).score(X[:1], y[:1]) for learner in ("linear", "stump")
    )
    virtual = VirtualEvidenceBoosting(decode="marginal").fit(X[1:], y[1:]).score(X[:1], y[:1])
    assert min(stump, virtual) > max(alone, linear) + 0.05


def test_kinds_relations_and_files(tmp_path: Path) -> None:
    X, y = some_layers(12, 0)
    graphs = [layers({"motion": x, "place": len(x)}) for x in X]
    labels = [{"motion": a[:, 0].tolist(), "place": a[:, 1].tolist()} for a in y]
    for learner in ("linear", "stump"):
        model = BoostedRandomField(n_rounds=15, learner=learner).fit(graphs, labels)
        assert model.score(graphs, labels) > 0.7
        assert any("motion-place" in pick for pick in model.rounds_.picks)
        model.save(tmp_path / "field.crfield")
        copy = crfield.load(tmp_path / "field.crfield")
        for one, other in zip(copy.predict_proba(graphs), model.predict_proba(graphs), strict=True):
            assert np.array_equal(one, other)
        assert copy.rounds_ == model.rounds_
    only = BoostedRandomField(n_rounds=5, relations=["place+1"]).fit(graphs, labels)
    assert not any("motion-place" in pick for pick in only.rounds_.picks)


def test_prior_and_refusals() -> None:
    X = [chain(np.zeros((4, 1)), symmetric=True)]
    model = BoostedRandomField(n_rounds=3).fit(X, [["a", "b", "b", "b"]])
    np.testing.assert_allclose(model.predict_proba(X)[0].sum(axis=1), 1.0)
    assert model.predict(X)[0].tolist() == ["b"] * 4
    for options, word in (({"learner": "tree"}, "learner"), ({"ridge": -1}, "ridge"), ({"start": None}, "start")):
        with pytest.raises(InputError, match=word):
            BoostedRandomField(**options).fit(X, [["a", "b", "b", "b"]])
