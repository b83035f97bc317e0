"""Kernel fields: similarities, maps, greedy cliques, and the exact model against its dual form."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp
from scipy.optimize import minimize
from sklearn.metrics import pairwise

import crfield
from crfield import ChainCRF, Graph, KernelCRF, chain
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import ConvergenceWarning, CrfieldError, InputError, ModelFileError, ShapeError
from crfield.estimators.similarity import training as field_training
from crfield.features.columns.random_features import (
    Landmarks,
    Waves,
    distinct,
    map_from_arrays,
    map_to_arrays,
    pick_landmarks,
)
from crfield.inference.chain import ChainEngine
from crfield.objectives.contrast import Contrast
from crfield.scoring.similarity import GivenSimilarity, Similarity, similarity_of
from crfield.selection.methods.cliques import Refit, select_cliques
from crfield.training.rows import similarity as mapped_training
from crfield.training.rows.similarity import fused_problem, mapped_problem

RNG = np.random.default_rng
SIMILARITIES = {
    "linear": (Similarity("linear"), pairwise.linear_kernel, {}),
    "polynomial": (
        Similarity("polynomial", 0.3, 4, 2.0),
        pairwise.polynomial_kernel,
        {"gamma": 0.3, "degree": 4, "coef0": 2.0},
    ),
    "rbf": (Similarity("rbf", 0.3), pairwise.rbf_kernel, {"gamma": 0.3}),
    "laplacian": (Similarity("laplacian", 0.3), pairwise.laplacian_kernel, {"gamma": 0.3}),
}


def quadrants(n: int, *, seed: int, length: int = 15) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Labels that no linear score of the two columns can tell, and that tend to stay."""
    rng = RNG(seed)
    X, y = [], []
    for _ in range(n):
        state, rows, labels = 0, [], []
        for _ in range(length):
            state = state if rng.random() < 0.7 else 1 - state
            x = rng.normal(size=2)
            x[1] = abs(x[1]) * (1 if state else -1) * np.sign(x[0])
            rows.append(x + 0.3 * rng.normal(size=2))
            labels.append("same" if state else "other")
        X.append(np.array(rows))
        y.append(np.array(labels))
    return X, y


# ------------------------------------------------------------------------------------------------- similarity


@pytest.mark.parametrize("name", sorted(SIMILARITIES))
@pytest.mark.parametrize("form", ["dense", "sparse", "mixed"])
def test_similarities_against_scikit_learn(name: str, form: str) -> None:
    mine, theirs, options = SIMILARITIES[name]
    rng = RNG(0)
    a, b = rng.normal(size=(7, 5)), rng.normal(size=(4, 5))
    a[0] = 0.0
    one = a if form == "dense" else sp.csr_array(a)
    other = sp.csr_array(b) if form == "sparse" else b
    np.testing.assert_allclose(mine.gram(one, other), theirs(a, b, **options), atol=1e-12)
    np.testing.assert_allclose(mine.diagonal(one), np.diag(theirs(a, a, **options)), atol=1e-12)


def test_lengths_of_one_and_scales() -> None:
    rows = RNG(1).normal(size=(6, 3))
    rows[2] = 0.0
    unit = Similarity("polynomial", 1.0, 3, 1.0, normalize=True)
    np.testing.assert_allclose(np.diag(unit.gram(rows, rows)), 1.0)
    plain = Similarity("linear", normalize=True).gram(rows, rows)
    assert not plain[2].any()
    found: Any = similarity_of("rbf", rows)
    assert found.gamma == pytest.approx(1 / rows.var(axis=0).sum())  # the same wherever columns lie
    assert similarity_of("polynomial", rows).gamma == pytest.approx(1 / (3 * rows.var()))  # type: ignore[union-attr]
    assert similarity_of("rbf", sp.csr_array(rows)).gamma == pytest.approx(found.gamma)  # type: ignore[union-attr]
    assert similarity_of("rbf", np.ones((3, 2))).gamma == 1.0  # type: ignore[union-attr]
    with pytest.raises(ShapeError, match="3 columns and the others 2"):
        unit.gram(rows, rows[:, :2])
    with pytest.raises(ShapeError, match="function of two matrices"):
        GivenSimilarity(lambda a, b: 1.0).gram(rows, rows)


