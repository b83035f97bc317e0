"""One label for a sequence: enumeration, slopes, the chain of pairs, and the manners of a classifier."""

from __future__ import annotations

import contextlib
import io
import pickle
import random
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_classifier
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.validation import check_is_fitted

import crfield
from crfield import HiddenCRF
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import UNKNOWN, Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import (
    CrfieldError,
    FeatureError,
    InputError,
    LabelError,
    ModelFileError,
    NotFittedError,
    ShapeError,
)
from crfield.estimators.latent.model import with_window
from crfield.inference.chain import ChainEngine
from crfield.objectives.contrast import Contrast
from crfield.optimize.penalty import Penalty
from crfield.scoring.latent import ClassScorer
from crfield.training.latent.best import fit_start
from crfield.training.latent.classes import HiddenClasses, weighed_beliefs
from crfield.training.latent.em import fit_em
from tests.cases.estimators import KINDS, Kind
from tests.cases.model_file_fuzz import edited
from tests.estimators.latent.test_latent_dynamic import slopes_along

LENGTHS = (3, 1, 0, 2)


def small_problem(*, partial: bool = False, weighted: bool = False) -> HiddenClasses:
    """Three classes, two states, chains of lengths 3, 1, 0 and 2, with sparse and dense columns."""
    rng = np.random.default_rng(4)
    columns = Columns(
        np.arange(0, 13, 2), rng.integers(0, 4, 12).astype(np.int32), 4, rng.normal(size=12), rng.normal(size=(6, 2))
    )
    batch = Batch(Chains.from_lengths(list(LENGTHS)), columns)
    allowed = np.eye(3, dtype=bool)[[0, 2, 1, 1]]
    if partial:
        allowed[0] = [True, True, False]
        allowed[1] = True
    scorer = ClassScorer.of_batch(batch, n_classes=3, n_states=2)
    return HiddenClasses(scorer, batch, allowed, np.array([0.5, 2.0, 1.0, 1.5]) if weighted else None)


def joint_scores(problem: HiddenClasses, weights: np.ndarray) -> list[dict[tuple[int, tuple[int, ...]], float]]:
    """Score of every (class, path of states) of every sequence, written down from the formula."""
    states, classes = 2, 3
    node = problem.batch.node
    dense = np.zeros((node.n_rows, 4))
    for row, (start, stop) in enumerate(pairwise(node.indptr)):
        np.add.at(dense[row], node.indices[start:stop], node.values[start:stop])  # type: ignore[index]
    x = np.concatenate([dense, node.dense], axis=1)  # type: ignore[list-item]
    theta_h = weights[:12].reshape(6, states)
    theta_yh = weights[12:18].reshape(classes, states)
    theta_yhh = weights[18:].reshape(classes, states, states)
    out = []
    for start, stop in pairwise(problem.batch.topology.offsets):
        found = {}
        for y, path in product(range(classes), product(range(states), repeat=int(stop - start))):
            found[y, path] = float(
                sum(x[start + t] @ theta_h[:, h] + theta_yh[y, h] for t, h in enumerate(path))
                + sum(theta_yhh[y, a, b] for a, b in pairwise(path))
            )
        out.append(found)
    return out


def courses(n: int, seed: int, *, length: int = 8) -> tuple[list[np.ndarray], np.ndarray]:
    """Sequences that go up, come down, or do both: the same values in another order."""
    rng = np.random.default_rng(seed)
    line = np.linspace(-1, 1, length)
    shapes = {"up": line, "down": -line, "both": 1 - 2 * np.abs(line)}
    y = rng.permutation(np.resize(list(shapes), n))
    return [shapes[label][:, None] + rng.normal(scale=0.3, size=(length, 1)) for label in y], y


# ------------------------------------------------------------------------------------------------------ mathematics


