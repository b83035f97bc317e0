"""Continuous fields: the engine against dense linear algebra, gradients against differences, and the estimator."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone, is_regressor
from sklearn.linear_model import Ridge
from sklearn.model_selection import GridSearchCV

import crfield
from crfield import ContinuousCRF, Edges, Graph, grid, make_smooth_series
from crfield.core.graphs import Graphs
from crfield.core.quadratic import Quadratic
from crfield.core.topology import Chains
from crfield.data.batch import Columns
from crfield.data.graphs.batch import GraphBatch
from crfield.errors import ConvergenceWarning, InputError, LabelError, ModelFileError, NotFittedError, ShapeError
from crfield.inference.gaussian import GaussianEngine, fronts_of
from crfield.objectives.gaussian import GaussianLikelihood
from crfield.scoring.quadratic import QuadraticScorer
from crfield.training.gaussian import GaussianProblem, standard_errors
from studies.models.smooth_series import STUDY as smooth_series
from studies.models.smooth_series import distances

RNG = np.random.default_rng


def random_graphs(rng: np.random.Generator) -> Graphs:
    """A lonely node, an empty graph, sparse and full ones, edges in both directions, two that are parallel."""
    offsets, tails, heads = [0], [], []
    for n, share in ((1, 0.0), (7, 0.3), (0, 0.0), (15, 0.2), (12, 1.0), (20, 0.1)):
        one, two = np.triu_indices(n, 1)
        kept = rng.random(len(one)) < share
        turned = rng.random(kept.sum()) < 0.5
        tails.append(np.where(turned, two[kept], one[kept]) + offsets[-1])
        heads.append(np.where(turned, one[kept], two[kept]) + offsets[-1])
        offsets.append(offsets[-1] + n)
    tails.append(tails[-1][:1])
    heads.append(heads[-1][:1])
    return Graphs(np.array(offsets), np.concatenate(tails), np.concatenate(heads))


def image(size: int) -> Graphs:
    pairs = grid(np.zeros((size, size))).edges["beside"].pairs
    return Graphs([0, size * size], pairs[:, 0], pairs[:, 1])


TOPOLOGIES: dict[str, Any] = {
    "chains": Chains.from_lengths([5, 0, 1, 9, 2]),
    "chains as graphs": Graphs.from_chains(Chains.from_lengths([4, 3])),
    "graphs": random_graphs(RNG(0)),
    "image": image(6),
    "star": Graphs([0, 6], [0, 0, 0, 0, 0], [5, 4, 3, 2, 1]),
    "no edges": Graphs([0, 2, 3], [], []),
}


def random_field(topology: Any, seed: int = 1) -> Quadratic:
    rng = RNG(seed)
    beta = rng.random(topology.n_edges) + 0.1
    node = rng.random(topology.n_nodes) + 0.1
    np.add.at(node, topology.tails, beta)
    np.add.at(node, topology.heads, beta)
    return Quadratic(node, -beta, rng.normal(size=topology.n_nodes), topology)


def each_dense(field: Quadratic) -> Iterator[tuple[int, slice, np.ndarray]]:
    for graph, (first, last) in enumerate(zip(field.topology.offsets[:-1], field.topology.offsets[1:])):
        if last > first:
            yield graph, slice(first, last), field.dense(graph)


every_topology = pytest.mark.parametrize("name", sorted(TOPOLOGIES))


@every_topology
def test_engine_against_dense_algebra(name: str) -> None:
    field = random_field(TOPOLOGIES[name])
    found, topology = GaussianEngine().infer(field), field.topology
    assert found.total.shape == (topology.n_sequences,)
    for graph, at, precision in each_dense(field):
        inverse = np.linalg.inv(precision)
        linear = field.linear[at]
        mean = inverse @ linear
        total = 0.5 * linear @ mean - 0.5 * np.linalg.slogdet(precision)[1] + 0.5 * len(mean) * np.log(2 * np.pi)
        own = topology.sequence_of_edge == graph
        np.testing.assert_allclose(found.mean[at], mean, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.total[graph], total, rtol=0, atol=1e-10)
        np.testing.assert_allclose(found.variance[at], np.diag(inverse), rtol=0, atol=1e-10)
        ends = inverse[topology.tails[own] - at.start, topology.heads[own] - at.start]
        np.testing.assert_allclose(found.covariance[own], ends, rtol=0, atol=1e-10)


@every_topology
def test_the_moments_are_the_gradient_of_the_total(name: str) -> None:
    field, engine = random_field(TOPOLOGIES[name]), GaussianEngine()
    found, topology = engine.infer(field), field.topology
    tails, heads = topology.tails, topology.heads
    slopes = {
        "node": -0.5 * (found.variance + found.mean**2),
        "edge": -(found.covariance + found.mean[tails] * found.mean[heads]),
        "linear": found.mean,
    }
    rng = RNG(2)
    for part, slope in slopes.items():
        direction = rng.normal(size=len(slope))
        sides = []
        for sign in (1, -1):
            parts = {p: getattr(field, p) for p in slopes}
            parts[part] = parts[part] + sign * 1e-5 * direction
            sides.append(engine.infer(Quadratic(**parts, topology=topology)).total.sum())
        assert (sides[0] - sides[1]) / 2e-5 == pytest.approx(slope @ direction, rel=1e-6, abs=1e-7)


@every_topology
def test_draws_have_the_moments(name: str) -> None:
    """L⁻ᵀ of unit vectors, one after another, gives the inverse as a sum of squares."""
    field = random_field(TOPOLOGIES[name])

    class Unit:
        def __init__(self, k: int) -> None:
            self.k = k

        def standard_normal(self, n: int) -> np.ndarray:
            return np.eye(n)[self.k]

    engine = GaussianEngine()
    mean = engine.infer(field).mean
    draws = [engine.sample(field, Unit(k)) - mean for k in range(field.topology.n_nodes)]  # type: ignore[arg-type]
    covariance = np.array(draws).T @ np.array(draws)
    for _, at, precision in each_dense(field):
        np.testing.assert_allclose(covariance[at, at], np.linalg.inv(precision), atol=1e-10)


def test_precisions_that_are_not_positive_are_refused() -> None:
    for topology in (Chains.from_lengths([2, 3]), Graphs([0, 2, 5], [0, 2, 3, 2], [1, 3, 4, 4])):
        field = random_field(topology)
        node = field.node.copy()
        node[3] = 0.01
        with pytest.raises(InputError, match="graph 1 is not positive definite"):
            GaussianEngine().infer(Quadratic(node, field.edge, field.linear, topology))
    with pytest.raises(InputError, match="finite"):
        Quadratic(np.array([np.nan]), np.zeros(0), np.zeros(1), Chains.from_lengths([1]))
    with pytest.raises(ShapeError, match="edge must have 1"):
        Quadratic(np.ones(2), np.zeros(2), np.zeros(2), Chains.from_lengths([2]))


def test_a_front_holds_nodes_that_go_together() -> None:
    fronts = fronts_of(TOPOLOGIES["graphs"])
    assert np.array_equal(np.sort(np.concatenate([front.nodes for front in fronts])), np.arange(55))
    assert max(len(front.nodes) for front in fronts) >= 10  # the full graph of twelve nodes


# ------------------------------------------------------------------------------------------------- likelihood


@every_topology
@pytest.mark.parametrize("unknown", [0.0, 0.4, 1.0])
def test_likelihood_against_dense_densities(name: str, unknown: float) -> None:
    """Unknown labels are integrated out: the density of the known ones is that of their marginal."""
    from scipy.stats import multivariate_normal

    field, rng = random_field(TOPOLOGIES[name]), RNG(3)
    y = rng.normal(size=field.topology.n_nodes)
    y[rng.random(len(y)) < unknown] = np.nan
    weight = rng.random(field.topology.n_sequences) + 0.5
    expected = 0.0
    for graph, at, precision in each_dense(field):
        known = ~np.isnan(y[at])
        if known.any():
            inverse = np.linalg.inv(precision)
            marginal = multivariate_normal((inverse @ field.linear[at])[known], inverse[np.ix_(known, known)])
            expected -= weight[graph] * marginal.logpdf(y[at][known])
    found = GaussianLikelihood().evaluate(field, y, GaussianEngine(), weight)
    assert found.value == pytest.approx(expected, rel=1e-10, abs=1e-10)


def scored_batch(topology: Any, *, edge_columns: int, rng: np.random.Generator) -> GraphBatch:
    nodes, edges = topology.n_nodes, topology.n_edges
    rows = [np.flatnonzero(rng.random(2) < 0.5).tolist() for _ in range(nodes)]
    sparse = Columns.from_rows(rows, width=2)
    node = Columns(sparse.indptr, sparse.indices, 2, None, rng.normal(size=(nodes, 2)))
    relation = np.zeros(edges, np.int32)
    offsets = topology.edge_offsets
    for a, b in pairwise(offsets.tolist()):
        relation[(a + b) // 2 : b] = 1
    second = np.zeros(int(relation.sum()) + 1, np.int64)
    edge = Columns(second, np.zeros(0, np.int32), 0, None, rng.normal(size=(len(second) - 1, edge_columns)))
    return GraphBatch(topology, node, np.zeros(nodes), relation, (None, edge))


@pytest.mark.parametrize("association", ["linear", "columns"])
@pytest.mark.parametrize("name", ["chains as graphs", "graphs", "no edges"])
def test_gradients_of_the_weights(name: str, association: str) -> None:
    rng = RNG(4)
    batch = scored_batch(TOPOLOGIES[name], edge_columns=2, rng=rng)
    scorer = QuadraticScorer(association, 4, (0, 2))
    y = rng.normal(size=batch.topology.n_nodes)
    y[::5] = np.nan
    weight = rng.random(batch.n_graphs) + 0.5
    problem = GaussianProblem(scorer, batch, y, weight=weight)
    weights = 0.5 * rng.normal(size=scorer.n_weights)
    gradient, spare = np.empty(len(weights)), np.empty(len(weights))
    problem.evaluate(weights, gradient)
    for k in range(len(weights)):
        step = np.zeros(len(weights))
        step[k] = 1e-5
        slope = (problem.evaluate(weights + step, spare) - problem.evaluate(weights - step, spare)) / 2e-5
        assert gradient[k] == pytest.approx(slope, rel=1e-6, abs=1e-7)


def test_standard_errors_of_a_plain_regression() -> None:
    """Without edges the field is least squares with noise, whose standard errors are known."""
    rng = RNG(5)
    x = rng.normal(size=(400, 3))
    y = x @ [1.0, -2.0, 0.5] + 3.0 + 0.7 * rng.normal(size=400)
    model = ContinuousCRF(l2=0.0).fit([Graph(x)], [y])
    design = np.column_stack([x, np.ones(400)])
    coef = np.linalg.lstsq(design, y, rcond=None)[0]
    variance = np.mean((y - design @ coef) ** 2)
    expected = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    np.testing.assert_allclose([*model.coef_, model.intercept_], coef, rtol=1e-4)
    assert model.association_[0] == pytest.approx(1 / variance, rel=1e-4)
    found: Any = model.standard_errors_
    np.testing.assert_allclose([*found["coef"], found["intercept"]], expected, rtol=1e-3)
    np.testing.assert_allclose(found["association"], np.sqrt(2 / 400), rtol=1e-3)
    assert standard_errors(np.array([[1.0, 1.0], [1.0, 1.0]])).tolist() == [np.inf, np.inf]


# -------------------------------------------------------------------------------------------------- estimator


@pytest.fixture(scope="module")
def world() -> Any:
    return make_smooth_series(60, length=80, random_state=3)


@pytest.fixture(scope="module")
def model(world: Any) -> ContinuousCRF:
    return ContinuousCRF(l2=0.0).fit(world.features[:30], world.labels[:30])


def test_known_weights_are_found(model: ContinuousCRF, world: Any) -> None:
    assert np.abs(distances(model, world)).max() <= 3


def test_it_beats_ridge_and_knows_how_sure_it_is(model: ContinuousCRF, world: Any) -> None:
    test, truth = world.features[30:], np.concatenate(world.labels[30:])
    ridge = Ridge().fit(np.concatenate(world.features[:30]), np.concatenate(world.labels[:30]))
    error = np.mean((np.concatenate(list(model.predict(test))) - truth) ** 2)
    assert error < 0.6 * np.mean((ridge.predict(np.concatenate(test)) - truth) ** 2)
    low, high = np.concatenate(list(model.predict_intervals(test))).T
    assert 0.87 <= np.mean((low <= truth) & (truth <= high)) <= 0.93
    std = np.concatenate(list(model.predict_std(test)))
    np.testing.assert_allclose(high - low, 2 * 1.6448536269514722 * std)
    assert std[0] > std[40]  # a first step has one neighbour only
    with pytest.raises(InputError, match="coverage must be"):
        model.predict_intervals(test, coverage=90)


def test_the_experiment_holds_its_claims() -> None:
    found = smooth_series(seeds=tuple(range(6)), n_series=40, length=60)
    assert found.verdict == "all 5 claims hold"


def test_answers_have_one_form(model: ContinuousCRF, world: Any) -> None:
    for X in (world.features[:3], world.features[:1], world.features[:0], [np.zeros((0, 4)), np.zeros((1, 4))]):
        for answer in (model.predict(X), model.predict_std(X)):
            assert answer.dtype == object
            assert answer.shape == (len(X),)
            assert all(a.shape == (len(x),) and np.isfinite(a).all() for a, x in zip(answer, X, strict=True))
        assert all(a.shape == (len(x), 2) for a, x in zip(model.predict_intervals(X, coverage=0.5), X, strict=True))


def test_densities_and_scores(model: ContinuousCRF, world: Any) -> None:
    X, y = world.features[30:], world.labels[30:]
    flat, predicted = np.concatenate(y), np.concatenate(list(model.predict(X)))
    expected = 1 - np.sum((flat - predicted) ** 2) / np.sum((flat - flat.mean()) ** 2)
    assert model.score(X, y) == pytest.approx(expected, abs=1e-12)
    only = [1.0] + [0.0] * (len(X) - 1)
    assert model.score(X, y, sample_weight=only) == pytest.approx(model.score(X[:1], y[:1]))
    one = model.log_prob(X[:1], [[None] * 79 + [float(y[0][-1])]])[0]
    mean, std = model.predict(X[:1])[0][-1], model.predict_std(X[:1])[0][-1]
    assert one == pytest.approx(-0.5 * ((y[0][-1] - mean) / std) ** 2 - np.log(std * np.sqrt(2 * np.pi)), rel=1e-9)


def test_unknown_labels(world: Any) -> None:
    """Half of the labels suffice, and what is known of a sequence helps to fill in the rest."""
    rng = RNG(6)
    holes = [np.where(rng.random(len(y)) < 0.5, np.nan, y) for y in world.labels]
    model = ContinuousCRF(l2=0.0).fit(world.features[:30], holes[:30])
    assert np.abs(distances(model, world)).max() <= 3.5
    filled = model.impute(world.features[30:], holes[30:])
    gone = np.isnan(np.concatenate(holes[30:]))
    truth = np.concatenate(world.labels[30:])
    np.testing.assert_allclose(np.concatenate(list(filled))[~gone], truth[~gone])
    by_neighbours = np.mean((np.concatenate(list(filled)) - truth)[gone] ** 2)
    by_features = np.mean((np.concatenate(list(model.predict(world.features[30:]))) - truth)[gone] ** 2)
    assert by_neighbours < 0.7 * by_features


def test_units_do_not_matter(world: Any) -> None:
    X, y = world.features[:10], world.labels[:10]
    plain = ContinuousCRF(l2=0.5).fit(X, y)
    other = ContinuousCRF(l2=0.5).fit(X, [1000.0 * labels - 5.0 for labels in y])
    np.testing.assert_allclose(other.coef_, 1000.0 * plain.coef_, rtol=1e-4)
    np.testing.assert_allclose(other.interaction_["+1"], plain.interaction_["+1"] / 1e6, rtol=1e-4)
    np.testing.assert_allclose(other.predict(X)[0], 1000.0 * plain.predict(X)[0] - 5.0, rtol=1e-3, atol=0.1)
    np.testing.assert_allclose(
        other.log_prob(X, [1000.0 * v - 5.0 for v in y]).sum(),
        plain.log_prob(X, y).sum() - 800 * np.log(1000.0),
        rtol=1e-6,
    )


def test_predictions_in_columns(world: Any) -> None:
    """Two experts, one of them three times as far off: each is trusted by its precision."""
    rng = RNG(7)
    good = [y + 0.3 * rng.normal(size=len(y)) for y in world.labels]
    bad = [y + 0.9 * rng.normal(size=len(y)) for y in world.labels]
    X = [np.column_stack(pair) for pair in zip(good, bad, strict=True)]
    model = ContinuousCRF(association="columns").fit(X[:30], world.labels[:30])
    assert model.association_[0] > 4 * model.association_[1]
    assert model.coef_.shape == (0,)
    error = np.mean((np.concatenate(list(model.predict(X[30:]))) - np.concatenate(world.labels[30:])) ** 2)
    assert error < 0.3**2


def test_graphs_with_relations_and_edge_columns() -> None:
    """An image of numbers: edges whose column says that they cross a border hold less."""
    rng = RNG(8)
    X, y = [], []
    for _ in range(4):
        truth = np.repeat([0.0, 4.0], 3)[None] + np.zeros((6, 1)) + 0.1 * rng.normal(size=(6, 6))
        graph = grid(np.zeros((6, 6)), directed=True)
        edges = {}
        for name, some in graph.edges.items():
            crosses = np.abs(truth.ravel()[some.pairs[:, 0]] - truth.ravel()[some.pairs[:, 1]]) > 2
            edges[name] = Edges(some.pairs, crosses[:, None].astype(float) if name == "right" else None)
        noisy = truth.reshape(-1, 1) + rng.normal(size=(36, 1))
        X.append(Graph(noisy, edges))
        y.append(truth)
    model = ContinuousCRF(association="columns", standard_errors=False, tol=1e-5).fit(X[:3], y[:3])
    assert set(model.interaction_) == {"right", "down"}
    assert model._fitted.weights[model._fitted.scorer.relation(0)][1] < -3
    error = np.mean([(p - t.ravel()) ** 2 for p, t in zip(model.predict(X[3:]), y[3:], strict=True)])
    assert error < 0.2


def test_words_as_features() -> None:
    X = [[{"word": "cold"}, {"word": "warm"}, {"word": "warm"}], [{"word": "cold"}, {"word": "cold"}]] * 4
    y = [[2.0, 9.0, 11.0], [1.0, 0.0]] * 4
    model = ContinuousCRF(l2=0.1).fit(X, y)
    cold, warm = model.predict([[{"word": "cold"}, {"word": "warm"}]])[0]
    assert cold + 4 < warm


@pytest.mark.parametrize("case", ["constant", "perfect", "lonely", "alternating"])
def test_extreme_data(case: str) -> None:
    """Labels without variance, without noise, without neighbours, or that flee each other."""
    rng = RNG(9)
    X = [rng.normal(size=(20 if case != "lonely" else 1, 2)) for _ in range(10)]
    y = [x @ [1.0, 2.0] for x in X]
    if case == "constant":
        y = [np.full(20, 7.0) for _ in X]
    if case == "alternating":
        y = [np.resize([1.0, -1.0], 20) + 0.1 * rng.normal(size=20) for _ in X]
    model = ContinuousCRF().fit(X, y)
    predicted = np.concatenate(list(model.predict(X)))
    assert np.isfinite(predicted).all()
    if case in ("constant", "perfect"):
        np.testing.assert_allclose(predicted, np.concatenate(y), atol=0.05)
    if case == "alternating":
        assert model.interaction_["+1"] < 0.01


def test_the_contract_of_scikit_learn(model: ContinuousCRF, world: Any, tmp_path: Path) -> None:
    X, y = world.features[30:34], world.labels[30:34]
    assert is_regressor(model)
    assert repr(ContinuousCRF()) == "ContinuousCRF()"
    assert clone(ContinuousCRF(l2=3.0)).l2 == 3.0
    with pytest.raises(NotFittedError, match="ContinuousCRF is not fitted yet"):
        ContinuousCRF().predict(X)
    search = GridSearchCV(ContinuousCRF(standard_errors=False), {"l2": [0.1, 10.0]}, cv=2)
    assert np.isfinite(search.fit(world.features[:8], world.labels[:8]).cv_results_["mean_test_score"]).all()
    assert search.best_estimator_.standard_errors_ is None
    path = tmp_path / "series.crfield"
    model.save(path)
    for copy in (crfield.load(path), pickle.loads(pickle.dumps(model))):
        assert all(np.array_equal(a, b) for a, b in zip(copy.predict(X), model.predict(X), strict=True))
        assert copy.interaction_ == model.interaction_
        np.testing.assert_array_equal(copy.log_prob(X, y), model.log_prob(X, y))
        np.testing.assert_equal(copy.standard_errors_, model.standard_errors_)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0xFF
    path.write_bytes(bytes(data))
    with pytest.raises(ModelFileError):
        crfield.load(path)


def test_weights_count(world: Any) -> None:
    X, y = world.features[:8], world.labels[:8]
    weight = np.array([2.0, 0.0] + [1.0] * 6)
    rest = [0, 0, 2, 3, 4, 5, 6, 7]
    kept = ContinuousCRF().fit(X, y, sample_weight=weight)
    twice = ContinuousCRF().fit([X[k] for k in rest], [y[k] for k in rest])
    # Labels are brought to deviation 1 before the ridge, and that of the set without copies is another.
    np.testing.assert_allclose(kept.coef_, twice.coef_, rtol=1e-3)
    np.testing.assert_allclose(kept.interaction_["+1"], twice.interaction_["+1"], rtol=1e-3)


def test_graphs_and_sequences_agree(world: Any) -> None:
    X, y = world.features[:6], world.labels[:6]
    chains = [crfield.chain(x) for x in X]
    one, other = ContinuousCRF().fit(X, y), ContinuousCRF().fit(chains, y)
    for a, b in zip(one.predict(X), other.predict(chains), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-8)
    with pytest.raises(InputError, match="fitted on sequences, got graphs"):
        one.predict(chains)


BAD: dict[str, tuple[dict[str, Any], Any, Any, type[Exception], str]] = {
    "association": ({"association": "square"}, None, None, InputError, "association must be one of"),
    "l2": ({"l2": -1.0}, None, None, InputError, "l2 must be"),
    "tol": ({"tol": 0}, None, None, InputError, "tol must be"),
    "max_iter": ({"max_iter": 0}, None, None, InputError, "max_iter must be"),
    "scaled predictions": ({"association": "columns", "standardize": True}, None, None, InputError, "units"),
    "nan feature": ({}, [np.array([[np.nan]])], [[1.0]], InputError, "finite"),
    "infinite label": ({}, [np.ones((2, 1))], [[1.0, np.inf]], LabelError, "sequence 0, step 1"),
    "words as labels": ({}, [np.ones((2, 1))], [["a", "b"]], LabelError, "must be numbers"),
    "missing label": ({}, [np.ones((2, 1))], [[1.0]], ShapeError, "2 steps but 1 labels"),
    "missing sequence": ({}, [np.ones((2, 1))], [], ShapeError, "one list of numbers for each of 1"),
    "nothing known": ({}, [np.ones((2, 1))], [[None, None]], LabelError, "no known label"),
    "two kinds": ({}, [Graph({"a": 1, "b": 1})], [[1.0, 2.0]], InputError, "one kind"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_input_is_told(case: str) -> None:
    options, X, y, error, words = BAD[case]
    with pytest.raises(error, match=words):
        ContinuousCRF(**options).fit([np.eye(3)] if X is None else X, [[1.0, 2.0, 3.0]] if y is None else y)


def test_an_early_end_is_told(world: Any) -> None:
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        ContinuousCRF(max_iter=1).fit(world.features[:5], world.labels[:5])
    steps: list[Any] = []
    model = ContinuousCRF(callback=lambda step, weights: steps.append(step) or len(steps) == 2)  # type: ignore[func-returns-value]
    assert model.fit(world.features[:5], world.labels[:5]).stop_reason_ == "callback"