# ------------------------------------------------------------------------------------------------------- maps


@pytest.mark.parametrize("name", sorted(SIMILARITIES))
def test_all_rows_as_landmarks_give_the_kernel(name: str) -> None:
    rows = RNG(2).normal(size=(20, 4))
    mine = SIMILARITIES[name][0]
    columns = Landmarks.of(mine, rows).columns(rows)
    np.testing.assert_allclose(columns @ columns.T, mine.gram(rows, rows), atol=1e-6)
    weights = RNG(3).normal(size=(columns.shape[1], 2))
    np.testing.assert_allclose(Landmarks.of(mine, rows).scores(rows, weights), columns @ weights, atol=1e-6)


@pytest.mark.parametrize("kind", ["rbf", "laplacian"])
def test_waves_come_near_the_kernel(kind: str) -> None:
    rows = RNG(4).normal(size=(12, 3))
    columns = Waves.draw(kind, 3, 20_000, gamma=0.4, rng=RNG(0)).columns(rows)
    np.testing.assert_allclose(columns @ columns.T, Similarity(kind, 0.4).gram(rows, rows), atol=0.05)
    with pytest.raises(InputError, match="nystroem"):
        Waves.draw("polynomial", 3, 10, gamma=1.0, rng=RNG(0))


def test_equal_rows_are_one_landmark() -> None:
    rows = np.repeat(RNG(5).normal(size=(6, 2)), 3, axis=0)
    assert distinct(rows).tolist() == distinct(sp.csr_array(rows)).tolist() == [0, 3, 6, 9, 12, 15]
    for some in (rows, sp.csr_array(rows)):
        assert len(pick_landmarks(some, 100, RNG(0))) == 6
        assert len(pick_landmarks(some, 4, RNG(0))) == 4


def test_what_is_no_inner_product_is_refused() -> None:
    rows = RNG(6).normal(size=(8, 2))
    with pytest.raises(InputError, match="no inner product"):
        Landmarks.of(GivenSimilarity(lambda a, b: -(a @ b.T)), rows)
    with pytest.raises(InputError, match="offset"):
        Similarity("polynomial", offset=-1.0)


def test_maps_of_damaged_files_are_refused() -> None:
    centres = sp.csr_array(np.eye(3))
    good = map_to_arrays(Landmarks.of(Similarity("linear"), centres))
    assert map_from_arrays(good, Similarity("linear")).width == 3
    for name, wrong in (
        ("whiten", np.ones((2, 2))),
        ("whiten", np.full((3, 3), np.nan)),
        ("centres_indices", np.array([0, 1, 9])),
        ("centres_indptr", np.array([0, 2, 1, 3])),
        ("centres_width", np.array([-1])),
    ):
        with pytest.raises(ModelFileError):
            map_from_arrays({**good, name: wrong}, Similarity("linear"))
    with pytest.raises(ModelFileError):
        map_from_arrays({"whiten": good["whiten"]}, Similarity("linear"))


# ---------------------------------------------------------------------------------------------------- cliques


def least_squares(wanted: np.ndarray, l2: float) -> Any:
    def refit(columns: np.ndarray, state: Any) -> Refit:
        square = columns.T @ columns + l2 * np.eye(columns.shape[1])
        coef = np.linalg.solve(square, columns.T @ wanted)
        left = columns @ coef - wanted
        return Refit(float(0.5 * (left**2).sum() + 0.5 * l2 * (coef**2).sum()), left)

    return refit


def test_the_first_clique_is_the_steepest_of_all() -> None:
    rng = RNG(7)
    rows, wanted, like = rng.normal(size=(30, 3)), rng.normal(size=(30, 2)), Similarity("polynomial", degree=2)
    gram = like.gram(rows, rows)
    steepness = np.linalg.norm(gram @ wanted, axis=1) / np.sqrt(np.diag(gram))
    found = select_cliques(like, rows, least_squares(wanted, 0.1), n_cliques=1, rng=RNG(0))
    assert found.nodes.tolist() == [int(np.argmax(steepness))]
    assert found.rounds[0].slope == pytest.approx(steepness.max())