@pytest.mark.parametrize("partial", [False, True], ids=["gold", "partial"])
@pytest.mark.parametrize("weighted", [False, True], ids=["plain", "weighted"])
def test_halves_equal_enumeration_and_slopes_their_differences(partial: bool, weighted: bool) -> None:
    problem = small_problem(partial=partial, weighted=weighted)
    rng = np.random.default_rng(0)
    weights, directions = rng.normal(size=problem.n_weights), rng.normal(size=(6, problem.n_weights))
    free = clamped = 0.0
    for scores, allowed, weight in zip(joint_scores(problem, weights), problem.allowed, problem.weight):
        own = [score for (y, _), score in scores.items() if allowed[y]]
        free += weight * np.logaddexp.reduce(list(scores.values()))
        clamped += weight * np.logaddexp.reduce(own)
    gradient = np.empty(problem.n_weights)
    for function, wanted in (
        (problem.free, free),
        (problem.clamped, clamped),
        (problem.evaluate, free - clamped),
    ):
        assert function(weights, gradient) == pytest.approx(wanted, rel=1e-12)
        np.testing.assert_allclose(directions @ gradient, slopes_along(function, weights, directions), atol=1e-6)


def test_it_is_the_contrast_of_a_chain_over_pairs_of_class_and_state() -> None:
    """The one formula, free total − clamped total, with pairs (class, state) whose class never changes."""
    problem = small_problem(partial=True, weighted=True)
    weights = np.random.default_rng(1).normal(size=problem.n_weights)
    scorer, chains = problem.scorer, problem.batch.topology
    shared = scorer.shared(weights, problem.batch)
    node_tables, edge_tables = scorer.tables(weights)
    edge = np.full((6, 6), -np.inf)
    for k in range(3):
        edge[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] = edge_tables[k]
    pairs = Potentials(np.tile(shared, 3) + node_tables.reshape(-1), edge[None], chains).each()
    allowed = np.repeat(problem.allowed[chains.sequence_of_node], 2, axis=1)
    target = Target(chains, 6, np.full(chains.n_nodes, UNKNOWN), allowed, problem.weight)
    found = Contrast().evaluate(pairs, target, ChainEngine())
    gradient = np.empty(problem.n_weights)
    # The empty sequence is a matter of taste: here every class is as probable, there the empty path is the only one.
    empty = problem.weight[2] * np.log(3)
    assert problem.evaluate(weights, gradient) - empty == pytest.approx(found.value, rel=1e-10)
    np.testing.assert_allclose(gradient[12:18], found.node.sum(axis=0), atol=1e-10)
    blocks = [found.edge.sum(axis=0)[2 * k : 2 * k + 2, 2 * k : 2 * k + 2] for k in range(3)]
    np.testing.assert_allclose(gradient[18:].reshape(3, 2, 2), blocks, atol=1e-10)


def test_chains_are_weighed_exactly_however_little_they_count() -> None:
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths([3, 1, 0, 2, 40, 4])
    scores = Potentials(rng.normal(scale=30, size=(chains.n_nodes, 3)), rng.normal(size=(1, 3, 3)), chains)
    plain = ChainEngine().infer(scores.each(), Semiring.LOG)
    share, weight = np.array([0.5, 1e-200, 0.3, 0.0, 1.0, 1e-9]), np.array([1.0, 2.0, 1.0, 1.0, 0.25, 2.0])
    node, edge = weighed_beliefs(scores, plain.total, share, weight)
    count = share * weight
    np.testing.assert_allclose(node, count[chains.sequence_of_node][:, None] * plain.node, rtol=1e-9, atol=1e-300)
    np.testing.assert_allclose(edge, np.tensordot(count[chains.sequence_of_edge], plain.edge, axes=1), rtol=1e-9)
    none = weighed_beliefs(scores, plain.total, share, np.zeros(6))
    assert not none[0].any()
    assert not none[1].any()


def test_one_state_is_logistic_regression_on_sums() -> None:
    """With a single state θ(h) is the same for all classes and drops out: what is left knows only lengths."""
    X, y = courses(12, 0)
    model = HiddenCRF(n_states=1, l2=0.1).fit(X, y)
    np.testing.assert_allclose(model.predict_proba(X[:1]), model.predict_proba([X[0] + 1.0]), atol=1e-12)


