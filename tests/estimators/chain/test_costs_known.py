"""Costs of errors, weights of labels, and labels known at prediction."""

from __future__ import annotations

from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest

import crfield
from crfield import HMM, ChainCRF, LatentDynamicCRF
from crfield.core.costs import cost_table, label_weights, node_costs
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, LabelError, ShapeError
from crfield.inference.chain import ChainEngine
from crfield.objectives.margin import Margin, SoftMargin
from tests.cases.chains import paths_of, random_potentials


def rare(n: int, seed: int, share: float = 0.1) -> tuple[list[Any], list[list[str]]]:
    """A rare label that its feature tells badly."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        tags = np.where(rng.random(rng.integers(2, 9)) < share, "R", "O")
        x = rng.normal(0.0, 1.0, len(tags)) + (tags == "R")
        X.append(x[:, None])
        y.append(tags.tolist())
    return X, y


# ------------------------------------------------------------------------------------------------------------ costs


@pytest.mark.parametrize("objective", [SoftMargin(), Margin()], ids=["soft", "hinge"])
@pytest.mark.parametrize("partial", [False, True], ids=["gold", "partial"])
def test_costs_of_the_target_raise_scores(objective: Any, partial: bool) -> None:
    """Value by enumeration; gradient of the smooth one by differences."""
    rng = np.random.default_rng(0)
    scores = random_potentials(rng, [3, 1, 2], 3)
    chains = scores.topology
    labels = rng.integers(0, 3, chains.n_nodes).astype(np.int32)
    allowed = None
    if partial:
        allowed = np.eye(3, dtype=bool)[labels] | (rng.random((chains.n_nodes, 3)) < 0.4)
        labels = np.full(chains.n_nodes, -1, np.int32)
    weight = np.array([1.0, 0.5, 2.0])
    bare = Target(chains, 3, labels, allowed, weight)
    table = rng.uniform(0, 2, (3, 3)) * (1 - np.eye(3))
    target = Target(chains, 3, labels, allowed, weight, node_costs(table, bare.mask))
    result = objective.evaluate(scores, target, ChainEngine())
    add = np.logaddexp.reduce if isinstance(objective, SoftMargin) else np.max
    value = 0.0
    for s in range(3):
        first, length = int(chains.offsets[s]), int(chains.lengths[s])
        free, kept = [], []
        for path in paths_of(3, length):
            score = sum(scores.node[first + t, k] for t, k in enumerate(path))
            score += sum(scores.edge[0][a, b] for a, b in pairwise(path))
            right = all(bare.mask[first + t, k] for t, k in enumerate(path))
            cost = sum(min(table[g, k] for g in np.flatnonzero(bare.mask[first + t])) for t, k in enumerate(path))
            free.append(score + cost)
            kept += [score] if right else []
        value += weight[s] * (add(free) - add(kept))
    np.testing.assert_allclose(result.value, value, rtol=1e-11)
    if isinstance(objective, SoftMargin):
        for n, j in product(range(chains.n_nodes), range(3)):
            step = np.zeros_like(scores.node)
            step[n, j] = 1e-5
            up = objective.evaluate(Potentials(scores.node + step, scores.edge, chains), target, ChainEngine())
            down = objective.evaluate(Potentials(scores.node - step, scores.edge, chains), target, ChainEngine())
            np.testing.assert_allclose((up.value - down.value) / 2e-5, result.node[n, j], rtol=1e-6, atol=1e-8)


def test_balanced_is_as_in_scikit_learn() -> None:
    from sklearn.utils.class_weight import compute_class_weight

    codes = np.array([0, 0, 0, 1, 2, 2, 0, 0])
    target = Target(Chains.from_lengths([5, 3]), 3, codes)
    expected = compute_class_weight("balanced", classes=np.arange(3), y=codes)
    np.testing.assert_allclose(label_weights("balanced", ["a", "b", "c"], target), expected)
    weighted = Target(Chains.from_lengths([5, 3]), 3, codes, weight=np.array([1.0, 0.0]))
    assert label_weights("balanced", ["a", "b", "c"], weighted).tolist() == [5 / 9, 5 / 3, 5 / 3]


def clear(n: int, seed: int) -> tuple[list[Any], list[list[str]]]:
    """A rare label told apart by one of many words, of which half are new at the test."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        tags = np.where(rng.random(rng.integers(3, 9)) < 0.15, "R", "O")
        words = [f"{tag}{rng.integers(30 + 15 * seed)}" for tag in tags]
        X.append([[word, f"shape{(tag == 'R') ^ (rng.random() < 0.3)}"] for word, tag in zip(words, tags)])
        y.append(tags.tolist())
    return X, y