@pytest.mark.parametrize("l2", [0.0, 0.5])
def test_slopes_are_those_of_the_penalised_loss(l2: float) -> None:
    """The steepness of the second clique, by differences: the loss along the new part of its kernel."""
    rng = RNG(8)
    rows, wanted, like = rng.normal(size=(25, 3)), rng.normal(size=(25, 2)), Similarity("rbf", 0.3)
    refit = least_squares(wanted, l2)
    found = select_cliques(like, rows, refit, n_cliques=2, rng=RNG(0))
    columns = found.landmarks.columns(rows)
    first = np.linalg.solve(columns[:, :1].T @ columns[:, :1] + l2 * np.eye(1), columns[:, :1].T @ wanted)
    slopes = []
    for label in range(2):
        sides = []
        for sign in (1, -1):
            coef = np.vstack([first, np.zeros((1, 2))])
            coef[1, label] = sign * 1e-6
            left = columns @ coef - wanted
            sides.append(0.5 * (left**2).sum() + 0.5 * l2 * (coef**2).sum())
        slopes.append((sides[0] - sides[1]) / 2e-6)
    assert found.rounds[1].slope == pytest.approx(np.linalg.norm(slopes), rel=1e-5)
    assert found.rounds[1].objective < found.rounds[0].objective


def test_what_is_left_within_the_span_makes_no_clique_steep() -> None:
    """A fit that stopped early leaves slopes along the span; a twin of a clique that joined must not gain by them."""
    rng = RNG(11)
    rows = rng.normal(size=(40, 3))
    rows[1:20] = rows[0] + 1e-3 * rng.normal(size=(19, 3))
    wanted, like = rng.normal(size=(40, 2)), Similarity("rbf", 0.3)
    wanted[:20] += 5.0

    def hardly(columns: np.ndarray, state: Any) -> Refit:
        return Refit(0.0, -wanted)

    found = select_cliques(like, rows, hardly, n_cliques=6, per_round=2, rng=RNG(0))
    assert sum(node < 20 for node in found.nodes.tolist()) <= 2
    assert len(set(found.nodes.tolist())) == 6


def test_cliques_end_where_the_span_is_full() -> None:
    rows = np.repeat(RNG(9).normal(size=(4, 2)), 5, axis=0)
    wanted = RNG(1).normal(size=(20, 1))
    like = Similarity("linear")
    found = select_cliques(like, rows, least_squares(wanted, 0.1), n_cliques=10, per_round=3, rng=RNG(0))
    assert len(found.nodes) == 2  # two columns span all there is
    np.testing.assert_allclose(
        found.landmarks.columns(rows) @ found.landmarks.columns(rows).T, like.gram(rows, rows), atol=1e-10
    )
    ended = select_cliques(like, rows, least_squares(wanted, 0.1), n_cliques=2, rng=RNG(0), watch=lambda _: True)
    assert len(ended.rounds) == 1


# -------------------------------------------------------------------------------------------------- estimator


def test_exact_is_the_kernel_model_of_the_representer_theorem() -> None:
    """Coefficients of all training steps, found in their own form with the norm αᵀKα, give the same probabilities."""
    X, y = quadrants(4, seed=0, length=6)
    l2 = 0.3
    model = KernelCRF(similarity="rbf", gamma=0.5, l2=l2, basis="exact", tol=1e-10, max_iter=2000).fit(X, y)
    chains = Chains.from_lengths([len(x) for x in X])
    rows = np.concatenate(X)
    gram = Similarity("rbf", 0.5).gram(rows, rows)
    codes = (np.concatenate(y) == "same").astype(np.int32)
    target, n = Target(chains, 2, codes), len(rows)
    first, last = np.zeros((n, 1)), np.zeros((n, 1))
    first[chains.offsets[:-1]], last[chains.offsets[1:] - 1] = 1.0, 1.0
    plain = np.hstack([np.ones((n, 1)), first, last])

    def scores(v: np.ndarray) -> Potentials:
        alpha, rest, table = v[: 2 * n].reshape(n, 2), v[2 * n : 2 * n + 6].reshape(3, 2), v[2 * n + 6 :]
        return Potentials(gram @ alpha + plain @ rest, table.reshape(1, 2, 2), chains)

    def loss(v: np.ndarray) -> tuple[float, np.ndarray]:
        found = Contrast().evaluate(scores(v), target, ChainEngine())
        alpha = v[: 2 * n].reshape(n, 2)
        value = found.value + 0.5 * l2 * (np.sum(alpha * (gram @ alpha)) + v[2 * n :] @ v[2 * n :])
        slope = gram @ (found.node + l2 * alpha)
        return value, np.concatenate(
            [
                slope.ravel(),
                (plain.T @ found.node).ravel() + l2 * v[2 * n : 2 * n + 6],
                found.edge.ravel() + l2 * v[-4:],
            ]
        )

    dual = minimize(loss, np.zeros(2 * n + 10), jac=True, options={"gtol": 1e-9, "maxiter": 5000})
    assert model.objective_ == pytest.approx(dual.fun, rel=1e-7)
    from crfield.core.semiring import Semiring

    node = ChainEngine().infer(scores(dual.x), Semiring.LOG).node
    np.testing.assert_allclose(np.concatenate(list(model.predict_proba(X))), node, atol=1e-4)