def test_em_never_falls_back_and_ends_where_gradients_do() -> None:
    problem, penalty = small_problem(weighted=True), Penalty(l2=0.1)
    start = np.random.default_rng(3).normal(size=problem.n_weights)
    em = fit_em(problem, penalty, start, tol=1e-12, max_iter=400, m_steps=3)
    values = np.array([step.value for step in em.history])
    assert len(values) > 10
    assert (np.diff(values) <= 0).all()
    gradient = np.empty(problem.n_weights)
    problem.evaluate(em.weights, gradient)
    np.testing.assert_allclose(gradient + 0.1 * em.weights, 0, atol=1e-4)
    steps = fit_start(problem, penalty, start, "gradient", 1e-10, 500)
    assert (np.diff([step.value for step in steps.history]) <= 0).all()


# -------------------------------------------------------------------------------------------------------- behaviour


def test_learns_the_order_of_values() -> None:
    model = HiddenCRF(n_states=3, l2=0.1).fit(*courses(60, 0))
    assert model.score(*courses(60, 1)) >= 0.97
    assert model.converged_
    assert model.objective_ == model.start_objectives_.min()
    assert model.class_states_.shape == (3, 3)
    assert model.class_transitions_.shape == (3, 3, 3)
    for values in (model.coef_, model.class_states_, model.class_transitions_):
        with pytest.raises(ValueError, match="read-only"):
            values[0] = 1.0
    X, _ = courses(5, 2)
    states = model.predict_states(X)
    assert [path.shape for path in states] == [(8,)] * 5
    assert 0 <= min(path.min() for path in states) <= max(path.max() for path in states) < 3


def test_manners_of_a_classifier() -> None:
    X, y = courses(30, 0)
    model = HiddenCRF(n_states=2, n_init=1)
    assert is_classifier(model)
    assert repr(model.set_params(l2=0.5)) == "HiddenCRF(l2=0.5, n_init=1, n_states=2)"
    for ask in (model.predict, model.predict_proba, model.predict_states, model.decision_function):
        with pytest.raises(NotFittedError, match="HiddenCRF is not fitted yet"):
            ask(X)
    assert model.fit(X, y) is model
    check_is_fitted(model)
    assert model.classes_.tolist() == ["both", "down", "up"]
    p = model.predict_proba(X)
    assert p.shape == (30, 3)
    np.testing.assert_allclose(p.sum(axis=1), 1, atol=1e-12)
    np.testing.assert_allclose(np.log(p), model.predict_log_proba(X), atol=1e-10)
    assert (model.predict(X) == model.classes_[p.argmax(axis=1)]).all()
    assert model.score(X, y) == (model.predict(X) == y).mean()
    weight = np.arange(30.0)
    assert model.score(X, y, sample_weight=weight) == pytest.approx(
        np.average(model.predict(X) == y, weights=weight), abs=1e-12
    )
    np.testing.assert_allclose(
        model.log_prob(X, y), np.log(p[np.arange(30), np.searchsorted(model.classes_, y)]), atol=1e-10
    )
    assert model.predict([]).shape == (0,)
    assert model.predict_proba([]).shape == (0, 3)
    twin = clone(model)
    assert vars(twin).keys() == twin.get_params().keys()
    assert (pickle.loads(pickle.dumps(model)).predict_proba(X) == p).all()
    assert (twin.fit(X, y).predict_proba(X) == p).all()
    search = GridSearchCV(twin, {"n_states": [1, 2]}, cv=2).fit(X, y)
    assert search.best_params_ == {"n_states": 2}
    assert cross_val_score(twin, X, y, cv=2, scoring="neg_log_loss").max() < 0