def test_costs_of_the_soft_margin_shift_what_is_found() -> None:
    X, y = clear(60, 1)
    test, _ = clear(200, 2)

    def found(**options: Any) -> int:
        model = ChainCRF(l2=1.0, **options).fit(X, y)
        return sum(int((tags == "R").sum()) for tags in model.predict(test))

    even, dear = found(objective="softmax_margin"), found(class_weight={"R": 8.0})
    assert dear > 1.1 * even
    assert found(costs={("R", "O"): 8.0}) == dear
    assert found(costs=[[0.0, 1.0], [8.0, 0.0]]) == dear
    assert found(class_weight={"R": 4.0}, costs={("R", "O"): 2.0}) == dear


def test_class_weights_weigh_the_steps_of_the_label_likelihood() -> None:
    """As in a classifier: weight w for a label shifts its log-odds by log w where labels do not touch."""
    X, y = rare(120, 1)
    X, y = [x[k : k + 1] for x in X for k in range(len(x))], [[tag] for tags in y for tag in tags]
    test = [[[z]] for z in np.linspace(-2, 3, 5)]
    common: dict[str, Any] = {"l2": 1e-3, "tol": 1e-10, "boundaries": False, "objective": "label_likelihood"}
    model = ChainCRF(class_weight={"R": 6.0}, **common).fit(X, y)
    repeats = [6 if tags == ["R"] else 1 for tags in y]
    twin = ChainCRF(**common).fit(X, y, sample_weight=repeats)
    np.testing.assert_allclose(
        np.concatenate(model.predict_proba(test)), np.concatenate(twin.predict_proba(test)), rtol=1e-4
    )
    plain = ChainCRF(**common).fit(X, y)
    gained = [np.log(p[0, 1] / p[0, 0]) for p in model.predict_proba(test)]
    gained -= np.array([np.log(p[0, 1] / p[0, 0]) for p in plain.predict_proba(test)])
    np.testing.assert_allclose(gained, np.log(6.0), atol=0.4)


@pytest.mark.parametrize("log", [False, True], ids=["accuracy", "likelihood"])
def test_costs_of_single_labels(log: bool) -> None:
    """Value by marginals, gradient by differences."""
    from crfield.core.semiring import Semiring
    from crfield.objectives.label_accuracy import LabelAccuracy

    rng = np.random.default_rng(6)
    scores = random_potentials(rng, [3, 2], 3)
    chains, labels = scores.topology, rng.integers(0, 3, 5).astype(np.int32)
    table = rng.uniform(0.5, 2, (3, 3)) * (1 - np.eye(3))
    target = Target(chains, 3, labels, weight=np.array([1.0, 2.0]), cost=table[labels])
    objective, engine = LabelAccuracy(log=log), ChainEngine()
    result = objective.evaluate(scores, target, engine)
    p = engine.infer(scores, Semiring.LOG).node
    each = -table[labels].max(axis=1) * np.log(p[np.arange(5), labels]) if log else (p * table[labels]).sum(axis=1)
    np.testing.assert_allclose(result.value, each[:3].sum() + 2 * each[3:].sum(), rtol=1e-12)
    for direction in rng.standard_normal((4, 5, 3)):
        up = objective.evaluate(Potentials(scores.node + 1e-5 * direction, scores.edge, chains), target, engine)
        down = objective.evaluate(Potentials(scores.node - 1e-5 * direction, scores.edge, chains), target, engine)
        np.testing.assert_allclose((up.value - down.value) / 2e-5, (result.node * direction).sum(), rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"class_weight": "even"}, "class_weight must be"),
        ({"class_weight": {"R": -1}}, "finite number ≥ 0"),
        ({"class_weight": {"Z": 1}}, "none of the labels"),
        ({"costs": {"R": 1}}, "pairs"),
        ({"costs": {("R", "O"): np.nan}}, "finite"),
        ({"costs": [[0, 1, 1]]}, "square"),
        ({"costs": np.zeros((3, 3))}, "must be \\(2, 2\\)"),
        ({"costs": [[1, 1], [1, 0]]}, "truth costs nothing"),
        (
            {"class_weight": "balanced", "objective": "likelihood"},
            "no meaning for objective='likelihood'.*sample_weight",
        ),
    ],
    ids=str,
)
def test_what_cannot_be_a_cost_is_refused(options: dict[str, Any], words: str) -> None:
    X, y = rare(5, 3, share=0.5)
    with pytest.raises(InputError, match=words):
        ChainCRF(**options).fit(X, y)