def test_a_linear_similarity_is_the_linear_chain() -> None:
    X, y = quadrants(6, seed=1)
    kernel = KernelCRF(similarity="linear", l2=1.0, tol=1e-9).fit(X, y)
    linear = ChainCRF(l2=1.0, feature_pairs="all", transition_pairs="all", tol=1e-9).fit(X, y)
    assert kernel.objective_ == pytest.approx(linear.objective_, rel=1e-7)
    for a, b in zip(kernel.predict_proba(X), linear.predict_proba(X), strict=True):
        np.testing.assert_allclose(a, b, atol=1e-4)


@pytest.mark.parametrize("basis", ["exact", "nystroem", "fourier", "greedy"])
def test_every_basis_learns_what_no_linear_score_can(basis: str, tmp_path: Path) -> None:
    X, y = quadrants(30, seed=2)
    test = quadrants(20, seed=3)
    model = KernelCRF(basis=basis, n_components=40).fit(X, y)
    assert model.converged_
    assert model.basis_ == basis
    assert model.score(*test) > ChainCRF().fit(X, y).score(*test) + 0.15
    assert model.score(*test) > 0.8
    again = KernelCRF(basis=basis, n_components=40).fit(X, y)
    assert all(np.array_equal(a, b) for a, b in zip(again.predict_proba(X), model.predict_proba(X), strict=True))
    assert (model.cliques_ is not None) == (basis == "greedy")
    if model.cliques_ is not None:
        assert len(set(model.cliques_)) == model.n_components_ == 40
        assert all(a.objective > b.objective for a, b in zip(model.rounds_[:-1], model.rounds_[1:], strict=True))
    model.save(tmp_path / "kernel.crfield")
    copy = crfield.load(tmp_path / "kernel.crfield")
    assert copy.cliques_ == model.cliques_
    for a, b in zip(copy.predict_proba(test[0]), model.predict_proba(test[0]), strict=True):
        np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("basis", ["nystroem", "fourier"])
def test_single_precision_gives_nearly_the_same(basis: str) -> None:
    X, y = quadrants(30, seed=2)
    options: dict[str, Any] = {"basis": basis, "n_components": 30, "tol": 1e-4}
    double, single = (KernelCRF(precision=name, **options).fit(X, y) for name in ("double", "single"))
    assert single.converged_
    assert single.objective_ == pytest.approx(double.objective_, rel=1e-4)
    differences = [abs(a - b).max() for a, b in zip(single.predict_proba(X), double.predict_proba(X), strict=True)]
    assert 0 < max(differences) < 0.02
    assert single.predict_proba(X)[0].dtype == np.float64


def test_greedy_cliques_beat_as_many_drawn_at_random() -> None:
    X, y = quadrants(30, seed=4)
    options: dict[str, Any] = {"n_components": 8, "gamma": 1.0, "l2": 0.05}
    greedy = KernelCRF(basis="greedy", **options).fit(X, y)
    drawn = [KernelCRF(basis="nystroem", random_state=seed, **options).fit(X, y).objective_ for seed in range(5)]
    assert greedy.objective_ < min(drawn)


