"""Online kernels: steps against the objectives they follow, lazy against eager penalties, compiled against NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crfield.core.constraints import FixedScores
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.kernels import choice
from crfield.kernels.online import LOSSES, Trainer
from crfield.objectives.contrast import Contrast
from crfield.objectives.margin import Margin, Perceptron, SoftMargin
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.full_batch import FullBatch
from tests.cases.chains import EACH_OPTION, LinearCase, Options, linear_case, native_level, needs_native

OBJECTIVES = dict(zip(LOSSES, (Contrast(), SoftMargin(), Perceptron(), Margin())))
RICH = Options(edge_columns=3, edge_values=True, edge_dense=1, dense=2, values=True, bias=True, weighted=True)


def trainer_of(case: LinearCase, start: np.ndarray | None = None, **options: Any) -> Trainer:
    target = case.target
    return Trainer(case.layout, case.batch, target.labels, target.allowed, target.weight, start=start, **options)


def value_and_gradient(case: LinearCase, loss: str, weights: np.ndarray) -> tuple[float, np.ndarray]:
    gradient = np.zeros(case.layout.n_weights)
    problem = FullBatch(
        LinearScorer(case.layout), case.batch, case.target, objective=OBJECTIVES[loss], engine=ChainEngine()
    )
    return problem.evaluate(weights, gradient), gradient


def single(case: LinearCase, s: int) -> LinearCase:
    """One sequence of a case without edge features, as a case of its own."""
    chains, node, target = case.batch.topology, case.batch.node, case.target
    rows = slice(int(chains.offsets[s]), int(chains.offsets[s + 1]))
    at = slice(int(node.indptr[rows.start]), int(node.indptr[rows.stop]))
    columns = Columns(node.indptr[rows.start : rows.stop + 1] - at.start, node.indices[at], node.width)
    alone = Chains.from_lengths([rows.stop - rows.start])
    weight = None if target.weight is None else target.weight[[s]]
    return LinearCase(
        case.layout, Batch(alone, columns), type(target)(alone, target.n_labels, target.labels[rows], weight=weight)
    )


@pytest.mark.parametrize("o", [*EACH_OPTION[::3], EACH_OPTION[17], RICH], ids=str)
@pytest.mark.parametrize("loss", LOSSES)
def test_a_step_over_everything_follows_the_gradient_of_the_objective(body: str, loss: str, o: Options) -> None:
    rng = np.random.default_rng(1)
    case = linear_case(rng, o)
    start = case.weights(rng)
    value, gradient = value_and_gradient(case, loss, start)
    trainer = trainer_of(case, start)
    met = trainer.descend(np.arange(len(o.lengths)), [0.3], batch=64, loss=loss)
    assert met.loss == pytest.approx(value, rel=1e-10, abs=1e-9)
    np.testing.assert_allclose(trainer.weights(), start - 0.3 * gradient, rtol=1e-9, atol=1e-9)
    assert trainer_of(case).evaluate(start, loss=loss) == pytest.approx(value, rel=1e-10, abs=1e-9)


@pytest.mark.parametrize(("l1", "l2"), [(0.0, 0.8), (0.4, 0.0)], ids=["ridge", "l1"])
def test_lazy_penalties_of_sgd_are_those_of_every_step(body: str, l1: float, l2: float) -> None:
    rng, rate = np.random.default_rng(2), 0.2
    case = linear_case(rng, Options(columns=40, weighted=True))
    start = case.weights(rng)
    order = np.concatenate([rng.permutation(11), rng.permutation(11)])
    trainer = trainer_of(case, start)
    trainer.descend(order[:11], np.full(11, rate), l1=l1, l2=l2)
    trainer.descend(order[11:], np.full(11, rate), l1=l1, l2=l2)
    w, received, pushed, n = start.copy(), np.zeros_like(start), 0.0, 10  # one of eleven sequences is empty
    for s in order:
        if case.batch.topology.lengths[s] == 0:
            continue
        w -= rate * value_and_gradient(single(case, int(s)), "likelihood", w)[1]
        w *= 1 - rate * l2 / n
        pushed += rate * l1 / n
        if l1:
            pulled = np.where(w > 0, np.maximum(0, w - (pushed + received)), np.minimum(0, w + pushed - received))
            received += pulled - w
            w = pulled
    np.testing.assert_allclose(trainer.weights(), w, rtol=1e-9, atol=1e-10)
    assert not l1 or np.count_nonzero(w) < len(w)


def test_lazy_l1_of_adagrad_is_that_of_every_step(body: str) -> None:
    rng, l1, rate = np.random.default_rng(3), 0.7, 0.3
    case = linear_case(rng, Options(columns=40))
    order, trainer = rng.permutation(11), trainer_of(case)
    trainer.adagrad(order, rate=rate, l1=l1)
    w, squares = np.zeros(case.layout.n_weights), np.zeros(case.layout.n_weights)
    for s in order[case.batch.topology.lengths[order] > 0]:
        gradient = value_and_gradient(single(case, int(s)), "likelihood", w)[1]
        squares += gradient**2
        root = np.where(squares > 0, np.sqrt(squares), 1.0)
        w -= rate * gradient / root
        w = np.sign(w) * np.maximum(0, np.abs(w) - np.where(squares > 0, rate * l1 / 10 / root, 0.0))
    np.testing.assert_allclose(trainer.weights(), w, rtol=1e-9, atol=1e-10)


def test_a_ridge_of_adagrad_shrinks_and_intercepts_may_be_left_out(body: str) -> None:
    case = linear_case(np.random.default_rng(4), Options(bias=True))
    found = {}
    for name, l2, penalised in (("none", 0.0, True), ("ridge", 5.0, True), ("free", 5.0, False)):
        trainer = trainer_of(case, penalise_intercepts=penalised)
        for _ in range(2):
            trainer.adagrad(np.arange(11), rate=0.3, l2=l2)
        found[name] = trainer.weights()
    intercepts = case.layout.intercepts
    assert np.linalg.norm(found["ridge"]) < 0.8 * np.linalg.norm(found["none"])
    assert np.linalg.norm(found["free"][intercepts]) > np.linalg.norm(found["ridge"][intercepts])


def test_the_average_is_that_of_the_weights_after_each_visit(body: str) -> None:
    case = linear_case(np.random.default_rng(5), Options(columns=12))
    order = np.array([0, 3, 5, 7, 3, 0, 9])
    whole, piecewise = trainer_of(case), trainer_of(case)
    whole.perceptron(order)
    seen = [piecewise.weights()]
    for s in order:
        piecewise.perceptron([s])
        seen.append(piecewise.weights())
    np.testing.assert_array_equal(whole.weights(), seen[-1])
    np.testing.assert_allclose(whole.average(), np.mean(seen, axis=0), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("variant", ["PA", "PA-I", "PA-II"])
def test_passive_aggressive_goes_as_far_as_the_margin_asks(body: str, variant: str) -> None:
    rng = np.random.default_rng(6)
    case = single(linear_case(rng, Options(columns=12, boundaries=False)), 3)
    start = case.weights(rng, scale=1.0)
    value, gradient = value_and_gradient(case, "perceptron", start)
    best = ChainEngine().best_path(LinearScorer(case.layout).score(start, case.batch))[1]
    wrong = int((best != case.target.labels).sum())
    assert value > 0
    assert wrong > 1
    margin, norm, bound = value + np.sqrt(wrong), float(gradient @ gradient), 0.01
    size = {"PA": margin / norm, "PA-I": min(bound, margin / norm), "PA-II": margin / (norm + 0.5 / bound)}[variant]
    trainer = trainer_of(case, start)
    trainer.passive_aggressive([0], variant=variant, aggressiveness=bound)
    np.testing.assert_allclose(trainer.weights(), start - size * gradient, rtol=1e-9, atol=1e-12)


def test_arow_moves_less_where_it_moved_before(body: str) -> None:
    rng, r = np.random.default_rng(7), 2.0
    case = single(linear_case(rng, Options(columns=12, boundaries=False)), 3)
    start = case.weights(rng, scale=3.0)
    value, gradient = value_and_gradient(case, "perceptron", start)
    best = ChainEngine().best_path(LinearScorer(case.layout).score(start, case.batch))[1]
    suffered = value + int((best != case.target.labels).sum())
    trainer = trainer_of(case, start)
    trainer.arow([0], regularity=r)
    first = start - suffered / (float(gradient @ gradient) + r) * gradient
    np.testing.assert_allclose(trainer.weights(), first, rtol=1e-9, atol=1e-12)
    variance = 1 / (1 + gradient**2 / r)
    value, gradient = value_and_gradient(case, "perceptron", first)
    if value > 0:
        best = ChainEngine().best_path(LinearScorer(case.layout).score(first, case.batch))[1]
        suffered = value + int((best != case.target.labels).sum())
        trainer.arow([0], regularity=r)
        second = first - suffered / (float(variance @ gradient**2) + r) * variance * gradient
        np.testing.assert_allclose(trainer.weights(), second, rtol=1e-9, atol=1e-12)


def test_the_dual_never_passes_the_primal_and_meets_it(body: str) -> None:
    case = linear_case(
        np.random.default_rng(8), Options(columns=12, weighted=True, bias=True, lengths=(4, 0, 3, 2, 1, 5))
    )
    trainer, l2, duals = trainer_of(case), 20.0, []
    for _ in range(18):
        trainer.frank_wolfe(np.arange(6), l2=l2, steps=8)
        w = trainer.weights()
        duals.append(trainer.mixture_cost() - 0.5 * l2 * float(w @ w))
    value = trainer.evaluate(w, loss="hinge") + 0.5 * l2 * float(w @ w)
    assert np.all(np.diff(duals) > -1e-9)
    assert duals[-1] <= value
    assert value - duals[-1] < 1e-5 * value


def _everything(case: LinearCase, start: np.ndarray) -> dict[str, np.ndarray]:
    """Weights after two passes of every trainer."""
    order, found = np.array([3, 0, 9, 1, 5, 7, 10, 2, 8, 4, 6]), {}
    passes = {
        "perceptron": lambda t: t.perceptron(order),
        "PA": lambda t: t.passive_aggressive(order, variant="PA"),
        "PA-II": lambda t: t.passive_aggressive(order, variant="PA-II", aggressiveness=0.3),
        "arow": lambda t: t.arow(order, regularity=3.0),
        "sgd": lambda t: t.descend(order, np.full(4, 0.1), batch=3, l1=0.1, l2=0.3),
        "sgd hinge": lambda t: t.descend(order, np.full(11, 0.1), loss="hinge", l2=0.3),
        "adagrad": lambda t: t.adagrad(order, rate=0.2, batch=2, loss="softmax_margin", l1=0.1, l2=0.3),
    }
    if case.target.complete.all():
        passes["frank_wolfe"] = lambda t: t.frank_wolfe(order, l2=0.6)
    for name, one_pass in passes.items():
        # costs that differ, since rounding breaks the ties of equal ones in one way or another
        cost = np.where(case.target.mask, 0.0, np.random.default_rng(0).uniform(0.5, 2.0, case.target.mask.shape))
        trainer = trainer_of(case, None if name == "frank_wolfe" else start, cost=cost)
        # an exact step leaves two labellings with one value: a second pass may meet either first
        losses = [one_pass(trainer).loss for _ in range(1 if name == "frank_wolfe" else 2)]
        found[name] = np.concatenate([trainer.weights(), trainer.average(), losses])
    return found


@needs_native
@pytest.mark.parametrize("o", [*EACH_OPTION, RICH], ids=str)
def test_the_compiled_body_says_what_numpy_says(o: Options) -> None:
    rng = np.random.default_rng(9)
    case = linear_case(rng, Options(**{**vars(o), "lengths": Options.lengths}))
    start = case.weights(rng, scale=0.3)  # no ties, which rounding would break differently
    with choice.use("numpy"):
        expected = _everything(case, start)
    with choice.use("native"):
        found = _everything(case, start)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-9, err_msg=name)


@needs_native
@pytest.mark.parametrize("level", [2, 3, 4])
def test_every_level_says_the_same(level: int) -> None:
    rng = np.random.default_rng(10)
    case = linear_case(rng, Options(labels=9, columns=40, values=True, bias=True, partial=True, weighted=True))
    start = case.weights(rng, scale=0.3)
    with choice.use("numpy"):
        expected = _everything(case, start)
    with native_level(level):
        found = _everything(case, start)
    for name in expected:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-8, atol=1e-9, err_msg=name)


def test_fixed_scores_are_added_and_what_is_forbidden_is_never_chosen(body: str) -> None:
    rng = np.random.default_rng(11)
    case = linear_case(rng, Options(lengths=(4, 5, 3), columns=5))
    edge = np.where(np.eye(3) > 0, -np.inf, 0.5)  # no label follows itself
    labels = np.array([0, 1, 0, 2, 1, 0, 2, 0, 1, 2, 0, 1], np.int32)
    fixed = FixedScores(edge, np.array([1.0, 0.0, -1.0]), np.zeros(3))
    layout = Layout(
        **{name: value for name, value in vars(case.layout).items() if name in Layout.__dataclass_fields__}
        | {"fixed": fixed}
    )
    target = type(case.target)(case.batch.topology, 3, labels)
    case = LinearCase(layout, case.batch, target)
    start = case.weights(rng)
    for loss in LOSSES:
        value, gradient = value_and_gradient(case, loss, start)
        trainer = trainer_of(case, start)
        assert trainer.descend([0, 1, 2], [0.1], batch=3, loss=loss).loss == pytest.approx(value)
        np.testing.assert_allclose(trainer.weights(), start - 0.1 * gradient, rtol=1e-9, atol=1e-12)
    impossible = LinearCase(layout, case.batch, type(target)(case.batch.topology, 3, np.zeros(12, np.int32)))
    for call in (
        lambda t: t.perceptron([0]),
        lambda t: t.frank_wolfe([0], l2=1.0),
        lambda t: t.adagrad([0], rate=1.0),
    ):
        with pytest.raises(ValueError, match="forbidden"):
            call(trainer_of(impossible))


def test_costs_take_the_place_of_one_for_each_error(body: str) -> None:
    rng = np.random.default_rng(12)
    case = linear_case(rng, Options(lengths=(3,), columns=4))
    cost = np.where(case.target.mask, 0.0, 2.5)
    target, start = case.target, case.weights(rng)
    costly = Trainer(case.layout, case.batch, target.labels, cost=cost)
    scores = LinearScorer(case.layout).score(start, case.batch)
    expected = Margin(scale=2.5).evaluate(scores, target, ChainEngine()).value
    assert costly.evaluate(start, loss="hinge") == pytest.approx(expected)


def test_what_does_not_fit_is_refused(body: str) -> None:
    case = linear_case(np.random.default_rng(13), Options(lengths=(2, 3)))
    labels, n = case.target.labels, case.layout.n_weights
    for wrong in (
        lambda: Trainer(case.layout, case.batch, labels[:-1]),
        lambda: Trainer(case.layout, case.batch, np.full(5, 3)),
        lambda: Trainer(case.layout, case.batch, np.full(5, -1)),
        lambda: Trainer(case.layout, case.batch, np.full(5, -1), np.zeros((5, 3))),
        lambda: Trainer(case.layout, case.batch, labels, weight=np.array([1.0, np.nan])),
        lambda: Trainer(case.layout, case.batch, labels, cost=np.full((5, 3), -1.0)),
        lambda: Trainer(case.layout, case.batch, labels, start=np.zeros(n + 1)),
        lambda: trainer_of(case).perceptron([0, 2]),
        lambda: trainer_of(case).perceptron([-1]),
        lambda: trainer_of(case).descend([0, 1], [0.1]),
        lambda: trainer_of(case).descend([0], [0.1], batch=65),
        lambda: trainer_of(case).evaluate(np.zeros(n - 1), loss="hinge"),
    ):
        with pytest.raises(ValueError):
            wrong()
    for wrong in (
        lambda: Trainer(case.layout, case.batch, labels, start=np.full(n, np.nan)),
        lambda: trainer_of(case).evaluate(np.zeros(n), loss="log"),
        lambda: trainer_of(case).arow([0], regularity=0.0),
        lambda: trainer_of(case).passive_aggressive([0], variant="PA-III"),
    ):
        with pytest.raises(InputError):
            wrong()
