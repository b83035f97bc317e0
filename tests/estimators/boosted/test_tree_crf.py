"""Gradient tree boosting of chains: slopes against finite differences, trees laid flat, and what it must learn."""

from __future__ import annotations

import contextlib
import io
import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import crfield
from crfield import ChainCRF, TreeCRF
from crfield.boosting.chain_slopes import Labelled
from crfield.boosting.functional_gradient import HELD_OUT, Growth, grow_field
from crfield.boosting.tree_field import TreeField
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.subsamples import regrouped, some_columns, some_rows
from crfield.boosting.weak_learners.tree_scorer import FlatTree, TreeSum
from crfield.boosting.weak_learners.trees import fit_tree
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import CrfieldError, FeatureError, InputError, ModelFileError, ShapeError
from crfield.features.columns.step_windows import windowed
from crfield.storage.state import State
from tests.cases.model_file_fuzz import edited

LENGTHS = (3, 1, 0, 4, 2)


def some_data(n_labels: int = 3, *, partial: bool = False, weighted: bool = False) -> tuple[np.ndarray, Target]:
    rng = np.random.default_rng(0)
    chains = Chains.from_lengths(list(LENGTHS))
    labels = rng.integers(0, n_labels, chains.n_nodes)
    allowed = None
    if partial:
        allowed = np.zeros((chains.n_nodes, n_labels), bool)
        allowed[np.arange(chains.n_nodes), labels] = True
        allowed[1] = True
        allowed[5, :2] = True
        labels = labels.copy()
        labels[[1, 5]] = -1
    weight = np.array([1.0, 2.5, 1.0, 0.5, 3.0]) if weighted else None
    return rng.normal(size=(chains.n_nodes, 2)), Target(chains, n_labels, labels, allowed, weight)


def random_field(target: Target, *, edges: bool = False) -> TreeField:
    rng, k = np.random.default_rng(1), target.n_labels
    trees = TreeSum(2, k * k) if edges else None
    prior, start, end = rng.normal(size=(3, k))
    return TreeField(TreeSum(2, k), prior, start, end, rng.normal(size=(k, k)), trees)


