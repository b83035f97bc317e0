"""The default of graph models where exact inference is too large: the fit without edges, the bound by trees, the
strength chosen on held-out graphs, and what is said of it."""

from __future__ import annotations

import json
import pickle
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

import crfield
from crfield import Edges, Graph, GraphCRF, GridCRF
from crfield.core.target import Target
from crfield.errors import ConvergenceWarning, DataWarning, ModelFileError
from crfield.inference.graphs.loopy import LoopyEngine
from crfield.inference.graphs.tree_reweighted import TreeReweightedEngine
from crfield.optimize.history import CALLBACK, TOLERANCE, Result
from crfield.optimize.penalty import Penalty
from crfield.storage.state import State
from crfield.training.graph import plan as graph_plan
from crfield.training.graph.alone import fit_alone
from crfield.training.graph.plan import STRENGTHS, HeldOut, Plan, told_strength
from crfield.training.graph.strength import (
    BoundedLikelihood,
    certified_value,
    chosen_strength,
    connected_quarter,
    held_out_parts,
)
from tests.cases.grid_worlds import grid_world, oracle


@pytest.fixture
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Graphs of any width count as too wide for exact inference."""
    monkeypatch.setattr(graph_plan, "TRAINING_BUDGET", 1)


def stripes(n: int, seed: int = 0, *, noise: float = 1.5, side: int = 8) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Images of two halves whose pixels alone say little."""
    rng = np.random.default_rng(seed)
    truth = np.repeat([0, 1], side // 2)[None].repeat(side, axis=0)
    flips = rng.random(n) < 0.5
    y = [1 - truth if flip else truth for flip in flips]
    return [labels[..., None] + noise * rng.normal(size=(side, side, 1)) for labels in y], y


def salt(n: int, seed: int = 0, *, side: int = 8) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Images whose pixels know nothing of each other."""
    rng = np.random.default_rng(seed)
    y = [rng.integers(0, 2, (side, side)) for _ in range(n)]
    return [labels[..., None] + rng.normal(size=(side, side, 1)) for labels in y], y


def quietly(model: Any, X: Any, y: Any, **options: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DataWarning)
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y, **options)


# -------------------------------------------------------------------------------------------------- without edges


def test_the_fit_without_edges_is_the_model_of_graphs_without_edges() -> None:
    """Two kinds of different label sets, unknown labels, sets of labels, weights, free intercepts."""
    rng = np.random.default_rng(0)

    def graph(bare: bool) -> Graph:
        return Graph({"a": columns, "b": words}, {} if bare else {"at": Edges([(0, 0), (1, 1)], between=("a", "b"))})

    X, bare, y = [], [], []
    for _ in range(12):
        columns = rng.normal(size=(4, 2))
        words = [[str(rng.choice(["u", "v"]))] for _ in range(3)]
        X.append(graph(False))
        bare.append(graph(True))
        labels: list[Any] = [str(rng.choice(["x", "y", "z"])) for _ in range(4)] + [
            str(rng.choice(["s", "t"])) for _ in words
        ]
        labels[1], labels[2], labels[5] = None, {"x", "y"}, None
        y.append(labels)
    weight = rng.uniform(0.5, 2.0, len(X))
    options: dict[str, Any] = {"l2": 0.3, "penalize_intercepts": False, "tol": 1e-10, "feature_pairs": "all"}
    plain = GraphCRF(**options).fit(bare, y, sample_weight=weight)
    inner = GraphCRF(objective="piecewise", **options | {"tol": 0.1})
    quietly(inner, X, y, sample_weight=weight)
    from crfield.estimators.graph.data import target_of
    from crfield.scoring.graph_linear import GraphScorer

    model = inner._fitted
    batch = model.encoder.encode(X)
    target = target_of(batch, model.labels, y, weight)
    penalised = (~model.layout.intercepts).astype(np.uint8)
    found = fit_alone(GraphScorer(model.layout), batch, target, Penalty(l2=0.3, penalised=penalised), tol=1e-10)
    assert found.converged
    size = len(plain.coef_)
    np.testing.assert_allclose(found.weights[:size] - plain.coef_, 0, atol=2e-3)
    assert found.value == pytest.approx(plain.objective_, rel=1e-8)
    assert not found.weights[size:].any(), "no couplings"


# ------------------------------------------------------------------------------------------------- the bound


def test_messages_are_kept_and_the_value_is_that_of_a_cold_run() -> None:
    world = grid_world(6, np.random.default_rng(0))
    problem = BoundedLikelihood(world.scorer, world.scorer.prepare(world.batch), world.target)
    rng = np.random.default_rng(1)
    gradient, cold = np.empty(problem.n_weights), np.empty(problem.n_weights)
    weights = np.zeros(problem.n_weights)
    for _ in range(12):
        weights = weights + 0.05 * rng.normal(size=len(weights))
        value = problem.evaluate(weights, gradient)
    fresh = BoundedLikelihood(world.scorer, world.scorer.prepare(world.batch), world.target, sweeps=500)
    assert value == pytest.approx(fresh.evaluate(weights, cold), rel=1e-3)
    np.testing.assert_allclose(gradient, cold, atol=0.05)


def test_the_bound_lies_above_the_likelihood_also_with_partial_labels() -> None:
    world = grid_world(4, np.random.default_rng(0))
    exact = BoundedLikelihood(world.scorer, world.batch, world.target)
    exact.engine = oracle(3)
    bounded = BoundedLikelihood(world.scorer, world.batch, world.target, sweeps=300)
    weights = np.array([-0.5, 0.5, 0.4, -0.4, 0.1, -0.1, 1.0, -1.0, 1.0])
    assert bounded.evaluate(weights, np.empty(9)) > exact.evaluate(weights, np.empty(9))
    labels = world.target.labels.copy()
    labels[::2] = -1
    allowed = np.ones((len(labels), 2), bool)
    allowed[labels >= 0] = np.eye(2, dtype=bool)[labels[labels >= 0]]
    some = Target(world.target.topology, 2, labels, allowed)
    partial = BoundedLikelihood(world.scorer, world.batch, some)
    first, second = np.empty(9), np.empty(9)
    values = [partial.evaluate(weights, first) for _ in range(30)]
    cold = BoundedLikelihood(world.scorer, world.batch, some, sweeps=500).evaluate(weights, second)
    assert values[-1] == pytest.approx(cold, abs=1e-3), "each of the two questions has messages of its own"
    np.testing.assert_allclose(first, second, atol=1e-2)


def test_a_value_that_moves_is_not_certified() -> None:
    world = grid_world(4, np.random.default_rng(0))
    weights = np.full(9, 0.1)
    problem = BoundedLikelihood(world.scorer, world.batch, world.target, sweeps=200)
    value = problem.evaluate(weights, np.empty(9))
    found = Result(weights, value, 1, 1, True, TOLERANCE)
    work = world.scorer.prepare(world.batch)
    assert certified_value(world.scorer, work, world.target, Penalty(), found, 1) == pytest.approx(value, rel=1e-4)
    wrong = Result(weights, 1.01 * value, 1, 1, True, TOLERANCE)
    assert certified_value(world.scorer, work, world.target, Penalty(), wrong, 1) is None


# ---------------------------------------------------------------------------------------------- the strength


def test_the_rule_of_the_strength() -> None:
    rng = np.random.default_rng(0)
    base, steps = rng.normal(size=400), np.arange(5)[:, None]
    same = np.ones((5, 400), bool)
    assert chosen_strength(same, base + 0.1 * steps, 4).strength == 1.0
    assert chosen_strength(same, base - 0.1 * steps, 4).strength == 0.0
    noise = rng.normal(size=400)
    noise -= noise.mean() - 0.5 * noise.std() / 20
    assert chosen_strength(same, base + steps * noise, 4).strength == 0.0, "a gain within its error is none"
    worse = same & ~((steps == 4) & (rng.random(400) < 0.2))
    found = chosen_strength(worse, base + 0.1 * steps, 4)
    assert found.strength == 0.75, "better log-probability does not make up for wrong labels"
    assert found.misfit
    assert not chosen_strength(same, base - 0.1 * steps, 4).misfit


def test_parts_that_are_held_out() -> None:
    world = grid_world(7, np.random.default_rng(0))
    parts = held_out_parts(world.batch, world.target, np.random.default_rng(0), folds=4)
    assert sorted(judge[0].n_graphs for _, judge in parts) == [1, 2, 2, 2]
    assert all(learn[0].n_graphs + judge[0].n_graphs == 7 for learn, judge in parts)
    one = world.batch.take([0])
    assert (
        held_out_parts(one, Target(one.topology, 2, world.target.labels[:9]), np.random.default_rng(0), folds=4) == []
    )


def test_a_quarter_of_one_graph_is_connected() -> None:
    from scipy.sparse.csgraph import connected_components

    graph = crfield.grid(np.zeros((20, 20)))
    pairs = np.concatenate([edges.pairs for edges in graph.edges.values()])
    topology = crfield.core.graphs.Graphs(np.array([0, 400]), pairs[:, 0], pairs[:, 1])
    away = connected_quarter(topology, np.random.default_rng(0))
    assert away.sum() == 100
    inside = away[pairs].all(axis=1)
    from scipy.sparse import coo_array

    links = coo_array((np.ones(inside.sum()), pairs[inside].T), shape=(400, 400))
    assert len(np.unique(connected_components(links, directed=False)[1][away])) == 1


# --------------------------------------------------------------------------------------------- the default


@pytest.mark.usefixtures("wide")
def test_neighbours_that_help_are_used() -> None:
    X, y = stripes(16)
    new, truth = stripes(16, seed=1)
    model = GridCRF().fit(X, y)
    alone = crfield.MaxentClassifier().fit(np.concatenate([x.reshape(-1, 1) for x in X]), np.concatenate(y).ravel())
    right = np.concatenate([x.reshape(-1, 1) for x in new])
    assert model.score(new, truth) > alone.score(right, np.concatenate(truth).ravel()) + 0.1
    plan = model.plan_
    assert (plan.objective, plan.exact, plan.guarded) == ("likelihood", False, True)
    assert plan.strength == plan.held_out.strength > 0
    assert (plan.held_out.n_graphs, plan.held_out.n_nodes) == (16, 16 * 64)
    assert plan.held_out.accuracy[STRENGTHS.index(plan.strength)] > plan.held_out.accuracy[0]
    assert model.converged_
    told = model.explain().splitlines()
    assert told[0].startswith(
        "objective   likelihood bounded by trees (tree_reweighted), since exact inference would"
    )
    assert told[1] == f"strength    {told_strength(plan)}"
    assert "(upper bound), converged" in told[2]
    assert told[3] == "answers     marginals by tree_reweighted"
    assert isinstance(model.engine_for(model.potentials(new))[0], TreeReweightedEngine)


@pytest.mark.usefixtures("wide")
def test_neighbours_that_tell_nothing_are_left_out() -> None:
    X, y = salt(6)
    model = GridCRF().fit(X, y)
    assert model.plan_.strength == 0
    assert not model.coef_[-3:].any(), "couplings are exactly zero"
    assert "strength    0: neighbours did not help on 6 held-out graphs" in model.explain()
    alone = GraphCRF().fit([Graph(x.reshape(-1, 1)) for x in X], [labels.ravel() for labels in y])
    new = salt(3, seed=5)[0]
    for one, other in zip(model.predict_proba(new), alone.predict_proba([Graph(x.reshape(-1, 1)) for x in new])):
        np.testing.assert_allclose(one.reshape(-1, 2), other, atol=0.02)


def test_the_strength_in_words() -> None:
    found = HeldOut(3, 300, 0.0, (0.7,) * 5, (-0.6,) * 5)
    base = Plan("likelihood", None, False, "", True, strength=0.0, held_out=found)
    assert told_strength(base).endswith("3 held-out graphs; the model is the one without edges")
    assert "a held-out quarter" in told_strength(
        Plan("likelihood", None, False, "", True, strength=0.5, held_out=HeldOut(1, 90, 0.5, (0.7,) * 5, (-0.6,) * 5))
    )
    assert "not checked" in told_strength(Plan("likelihood", None, False, "", True, strength=1.0))


@pytest.mark.usefixtures("wide")
def test_one_graph_and_one_too_small() -> None:
    X, y = stripes(1, side=20)
    model = GridCRF().fit(X, y)
    assert (model.plan_.held_out.n_graphs, model.plan_.held_out.n_nodes) == (1, 100)
    X, y = stripes(1)
    with pytest.warns(DataWarning, match="the strength of the couplings was not checked"):
        small = GridCRF().fit(X, y)
    assert small.plan_.held_out is None
    assert "not checked" in small.explain()


@pytest.mark.usefixtures("wide")
def test_couplings_that_do_not_fit_are_weakened_and_said() -> None:
    """Half of the training images are stripes, half are checkers: one table cannot serve both."""
    rng = np.random.default_rng(3)
    board = np.indices((8, 8)).sum(axis=0) % 2
    X, y = [], []
    for k in range(8):
        labels = board if k % 2 else np.repeat([0, 1], 4)[None].repeat(8, axis=0)
        X.append(labels[..., None] + 0.7 * rng.normal(size=(8, 8, 1)))
        y.append(labels)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model = GridCRF(l2=1e-3).fit(X, y)
    found = model.plan_.held_out
    assert found.accuracy[STRENGTHS.index(model.plan_.strength)] >= found.accuracy[0] - 0.03
    if found.misfit and model.plan_.strength < 1:
        assert any("edge_features='difference'" in str(w.message) for w in told)


@pytest.mark.usefixtures("wide")
def test_named_objectives_below_the_model_without_edges_are_said() -> None:
    X, y = stripes(6, noise=2.0)
    with pytest.warns(DataWarning, match="pseudo_likelihood found make this model worse than the one without edges"):
        model = GridCRF(objective="pseudo_likelihood", l2=1e-3).fit(X, y)
    assert model.converged_
    assert ", converged, but worse than the one without edges" in model.explain()
    GridCRF().fit(X, y)  # and the default says nothing


@pytest.mark.usefixtures("wide")
def test_graphs_too_large_for_the_bound_take_pseudo_likelihood(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(graph_plan, "SECONDS", 0.0)
    X, y = stripes(12)
    new, truth = stripes(12, seed=1)
    model = quietly(GridCRF(), X, y)
    assert (model.plan_.objective, model.plan_.guarded) == ("pseudo_likelihood", True)
    assert isinstance(model.engine_for(model.potentials(new))[0], LoopyEngine)
    assert model.explain().splitlines()[0].startswith("objective   pseudo_likelihood with couplings no stronger than")
    alone = model.plan_.held_out.accuracy[0]
    assert model.score(new, truth) > alone


# --------------------------------------------------------------------------------------------------- decoding


def test_what_auto_decodes(monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = stripes(2, side=6)
    exact = GridCRF().fit(X, y)
    assert exact._decoder(exact.potentials(X)) == "map"
    monkeypatch.setattr(graph_plan, "TRAINING_BUDGET", 1)
    assert quietly(GridCRF(), X, y)._decoder(exact.potentials(X)) == "marginal"
    for options in (
        {"map_engine": "cuts"},
        {"objective": "hinge"},
        {"decode": "map"},
        {"engine": "icm", "objective": "perceptron"},
        {"forbidden": [("beside", 0, 2)]},
    ):
        labels = y if "forbidden" not in options else [np.indices((6, 6))[1] // 2] * 2
        model = quietly(GridCRF(max_iter=3, **options), X, labels)
        assert model._decoder(model.potentials(X)) == "map", options
    loopy = quietly(GridCRF(engine="loopy", objective="pseudo_likelihood"), X, y)
    assert loopy._decoder(loopy.potentials(X)) == "marginal"


# ------------------------------------------------------------------------------------- everything else it meets


@pytest.mark.usefixtures("wide")
def test_partial_labels_weights_and_seeds() -> None:
    X, y = stripes(8)
    new, truth = stripes(8, seed=1)
    rng = np.random.default_rng(0)
    known = [np.where(rng.random(labels.shape) < 0.4, labels, None) for labels in y]
    partial = quietly(GridCRF(), X, known)
    assert partial.plan_.objective == "likelihood"
    assert partial.plan_.held_out.n_nodes == sum((labels != None).sum() for labels in known)  # noqa: E711
    assert partial.score(new, truth) > partial.plan_.held_out.accuracy[0] + 0.05
    X, y = stripes(4, side=6)
    twice = quietly(GridCRF(l2=2.0, tol=1e-6), X, y, sample_weight=np.full(4, 2.0))
    once = quietly(GridCRF(l2=1.0, tol=1e-6), X, y)
    np.testing.assert_allclose(twice.coef_, once.coef_, atol=0.03)
    assert np.array_equal(once.coef_, quietly(GridCRF(tol=1e-6), X, y).coef_), "same seed, same bits"
    zero = np.r_[np.ones(3), 0.0]
    assert np.array_equal(
        quietly(GridCRF(), X, y, sample_weight=zero).coef_,
        quietly(GridCRF(), X[:3], y[:3], sample_weight=np.ones(3)).coef_,
    )
    threads = quietly(GridCRF(n_jobs=2, tol=1e-6), X, y)
    np.testing.assert_allclose(threads.coef_, once.coef_, atol=1e-6)


@pytest.mark.usefixtures("wide")
def test_kinds_edge_features_forbidden_pairs_and_graphs_that_are_no_grids() -> None:
    """Two kinds on random graphs: a node is "hot" if its device is "on"; edges carry how much they tell."""
    rng = np.random.default_rng(0)

    def one() -> tuple[Graph, dict[str, list[str]]]:
        n = 20
        on = rng.random(n // 2) < 0.5
        owner = rng.integers(0, n // 2, n)
        trust = rng.random(n) < 0.7
        hot = np.where(trust, on[owner], rng.random(n) < 0.5)
        near = [(a, b) for a in range(n) for b in range(a) if rng.random() < 0.15]
        graph = Graph(
            {
                "room": hot[:, None] + 1.5 * rng.normal(size=(n, 1)),
                "device": on[:, None] + 0.3 * rng.normal(size=(n // 2, 1)),
            },
            {
                "heats": Edges(
                    [(int(o), k) for k, o in enumerate(owner)],
                    features=trust[:, None].astype(float),
                    between=("device", "room"),
                ),
                "near": Edges(near, symmetric=True, between=("room", "room")),
            },
        )
        labels = {"room": np.where(hot, "hot", "cold").tolist(), "device": np.where(on, "on", "off").tolist()}
        return graph, labels

    X, y = zip(*[one() for _ in range(16)])
    new, truth = zip(*[one() for _ in range(16)])
    model = GraphCRF().fit(X, y)
    assert model.plan_.guarded
    assert model.plan_.strength > 0
    alone = model.plan_.held_out.accuracy[0]
    assert model.score(new, truth) > alone + 0.02
    lawful = [{**labels, "device": ["off"] * 10} for labels in y]
    rules = quietly(GraphCRF(forbidden=[("heats", "on", "cold")]), X, [*lawful[:-1], {**y[-1], "room": ["hot"] * 20}])
    found = rules.predict(new)
    assert rules._decoder(rules.potentials(new)) == "map"
    for graph, labels in zip(new, found):
        pairs = graph.edges["heats"].pairs
        assert not ((labels[pairs[:, 0]] == "on") & (labels[pairs[:, 1]] == "cold")).any()
    bare = quietly(
        GraphCRF(), [Graph(g.n_nodes, {"near": g.edges["near"]}) for g in X], [[*l["room"], *l["device"]] for l in y]
    )
    assert bare.plan_.objective == "pseudo_likelihood", "without features beliefs tell nothing of couplings"


@pytest.mark.usefixtures("wide")
def test_files_pickles_clones_and_searches(tmp_path: Path) -> None:
    X, y = stripes(4, side=6)
    model = quietly(GridCRF(), X, y)
    path = tmp_path / "model.crfield"
    model.save(path)
    loaded = crfield.load(path)
    assert loaded.plan_.held_out == model.plan_.held_out
    assert loaded.explain() == model.explain()
    for other in (loaded, pickle.loads(pickle.dumps(model))):
        for one, two in zip(model.predict_proba(X), other.predict_proba(X)):
            np.testing.assert_array_equal(one, two)
    assert np.array_equal(quietly(clone(model), X, y).coef_, model.coef_)
    header, arrays = model._state().header, model._state().arrays
    old = json.loads(json.dumps(header))
    for name in ("guarded", "strength", "held_out"):
        del old["plan"][name]
    old["parameters"]["decode"] = "map"
    before = GridCRF._from_state(State(old, arrays))
    assert before._decoder(before.potentials(X)) == "map", "files of before keep their meaning"
    assert not before.plan_.guarded
    for wrong in ({"strength": 0.3}, {"guarded": 1}, {"held_out": [1]}, {"held_out": {"n_graphs": -1}}):
        with pytest.raises(ModelFileError):
            GridCRF._from_state(State(header | {"plan": header["plan"] | wrong}, arrays))
    search = GridSearchCV(GridCRF(), {"l2": [0.1, 1.0]}, cv=2)
    assert quietly(search, X, y).best_score_ > 0.5


@pytest.mark.usefixtures("wide")
def test_a_callback_and_a_warm_start() -> None:
    X, y = stripes(4)
    seen: list[int] = []

    def stop(step: Any, weights: np.ndarray) -> bool:
        seen.append(len(weights))
        return len(seen) == 2

    model = GridCRF(callback=stop).fit(X, y)
    assert model.stop_reason_ == CALLBACK
    assert set(seen) == {len(model.coef_)}
    model = quietly(GridCRF(warm_start=True, l2=1.0), X, y)
    before = model.coef_.copy()
    np.testing.assert_allclose(quietly(model, X, y).coef_, before, atol=0.1)
