"""`HMM` on sequences with missing cells: every answer by enumeration of labellings with densities of scipy."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.neighbors import KernelDensity

import crfield
from crfield import HMM, ChainCRF
from crfield.errors import FeatureError, InputError
from tests.scoring.test_missing_cells import families, marginal_log_density

KINDS = tuple(families())


def world(kind: str, n: int = 12, share: float = 0.25, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Two labels that last, three columns that tell them apart, and holes."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels = np.repeat(rng.integers(2, size=3), 4)
        rows = 1.5 * labels[:, None] + rng.normal(size=(12, 3))
        if kind == "categorical":
            rows = np.clip(np.round(rows + 1), 0, 3)
        rows[rng.random(rows.shape) < share] = np.nan
        rows[rng.integers(12)] = np.nan
        X.append(rows)
        y.append(labels)
    return X, y


@pytest.mark.parametrize("kind", KINDS)
def test_answers_by_enumeration(kind: str, tmp_path: Path) -> None:
    X, y = world(kind)
    model = HMM(kind).fit(X, y)
    x = X[0][:5].copy()
    x[2] = np.nan
    assert np.isnan(x).sum() > 3
    joint = {}
    for path in product(range(2), repeat=5):
        total = np.log(model.start_probabilities_[path[0]])
        total += sum(np.log(model.transition_probabilities_[a, b]) for a, b in pairwise(path))
        total += sum(marginal_log_density(model.emissions_, x[t], c) for t, c in enumerate(path))
        joint[path] = float(np.exp(total))
    whole = sum(joint.values())
    assert model.log_likelihood([x])[0] == pytest.approx(np.log(whole), rel=1e-11)
    shares = np.zeros((5, 2))
    for path, p in joint.items():
        shares[np.arange(5), path] += p / whole
    np.testing.assert_allclose(model.predict_proba([x])[0], shares, rtol=1e-9)
    assert model.predict([x])[0].tolist() == shares.argmax(axis=1).tolist()
    best = max(joint, key=lambda path: joint[path])
    assert model.log_prob([x], [list(best)])[0] == pytest.approx(np.log(joint[best] / whole), rel=1e-9)
    total, labels = model.best_labellings([x])
    assert (total[0], labels[0].tolist()) == (pytest.approx(np.log(joint[best]), rel=1e-10), list(best))
    # a step of which nothing is known counts for nothing: the chain passes through it
    np.testing.assert_allclose(model.log_likelihood([np.full((3, 3), np.nan)]), 0.0, atol=1e-12)
    # a stream is the same filter
    stream = model.stream()
    for t in range(5):
        now = stream.push(x[t]).probabilities
        np.testing.assert_allclose(now, model.predict_proba([x[: t + 1]])[0][-1], rtol=1e-9)
    model.save(tmp_path / "model.crfield")
    loaded = crfield.load(tmp_path / "model.crfield")
    np.testing.assert_array_equal(loaded.log_likelihood(X), model.log_likelihood(X))


@pytest.mark.parametrize("kind", KINDS)
def test_baum_welch_climbs_over_holes(kind: str) -> None:
    X, y = world(kind, 8)
    few = [[None if t % 3 else int(c) for t, c in enumerate(labels)] for labels in y]
    model = HMM(kind, training="em", n_init=1, max_iter=6, tol=1e-12, random_state=1)
    with pytest.warns(crfield.errors.ConvergenceWarning):
        model.fit(X, few)
    values = [step.value for step in model.history_]
    assert (np.diff(values) <= 1e-9 * abs(values[0])).all()
    assert model.score(X, y) > 0.75
    known = HMM(kind, training="em", tol=1e-12, max_iter=500, n_components=1).fit(X, y)
    counted = HMM(kind, n_components=1).fit(X, y)
    np.testing.assert_allclose(known.log_likelihood(X), counted.log_likelihood(X), rtol=1e-5)


def test_states_are_found_where_nothing_is_labelled() -> None:
    X, y = world("gaussian", 20, 0.15, seed=3)
    found = HMM(training="em", n_states=2, random_state=0).fit([3.0 * x for x in X])
    right = np.mean(np.concatenate(found.predict([3.0 * x for x in X])) == np.concatenate(y))
    assert max(right, 1 - right) > 0.85


def test_without_holes_nothing_changes() -> None:
    """Complete sequences have the same bits, whatever other sequences lack."""
    X, y = world("gaussian", share=0.0)
    X = [np.where(np.isnan(x), 0.5, x) for x in X]
    model = HMM().fit(X, y)
    hole = X[0].copy()
    hole[3, 1] = np.nan
    np.testing.assert_array_equal(model.predict_proba([hole, X[1]])[1], model.predict_proba(X[1:2])[0])


def test_what_needs_every_cell_says_so() -> None:
    X, y = world("gaussian")
    with pytest.raises(InputError, match=r"discriminative.*missing.*'em'"):
        HMM(training="discriminative").fit(X, y)
    with pytest.raises(InputError, match="statistics for a chain CRF"):
        HMM().fit(X, y).statistics(X)
    symbols = world("categorical")
    trained = HMM("categorical", training="discriminative").fit(*symbols)
    assert trained.log_prob(*symbols).sum() > HMM("categorical").fit(*symbols).log_prob(*symbols).sum()
    np.testing.assert_allclose(
        trained.to_crf().log_prob(trained.statistics(symbols[0]), symbols[1]), trained.log_prob(*symbols), rtol=1e-8
    )
    never = [np.column_stack([x, np.full(len(x), np.nan)]) for x in X]
    with pytest.raises(InputError, match=r"'x\[3\]' is missing \(NaN\) at every step that is learnt from"):
        HMM().fit(never, y)
    late = [x.copy() for x in never]
    late[0][5, 3] = 1.0
    unlabelled: list[list[Any]] = [[None if t == 5 else c for t, c in enumerate(labels)] for labels in y]
    with pytest.raises(InputError, match="x\\[3\\]"):
        HMM().fit(late, unlabelled)
    HMM(training="em", n_init=1, tol=0.1).fit(late, unlabelled)
    for strict in (HMM(KernelDensity()), ChainCRF()):
        with pytest.raises(FeatureError, match=r"sequence \d+, step \d+.*nan"):
            strict.fit(X, y)
    X[2][3, 1] = np.inf
    with pytest.raises(FeatureError, match=r"sequence 2, step 3: feature 'x\[1\]'.*inf"):
        HMM().fit(X, y)
    far = HMM().fit(*world("gaussian", 4))
    with pytest.raises(FeatureError, match=r"x\[2\]"):
        far.predict([np.array([[np.nan, 0.0, 1e250]])])


def test_files_of_earlier_versions_bear_missing_cells() -> None:
    """It is the model that integrates, so that no file has to say so."""
    folder = Path(__file__).parents[2] / "stored" / "0.1.0"
    for name in ("gaussian", "full", "mixture", "categorical"):
        model = crfield.load(folder / f"hmm-{name}.crfield")
        if model.emissions_.kind != "words":
            nothing = np.full((2, model.emissions_.n_columns), np.nan)
            np.testing.assert_allclose(model.log_likelihood([nothing]), 0.0, atol=1e-12)
    with pytest.raises(FeatureError, match="must be a finite number, got nan"):
        crfield.load(folder / "chain-arrays.crfield").predict([np.full((2, 2), np.nan)])