def xor_chains(n: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """Labels that only a conjunction of two columns tells."""
    rng = np.random.default_rng(seed)
    X = [rng.integers(0, 2, (int(rng.integers(4, 12)), 3)).astype(float) for _ in range(n)]
    return X, [np.where(x[:, 0] != x[:, 1], "odd", "even") for x in X]


# ----------------------------------------------------------------------------------------------------- slopes


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("edges", [False, True])
def test_slopes_are_those_of_the_value(edges: bool, partial: bool, weighted: bool) -> None:
    columns, target = some_data(partial=partial, weighted=weighted)
    field = random_field(target, edges=edges)
    data = Labelled(columns, target, field)
    slopes, step = data.slopes(field), 1e-5
    assert slopes.value == pytest.approx(data.value(field), rel=1e-12)

    def rise(change: Any) -> float:
        return (change(step) - change(-step)) / (2 * step)

    def table_moved(at: tuple[int, int]) -> Any:
        def value(by: float) -> float:
            table = field.table.copy()
            table[at] += by
            return data.value(replace(field, table=table))

        return value

    def node_moved(at: tuple[int, int], scores: np.ndarray) -> Any:
        def value(by: float) -> float:
            scores[at] += by
            found = data.value(field)
            scores[at] -= by
            return found

        return value

    for at in np.ndindex(target.n_labels, target.n_labels):
        assert -rise(table_moved(at)) == pytest.approx(slopes.edge[at], abs=1e-8)
    weight = data.row_weight
    for at in ((0, 0), (2, 1), (5, 2), (9, 0)):
        assert -rise(node_moved(at, data.node)) == pytest.approx(weight[at[0]] * slopes.node[at], abs=1e-8)
    if edges:
        assert data.edge is not None
        assert slopes.each is not None
        for at in ((0, 0), (3, 5), (4, 8)):
            expected = data.edge_weight[at[0]] * slopes.each[at]
            assert -rise(node_moved(at, data.edge)) == pytest.approx(expected, abs=1e-8)


def test_the_loss_never_rises_even_at_a_large_rate() -> None:
    """Where neighbours are tied together, steps of each node on its own overshoot and must be cut short."""
    days = crfield.make_activity_days(12, n_days=6, random_state=1)
    for rate in (0.1, 1.0):
        model = TreeCRF(n_rounds=25, max_depth=1, learning_rate=rate, l2=0.0).fit(days.features, days.labels)
        losses = np.array([r.nll for r in model.rounds_])
        assert (np.diff(losses) <= 1e-12).all(), rate
        steps = sum(map(len, days.labels))
        assert model.objective_ == pytest.approx(losses[-1] * steps, rel=1e-12)
        told = -model.log_prob(days.features, days.labels).sum()
        assert model.objective_ == pytest.approx(told, rel=1e-9)


def test_the_table_is_learnt_as_well_as_by_likelihood() -> None:
    """Without anything to cut, the rounds must arrive at the optimum of the label chain."""
    rng = np.random.default_rng(0)
    P = np.array([[0.9, 0.1, 0.0], [0.05, 0.8, 0.15], [0.3, 0.1, 0.6]])
    y = []
    for _ in range(60):
        path = [int(rng.integers(3))]
        for _ in range(9):
            path.append(int(rng.choice(3, p=P[path[-1]])))
        y.append(path)
    X = [np.ones((10, 1)) for _ in y]
    model = TreeCRF(n_rounds=150, l2=1e-3, ridge=0.0).fit(X, y)
    best = ChainCRF(l2=1e-3, tol=1e-8, intercept=True, transition_pairs="all").fit(X, y)
    optimum = -best.log_prob(X, y).sum()
    assert model.objective_ == pytest.approx(optimum, rel=2e-3)
    assert model.rounds_[0].pick == "(1 leaf)"
    weights = model.transitions_.weights
    assert weights[0, 2] == weights.min(), "the pair that never occurs"


# ------------------------------------------------------------------------------------------------ what it learns


def test_conjunctions_that_no_linear_chain_can_learn() -> None:
    X, y = xor_chains(40, 0)
    test = xor_chains(20, 1)
    linear = ChainCRF().fit(X, y)
    trees = TreeCRF(n_rounds=40, max_depth=2, learning_rate=0.3).fit(X, y)
    assert linear.score(*test) < 0.75
    assert trees.score(*test) == 1.0
    assert TreeCRF(n_rounds=40, max_depth=1, learning_rate=0.3).fit(X, y).score(*test) < 0.75, "stumps cannot either"


def test_neighbours_help_where_columns_are_weak() -> None:
    world = crfield.make_order_chains(0.95, 1, n_chains=6, length=400, n_features=20, random_state=2)
    X, y = world.features, world.labels
    options: dict[str, Any] = {"n_rounds": 60, "max_depth": 1, "decode": "marginal"}
    chained = TreeCRF(**options).fit(X[1:], y[1:]).score(X[:1], y[:1])
    alone = TreeCRF(transitions="none", **options).fit(X[1:], y[1:]).score(X[:1], y[:1])
    assert chained > alone + 0.05


def test_transitions_that_depend_on_the_columns() -> None:
    """The label changes where the second column says so, and stays otherwise: no shared table can tell."""

    def made(n: int, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
        rng = np.random.default_rng(seed)
        X, y = [], []
        for _ in range(n):
            turn = rng.integers(0, 2, 15)
            labels = (int(rng.integers(2)) + np.cumsum(turn)) % 2
            sight = np.where(rng.random(15) < 0.3, labels, 2)  # mostly hidden
            X.append(np.stack([sight, turn], axis=1).astype(float))
            y.append(labels)
        return X, y

    X, y = made(40, 0)
    test = made(20, 1)
    options: dict[str, Any] = {"n_rounds": 60, "max_depth": 2, "learning_rate": 0.3}
    assert TreeCRF(**options).fit(X, y).score(*test) < 0.85
    model = TreeCRF(transitions="trees", **options).fit(X, y)
    assert model.score(*test) > 0.95
    assert len(model.field_.edge_trees) == 60


def test_the_window_sees_the_steps_around() -> None:
    rng = np.random.default_rng(0)
    X = [rng.integers(0, 2, (8, 1)).astype(float) for _ in range(40)]
    y = [np.roll(x[:, 0], 1) * (np.arange(8) > 0) for x in X]  # the column of the step before
    options: dict[str, Any] = {"n_rounds": 30, "max_depth": 1, "learning_rate": 0.5, "transitions": "none"}
    assert TreeCRF(**options).fit(X, y).score(X, y) < 0.8
    model = TreeCRF(window=1, **options).fit(X, y)
    assert model.score(X, y) == 1.0
    assert model.rounds_[0].pick == "x[0] at -1 > 0.5 (2 leaves)"


def test_held_out_rounds_are_taken_back() -> None:
    days = crfield.make_activity_days(20, n_days=10, length=40, random_state=3)
    model = TreeCRF(held_out=0.3, patience=4, n_rounds=200, learning_rate=0.3).fit(days.features, days.labels)
    losses = [r.held_out for r in model.rounds_]
    assert model.stop_reason_ == HELD_OUT
    assert model.n_iter_ == int(np.argmin(losses)) + 1 == len(model.rounds_) - 4
    assert [r.kept for r in model.rounds_] == [True] * model.n_iter_ + [False] * 4
    assert len(model.field_.trees) == model.n_iter_
    with pytest.raises(InputError, match="held_out"):
        TreeCRF(held_out=0.1).fit(days.features[:2], days.labels[:2])


def test_labels_that_are_partly_known() -> None:
    X, y = xor_chains(40, 0)
    rng = np.random.default_rng(5)
    some: list[list[Any]] = [[None if rng.random() < 0.4 else label for label in labels] for labels in y]
    some[0][0] = {"odd", "even"}
    model = TreeCRF(n_rounds=30, max_depth=2, learning_rate=0.3).fit(X, some)
    assert model.score(X, y) == 1.0
    assert (model.log_prob(X, some) >= model.log_prob(X, y) - 1e-12).all()


def test_samples_of_rows_and_columns_come_from_the_seed() -> None:
    X, y = xor_chains(30, 0)
    options: dict[str, Any] = {"n_rounds": 15, "subsample": 0.5, "max_features": 0.67}
    one, two, other = (TreeCRF(random_state=seed, **options).fit(X, y) for seed in (0, 0, 1))
    assert one.rounds_ == two.rounds_
    assert np.array_equal(one.potentials(X).node, two.potentials(X).node)
    assert one.rounds_ != other.rounds_
    assert TreeCRF(random_state=0, n_jobs=2, **options).fit(X, y).rounds_ == one.rounds_


def test_dense_and_sparse_columns_give_the_same_trees() -> None:
    X, y = xor_chains(20, 0)
    options: dict[str, Any] = {"n_rounds": 10, "subsample": 0.7, "max_features": 0.67, "window": 1}
    dense = TreeCRF(**options).fit(X, y)
    sparse = TreeCRF(**options).fit([sp.csr_array(x) for x in X], y)
    np.testing.assert_allclose(
        sparse.potentials([sp.csr_array(x) for x in X]).node, dense.potentials(X).node, atol=1e-12
    )


def test_a_callback_ends_training() -> None:
    X, y = xor_chains(10, 0)
    seen: list[int] = []

    def third(step: Any) -> bool:
        seen.append(step.n_iter)
        return bool(step.n_iter == 3)

    model = TreeCRF(callback=third).fit(X, y)
    assert seen == [1, 2, 3]
    assert model.n_iter_ == 3
    assert model.stop_reason_ == "callback"


def test_an_interrupt_keeps_the_rounds_so_far() -> None:
    X, y = xor_chains(10, 0)

    def stop(step: Any) -> None:
        if step.n_iter == 4:
            raise KeyboardInterrupt

    with pytest.warns(crfield.errors.ConvergenceWarning, match="interrupted"):
        model = TreeCRF(callback=stop).fit(X, y)
    assert not model.converged_
    assert model.n_iter_ == 4
    assert len(model.predict(X)) == 10


# ------------------------------------------------------------------------------------------------ odd input


@pytest.mark.parametrize("transitions", ["table", "trees", "none"])
def test_odd_sequences(transitions: str) -> None:
    X = [np.zeros((0, 2)), np.array([[1.0, 2.0]]), np.array([[1.0, 2.0], [0.0, 2.0], [1.0, 2.0]])]
    y: list[list[str]] = [[], ["a"], ["a", "b", "a"]]
    model = TreeCRF(n_rounds=50, min_samples_leaf=1, ridge=0.1, transitions=transitions).fit(X, y)
    assert [found.tolist() for found in model.predict(X)] == y
    only = TreeCRF(n_rounds=3, transitions=transitions).fit(X[1:2], [["a"]])
    assert only.predict(X)[2].tolist() == ["a"] * 3, "one class"
    assert only.predict_proba(X)[2].tolist() == [[1.0]] * 3


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"n_rounds": 0}, "n_rounds"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"ridge": -1.0}, "ridge"),
        ({"l2": float("nan")}, "l2"),
        ({"max_depth": 1.5}, "max_depth"),
        ({"min_samples_leaf": True}, "min_samples_leaf"),
        ({"subsample": 1.5}, "subsample"),
        ({"max_features": 0.0}, "max_features"),
        ({"max_bins": 256}, "max_bins"),
        ({"held_out": 1.0}, "held_out"),
        ({"transitions": "all"}, "'table', 'trees', 'none'"),
        ({"decode": "best"}, "decode"),
        ({"n_jobs": 0}, "n_jobs"),
        ({"random_state": -1}, "random_state"),
        ({"verbose": -1}, "verbose"),
        ({"callback": 3}, "callback"),
        ({"window": -1}, "window"),
    ],
)
def test_parameters_that_cannot_be(wrong: dict[str, Any], words: str) -> None:
    X, y = xor_chains(3, 0)
    with pytest.raises(InputError, match=words):
        TreeCRF(**wrong).fit(X, y)


