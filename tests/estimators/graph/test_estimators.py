"""Models of graphs: the fit contract, the front door they share with chains, files, and what they refuse."""

from __future__ import annotations

import itertools
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as SklearnNotFitted
from sklearn.model_selection import GridSearchCV
from sklearn.utils.validation import check_is_fitted

import crfield
from crfield import (
    ChainCRF,
    DiscriminativeRandomField,
    Edges,
    FactorialCRF,
    Graph,
    GraphCRF,
    GridCRF,
    MarkovRandomField,
    layers,
)
from crfield.core.semiring import Semiring
from crfield.errors import InputError, LabelError, ModelFileError, NotFittedError, ShapeError
from crfield.inference.graphs.brute import BruteEngine
from crfield.inference.graphs.loopy import LoopyEngine

LABELS = ("a", "b", "c")


def some_graphs(n: int = 8, seed: int = 0) -> tuple[list[Graph], list[list[str]]]:
    """Rings with a tail; the label leans on the features and on the neighbours."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        size = int(rng.integers(4, 7))
        pairs = [(k, k + 1) for k in range(size - 1)] + [(3, 0)]
        code = rng.integers(0, 3)
        labels = [LABELS[(code + (rng.random() < 0.2)) % 3] for _ in range(size)]
        features = np.eye(3)[[LABELS.index(label) for label in labels]] + rng.normal(scale=0.4, size=(size, 3))
        X.append(Graph(features, {"near": Edges(pairs, symmetric=True)}))
        y.append(labels)
    return X, y


def some_images(n: int = 4, seed: int = 0) -> tuple[list[np.ndarray], list[np.ndarray]]:
    rng = np.random.default_rng(seed)
    truth = [np.kron(rng.integers(0, 2, (2, 2)), np.ones((3, 3), int)) for _ in range(n)]
    return [t + rng.normal(scale=0.5, size=t.shape) for t in truth], truth


def some_layers(n: int = 4, seed: int = 0) -> tuple[list[np.ndarray], list[dict[str, list[str]]]]:
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        one = np.repeat(rng.integers(0, 3, 3), 2)
        two = np.where(rng.random(6) < 0.8, one > 0, one == 0).astype(int)
        X.append(np.stack([one, two], axis=1) + rng.normal(scale=0.5, size=(6, 2)))
        y.append({"motion": [("sit", "walk", "run")[k] for k in one], "place": [("in", "out")[k] for k in two]})
    return X, y


CASES: dict[str, tuple[Any, Any]] = {
    "graph": (GraphCRF(), some_graphs),
    "grid": (GridCRF(), some_images),
    "factorial": (FactorialCRF(), some_layers),
    "drf": (DiscriminativeRandomField(), some_images),
    "mrf": (MarkovRandomField(), some_images),
}
every_model = pytest.mark.parametrize("name", list(CASES))


@every_model
def test_init_only_stores_and_clones(name: str) -> None:
    model = CASES[name][0]
    assert clone(model).get_params() == model.get_params()
    changed = clone(model).set_params(decode="marginal", n_jobs=2)
    assert (changed.decode, changed.n_jobs) == ("marginal", 2)
    assert not [key for key in vars(model) if key.endswith("_")]
    assert type(model).__name__ in repr(model)


@every_model
def test_fit_predict_score_pickle(name: str) -> None:
    model, make = CASES[name]
    X, y = make()
    with pytest.raises((NotFittedError, SklearnNotFitted)):
        clone(model).predict(X)
    fitted = clone(model)
    assert fitted.fit(X, y) is fitted
    check_is_fitted(fitted)
    predicted = fitted.predict(X)
    assert predicted.shape == (len(X),)
    assert predicted.dtype == object
    assert fitted.score(X, y) > 0.6
    again = pickle.loads(pickle.dumps(fitted))
    for one, other in zip(predicted, again.predict(X)):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(clone(model).fit(X, y).predict_proba(X), fitted.predict_proba(X)):
        if isinstance(one, dict):
            one, other = np.concatenate(list(one.values()), axis=1), np.concatenate(list(other.values()), axis=1)
        np.testing.assert_array_equal(one, other)
    assert len(fitted.predict([])) == 0


@every_model
def test_probabilities_are_those_of_enumeration(name: str) -> None:
    model, make = CASES[name]
    X, y = make(3, seed=1)
    fitted = clone(model).fit(X, y)
    small = X[0][:2, :2] if name not in ("graph", "factorial") else X[0] if name == "graph" else X[0][:3]
    scores = fitted.potentials([small])
    expected = BruteEngine().infer(scores, Semiring.LOG)
    found = fitted.predict_marginals([small])[0]
    for row, belief in zip(found, expected.node):
        np.testing.assert_allclose(list(row.values()), belief[: len(row)], atol=1e-9)
    best = BruteEngine().infer(scores, Semiring.MAX)
    engine, _ = fitted.engine_for(scores, Semiring.MAX)
    np.testing.assert_allclose(engine.infer(scores, Semiring.MAX).total, best.total, atol=1e-9)


def test_log_prob_is_a_distribution_over_all_labellings() -> None:
    X, y = some_graphs()
    model = GraphCRF(l2=0.3).fit(X, y)
    labellings = [list(labels) for labels in itertools.product(LABELS, repeat=X[0].n_nodes)]
    logs = model.log_prob([X[0]] * len(labellings), labellings)
    assert np.exp(logs).sum() == pytest.approx(1.0, abs=1e-9)
    assert logs.max() <= 0
    partial = list(labellings[5])
    partial[1], partial[2] = None, {"a", "c"}
    allowed = [k for k, labels in enumerate(labellings) if labels[0] == partial[0] and labels[3:] == partial[3:]]
    allowed = [k for k in allowed if labellings[k][2] in ("a", "c")]
    assert model.log_prob([X[0]], [partial])[0] == pytest.approx(np.log(np.exp(logs[allowed]).sum()), abs=1e-9)


def test_a_chain_given_as_a_graph_is_the_chain() -> None:
    rng = np.random.default_rng(3)
    lengths = (5, 7, 1, 9)
    X = [rng.normal(size=(n, 3)) for n in lengths]
    y = [rng.choice(list(LABELS), n) for n in lengths]
    chain = ChainCRF(l2=0.5, boundaries=False, transition_pairs="all", feature_pairs="all", tol=1e-11).fit(X, y)
    graphs = [crfield.chain(x) for x in X]
    graph = GraphCRF(l2=0.5, feature_pairs="all", tol=1e-11).fit(graphs, y)
    assert graph.objective_ == pytest.approx(chain.objective_, rel=1e-9)
    np.testing.assert_allclose(graph.coef_, chain.coef_, atol=1e-5)
    for one, other in zip(chain.predict(X), graph.predict(graphs)):
        np.testing.assert_array_equal(one, other)
    for one, other in zip(chain.predict_proba(X), graph.predict_proba(graphs)):
        np.testing.assert_allclose(one, other, atol=1e-5)
    np.testing.assert_allclose(chain.log_prob(X, y), graph.log_prob(graphs, y), atol=1e-4)
    np.testing.assert_allclose(chain.transitions_.weights, graph.relation_weights("+1").weights, atol=1e-5)


@pytest.mark.parametrize(
    "objective",
    ["likelihood", "pseudo_likelihood", "piecewise", "perceptron", "hinge", "softmax_margin", "contrastive"],
)
@pytest.mark.filterwarnings("ignore::crfield.errors.ConvergenceWarning")
def test_every_objective_learns(objective: str) -> None:
    X, y = some_graphs(20)
    model = GraphCRF(objective=objective, l2=0.5, max_iter=50)
    model.fit(X, y)
    assert model.plan_.objective == objective
    assert model.score(X, y) > 0.7
    assert objective in model.explain()
    np.testing.assert_array_equal(clone(model).fit(X, y).coef_, model.coef_)


@pytest.mark.parametrize("engine", ["loopy", "tree_reweighted", LoopyEngine(damping=0.3)])
def test_approximate_likelihood_is_close_to_the_exact_one_on_weak_couplings(engine: Any) -> None:
    X, y = some_graphs(20)
    exact = GraphCRF(l2=20.0, engine="junction_tree").fit(X, y)
    model = GraphCRF(l2=20.0, objective="likelihood", engine=engine).fit(X, y)
    assert model.converged_
    assert not model.plan_.exact
    np.testing.assert_allclose(model.coef_, exact.coef_, atol=0.02)


def test_partial_labels_and_weights() -> None:
    X, y = some_graphs(12)
    some: list[list[Any]] = [list(labels) for labels in y]
    for labels in some:
        labels[0] = None
        labels[1] = {labels[1], "c"}
    partial = GraphCRF().fit(X, some)
    assert partial.converged_
    assert partial.score(X, y) > 0.7
    twice = GraphCRF(tol=1e-9).fit([*X, X[0]], [*y, y[0]])
    heavy = GraphCRF(tol=1e-9).fit(X, y, sample_weight=[2.0] + [1.0] * (len(X) - 1))
    np.testing.assert_allclose(heavy.coef_, twice.coef_, atol=1e-4)
    left_out = GraphCRF(tol=1e-9).fit(X, y, sample_weight=[0.0] + [1.0] * (len(X) - 1))
    np.testing.assert_allclose(left_out.coef_, GraphCRF(tol=1e-9).fit(X[1:], y[1:]).coef_, atol=1e-6)


def test_forbidden_pairs_and_potts_tables() -> None:
    X, y = some_graphs(12)
    smooth = [["a" if label == "b" else label for label in labels] for labels in y]
    flat = [[labels[0]] * len(labels) for labels in smooth]
    model = GraphCRF(forbidden=[("near", "a", "c")]).fit(X, flat)
    assert np.isneginf(model.relation_weights("near").weights[0, 1])
    for graph, labels in zip(X, model.predict(X)):
        for tail, head in graph.edges["near"].pairs:
            assert {labels[tail], labels[head]} != {"a", "c"}
    potts = GraphCRF(relations={"near": "potts"}).fit(X, y)
    table = potts.relation_weights("near").weights
    assert np.ptp(np.diag(table)) == 0
    assert np.isnan(table[0, 1])


def test_warm_start_goes_on() -> None:
    X, y = some_graphs(12)
    model = GraphCRF(warm_start=True, tol=1e-8).fit(X, y)
    first = model.n_iter_
    assert model.fit(X, y).n_iter_ < first


def test_grid_search() -> None:
    X, y = some_graphs(12)
    search = GridSearchCV(GraphCRF(), {"l2": [0.1, 1.0], "objective": ["auto", "pseudo_likelihood"]}, cv=2)
    assert search.fit(X, y).best_score_ > 0.5


@pytest.mark.parametrize("name", ["graph", "grid", "factorial"])
@pytest.mark.filterwarnings("ignore:the couplings that pseudo_likelihood found:crfield.errors.DataWarning")
def test_files_round_trip(name: str, tmp_path: Path) -> None:
    model, make = CASES[name]
    X, y = make()
    own = {"engine": LoopyEngine(damping=0.25), "map_engine": "junction_tree", "objective": "pseudo_likelihood"}
    fitted = clone(model).set_params(**own).fit(X, y)
    path = tmp_path / "model.crfield"
    fitted.save(path)
    loaded = crfield.load(path)
    assert type(loaded) is type(fitted)
    assert loaded.engine == LoopyEngine(damping=0.25)
    assert loaded.explain() == fitted.explain()
    for one, other in zip(fitted.predict(X), loaded.predict(X)):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(fitted.log_prob(X, y), loaded.log_prob(X, y))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ModelFileError):
        crfield.load(path)


def test_layers_as_arrays_and_as_dicts() -> None:
    X, y = some_layers()
    as_arrays = [np.stack([np.array(labels["motion"]), np.array(labels["place"])], axis=1) for labels in y]
    one = FactorialCRF(layers=["motion", "place"]).fit(X, as_arrays)
    two = FactorialCRF().fit(X, y)
    np.testing.assert_array_equal(one.coef_, two.coef_)
    assert one.predict(X)[0].shape == (6, 2)
    assert one.predict_proba(X)[0]["place"].shape == (6, 2)
    assert one.predict_proba(X)[0]["motion"].shape == (6, 3)
    assert one.layers_ == ["motion", "place"]
    by_hand = GraphCRF().fit([layers({"motion": x, "place": x}) for x in X], y)
    np.testing.assert_allclose(by_hand.coef_, two.coef_)


def test_what_is_refused() -> None:
    X, y = some_graphs()
    with pytest.raises(ShapeError, match="does not exist"):
        Graph(3, {"near": [(0, 3)]})
    with pytest.raises(ShapeError, match="to itself"):
        Graph(3, {"near": [(1, 1)]})
    model = GraphCRF().fit(X, y)
    with pytest.raises(InputError, match="unknown relation 'far'"):
        model.predict([Graph(np.zeros((2, 3)), {"far": [(0, 1)]})])
    with pytest.raises(LabelError, match="'z'"):
        model.score(X, [["z"] * len(labels) for labels in y])
    with pytest.raises(ShapeError, match=r"y\[0\] has"):
        model.score(X, [labels[:-1] for labels in y])
    with pytest.raises(InputError, match="expected a list of graphs"):
        model.predict(X[0])
    with pytest.raises(InputError, match="no label of kind"):
        GraphCRF(forbidden=[("near", "a", "q")]).fit(X, y)
    with pytest.raises(InputError, match="unknown relation"):
        GraphCRF(relations={"far": "potts"}).fit(X, y)
    with pytest.raises(InputError, match="Did you mean 'loopy'"):
        GraphCRF(engine="lopy").fit(X, y)
    with pytest.raises(InputError, match="objective must be one of"):
        GraphCRF(objective="likelyhood").fit(X, y)
    images, truth = some_images()
    with pytest.raises(InputError, match="two labels"):
        DiscriminativeRandomField().fit(images, [t + 2 * (t.cumsum() > 3).reshape(t.shape) for t in truth])
    with pytest.raises(ShapeError, match="must have the shape"):
        GridCRF().fit(images, [t[:-1] for t in truth])
    with pytest.raises(ShapeError, match=r"must be \(T, 2\)"):
        FactorialCRF(layers=["a", "b"]).fit([np.zeros((3, 1))], [np.zeros((3, 3), int)])