def test_weights_of_sequences() -> None:
    X, y = courses(20, 0)
    weight = np.ones(20)
    weight[3] = 0.0
    rest = [k for k in range(20) if k != 3]
    kept = HiddenCRF(n_states=2, n_init=1).fit(X, y, sample_weight=weight)
    without = HiddenCRF(n_states=2, n_init=1).fit([X[k] for k in rest], y[rest])
    np.testing.assert_allclose(kept.predict_proba(X), without.predict_proba(X), atol=1e-9)
    twice = HiddenCRF(n_states=2, n_init=1, tol=1e-9).fit([*X, X[0]], [*y, y[0]])
    heavy = HiddenCRF(n_states=2, n_init=1, tol=1e-9).fit(X, y, sample_weight=[2.0] + [1.0] * 19)
    np.testing.assert_allclose(heavy.predict_proba(X), twice.predict_proba(X), atol=1e-3)


def test_labels_that_are_partly_known() -> None:
    X, y = courses(24, 0)
    some: list[Any] = list(y)
    some[0], some[1] = None, {"up", "down"}
    model = HiddenCRF(n_states=2, n_init=1).fit(X, some)
    assert model.log_prob(X[:1], [None])[0] == pytest.approx(0, abs=1e-12)
    both = model.log_prob(X[:1], [{"up", "down"}])[0]
    assert both == pytest.approx(np.log(1 - model.predict_proba(X[:1])[0, 0]), abs=1e-10)
    assert model.score(X[:2], [None, y[1]]) == model.score(X[1:2], y[1:2])
    without = HiddenCRF(n_states=2, n_init=1).fit([x for k, x in enumerate(X) if k], some[1:])
    np.testing.assert_allclose(model.predict_proba(X), without.predict_proba(X), atol=1e-6)


def test_empty_short_single_and_constant() -> None:
    X, y = courses(12, 0)
    model = HiddenCRF(n_states=2, n_init=1).fit([*X, np.zeros((0, 1)), X[0][:1]], [*y, "up", "down"])
    np.testing.assert_allclose(model.predict_proba([np.zeros((0, 1))]), 1 / 3, atol=1e-12)
    one = HiddenCRF(n_states=2, n_init=1).fit(X, ["same"] * 12)
    assert one.predict(X).tolist() == ["same"] * 12
    assert one.score(X, ["same"] * 12) == 1.0
    constant = HiddenCRF(n_states=2, n_init=1, standardize=True).fit([np.ones((3, 2))] * 4, [0, 1, 0, 1])
    np.testing.assert_allclose(constant.predict_proba([np.ones((3, 2))]), 0.5, atol=1e-3)


@pytest.mark.parametrize("sparse", [False, True], ids=["dense", "sparse"])
def test_windows(sparse: bool) -> None:
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 2, (n, 3)).astype(float) for n in (4, 1, 3, 5)]
    y = ["a", "b", "a", "b"]
    beside = [
        np.concatenate([x, np.pad(x, ((1, 0), (0, 0)))[:-1], np.pad(x, ((0, 1), (0, 0)))[1:]], axis=1) for x in X
    ]
    if sparse:
        import scipy.sparse as sp

        X, beside = [sp.csr_array(x) for x in X], [sp.csr_array(x) for x in beside]
    window = HiddenCRF(n_states=2, window=1, n_init=1).fit(X, y)
    wide = HiddenCRF(n_states=2, n_init=1).fit(beside, y)
    np.testing.assert_allclose(window.predict_proba(X), wide.predict_proba(beside), atol=1e-12)


def test_windows_keep_sparse_and_dense_apart() -> None:
    batch = small_problem().batch
    wide = with_window(batch, 2).node
    assert (wide.width, wide.n_dense) == (20, 10)
    assert with_window(batch, 0) is batch