def test_data_that_cannot_be() -> None:
    X, y = xor_chains(3, 0)
    holes = [x.copy() for x in X]
    holes[1][0, 0] = np.inf
    with pytest.raises(FeatureError, match="sequence 1, step 0"):
        TreeCRF().fit(holes, y)
    with pytest.raises(InputError, match="no label"):
        TreeCRF().fit([np.zeros((0, 2)), np.zeros((0, 2))], [[], []])
    model = TreeCRF(n_rounds=2).fit(X, y)
    with pytest.raises(ShapeError, match="expected 3"):
        model.predict([np.zeros((2, 4))])
    with pytest.raises(CrfieldError):
        model.log_prob(X, [["blue"] * len(labels) for labels in y])


# ------------------------------------------------------------------------------------------------ trees laid flat


def grown(depth: int = 4, seed: int = 0) -> tuple[Any, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.integers(0, 6, (300, 5)).astype(float)
    z = np.stack([np.sin(x[:, 0] * x[:, 1]), x[:, 2] > x[:, 3], rng.normal(size=300)], axis=1)
    return fit_tree(Candidates.of(x), np.ones((300, 3)), z, max_depth=depth), x


def test_flat_trees_send_rows_where_the_grown_ones_do() -> None:
    tree, x = grown()
    flat = FlatTree.of(tree)
    new = np.random.default_rng(9).integers(-2, 9, (10_000, 5)).astype(float)
    for rows in (x, new, new[:0]):
        assert np.array_equal(flat.leaves(rows), tree.leaves(rows))
        assert np.array_equal(flat.leaves(sp.csr_array(rows)), tree.leaves(rows))
    total = TreeSum(5, 3)
    for seed in range(3):
        one, _ = grown(seed=seed)
        total.add(FlatTree.of(one), one.values)
    wanted = sum(grown(seed=seed)[0].apply(new) for seed in range(3))
    np.testing.assert_allclose(total.score(new), wanted, atol=1e-12)
    assert total.usage().sum() == sum((tree.left >= 0).sum() for tree, _ in total.trees)
    assert np.array_equal(total.leaves(x)[:, 0], total.trees[0][0].leaves(x))
    with pytest.raises(ShapeError, match="5 columns"):
        total.score(np.zeros((2, 4)))


def test_samples_of_candidates_are_those_rows_and_columns() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 4, (60, 7)).astype(float)
    x[rng.random(x.shape) < 0.5] = 0.0
    rows, columns = np.sort(rng.choice(60, 30, replace=False)), np.array([1, 2, 5])
    weight, response = np.ones((60, 2)), rng.normal(size=(60, 2))
    for table in (x, sp.csc_array(x)):
        cut = regrouped(Candidates.of(table), joint_bins=16)
        part = some_columns(some_rows(cut, rows), columns)
        for k, f in enumerate(columns):
            assert np.array_equal(part.packed.column(k), cut.packed.column(f)[rows])
        tree = FlatTree.of(fit_tree(part, weight[rows], response[rows], max_depth=3), columns)
        plain = fit_tree(Candidates.of(x[np.ix_(rows, columns)]), weight[rows], response[rows], max_depth=3)
        assert np.array_equal(tree.leaves(x)[rows], plain.leaves(x[np.ix_(rows, columns)]))