@pytest.mark.parametrize("similarity", ["polynomial", "laplacian", "own"])
def test_similarities_in_the_model(similarity: str, tmp_path: Path) -> None:
    X, y = quadrants(20, seed=5)
    kernel: Any = (lambda a, b: (1.0 + a @ b.T) ** 2) if similarity == "own" else similarity
    model = KernelCRF(similarity=kernel, basis="nystroem", n_components=40).fit(X, y)
    assert model.score(*quadrants(10, seed=6)) > 0.8
    if similarity == "own":
        with pytest.raises(InputError, match="cannot be saved"):
            model.save(tmp_path / "own.crfield")
        with pytest.raises(InputError, match="similarity by name"):
            KernelCRF(similarity=kernel, basis="fourier").fit(X, y)


def test_graphs() -> None:
    """The same steps with a link over one in between, which makes loops, by likelihood and by pseudo-likelihood."""
    X, y = quadrants(24, seed=7)
    graphs = [chain(x, distances=(1, 2)) for x in X]
    for basis, objective in (("nystroem", "auto"), ("greedy", "pseudo_likelihood"), ("exact", "piecewise")):
        model = KernelCRF(basis=basis, n_components=30, objective=objective).fit(graphs[:16], y[:16])
        assert model.score(graphs[16:], y[16:]) > 0.75, basis
        assert len(model.relation_weights("+2").labels) == 2
    with pytest.warns(ConvergenceWarning, match="max_iter"):
        sampled = KernelCRF(objective="contrastive", max_iter=30, tol=1e-6).fit(graphs[:16], y[:16])
    assert sampled.score(graphs[16:], y[16:]) > 0.7
    with pytest.raises(InputError, match="exact gradients"):
        KernelCRF(basis="greedy", engine="loopy").fit(graphs, y)


def test_kinds_have_maps_of_their_own(tmp_path: Path) -> None:
    rng = RNG(10)
    X, y = [], []
    for _ in range(12):
        a, b = rng.normal(size=(4, 2)), rng.normal(size=(4, 1))
        X.append(Graph({"state": a, "place": b}, {"at": [(k, k + 4) for k in range(4)]}))
        y.append(
            {"state": np.where(a[:, 0] * a[:, 1] > 0, "up", "down"), "place": np.where(abs(b[:, 0]) > 0.7, 1, 0)}
        )
    model = KernelCRF(tol=1e-2).fit(X, y)
    assert model.n_components_ > 12
    assert model.score(X, y) > 0.9
    model.save(tmp_path / "kinds.crfield")
    copy = crfield.load(tmp_path / "kinds.crfield")
    assert all(a.tolist() == b.tolist() for a, b in zip(copy.predict(X), model.predict(X), strict=True))
    with pytest.raises(InputError, match="one kind"):
        KernelCRF(basis="greedy").fit(X, y)


def test_words_partial_labels_and_short_sequences() -> None:
    X = [[["a"], ["b"]], [["b"]], [], [["a"], ["c"], ["b"]]] * 3
    y = [["A", "B"], ["B"], [], ["A", None, {"A", "B"}]] * 3
    model = KernelCRF(similarity="linear", l2=0.05).fit(X, y)
    assert [labels.tolist() for labels in model.predict([[["a"], ["b"]], [], [["z"]]])][:2] == [["A", "B"], []]
    assert (model.log_prob(X, y) <= 0).all()
    single = KernelCRF().fit([np.ones((3, 2))], [["only"] * 3])
    assert single.predict([np.zeros((2, 2))])[0].tolist() == ["only", "only"]