@pytest.mark.parametrize(
    ("y", "error", "word"),
    [
        (None, LabelError, "one label for each"),
        ("abcd", LabelError, "one label for each"),
        ([["a", "b"]] * 4, LabelError, "LatentDynamicCRF"),
        (["a", "b"], LabelError, "4 sequences"),
        ([None] * 4, LabelError, "no label"),
        ([float("nan"), "a", "b", "a"], LabelError, "NaN"),
    ],
    ids=["none", "text", "steps", "short", "unknown", "nan"],
)
def test_labels_that_cannot_be_used(y: Any, error: type[Exception], word: str) -> None:
    with pytest.raises(error, match=word):
        HiddenCRF().fit([np.ones((2, 1))] * 4, y)


def test_data_that_cannot_be_used() -> None:
    X, y = courses(6, 0)
    with pytest.raises(FeatureError, match="finite"):
        HiddenCRF().fit([np.array([[np.nan]])], ["a"])
    with pytest.raises(InputError, match="no steps"):
        HiddenCRF().fit([np.zeros((0, 2))], ["a"])
    model = HiddenCRF(n_states=2, n_init=1).fit(X, y)
    with pytest.raises(ShapeError, match="expected 1"):
        model.predict([np.zeros((2, 2))])
    with pytest.raises(LabelError, match="unknown label"):
        model.score(X, ["sideways"] * 6)
    before = model.predict_proba(X)
    with pytest.raises(CrfieldError):
        model.fit(X, y[:-1])
    assert (model.predict_proba(X) == before).all()


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"n_states": 0}, "n_states"),
        ({"window": -1}, "window"),
        ({"n_init": 1.5}, "n_init"),
        ({"l1": np.nan}, "l1"),
        ({"training": "newton"}, "training"),
        ({"random_state": "seven"}, "random_state"),
        ({"n_jobs": 0}, "n_jobs"),
    ],
)
def test_parameters_that_cannot_be_used_are_named(options: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word):
        HiddenCRF(**options).fit(*courses(4, 0))


def test_lasso_leaves_few_weights() -> None:
    model = HiddenCRF(n_states=2, l1=0.2, l2=0.0, n_init=1).fit(*courses(30, 0))
    assert 0 < np.count_nonzero(model.coef_) < len(model.coef_)


# ------------------------------------------------------------------------------------------------------------ files


@pytest.mark.parametrize(
    "kind",
    [k for k in KINDS if k.saved and k.name not in ("dicts_scaled", "arrays_edges")],
    ids=lambda kind: kind.name,
)
@pytest.mark.filterwarnings("ignore::crfield.errors.DataWarning")
def test_every_form_of_input_is_trained_and_stored(kind: Kind, tmp_path: Path) -> None:
    X, y = kind.data()
    options = {k: v for k, v in kind.options if k in ("template", "functions")}
    model = HiddenCRF(**options, n_states=2, n_init=1, tol=1e-2, window=1).fit(X, [labels[0] for labels in y])
    model.save(tmp_path / "model.crfield")
    given = {k: v for k, v in kind.load_options().items() if k == "functions"}
    copy = crfield.load(tmp_path / "model.crfield", **given)
    assert copy.get_params() == {**model.get_params(), "functions": copy.functions}
    np.testing.assert_array_equal(copy.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(copy.classes_, model.classes_)
    np.testing.assert_array_equal(copy.start_objectives_, model.start_objectives_)
    assert copy.converged_ == model.converged_


def test_edited_files_are_refused_or_work() -> None:
    """Whatever is in a file, it is refused as damaged, or gives a model that answers or says why it does not."""
    X, y = courses(6, 0)
    stream = io.BytesIO()
    HiddenCRF(n_states=2, n_init=1, tol=1e-2, standardize=True).fit(X, y).save(stream)
    rng, refused = random.Random(0), 0
    for _ in range(80):
        data = edited(stream.getvalue(), rng)
        if data is None:
            continue
        try:
            model = crfield.load(io.BytesIO(data))
        except ModelFileError:
            refused += 1
            continue
        with contextlib.suppress(CrfieldError), np.errstate(all="ignore"):
            model.predict_proba(X)
            model.predict_states(X)
            model.save(io.BytesIO())
    assert refused > 30