def test_windows_of_dense_and_sparse_tables() -> None:
    chains = Chains.from_lengths([3, 0, 1, 4])
    table = np.arange(1.0, 17.0).reshape(8, 2)
    dense = windowed(table, chains, reach=2)
    assert dense.shape == (8, 10)
    assert dense[1].tolist() == [3, 4, 1, 2, 5, 6, 0, 0, 0, 0]
    assert dense[3].tolist() == [7, 8, 0, 0, 0, 0, 0, 0, 0, 0], "a sequence of one step has no neighbours"
    assert np.array_equal(windowed(sp.csr_array(table), chains, reach=2).toarray(), dense)
    assert windowed(np.zeros((0, 2)), Chains.from_lengths([]), reach=1).shape == (0, 6)


# ------------------------------------------------------------------------------------------------ files


def test_files_keep_everything(tmp_path: Path) -> None:
    X, y = xor_chains(15, 0)
    model = TreeCRF(n_rounds=8, transitions="trees", window=1, held_out=0.2).fit(X, y)
    model.save(tmp_path / "model.crfield")
    copy = crfield.load(tmp_path / "model.crfield")
    for one, other in zip(copy.field_.state().arrays.values(), model.field_.state().arrays.values(), strict=True):
        assert np.array_equal(one, other)
    assert copy.rounds_ == model.rounds_
    assert copy.get_params() == model.get_params()
    assert copy.objective_ == model.objective_
    assert np.array_equal(copy.log_prob(X, y), model.log_prob(X, y))


