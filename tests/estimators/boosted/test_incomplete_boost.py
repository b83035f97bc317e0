"""`IncompleteBoost`: what it answers, its baselines and traps, and what it refuses."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from sklearn.utils.estimator_checks import parametrize_with_checks

from crfield import IncompleteBoost
from crfield.boosting.incomplete.class_mass import class_mass_normalised
from crfield.boosting.incomplete.hidden.values import value_cells
from crfield.boosting.incomplete.left_predictions import left_columns, left_scores, positions
from crfield.boosting.incomplete.prior import believed, learn_values
from crfield.errors import ConvergenceWarning, CrfieldError, InputError, LabelError, ShapeError

EXACT: dict[str, Any] = {"tol": 1e-12, "max_iter": 5000}
TAGS = ["noun", "other", "verb"]


def data(n: int = 150, *, seed: int = 0, known: float = 0.4) -> tuple[np.ndarray, np.ndarray, list[Any], list[str]]:
    """Columns, labels that need the tag, tags as far as they are known, and all tags."""
    rng = np.random.default_rng(seed)
    tag = rng.integers(0, 3, n)
    X = (rng.random((n, 5)) < 0.3).astype(float)
    X[np.arange(n), tag] = rng.random(n) < 0.8
    yes = (tag == 1) ^ (X[:, 3] > 0) ^ (rng.random(n) < 0.1)
    names = [TAGS[k] for k in tag]
    some = [name if rng.random() < known else None for name in names]
    return X, np.where(yes, "in", "out"), some, names


@parametrize_with_checks([IncompleteBoost(), IncompleteBoost(loss="exp", solver="sequential", max_iter=20)])
@pytest.mark.filterwarnings("ignore::crfield.errors.ConvergenceWarning")
def test_check_estimator(estimator: Any, check: Any) -> None:
    check(estimator)


# ------------------------------------------------------------------------------------------ answers


def softmax(scores: np.ndarray) -> np.ndarray:
    raised = np.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


@pytest.mark.parametrize("loss", ["mix", "jensen", "joint", "exp", "exp-mean", "hcrf"])
def test_answers_by_hand(loss: str) -> None:
    X, y, some, _ = data()
    model = IncompleteBoost(loss=loss, prior=[0.5, 0.2, 0.3]).fit(X, y, hidden=some)
    scores = np.stack([X @ model.coef_.T + model.intercept_ + model.hidden_coef_[:, h] for h in range(3)])
    for h, tag in enumerate(TAGS):
        np.testing.assert_allclose(model.predict_proba(X, hidden=[tag] * len(X)), softmax(scores[h]), rtol=1e-12)
    q = np.array([0.5, 0.2, 0.3])[:, None, None]
    ways = {
        "mixture": (q * softmax(scores)).sum(axis=0),
        "expected": softmax((q * scores).sum(axis=0)),
        "joint": softmax(np.log((q * np.exp(scores)).sum(axis=0))),
    }
    own = {"exp": "expected", "exp-mean": "expected", "hcrf": "joint"}.get(loss, "mixture")
    for way, wanted in ways.items():
        model.set_params(answer=way)
        np.testing.assert_allclose(model.predict_proba(X), wanted, rtol=1e-12)
    model.set_params(answer="auto")
    np.testing.assert_allclose(model.predict_proba(X), ways[own], rtol=1e-12)
    np.testing.assert_array_equal(model.predict(X), model.classes_[ways[own].argmax(axis=1)])
    np.testing.assert_allclose(model.predict_log_proba(X), np.log(ways[own]), rtol=1e-9)
    assert model.score(X, y, hidden=some) == np.mean(model.predict(X, hidden=some) == y)
    assert model.mean_loss(X, y, hidden=some) > 0
    gold = np.searchsorted(model.classes_, y)
    contrast = np.exp(scores - scores[:, np.arange(len(y)), gold][:, :, None]).sum(axis=2)
    wanted_loss = float((q[:, :, 0] * contrast).sum(axis=0).mean())
    assert model.mean_loss(X, y, loss="exp") == pytest.approx(wanted_loss, rel=1e-12)


def test_interactions_are_columns_of_their_value() -> None:
    X, y, some, names = data()
    model = IncompleteBoost(interactions=[3, -1]).fit(X, y, hidden=some)
    assert model.hidden_coef_.shape == (2, 9)
    code = np.array([TAGS.index(name) for name in names])
    of_tag = model.hidden_coef_.T.reshape(3, 3, 2)[code]
    scores = X @ model.coef_.T + model.intercept_ + of_tag[:, 0] + X[:, 3:4] * of_tag[:, 1] + X[:, 4:5] * of_tag[:, 2]
    np.testing.assert_allclose(model.predict_proba(X, hidden=names), softmax(scores), rtol=1e-12)
    plain = IncompleteBoost().fit(X, y, hidden=some)
    assert model.score(X, y, hidden=names) > plain.score(X, y, hidden=names) + 0.02
    every = IncompleteBoost(interactions="all").fit(X, y, hidden=some)
    assert every.hidden_coef_.shape == (2, 18)
    with pytest.raises(InputError, match="columns of X, 0 … 4"):
        IncompleteBoost(interactions=[5]).fit(X, y, hidden=some)


def test_sparse_and_dense_are_one() -> None:
    X, y, some, _ = data()
    dense = IncompleteBoost(interactions="all", prior="learnt").fit(X, y, hidden=some)
    thin = IncompleteBoost(interactions="all", prior="learnt").fit(sp.csc_matrix(X), y, hidden=some)
    np.testing.assert_array_equal(dense.predict_proba(X), thin.predict_proba(sp.coo_array(X)))
    indptr = np.arange(0, 5 * len(X) + 1, 5)
    untidy = sp.csr_array((X[:, ::-1].ravel().copy(), np.tile(np.arange(5)[::-1], len(X)), indptr), X.shape)
    before = untidy.data.copy(), untidy.indices.copy()
    again = IncompleteBoost(interactions=np.arange(5), prior="learnt").fit(untidy, y, hidden=some)
    np.testing.assert_array_equal(again.predict_proba(untidy), dense.predict_proba(X))
    np.testing.assert_array_equal(untidy.data, before[0])
    np.testing.assert_array_equal(untidy.indices, before[1])


# ------------------------------------------------------------------------------------------ prior, weights


def test_priors_of_all_forms() -> None:
    X, y, some, _ = data()
    learnt = IncompleteBoost(prior="learnt", **EXACT).fit(X, y, hidden=some)
    codes = np.array([-1 if tag is None else TAGS.index(tag) for tag in some])
    ones = np.column_stack([X, np.ones(len(X))])
    q = believed(learn_values(sp.csr_array(ones), codes, 3), sp.csr_array(ones))
    assert (q.argmax(axis=1)[codes >= 0] == codes[codes >= 0]).mean() > 0.7
    given = IncompleteBoost(**EXACT).fit(X, y, hidden=some, prior=q)
    called = IncompleteBoost(prior=lambda rows: 5 * q[: len(rows)], **EXACT).fit(X, y, hidden=some)
    for other in (given.predict_proba(X, prior=q), called.predict_proba(X)):
        np.testing.assert_allclose(other, learnt.predict_proba(X), rtol=1e-6)
    flat = IncompleteBoost(**EXACT).fit(X, y, hidden=some)
    same = IncompleteBoost(prior=[2.0, 2.0, 2.0], **EXACT).fit(X, y, hidden=some)
    np.testing.assert_allclose(same.predict_proba(X), flat.predict_proba(X), rtol=1e-9)


def test_a_constant_prior_pulls_the_weights_of_h_to_zero() -> None:
    """Data with h hidden under a constant prior say that h does not matter; a learnt prior does not."""
    X, y, some, names = data(600, known=0.15)
    y = np.where((np.array(names) == "other") ^ (np.random.default_rng(1).random(600) < 0.1), "in", "out")
    kinds: dict[str, dict[str, Any]] = {
        "constant": {"prior": "constant"},
        "learnt": {"prior": "learnt"},
        "alone": {"baseline": "observed_only"},
    }
    models = {name: IncompleteBoost(**options).fit(X, y, hidden=some) for name, options in kinds.items()}
    size = {name: np.abs(model.hidden_coef_).max() for name, model in models.items()}
    assert size["learnt"] > 1.2 * size["constant"]
    likelihood = {}
    for name, model in models.items():
        found = model.predict_proba(X, hidden=names)
        likelihood[name] = float(np.log(found[np.arange(len(y)), np.searchsorted(model.classes_, y)]).mean())
    assert likelihood["learnt"] > likelihood["constant"] + 0.02
    assert likelihood["learnt"] > likelihood["alone"]


def test_gamma_weighs_what_is_observed() -> None:
    X, y, some, _ = data()
    weight = np.array([1.0 if tag is None else 2.5 for tag in some])
    one = IncompleteBoost(gamma=2.5, **EXACT).fit(X, y, hidden=some)
    other = IncompleteBoost(**EXACT).fit(X, y, weight, hidden=some)
    np.testing.assert_allclose(one.predict_proba(X), other.predict_proba(X), rtol=1e-9)
    kept = weight > 1
    less = IncompleteBoost(**EXACT).fit(X, y, kept.astype(float), hidden=some)
    part = [tag for tag in some if tag is not None]
    without = IncompleteBoost(**EXACT).fit(X[kept], y[kept], hidden=part)
    np.testing.assert_allclose(less.predict_proba(X), without.predict_proba(X), rtol=1e-9)


def test_a_reference_measure_is_where_the_model_begins() -> None:
    X, y, some, _ = data()
    shares = np.array([(y == "in").mean(), (y == "out").mean()])
    stiff = IncompleteBoost(l2=1e9, reference="classes").fit(X, y, hidden=some)
    np.testing.assert_allclose(stiff.predict_proba(X), np.tile(shares, (len(X), 1)), atol=1e-5)
    model = IncompleteBoost(l2=1e9, reference=lambda rows: 1.0 + np.column_stack([rows[:, 0], 0 * rows[:, 0]]))
    found = model.fit(X, y, hidden=some).predict_proba(X)[:, 0]
    np.testing.assert_allclose(found, np.where(X[:, 0] > 0, 2 / 3, 1 / 2), atol=1e-5)
    with pytest.raises(InputError, match="> 0"):
        IncompleteBoost(reference=[0.0, 1.0]).fit(X, y)


# ------------------------------------------------------------------------------------------ baselines, starts


def test_baselines_are_what_they_say() -> None:
    X, y, some, _ = data()
    known = np.array([tag is not None for tag in some])
    part = [tag for tag in some if tag is not None]
    first = IncompleteBoost(baseline="observed_only", gamma=3.0, **EXACT).fit(X, y, hidden=some)
    np.testing.assert_allclose(
        first.predict_proba(X),
        IncompleteBoost(**EXACT).fit(X[known], y[known], hidden=part).predict_proba(X),
        rtol=1e-9,
    )
    second = IncompleteBoost(baseline="without_hidden", **EXACT).fit(X, y, hidden=some)
    np.testing.assert_allclose(
        second.predict_proba(X, hidden=some), IncompleteBoost(**EXACT).fit(X, y).predict_proba(X), rtol=1e-9
    )
    options: dict[str, Any] = {"start": "random", "random_state": 3, **EXACT}
    third = IncompleteBoost(baseline="hidden_crf", random_state=3, **EXACT).fit(X, y, hidden=some)
    bare = IncompleteBoost(hidden_values=TAGS, **options).fit(X, y)
    np.testing.assert_allclose(third.predict_proba(X), bare.predict_proba(X), rtol=1e-9)


def test_hidden_values_that_are_alike_stay_alike() -> None:
    """The third baseline from zero: no step tells one value of h from another, and h observed changes nothing."""
    X, y, some, names = data(300)
    y = np.where((np.array(names) == "other") ^ (X[:, 3] > 0), "in", "out")
    options: dict[str, Any] = {"baseline": "hidden_crf", "interactions": [3], "l2": 0.1, **EXACT}
    stuck = IncompleteBoost(start="zero", **options).fit(X, y, hidden=some)
    per_value = stuck.hidden_coef_.T.reshape(3, -1)
    np.testing.assert_array_equal(per_value[1:], per_value[[0, 0]])
    np.testing.assert_allclose(stuck.predict_proba(X), stuck.predict_proba(X, hidden=names), rtol=1e-12)
    without = IncompleteBoost(baseline="without_hidden", l2=0.1, **EXACT).fit(X, y, hidden=some)
    assert (stuck.predict(X) == without.predict(X)).mean() > 0.97
    free = IncompleteBoost(random_state=0, **options).fit(X, y, hidden=some)
    assert free.objective_ < stuck.objective_ - 1.0
    assert np.abs(np.diff(free.hidden_coef_.T.reshape(3, -1), axis=0)).max() > 0.1


def test_starts() -> None:
    X, y, some, _ = data()
    zero = IncompleteBoost(**EXACT).fit(X, y, hidden=some)
    for start in ("jensen", "joint", "random"):
        model = IncompleteBoost(start=start, random_state=0, **EXACT).fit(X, y, hidden=some)
        assert model.objective_ == pytest.approx(zero.objective_, rel=0.02)
    with pytest.raises(InputError, match="not convex"):
        IncompleteBoost(loss="exp", start="jensen").fit(X, y)


@pytest.mark.parametrize("loss", ["jensen", "exp"])
def test_solvers_agree(loss: str) -> None:
    X, y, some, _ = data(80)
    best = IncompleteBoost(loss=loss, **EXACT).fit(X, y, hidden=some)
    for solver, tol in (("parallel", 2e-6), ("sequential", 1e-8)):
        model = IncompleteBoost(loss=loss, solver=solver, tol=1e-9, max_iter=20_000).fit(X, y, hidden=some)
        assert model.converged_
        assert model.objective_ == pytest.approx(best.objective_, rel=tol)
        values = [step.value for step in model.history_]
        assert (np.diff(values) <= 1e-12 * np.array(values[:-1])).all()
    with pytest.warns(ConvergenceWarning, match="2 steps"):
        short = IncompleteBoost(loss=loss, solver="sequential", bound="printed", max_iter=2).fit(X, y, hidden=some)
    assert short.objective_ > best.objective_ * 1.005


# ------------------------------------------------------------------------------------------ attributes


def test_attributes_are_every_combination_of_what_is_missing() -> None:
    codes = np.array([[0, -1], [-1, -1], [1, 2], [-1, 0]])
    rng = np.random.default_rng(0)
    beliefs = [rng.dirichlet(np.ones(2), 4), rng.dirichlet(np.ones(3), 4)]
    beliefs[0][3] = [0.0, 1.0]
    X = sp.csr_array(rng.random((4, 2)))
    cells = value_cells(codes, beliefs, X)
    wanted = []
    for i in range(4):
        for a, b in product(range(2), range(3)):
            if codes[i, 0] in (-1, a) and codes[i, 1] in (-1, b):
                q = (beliefs[0][i, a] if codes[i, 0] < 0 else 1.0) * (beliefs[1][i, b] if codes[i, 1] < 0 else 1.0)
                if q > 0:
                    row = np.zeros((5, 3))
                    row[a] = row[2 + b] = [1.0, *X.toarray()[i]]
                    wanted.append((i, q, row.ravel()))
    assert cells.owner.tolist() == [i for i, *_ in wanted]
    np.testing.assert_allclose(cells.prior, [q for _, q, _ in wanted], rtol=1e-14)
    np.testing.assert_array_equal(cells.columns.toarray(), [row for *_, row in wanted])
    with pytest.raises(InputError, match="more than 5 combinations"):
        value_cells(codes, beliefs, most=5)


def test_one_attribute_is_a_value() -> None:
    X, y, some, _ = data()
    value = IncompleteBoost(prior="learnt").fit(X, y, hidden=some)
    alone = IncompleteBoost(structure="attributes", prior="learnt").fit(X, y, hidden=[[tag] for tag in some])
    np.testing.assert_array_equal(value.predict_proba(X), alone.predict_proba(X))
    rng = np.random.default_rng(0)
    two = [[tag, rng.choice(["p", "q"]) if rng.random() < 0.5 else None] for tag in some]
    model = IncompleteBoost(structure="attributes", prior=[[0.2, 0.3, 0.5], [0.5, 0.5]]).fit(X, y, hidden=two)
    assert model.hidden_classes_ == [TAGS, ["p", "q"]]
    assert model.predict_proba(X, hidden=[None] * len(X)).tolist() == model.predict_proba(X).tolist()
    with pytest.raises(ShapeError, match="2 attributes"):
        model.predict(X[:1], hidden=[["noun"]])
    with pytest.raises(ShapeError, match="list of 2 arrays"):
        model.predict(X, prior=[[0.2, 0.3, 0.5]])
    with pytest.raises(InputError, match="attribute 1 is hidden in all data"):
        IncompleteBoost(structure="attributes").fit(X, y, hidden=[[tag, None] for tag in some])


# ------------------------------------------------------------------------------------------ left, class mass


def test_left_predictions_are_decoded_step_by_step() -> None:
    X, y, some, _ = data(120, seed=4)
    lengths = [7, 0, 1, 52, 60]
    model = IncompleteBoost(left=2, l2=0.3).fit(X, y, hidden=some, lengths=lengths)
    assert model.left_coef_.shape == (2, 3, 2)
    assert np.abs(model.left_coef_).max() > 0.05
    wanted = []
    start = 0
    for length in lengths:
        answers: list[int] = []
        for t in range(length):
            i = start + t
            base = X[i] @ model.coef_.T + model.intercept_
            for k in (1, 2):
                base = base + model.left_coef_[k - 1, answers[t - k] if t >= k else 2]
            values = range(3) if some[i] is None else [TAGS.index(some[i])]
            found = np.mean([softmax(base + model.hidden_coef_[:, h]) for h in values], axis=0)
            wanted.append(found)
            answers.append(int(found.argmax()))
        start += length
    np.testing.assert_allclose(model.predict_proba(X, hidden=some, lengths=lengths), wanted, rtol=1e-12)
    one = model.predict_proba(X, hidden=some)
    assert not np.allclose(one, wanted)
    with pytest.raises(ShapeError, match="add up to the 120 rows"):
        model.predict(X, lengths=[3])
    with pytest.raises(InputError, match="lengths must be integers"):
        model.predict(X, lengths=[60.0, 60.0])


def test_columns_of_labels_before() -> None:
    rng = np.random.default_rng(0)
    lengths, labels = np.array([4, 0, 1, 3]), rng.integers(0, 3, 8)
    place, rows, table = positions(lengths), np.arange(8), rng.normal(size=(2, 4, 3))
    columns = left_columns(labels, place, rows, left=2, n_labels=3)
    for i, t in enumerate(place):
        wanted = np.zeros((2, 4))
        for k in (1, 2):
            wanted[k - 1, labels[i - k] if t >= k else 3] = 1.0
        np.testing.assert_array_equal(columns.toarray()[i], wanted.ravel())
    np.testing.assert_allclose(left_scores(labels, place, rows, table).T, columns @ table.reshape(8, 3), rtol=1e-14)


def test_left_labels_are_the_true_ones_in_training() -> None:
    """Labels that repeat: with the label before, the next is certain."""
    y = np.repeat(np.arange(2), 30)
    X = np.zeros((60, 1))
    model = IncompleteBoost(left=1, l2=0.01).fit(X, y)
    assert (np.argmax(model.left_coef_[0, :2], axis=1) == [0, 1]).all()
    assert model.mean_loss(X, y) < 0.15


def test_class_mass() -> None:
    X, y, some, _ = data()
    model = IncompleteBoost().fit(X, y, hidden=some)
    plain = model.predict_proba(X)
    shares = np.array([(y == "in").mean(), (y == "out").mean()])
    model.set_params(class_mass=True)
    np.testing.assert_allclose(model.predict_proba(X), class_mass_normalised(plain, shares), rtol=1e-12)
    scaled = plain * (np.array([0.9, 0.1]) / plain.mean(axis=0))
    model.set_params(class_mass=[0.9, 0.1])
    np.testing.assert_allclose(model.predict_proba(X), scaled / scaled.sum(axis=1, keepdims=True), rtol=1e-12)
    assert (model.predict(X) == "in").mean() > (plain.argmax(axis=1) == 0).mean()
    assert model.predict_proba(X[:0]).shape == (0, 2)
    with pytest.raises(ShapeError, match="one number per class"):
        class_mass_normalised(plain, np.ones(3))
    with pytest.raises(InputError, match="not all 0"):
        class_mass_normalised(plain, np.zeros(2))


# ------------------------------------------------------------------------------------------ the rest of the contract


def test_among_the_tools_of_scikit_learn() -> None:
    X, y, some, _ = data()
    search = GridSearchCV(IncompleteBoost(), {"gamma": [0.5, 2.0], "prior": ["constant", "learnt"]}, cv=3)
    search.fit(X, y, hidden=np.array(some, dtype=object))
    assert np.isfinite(search.cv_results_["mean_test_score"]).all()
    model = search.best_estimator_
    twin = clone(model).fit(X, y, hidden=some)
    np.testing.assert_array_equal(twin.predict_proba(X), model.predict_proba(X))
    with pytest.raises(ValueError, match="read-only"):
        model.coef_[0] = 1.0


def test_a_fit_that_fails_leaves_the_old_model() -> None:
    X, y, some, _ = data()
    model = IncompleteBoost().fit(X, y, hidden=some)
    before = model.predict_proba(X, hidden=some)
    for bad in ((X[:, :2], y[:-1]), (X[:, :2], None), (X[:, :2] * np.nan, y)):
        with pytest.raises(CrfieldError):
            model.fit(*bad, hidden=some)
    with pytest.raises(CrfieldError):
        model.fit(X[:, :2], y, hidden=some[:-1])
    np.testing.assert_array_equal(model.predict_proba(X, hidden=some), before)


def test_the_same_seed_gives_the_same_bits() -> None:
    X, y, some, _ = data()
    options: dict[str, Any] = {"start": "random", "random_state": 5, "loss": "hcrf"}
    one, two = (IncompleteBoost(n_jobs=k, **options).fit(X, y, hidden=some) for k in (1, 1))
    np.testing.assert_array_equal(one.coef_, two.coef_)
    other = IncompleteBoost(**{**options, "random_state": 6}).fit(X, y, hidden=some)
    assert not np.array_equal(one.coef_, other.coef_)


def test_one_class_and_columns_that_say_nothing() -> None:
    one = IncompleteBoost().fit(np.ones((4, 2)), ["a"] * 4, hidden=["x", None, "y", None])
    assert one.predict(np.ones((2, 2))).tolist() == ["a", "a"]
    for solver in ("lbfgs", "parallel", "sequential"):
        flat = IncompleteBoost(solver=solver).fit(np.zeros((4, 2)), [0, 1, 1, 1])
        assert flat.predict(np.zeros((1, 2))).tolist() == [1]
    nothing = IncompleteBoost(fit_intercept=False).fit(np.zeros((2, 1)), [0, 1])
    np.testing.assert_allclose(nothing.predict_proba(np.zeros((1, 1))), [[0.5, 0.5]])


def test_values_of_any_kind_and_nan_for_hidden() -> None:
    X, y, some, _ = data()
    numbers = [np.nan if tag is None else float(TAGS.index(tag)) for tag in some]
    model = IncompleteBoost().fit(X, y, hidden=np.array(numbers))
    assert model.hidden_classes_ == [[0.0, 1.0, 2.0]]
    words = IncompleteBoost().fit(X, y, hidden=some)
    np.testing.assert_array_equal(model.predict_proba(X), words.predict_proba(X))
    pairs = [None if tag is None else (tag, 1) for tag in some]
    np.testing.assert_array_equal(IncompleteBoost().fit(X, y, hidden=pairs).predict_proba(X), words.predict_proba(X))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"loss": "log"}, "loss must be one of 'mix'"),
        ({"solver": "newton"}, "solver must be one of"),
        ({"structure": "tree"}, "structure must be one of"),
        ({"baseline": "BL1"}, "baseline must be one of"),
        ({"gamma": -1.0}, "gamma must be a finite number"),
        ({"l2": np.nan}, "l2 must be a finite number"),
        ({"max_iter": 0}, "max_iter must be an integer ≥ 1"),
        ({"left": -1}, "left must be an integer ≥ 0"),
        ({"n_samples": 0}, "n_samples must be"),
        ({"prior": "learned"}, "prior must be 'constant'"),
        ({"prior": [0.5, 0.5]}, "prior must be numbers of shape"),
        ({"prior": [0.5, -0.5, 1.0]}, "prior must hold finite"),
        ({"prior": [0.0, 0.0, 0.0]}, "some value a positive probability"),
        ({"reference": "uniform"}, "reference must be None"),
        ({"interactions": "some"}, "interactions must be"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"loss": "hcrf", "solver": "parallel"}, "no counts"),
        ({"structure": "chain"}, "does not factorise over a chain"),
        ({"structure": "bag"}, "n_samples=20"),
        ({"structure": "bag", "loss": "joint", "solver": "sequential"}, "listed one by one"),
        ({"structure": "chain", "loss": "joint", "interactions": "all"}, "interactions are for"),
    ],
)
def test_parameters_are_checked(options: dict[str, Any], words: str) -> None:
    X, y, some, _ = data(30)
    with pytest.raises(InputError, match=words):
        IncompleteBoost(**options).fit(X, y, hidden=some)


def test_bad_data_is_told_apart() -> None:
    X, y, some, _ = data(30)
    model = IncompleteBoost().fit(X, y, hidden=some)
    with pytest.raises(LabelError, match=r"hidden\[0\] has the value 'adverb'"):
        model.predict(X[:1], hidden=["adverb"])
    with pytest.raises(ShapeError, match="one entry for each of 30"):
        IncompleteBoost().fit(X, y, hidden=some[:3])
    with pytest.raises(ShapeError, match="structure='attributes'"):
        IncompleteBoost().fit(X, y, hidden=[["noun", "verb"]] * 30)
    with pytest.raises(InputError, match="hidden gives none"):
        IncompleteBoost(prior="learnt", hidden_values=TAGS).fit(X, y)
    with pytest.raises(InputError, match="needs data with nothing hidden"):
        IncompleteBoost(baseline="observed_only", hidden_values=TAGS).fit(X, y)
    with pytest.raises(LabelError, match="unknown label 'neither'"):
        model.mean_loss(X[:1], ["neither"])
    with pytest.raises(LabelError, match="None"):
        IncompleteBoost().fit(X, np.array([None, *y[1:]], dtype=object))
    with pytest.raises(InputError, match="loss must be one of"):
        model.mean_loss(X, y, loss="log")


@pytest.mark.filterwarnings("ignore::crfield.errors.ConvergenceWarning")
def test_progress_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    X, y, some, _ = data(30)
    IncompleteBoost(verbose=2, solver="parallel", max_iter=3, tol=0.5).fit(X, y, hidden=some)
    assert "mix, parallel: step 1" in capsys.readouterr().err
