"""Selection: slopes against brute force, optimality of the ℓ1 path, splits, and paths as records."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.features.lazy_columns import MatrixColumns
from crfield.features.relational import Recordings, Specification
from crfield.optimize.dense_newton import minimize_dense
from crfield.selection.active import Base
from crfield.selection.choice import METHODS, chosen_path, folds, method_options, run, split
from crfield.selection.methods.grafting import graft, steepest
from crfield.selection.methods.l1_path import l1_path
from crfield.selection.path import SelectionPath
from crfield.selection.problem import SelectionModel, SelectionProblem
from crfield.selection.scale import ColumnScale
from crfield.selection.views import View

LENGTHS = [12, 0, 1, 17, 9, 6]
LABELS = 3


def matrix_columns(lengths: list[int] = LENGTHS, seed: int = 0) -> tuple[MatrixColumns, np.ndarray]:
    """Columns of different size and centre, two of which follow the labels."""
    rng = np.random.default_rng(seed)
    chains = Chains.from_lengths(lengths)
    labels = np.repeat(rng.integers(0, LABELS, chains.n_nodes), 4)[: chains.n_nodes]
    state = rng.normal(size=(chains.n_nodes, 4)) * [1, 10, 0.1, 3] + [0, 5, 1, 0]
    state[:, 1] += 8 * labels
    linked = np.stack([rng.random(chains.n_nodes) < 0.4, rng.normal(size=chains.n_nodes)], axis=1)
    columns = MatrixColumns(state, chains=chains, n_labels=LABELS, transition=linked)
    return columns, labels


def target_of(columns: Any, labels: np.ndarray, kind: str) -> Target:
    rng = np.random.default_rng(1)
    weight = None if kind == "plain" else rng.uniform(0.2, 2.0, columns.chains.n_sequences)
    if kind != "partial":
        return Target(columns.chains, LABELS, labels, weight=weight)
    allowed = np.eye(LABELS, dtype=bool)[labels]
    allowed[::4] |= rng.random((len(allowed[::4]), LABELS)) < 0.5
    known = labels.copy()
    known[::4] = -1
    return Target(columns.chains, LABELS, known, allowed, weight)


def tag_columns(steps: int = 60) -> tuple[Any, np.ndarray]:
    spec = Specification.parse(
        "one state : const(1)\n"
        "near trans : dist(a,b) | for a in robots, b in robots | where a < b\n"
        "           | test <,> 20:60:20 | win all 1,3 | lag 0,2\n"
        "speed state : speed(a) | for a in robots | pow 1,2\n"
    )
    rng = np.random.default_rng(2)
    played = Recordings.of([rng.normal(0, 8, (n, 3, 2)).cumsum(axis=0) for n in (steps, 1, steps // 2)], rate=1.0)
    columns = spec.expand(labels=LABELS, agents=3).on(played)
    return columns, np.repeat(rng.integers(0, LABELS, 40), 5)[: columns.chains.n_nodes]


def moved(problem: SelectionProblem, model: SelectionModel, candidate: int, by: float) -> float:
    """The loss with the weight of a candidate changed."""
    active, weights = model.active, model.weights
    if candidate not in active:
        active, weights = np.append(active, candidate), np.append(weights, 0.0)
    weights = weights + by * (active == candidate)
    return problem.loss(SelectionModel(active, weights, model.base, 0.0, 0.0))


# --------------------------------------------------------------------------------------------------- slopes


@pytest.mark.parametrize("kind", ["plain", "weighted", "partial"])
@pytest.mark.parametrize("base", ["usual", "boundaries", "no transitions", "none"])
def test_slopes_are_differences_of_the_loss(kind: str, base: str) -> None:
    columns, labels = matrix_columns()
    options = {
        "usual": {},
        "boundaries": {"boundaries": True},
        "no transitions": {"transitions": False},
        "none": {"intercept": False, "transitions": False},
    }[base]
    problem = SelectionProblem(columns, target_of(columns, labels, kind), **options)
    model = problem.fit([1, 3, 14, 20], max_iter=2)
    slopes = problem.slopes(model)
    for candidate in range(problem.n_candidates):
        difference = (moved(problem, model, candidate, 1e-5) - moved(problem, model, candidate, -1e-5)) / 2e-5
        assert slopes[candidate] == pytest.approx(difference, rel=1e-6, abs=1e-6)


def test_slopes_of_lazy_candidates_on_a_part_of_the_steps() -> None:
    columns, labels = tag_columns()
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels), spans=[(5, 40), (61, 80)])
    assert not problem.usable[:LABELS].any(), "what never changes is the intercept already"
    model = problem.fit(np.flatnonzero(problem.usable)[[0, 30, 200]], max_iter=2)
    slopes = problem.slopes(model)
    assert (slopes[~problem.usable] == 0).all()
    for candidate in np.flatnonzero(problem.usable)[::7].tolist():
        difference = (moved(problem, model, candidate, 1e-5) - moved(problem, model, candidate, -1e-5)) / 2e-5
        assert slopes[candidate] == pytest.approx(difference, rel=1e-6, abs=1e-6)


def test_the_loss_is_that_of_all_labellings() -> None:
    """Against enumeration, in the units of the columns: weights, base and standardising all come together there."""
    columns, labels = matrix_columns([4, 1, 3])
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels), boundaries=True)
    model = problem.fit([0, 4, 11, 13, 25], l2=0.5, max_iter=3)
    base, weights = problem.raw(model)
    _, table, first, last = Base(boundaries=True).parts(base, LABELS)
    places = columns.places(model.active)
    chunk = columns.chunk(places.column)
    loss = 0.0
    for start, end in zip(columns.chains.offsets[:-1], columns.chains.offsets[1:], strict=True):
        scores = {}
        for path in product(range(LABELS), repeat=int(end - start)):
            total = first[path[0]] + last[path[-1]]
            total += sum(table[a, b] for a, b in pairwise(path))
            for k, (previous, label) in enumerate(zip(places.previous, places.label, strict=True)):
                for t, here in enumerate(path):
                    if here == label and (previous < 0 or (t > 0 and path[t - 1] == previous)):
                        total += weights[k] * chunk[start + t, k]
            scores[path] = total
        loss += np.logaddexp.reduce(list(scores.values())) - scores[tuple(labels[start:end].tolist())]
    assert problem.loss(model) == pytest.approx(loss, rel=1e-9)


def test_large_scores_do_not_spoil_the_loss() -> None:
    columns, labels = matrix_columns()
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels))
    active = np.arange(problem.n_candidates)
    rng = np.random.default_rng(0)
    model = SelectionModel(active, rng.normal(0, 2000, len(active)), np.zeros(problem.n_base), 0.0, 0.0)
    node, edge = problem.gradient(model)
    assert np.isfinite(problem.loss(model))
    assert problem.loss(model) >= 0
    assert np.isfinite(node).all()
    assert np.isfinite(edge).all()


# ---------------------------------------------------------------------------------------------- fits and paths


def test_a_fit_does_not_depend_on_where_it_starts() -> None:
    columns, labels = matrix_columns()
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels))
    active = [0, 4, 5, 12, 16]
    cold = problem.fit(active, l1=0.3, l2=0.2, violation=1e-9)
    warm = problem.fit(active, problem.fit([5, 7, 0], l2=3.0), l1=0.3, l2=0.2, violation=1e-9)
    np.testing.assert_allclose(cold.weights, warm.weights, atol=1e-7)
    assert cold.value == pytest.approx(warm.value, rel=1e-12)
    assert problem.fit([5, 0, 5]).active.tolist() == [5, 0]


@pytest.mark.parametrize("l1", [0.0, 0.5])
def test_many_weights_are_fitted_to_the_same_end(l1: float, monkeypatch: pytest.MonkeyPatch) -> None:
    columns, labels = matrix_columns()
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels))
    few = problem.fit(np.arange(20), l1=l1, l2=0.5, violation=1e-7)
    monkeypatch.setattr("crfield.selection.refit.MOST", 10)
    many = problem.fit(np.arange(20), problem.fit([3], l2=1.0), l1=l1, l2=0.5, violation=1e-5)
    assert many.converged
    assert many.curvature is None
    np.testing.assert_allclose(many.weights, few.weights, atol=1e-4)
    assert problem.fit(np.arange(20), l1=l1, l2=0.5, tol=1e-8).value == pytest.approx(few.value, rel=1e-6)


def optimality(problem: SelectionProblem, model: SelectionModel, penalty: float) -> tuple[float, float]:
    """How far the worst zero and the worst other weight are from the conditions, over all candidates."""
    slopes = problem.slopes(model)
    inside = np.zeros(problem.n_candidates)
    inside[model.active] = model.weights
    zero = inside == 0
    others = np.abs(slopes[~zero] + penalty * np.sign(inside[~zero]))
    return float(np.abs(slopes[zero]).max(initial=0.0) - penalty), float(others.max(initial=0.0))


@pytest.mark.parametrize("make", [matrix_columns, tag_columns], ids=["matrix", "relational"])
def test_every_point_of_the_l1_path_is_optimal(make: Callable[[], tuple[Any, np.ndarray]]) -> None:
    columns, labels = make()
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels))
    path = l1_path(problem, n_lambdas=15, decay=0.8, tol=1e-8)
    assert path[0].n_features == 0
    assert path[0].penalty == pytest.approx(float(np.abs(problem.slopes(path[0].model)).max()))
    assert path[-1].n_features > 5
    for one in path:
        zero, others = optimality(problem, one.model, one.penalty)
        assert zero <= 1e-6
        assert others <= 1e-6
    losses = [one.model.loss for one in path]
    assert all(after < before for before, after in pairwise(losses))


def test_grafting_takes_the_steepest_and_ends_at_the_l1_optimum() -> None:
    columns, labels = matrix_columns()
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels))
    slopes = np.abs(problem.slopes(problem.fit([])))
    assert graft(problem, max_features=1)[1].model.active.tolist() == [int(slopes.argmax())]
    path = graft(problem, l1=1.0, l2=0.0, tol=1e-12, max_iter=300)
    assert path.stop_reason == "no slope above l1"
    zero, others = optimality(problem, path[-1].model, 1.0)
    assert zero <= 1e-4
    assert others <= 1e-3
    assert [one.number for one in path] == list(range(len(path)))


def test_an_l0_penalty_ends_grafting() -> None:
    columns, labels = matrix_columns()
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels))
    cheap, dear = (graft(problem, l0=l0, max_features=12) for l0 in (0.01, 2.0))
    assert dear.stop_reason == "gain below l0"
    assert len(dear) < len(cheap)
    values = [one.model.value for one in dear]
    assert all(before - after >= 2.0 for before, after in pairwise(values))


def test_many_a_round_and_columns_that_say_the_same() -> None:
    columns, labels = matrix_columns()
    whole = columns.chunk(np.arange(4))
    twice = MatrixColumns(np.hstack([whole, whole + 1e-9]), chains=columns.chains, n_labels=LABELS)
    problem = SelectionProblem(twice, Target(columns.chains, LABELS, labels))
    slopes = np.abs(problem.slopes(problem.fit([])))
    plain, different = (steepest(problem, slopes, 2, max_correlation=c) for c in (1.0, 0.95))
    assert set(plain % 12) == {plain[0] % 12}, "a column and its copy"
    assert len(set(different % 12 // LABELS)) == 2
    path = graft(problem, m=3, max_features=7, max_correlation=0.95)
    assert [one.n_features for one in path][:3] == [0, 3, 6]
    assert path[-1].n_features <= 7


def test_held_out_steps_choose_and_stop() -> None:
    columns, labels = matrix_columns([60, 60], seed=3)
    problem = SelectionProblem(
        columns, Target(columns.chains, LABELS, labels), spans=[(0, 60)], held_spans=[(60, 120)]
    )
    path = graft(problem, patience=3)
    best = path.best
    assert path.stop_reason == "held-out score has turned"
    assert len(path) == best.number + 4
    assert best.held_error == min(one.held_error for one in path)
    twin = SelectionProblem(columns, Target(columns.chains, LABELS, labels), spans=[(60, 120)], scale=problem.scale)
    assert twin.loss(best.model) / 60 == pytest.approx(best.held_nll)
    assert graft(problem, watch=lambda one: one.number == 2).stop_reason == "callback"
    again = graft(problem, patience=3)
    assert [one.model.weights.tolist() for one in again] == [one.model.weights.tolist() for one in path]


def test_a_path_is_a_table() -> None:
    columns, labels = matrix_columns()
    problem = SelectionProblem(columns, Target(columns.chains, LABELS, labels))
    path = graft(problem, max_features=3)
    rows = path.rows()
    assert [row["n_features"] for row in rows] == [0, 1, 2, 3]
    assert path.entered()[0] == (1, rows[1]["added"][0])
    assert path.best is path[-1], "the last where nothing is held out"
    assert path.features()[0][1] == pytest.approx(path[-1].model.weights[np.abs(path[-1].model.weights).argmax()])
    assert np.isnan(rows[0]["held_error"])
    if find_spec("pandas") is None:
        with pytest.raises(InputError, match="pandas"):
            path.to_frame()
    else:
        assert path.to_frame()["seconds"].is_monotonic_increasing
    assert all(one.model.curvature is None for one in path)
    with pytest.raises(InputError, match="at least one round"):
        SelectionPath("grafting", ())


# --------------------------------------------------------------------------------------------------- splits


def test_columns_are_measured_where_they_are_read() -> None:
    columns, labels = tag_columns()
    view = View(columns, Target(columns.chains, LABELS, labels), spans=[(3, 50)])
    scale = ColumnScale.of(view)
    for k in range(columns.n_columns):
        values = columns.chunk(np.array([k]))[:, 0][view.rows if columns.link[k] == 0 else view.heads]
        if scale.usable[k]:
            assert scale.mean[k] == pytest.approx(values.mean(), abs=1e-12)
            assert scale.deviation[k] == pytest.approx(values.std(), rel=1e-9)
        else:
            assert values.min() == values.max()
    strict = ColumnScale.of(view, min_count=5)
    assert strict.usable.sum() < scale.usable.sum()


@pytest.mark.parametrize("lengths", [[40], [9, 1, 12], [5, 0, 7, 6, 8, 3]], ids=["one", "three", "many"])
def test_splits_leave_nothing_out_and_share_nothing(lengths: list[int]) -> None:
    chains = Chains.from_lengths(lengths)
    parts = [split(chains, 0.25, np.random.default_rng(0)), *folds(chains, 3, np.random.default_rng(0))]
    for train, held in parts:
        steps = np.concatenate([np.arange(a, b) for a, b in [*train.tolist(), *held.tolist()]])
        assert sorted(steps.tolist()) == list(range(chains.n_nodes))
        assert len(train)
        assert len(held)
    tested = np.concatenate([np.arange(a, b) for _, held in parts[1:] for a, b in held.tolist()])
    assert sorted(tested.tolist()) == list(range(chains.n_nodes))


def test_folds_choose_a_round() -> None:
    columns, labels = matrix_columns([30, 30, 30, 30], seed=3)
    target = Target(columns.chains, LABELS, labels)

    def make(spans: Any, held: Any) -> SelectionProblem:
        return SelectionProblem(columns, target, spans=spans, held_spans=held)

    chosen = chosen_path(
        make,
        columns.chains,
        "grafting",
        validation=3,
        criterion="nll",
        options={"max_features": 6},
        rng=np.random.default_rng(0),
    )
    path, best = chosen.path, chosen.best
    assert chosen.problem.n_steps == 120
    assert best is path[-1]
    assert [one.number for _, one in chosen.judges] == [best.number] * 3
    assert best.held_nll == min(one.held_nll for one in path)
    curves = [
        [one.held_nll for one in run("grafting", make(*part), criterion="nll", max_features=6)]
        for part in folds(columns.chains, 3, np.random.default_rng(0))
    ]
    assert best.held_nll == pytest.approx(np.mean([curve[min(best.number, len(curve) - 1)] for curve in curves]))


# --------------------------------------------------------------------------------------------------- faults


def test_words_for_what_does_not_fit() -> None:
    columns, labels = matrix_columns()
    target = Target(columns.chains, LABELS, labels)
    problem = SelectionProblem(columns, target)
    with pytest.raises(ShapeError, match="same recordings"):
        SelectionProblem(columns, Target(Chains.from_lengths([3]), LABELS, np.zeros(3, int)))
    with pytest.raises(InputError, match="within one sequence"):
        SelectionProblem(columns, target, spans=[(5, 20)])
    with pytest.raises(InputError, match="no steps"):
        SelectionProblem(columns, target, spans=[])
    with pytest.raises(InputError, match="not both"):
        SelectionProblem(columns, target, held_out=(columns, target), held_spans=[(0, 2)])
    with pytest.raises(InputError, match="same catalogue"):
        SelectionProblem(columns, target, held_out=tag_and_target())
    for options, match in (({"m": 0}, "m must be"), ({"l2": -1.0}, "l2"), ({"criterion": "luck"}, "criterion")):
        with pytest.raises(InputError, match=match):
            graft(problem, **options)
    with pytest.raises(InputError, match="decay"):
        l1_path(problem, decay=1.0)
    with pytest.raises(InputError, match="falling"):
        l1_path(problem, lambdas=[1.0, 2.0])
    with pytest.raises(InputError, match="'grafting'"):
        method_options("luck", None)
    with pytest.raises(InputError, match="no option 'depth'"):
        method_options("grafting", {"depth": 3})


def tag_and_target() -> tuple[Any, Target]:
    columns, labels = tag_columns()
    return columns, Target(columns.chains, LABELS, labels)


def test_nothing_to_choose_from() -> None:
    chains = Chains.from_lengths([6])
    columns = MatrixColumns(np.ones((6, 2)), chains=chains, n_labels=2)
    problem = SelectionProblem(columns, Target(chains, 2, np.array([0, 0, 1, 1, 0, 0])))
    assert len(graft(problem)) == 1
    assert len(l1_path(problem)) == 1
    one_class = SelectionProblem(
        MatrixColumns(np.arange(6.0)[:, None], chains=chains, n_labels=1), Target(chains, 1, np.zeros(6, int))
    )
    assert len(graft(one_class)) == 1


@pytest.mark.parametrize("method", ["grafting", "l1-path"])
def test_methods_go_by_their_names(method: str) -> None:
    columns, labels = matrix_columns()
    path = run(method, SelectionProblem(columns, Target(columns.chains, LABELS, labels)), max_features=2)
    assert path.method == method
    assert method in METHODS


def test_the_dense_method_finds_known_minima() -> None:
    rng = np.random.default_rng(0)
    A = rng.normal(size=(30, 8))
    b = A @ np.array([3.0, -2.0, 0, 0, 0, 0, 0.5, 0]) + 0.1 * rng.normal(size=30)

    def squares(w: np.ndarray, g: np.ndarray) -> float:
        g[:] = A.T @ (A @ w - b)
        return 0.5 * float(np.sum((A @ w - b) ** 2))

    plain = minimize_dense(squares, np.zeros(8), hessian=np.eye(8), gap=1e-14)
    np.testing.assert_allclose(plain.weights, np.linalg.lstsq(A, b, rcond=None)[0], atol=1e-6)
    sparse = minimize_dense(squares, np.zeros(8), hessian=np.eye(8), l1=5.0, l2=1.0, violation=1e-9)
    assert sparse.converged
    slope = A.T @ (A @ sparse.weights - b) + sparse.weights
    zero = sparse.weights == 0
    assert 0 < zero.sum() < 8
    assert np.abs(slope[zero]).max() <= 5.0
    np.testing.assert_allclose(slope[~zero], -5.0 * np.sign(sparse.weights[~zero]), atol=1e-8)


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_dense_method_mends_a_matrix_that_bends_downwards(seed: int) -> None:
    """A guess with negative curvature gives a model without a minimum, which must not be followed."""
    rng = np.random.default_rng(seed)
    A = rng.normal(size=(30, 8))
    b = A @ np.array([3.0, -2.0, 0, 0, 0, 0, 0.5, 0])

    def squares(w: np.ndarray, g: np.ndarray) -> float:
        g[:] = A.T @ (A @ w - b)
        return 0.5 * float(np.sum((A @ w - b) ** 2))

    found = minimize_dense(squares, np.zeros(8), hessian=np.diag([1.0] * 7 + [-1.0]), l1=1.0, violation=1e-9)
    assert found.converged
    assert found.violation <= 1e-9