@pytest.mark.parametrize(
    "damage",
    [
        lambda a: a.update(left=a["left"][:-1]),
        lambda a: a["left"].__setitem__(0, 0),
        lambda a: a["left"].__setitem__(0, 10_000),
        lambda a: a["left"].__setitem__(-1, -1_000),
        lambda a: a["left"].__setitem__(1, a["left"][0]),
        lambda a: a["column"].__setitem__(0, 99),
        lambda a: a["column"].__setitem__(0, -1),
        lambda a: a["values"].__setitem__((0, 0), np.nan),
        lambda a: a["threshold"].__setitem__(0, np.nan),
        lambda a: a.update(values=a["values"][:, :1]),
        lambda a: a.update(roots=a["roots"] + 1),
        lambda a: a.update(column=a["column"].astype(np.int64)),
        lambda a: a.pop("threshold"),
    ],
)
def test_damaged_trees_are_refused(damage: Any) -> None:
    tree, _ = grown()
    trees = TreeSum(5, 3)
    trees.add(FlatTree.of(tree), tree.values)
    arrays = {name: values.copy() for name, values in trees.state().arrays.items()}
    assert len(TreeSum.from_state(State({}, arrays), n_columns=5, n_values=3)) == 1
    damage(arrays)
    with pytest.raises(ModelFileError):
        TreeSum.from_state(State({}, arrays), n_columns=5, n_values=3)


def test_edited_files_are_refused_or_usable() -> None:
    """Whatever is in a file, it is refused as damaged, or gives a model that answers or says why it does not."""
    X, y = xor_chains(6, 0)
    settings: tuple[dict[str, Any], ...] = ({"transitions": "trees", "window": 1}, {"held_out": 0.3})
    for options in settings:
        stream = io.BytesIO()
        TreeCRF(n_rounds=3, **options).fit(X, y).save(stream)
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
                model.predict(X)
                model.predict_proba(X)
                model.save(io.BytesIO())
        assert refused > 30


def test_growth_needs_chains() -> None:
    from crfield.core.graphs import Graphs

    graphs = Graphs(np.array([0, 2]), np.array([0]), np.array([1]))
    with pytest.raises(InputError, match="chains"):
        grow_field(np.zeros((2, 1)), Target(graphs, 2, np.array([0, 1])), Growth(), rng=np.random.default_rng(0))
