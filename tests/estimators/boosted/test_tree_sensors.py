"""What `TreeCRF` has for sensors: memory against enumeration, class weights, held-out groups, importances, curves."""

from __future__ import annotations

import io
from dataclasses import replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

import crfield
from crfield import TreeCRF, partial_dependence
from crfield.boosting.chain_slopes import Labelled
from crfield.boosting.functional_gradient import HELD_OUT
from crfield.boosting.tree_field import TreeField
from crfield.boosting.weak_learners.tree_scorer import TreeSum
from crfield.core.costs import label_weights, node_costs
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, ModelFileError, ShapeError
from crfield.training.segment_memory import SegmentMemory
from tests.estimators.boosted.test_tree_crf import some_data

Data = tuple[list[np.ndarray], list[list[str]]]


def script(n: int = 6, seed: int = 0) -> Data:
    """People who stand, walk, stand and climb; both stands look alike, and so do walking and climbing, nearly."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        labels: list[str] = []
        for label in ("stand", "walk", "stand", "climb") * 2:
            labels += [label] * int(rng.integers(3, 6))
        moving = np.array([label != "stand" for label in labels], float)
        X.append(np.stack([moving, np.zeros(len(labels))], axis=1) + rng.normal(size=(len(labels), 2)) * [0.1, 1.0])
        y.append(labels)
    return X, y


# ---------------------------------------------------------------------------------------------------------- memory


def pairs_of(labels: tuple[int, ...]) -> list[tuple[int, int]]:
    """(label of the segment before, label) of every step, one after the other."""
    found: list[tuple[int, int]] = []
    for label in labels:
        if not found:
            found.append((-1, label))
        else:
            found.append(found[-1] if found[-1][1] == label else (found[-1][1], label))
    return found


def test_probabilities_with_memory_are_those_of_all_labellings() -> None:
    X = [np.array([[0.0], [1.0], [0.0], [1.0], [1.0]]), np.array([[1.0], [0.0], [0.0], [1.0]])]
    y = [["a", "b", "a", "c", "c"], ["b", "a", "a", "b"]]
    model = TreeCRF(n_rounds=6, memory=True, min_samples_leaf=1, learning_rate=0.5).fit(X, y)
    field, memory = model.field_, model.field_.memory
    assert memory is not None
    place = {pair: k for k, pair in enumerate(zip(memory.before.tolist(), memory.space.label_of_state.tolist()))}
    assert set(place) == {(-1, 0), (-1, 1), (-1, 2), (0, 1), (1, 0), (0, 2)}, "what occurs, and every first label"
    x = X[0][:4]
    node = field.trees.score(x) + field.prior
    totals: dict[tuple[int, ...], float] = {}
    for labels in product(range(3), repeat=4):
        pairs = pairs_of(labels)
        if all(pair in place for pair in pairs):
            path = [place[pair] for pair in pairs]
            score = node[np.arange(4), path].sum() + field.start[path[0]] + field.end[path[-1]]
            totals[labels] = score + sum(field.table[a, b] for a, b in pairwise(path))
    names = model.classes_
    logs = np.array(list(totals.values()))
    share = np.exp(logs - np.logaddexp.reduce(logs))
    wanted = np.zeros((4, 3))
    for labels, p in zip(totals, share, strict=True):
        wanted[np.arange(4), list(labels)] += p
    np.testing.assert_allclose(model.predict_proba([x])[0], wanted, atol=1e-12)
    told = [model.log_prob([x], [names[list(labels)].tolist()])[0] for labels in totals]
    np.testing.assert_allclose(np.exp(told), share, atol=1e-12)
    best = max(totals, key=totals.__getitem__)
    assert model.predict([x])[0].tolist() == names[list(best)].tolist()
    assert model.log_prob([x], [["c", "a", "a", "a"]])[0] == -np.inf, "a change that training never saw"
    ranked = model.predict_n_best([x], 3)[0]
    np.testing.assert_allclose([one.probability for one in ranked], np.sort(share)[::-1][:3], atol=1e-12)


def test_memory_tells_one_stand_from_the_other() -> None:
    X, y = script(12)
    test = script(8, 1)
    options: dict[str, Any] = {"n_rounds": 30, "max_depth": 2, "learning_rate": 0.3}
    plain = TreeCRF(**options).fit(X, y)
    model = TreeCRF(memory=True, **options).fit(X, y)
    assert plain.score(*test) < 0.9
    assert model.score(*test) > 0.97
    losses = [r.nll for r in model.rounds_]
    assert (np.diff(losses) <= 1e-12).all()
    assert "climb after stand" in str(model.transitions_)


@pytest.mark.parametrize("partial", [False, True])
@pytest.mark.parametrize("weighted", [False, True])
def test_slopes_with_memory_and_costs_are_those_of_the_value(partial: bool, weighted: bool) -> None:
    columns, target = some_data(partial=partial, weighted=weighted)
    costs = np.where(target.mask, 0.0, np.random.default_rng(4).random(target.mask.shape))
    target = replace(target, cost=costs)
    memory, rng = SegmentMemory.observed(target), np.random.default_rng(1)
    size = memory.space.n_states
    prior, start, end = rng.normal(size=(3, size))
    field = TreeField(TreeSum(2, size), prior, start, end, rng.normal(size=(size, size)), None, memory)
    data = Labelled(columns, target, field)
    slopes, step = data.slopes(field), 1e-5
    assert slopes.value == pytest.approx(data.value(field), rel=1e-12)
    for at in ((0, 0), (2, 1), (5, 2), (9, 0)):
        values = []
        for by in (step, -step):
            data.node[at] += by
            values.append(data.value(field))
            data.node[at] -= by
        slope = -(values[0] - values[1]) / (2 * step)
        assert slope == pytest.approx(data.row_weight[at[0]] * slopes.node[at], abs=1e-8)
    for at in ((0, 0), (1, 2), (size - 1, size - 1)):
        moved = []
        for by in (step, -step):
            table = field.table.copy()
            table[at] += by
            moved.append(data.value(replace(field, table=table)))
        assert -(moved[0] - moved[1]) / (2 * step) == pytest.approx(slopes.edge[at], abs=1e-8)


def test_states_of_a_memory() -> None:
    chains = Chains.from_lengths([4, 0, 3])
    known = Target(chains, 3, np.array([0, 0, 1, 2, 2, 2, 0]))
    memory = SegmentMemory.observed(known)
    states = list(zip(memory.before.tolist(), memory.space.label_of_state.tolist()))
    assert states == [(-1, 0), (2, 0), (-1, 1), (0, 1), (-1, 2), (1, 2)]
    assert [states[k] for k in memory.target(known).labels] == [
        (-1, 0), (-1, 0), (0, 1), (1, 2), (-1, 2), (-1, 2), (2, 0),
    ]  # fmt: skip
    allowed = np.zeros((7, 3), bool)
    allowed[np.arange(7), known.labels] = True
    allowed[1] = True  # nobody knows
    vague = Target(chains, 3, np.where(np.arange(7) == 1, -1, known.labels), allowed)
    again = SegmentMemory.observed(vague)
    assert again.before.tolist() == memory.before.tolist(), "unknown steps are passed over"
    there = np.arange(7) != 1
    assert again.target(vague).labels.tolist() == np.where(there, memory.target(known).labels, -1).tolist()
    unsure = Target(chains, 3, vague.labels, np.where(np.arange(7)[:, None] == 1, [[True, True, False]], allowed))
    assert SegmentMemory.observed(unsure).space.n_states == 9, "a set of labels: all pairs are possible"


def test_unknown_labels_and_weights_with_memory() -> None:
    X, y = script(5)
    some: list[list[Any]] = [[None if k % 5 == 2 else label for k, label in enumerate(labels)] for labels in y]
    some[0][3] = {"stand", "walk"}
    model = TreeCRF(n_rounds=20, memory=True, learning_rate=0.3).fit(X, some, sample_weight=[1, 2, 1, 0.5, 1])
    assert model.score(X, y) > 0.9
    assert (model.log_prob(X, some) >= model.log_prob(X, y) - 1e-9).all()


def test_files_keep_the_memory() -> None:
    X, y = script(4)
    model, stream = TreeCRF(n_rounds=5, memory=True, class_weight={"climb": 2.0}).fit(X, y), io.BytesIO()
    model.save(stream)
    stream.seek(0)
    copy = crfield.load(stream)
    assert copy.get_params() == model.get_params()
    assert np.array_equal(copy.log_prob(X, y), model.log_prob(X, y))
    assert np.array_equal(copy.feature_importances_, model.feature_importances_)
    arrays = model.field_.memory.arrays()
    own = int(arrays["label"][-1])
    for name, value in (("before", -2), ("before", 3), ("before", own), ("label", -1), ("label", 3), ("label", 0)):
        damaged = {key: array.copy() for key, array in arrays.items()}
        damaged[name][-1] = value
        with pytest.raises(ModelFileError):
            SegmentMemory.from_arrays(damaged, 3)
    live = model.stream()
    for row in X[0]:
        live.push(row)
    np.testing.assert_allclose(live.finish().smoothed[-1], model.predict_proba(X[:1])[0][-1], atol=1e-12)
    with pytest.raises(InputError, match="transitions='table'"):
        TreeCRF(memory=True, transitions="none").fit(X, y)


# --------------------------------------------------------------------------------------------------- class weights


def test_class_weights_raise_the_recall_of_rare_labels() -> None:
    rng = np.random.default_rng(0)
    y = [np.where(rng.random(60) < 0.1, "rare", "usual") for _ in range(6)]
    X = [np.stack([(labels == "rare") + rng.normal(size=60)], axis=1) for labels in y]
    true = np.concatenate(y) == "rare"
    counted = {"rare": len(true) / (2 * true.sum()), "usual": len(true) / (2 * (~true).sum())}
    plain, even, told = (TreeCRF(n_rounds=20, class_weight=w).fit(X, y) for w in (None, "balanced", counted))
    recall = [(np.concatenate(model.predict(X)) == "rare")[true].mean() for model in (plain, even)]
    assert recall[1] > recall[0] + 0.1
    assert even.rounds_ == told.rounds_, "what 'balanced' means"


def test_weights_of_one_are_the_usual_softmax_margin() -> None:
    """class_weight means what it means in `ChainCRF`: costs that are added to the scores of wrong labels."""
    columns, target = some_data()
    weights = label_weights({0: 2.0}, [0, 1, 2], target)
    cost = node_costs((1.0 - np.eye(3)) * weights[:, None], target.mask)
    rng = np.random.default_rng(0)
    field = TreeField(TreeSum(2, 3), *rng.normal(size=(3, 3)), rng.normal(size=(3, 3)))
    data = Labelled(columns, replace(target, cost=cost), field)
    scores = field.assemble(data.node, None, data.chains)
    loss = 0.0
    for k, (a, b) in enumerate(zip(data.chains.offsets, data.chains.offsets[1:], strict=False)):
        totals, gold = [], 0.0
        for path in product(range(3), repeat=int(b - a)):
            own = sum(scores.node[a + t, label] for t, label in enumerate(path))
            own += sum(scores.edge[0, i, j] for i, j in pairwise(path))
            totals.append(own + sum(cost[a + t, label] for t, label in enumerate(path)))
            if path == tuple(target.labels[a:b].tolist()):
                gold = own
        loss += (np.logaddexp.reduce(totals) - gold) * data.weight[k]
    assert data.value(field) == pytest.approx(loss, rel=1e-12)


# --------------------------------------------------------------------------------------------------- held-out groups


def test_whole_groups_are_held_out() -> None:
    rng = np.random.default_rng(0)
    people = [f"p{k}" for k in range(5) for _ in range(3)]
    y = [rng.integers(0, 2, 12) for _ in people]
    habit = {name: rng.normal(size=2) for name in people}
    X = [np.concatenate([habit[p] + rng.normal(size=(12, 2)), rng.normal(size=(12, 1)) + own[:, None]], axis=1)
         for p, own in zip(people, y, strict=True)]  # fmt: skip
    seen: list[set[str]] = []

    class Watched(TreeCRF):
        def _grow(self, table: Any, target: Any, labels: Any, groups: Any, name_of: Any) -> Any:
            grown = super()._grow(table, target, labels, groups, name_of)
            seen.append(set(groups))
            return grown

    model = Watched(n_rounds=100, held_out=0.4, patience=3, learning_rate=0.5).fit(X, y, groups=people)
    assert seen == [set(people)]
    assert model.stop_reason_ == HELD_OUT
    from crfield.estimators.boosted.tree_crf import _split

    inside, outside = _split(15, 0.4, np.random.default_rng(0), people)
    assert sorted([*inside, *outside]) == list(range(15))
    assert not {people[k] for k in inside} & {people[k] for k in outside}
    assert len({people[k] for k in outside}) == 2
    again = TreeCRF(n_rounds=100, held_out=0.4, patience=3, learning_rate=0.5)
    again.fit([*X, X[0]], [*y, y[0]], [1.0] * 15 + [0.0], groups=[*people, "nobody"])
    assert again.rounds_ == model.rounds_, "a sequence without weight has no group either"
    plain = TreeCRF(n_rounds=2)
    assert plain.fit(X, y, groups=people).rounds_ == clone(plain).fit(X, y).rounds_, "nobody is held out"
    with pytest.raises(ShapeError, match="15 sequences"):
        TreeCRF(held_out=0.5).fit(X, y, groups=people[:3])
    with pytest.raises(InputError, match="1 groups"):
        TreeCRF(held_out=0.5).fit(X, y, groups=["one"] * 15)


# ----------------------------------------------------------------------------------------- importances and curves


def test_importances_are_the_shares_of_the_gains() -> None:
    X, y = script(5)
    wide = TreeCRF(n_rounds=4, window=1).fit(X, y)
    slow = np.zeros(6)
    for tree, _ in wide.field_.trees.trees:
        for node, column in enumerate(tree.column.tolist()):
            if tree.left[node] >= 0:
                slow[column] += tree.gain[node]
    slow = slow.reshape(3, 2).sum(axis=0)
    np.testing.assert_allclose(wide.feature_importances_, slow / slow.sum(), rtol=1e-12)
    assert wide.feature_importances_[0] > 0.8
    constant = TreeCRF(n_rounds=2).fit([np.ones((4, 2))], [["a", "b", "a", "b"]])
    assert constant.feature_importances_.tolist() == [0.0, 0.0]


def test_shuffling_a_column_costs_what_the_labels_lose() -> None:
    X, y = script(6)
    y[0][3] = None  # type: ignore[call-overload]
    model = TreeCRF(n_rounds=15, learning_rate=0.3).fit(X, y)
    found = model.feature_importance(X, y, random_state=3)
    assert found[0].name == "x[0]"
    assert sum(item.share for item in found) == pytest.approx(1.0)
    rng, whole = np.random.default_rng(3), np.concatenate(X)
    whole[:, 0] = rng.permutation(whole[:, 0])
    codes = np.concatenate([[-1 if v is None else model.classes_.tolist().index(v) for v in own] for own in y])

    def mean(tables: list[np.ndarray]) -> float:
        chances = np.concatenate(list(model.predict_proba(tables)))[codes >= 0]
        return float(np.log(chances[np.arange(len(chances)), codes[codes >= 0]]).mean())

    slow = mean(X) - mean(np.split(whole, np.cumsum([len(x) for x in X])[:-1]))
    assert found[0].importance == pytest.approx(slow, rel=1e-9)
    assert len(model.feature_importance(X, y, n=0)) == 0
    with pytest.raises(InputError, match="no known label"):
        model.feature_importance(X, [[None] * len(own) for own in y])


@pytest.mark.parametrize("memory", [False, True])
def test_partial_dependence_is_the_mean_of_predictions(memory: bool) -> None:
    X, y = script(4)
    X[0][2, 0] = np.nan
    model = TreeCRF(n_rounds=15, memory=memory, learning_rate=0.3).fit(X, y)
    found = partial_dependence(model, X, 0, grid=5)
    assert found.labels == ("climb", "stand", "walk")
    assert len(found.grid) == 5
    for value, row in [*zip(found.grid, found.values, strict=True), (np.nan, found.missing)]:
        moved = [x.copy() for x in X]
        for x in moved:
            x[:, 0] = value
        np.testing.assert_allclose(row, np.concatenate(list(model.predict_proba(moved))).mean(axis=0), atol=1e-12)
    scores = partial_dependence(model, X, -2, grid=4, kind="score")
    assert scores.column == "x[0]"
    np.testing.assert_allclose(scores.values.sum(axis=1), 0.0, atol=1e-9)
    assert scores.values[0, 1] > scores.values[-1, 1], "who does not move stands"
    assert scores.effects.shape == (3,)
    assert str(found).splitlines()[-1].split()[0] == "missing"
    assert len(found.chart().curves) == 6
    for wrong in ({"column": 2}, {"column": "x"}, {"column": 0, "grid": 1}, {"column": 0, "kind": "best"}):
        with pytest.raises(InputError):
            partial_dependence(model, X, **wrong)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="list of arrays"):
        partial_dependence(model, [[["a"]]], 0)