def test_a_target_checks_its_costs() -> None:
    chains = Chains.from_lengths([2])
    with pytest.raises(ShapeError, match="cost"):
        Target(chains, 2, np.array([0, 1]), cost=np.zeros((1, 2)))
    for bad in ([[1.0, 1.0], [1.0, 0.0]], [[0.0, np.inf], [1.0, 0.0]], [[0.0, -1.0], [1.0, 0.0]]):
        with pytest.raises(LabelError, match="costs"):
            Target(chains, 2, np.array([0, 1]), cost=np.array(bad))
    assert cost_table({}, ["a", "b"]).tolist() == [[0.0, 1.0], [1.0, 0.0]]


def test_files_keep_weights_and_costs(tmp_path: Any) -> None:
    X, y = rare(10, 4, share=0.4)
    model = ChainCRF(class_weight={"R": 2.0}, costs={("R", "O"): 3.0}, tol=1e-2).fit(X, y)
    model.save(tmp_path / "m.crf")
    loaded = crfield.load(tmp_path / "m.crf")
    assert loaded.class_weight == {"R": 2.0}
    assert loaded.costs == {("R", "O"): 3.0}


# ------------------------------------------------------------------------------------------------------------ known


def small() -> tuple[list[Any], list[list[str]]]:
    rng = np.random.default_rng(5)
    y = [[str(k) for k in rng.choice(["a", "b", "c"], 4)] for _ in range(25)]
    return [np.array([["abc".index(k) + rng.normal()] for k in tags]) for tags in y], y


@pytest.mark.parametrize("decode", ["viterbi", "marginal"])
def test_known_labels_are_conditioned_on(decode: str) -> None:
    """p(y | x, known) by enumeration of the labellings that agree with what is known."""
    X, y = small()
    model = ChainCRF(decode=decode).fit(X, y)
    known = [[None, "c", {"a", "b"}, None], [None] * 4]
    two = X[:2]
    scores, labels = model.potentials(two), model.classes_.tolist()
    chances = model.predict_proba(two, known=known)
    for s in range(2):
        weights = {}
        for path in paths_of(3, 4):
            if s == 0 and (path[1] != 2 or path[2] == 2):
                continue
            score = sum(scores.node[4 * s + t, k] for t, k in enumerate(path))
            weights[path] = np.exp(score + sum(scores.edge[0][a, b] for a, b in pairwise(path)))
        expected = np.zeros((4, 3))
        for path, weight in weights.items():
            expected[np.arange(4), path] += weight / sum(weights.values())
        np.testing.assert_allclose(chances[s], expected, rtol=1e-9, atol=1e-12)
        best = max(weights, key=weights.__getitem__) if decode == "viterbi" else expected.argmax(axis=1)
        assert model.predict(two, known=known)[s].tolist() == [labels[k] for k in best]
    assert model.predict_marginals(two, known=known)[0][1]["c"] == pytest.approx(1.0)
    np.testing.assert_array_equal(model.predict(two, known=[[None] * 4] * 2)[1], model.predict(two)[1])


def test_known_labels_meet_constraints() -> None:
    X, y = [[["a"], ["b"], ["c"]]], [["B-X", "I-X", "O"]]
    model = ChainCRF(constraints="bio").fit(X, y)
    assert model.predict(X, known=[[None, "I-X", None]])[0][0] == "B-X"
    with pytest.raises(LabelError, match="sequence 0 has no labelling that the known labels and constraints allow"):
        model.predict(X, known=[["O", "I-X", None]])
    with pytest.raises(LabelError, match="unknown label 'Q'"):
        model.predict(X, known=[["Q", None, None]])
    with pytest.raises(ShapeError, match="sequence 0"):
        model.predict(X, known=[[None]])


@pytest.mark.parametrize(
    "model",
    [HMM(), HMM(min_duration=2), LatentDynamicCRF(n_states=2, max_iter=5, tol=0.1)],
    ids=["hmm", "durations", "latent"],
)
@pytest.mark.parametrize("decode", ["viterbi", "marginal"])
def test_other_chains_know_them_too(model: Any, decode: str) -> None:
    import warnings

    X, y = small()
    y = [[k for k in tags[:2] for _ in range(2)] for tags in y]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = model.set_params(decode=decode).fit(X, y)
    known = [["c", None, None, None]] * len(X)
    assert all(tags[0] == "c" for tags in model.predict(X, known=known))
    np.testing.assert_allclose([p[0, 2] for p in model.predict_proba(X, known=known)], 1.0)