def test_auto_takes_landmarks_where_there_are_many_nodes() -> None:
    X, y = quadrants(80, seed=8)
    model = KernelCRF(n_components=10, tol=1e-2).fit(X, y)
    assert (model.basis_, model.n_components_) == ("nystroem", 10)
    assert KernelCRF(n_components=10, tol=1e-2).fit(X[:4], y[:4]).basis_ == "exact"


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "basis": ({"basis": "all"}, "basis must be one of"),
    "similarity": ({"similarity": "sigmoid"}, "similarity must be one of"),
    "gamma": ({"gamma": 0.0}, "gamma must be"),
    "gamma by name": ({"gamma": "auto"}, "or 'scale'"),
    "degree": ({"degree": 0}, "degree must be"),
    "degree that is no number": ({"degree": "three"}, "degree must be"),
    "precision": ({"precision": "half"}, "precision must be one of 'double', 'single'"),
    "components": ({"n_components": 0}, "n_components must be"),
    "l2": ({"l2": -1}, "l2 must be"),
    "relation": ({"relations": {"+1": "square"}}, "relations must be"),
    "decode": ({"decode": "best"}, "decode must be"),
    "verbose": ({"verbose": -1}, "verbose must be"),
    "callback": ({"callback": 3}, "callback must be"),
    "waves of a polynomial": ({"similarity": "polynomial", "basis": "fourier"}, "nystroem"),
}


@pytest.mark.parametrize("case", sorted(BAD))
def test_bad_parameters_are_told(case: str) -> None:
    options, words = BAD[case]
    with pytest.raises(InputError, match=words):
        KernelCRF(**options).fit(*quadrants(2, seed=0))


def test_bad_data_are_told() -> None:
    X, y = quadrants(2, seed=0)
    with pytest.raises(CrfieldError, match="finite"):
        KernelCRF().fit([np.full((2, 2), np.nan)], [["a", "b"]])
    with pytest.raises(InputError, match="no steps"):
        KernelCRF().fit([np.zeros((0, 2))], [[]])
    model = KernelCRF().fit(X, y)
    with pytest.raises(InputError, match="fitted on sequences, got graphs"):
        model.predict([chain(x) for x in X])
    with pytest.raises(ShapeError, match="3 features"):
        model.predict([np.zeros((2, 3))])


@pytest.mark.parametrize("partial", [False, True])
def test_sequences_are_trained_as_a_fused_chain(partial: bool) -> None:
    """The same value and slope as the plain path, weight for weight; graphs and other tables take the plain path."""
    rng = np.random.default_rng(3)
    X = [rng.normal(size=(n, 2)) for n in (5, 1, 4)]
    y: list[Any] = [rng.integers(0, 3, len(x)).tolist() for x in X]
    if partial:
        y[0][1], y[2][0] = None, {0, 2}
    seen: list[tuple[Any, ...]] = []

    def spy(layout: Any, batch: Any, target: Any, plan: Any, **options: Any) -> Any:
        made = fused_problem(layout, batch, target, plan, **options)
        seen.append((made, mapped_problem(layout, batch, target, plan), layout.n_weights))
        return made

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapped_training, "fused_problem", spy)
        patch.setattr(field_training, "fused_problem", spy)
        KernelCRF().fit(X, y)
        KernelCRF(relations={"+1": "potts"}).fit(X, y)
        KernelCRF().fit([chain(x) for x in X], y)
    made, plain, size = seen[0]
    weights = rng.normal(size=size)
    one, other = np.empty(size), np.empty(size)
    assert made.evaluate(weights, one) == pytest.approx(plain.evaluate(weights, other), rel=1e-12)
    np.testing.assert_allclose(one, other, rtol=1e-9, atol=1e-12)
    assert seen[1][0] is None


def test_similarities_as_columns_end_where_mapped_ones_do() -> None:
    """φ = k(x, c) T is not written out for chains; the model and its objective are those of the mapped columns."""
    rng = np.random.default_rng(5)
    X = [rng.normal(size=(n, 2)) for n in (30, 1, 12, 25)]
    y = [(x[:, 0] * x[:, 1] > 0).astype(int).tolist() for x in X]
    options: dict[str, Any] = {"n_components": 20, "basis": "nystroem", "tol": 1e-9, "l2": 0.3}
    direct = KernelCRF(**options).fit(X, y)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field_training.FieldProblem, "turned", lambda *given: None)
        mapped = KernelCRF(**options).fit(X, y)
    assert direct.objective_ == pytest.approx(mapped.objective_, rel=1e-9)
    np.testing.assert_allclose(direct.log_prob(X, y), mapped.log_prob(X, y), atol=1e-4)
    assert direct.n_components_ == mapped.n_components_
