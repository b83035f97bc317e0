"""Missing values (NaN) in boosted chains, fields and stump encoders: a branch of their own, on the better side.

What is found is held to slow programs that try every cut and both sides; data in which it tells that a value is
missing must be learnt by that; and where nothing is missing nothing may change, to the last bit.
"""

from __future__ import annotations

import io
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse as sp

import crfield
from crfield import BoostedRandomField, ChainCRF, Graph, StumpEncoder, StumpSelector, TreeCRF, VirtualEvidenceBoosting
from crfield.boosting.weak_learners.candidates import Candidates
from crfield.boosting.weak_learners.tree_scorer import FlatTree, TreeSum
from crfield.boosting.weak_learners.trees import fit_tree
from crfield.data.graphs.json import format_graphs, parse_graphs
from crfield.errors import FeatureError, ModelFileError
from crfield.storage.state import State

Data = tuple[list[np.ndarray], list[np.ndarray]]
MODELS: dict[str, Any] = {
    "trees": lambda: TreeCRF(n_rounds=15, max_depth=2, learning_rate=0.3),
    "edges": lambda: TreeCRF(n_rounds=8, max_depth=2, learning_rate=0.3, transitions="trees", window=1),
    "exact": lambda: VirtualEvidenceBoosting(n_rounds=15),
    "small trees": lambda: VirtualEvidenceBoosting(n_rounds=10, learner="tree"),
    "verified": lambda: VirtualEvidenceBoosting(mode="verified", n_rounds=10),
    "field": lambda: BoostedRandomField(n_rounds=15),
}
models = pytest.mark.parametrize("name", MODELS)


def holes(seed: int = 0, n: int = 8, *, informative: bool = True) -> Data:
    """Labels that stay for a while; where it is "off" column 1 is mostly silent, and nothing else tells."""
    rng = np.random.default_rng(seed)
    X, y = [], []
    for _ in range(n):
        off = np.repeat(rng.integers(0, 2, 6), 4)
        x = rng.normal(size=(len(off), 3))
        silent = rng.random(len(off)) < (np.where(off, 0.95, 0.05) if informative else 0.3)
        x[silent, 1] = np.nan
        X.append(x)
        y.append(np.where(off, "off", "on"))
    return X, y


# ------------------------------------------------------------------------------------------- against slow programs


def slow_cuts(x: np.ndarray, w: np.ndarray, g: np.ndarray, ridge: float) -> dict[tuple[int, float, int], float]:
    """The gain of every cut of every column, with missing values below, above, or against all others."""
    found = {}
    for f in range(x.shape[1]):
        known = np.unique(x[~np.isnan(x[:, f]), f])
        gaps = bool(np.isnan(x[:, f]).any())
        cuts: list[float] = [(a + b) / 2 for a, b in pairwise(known)]
        for t, side in [*product(cuts, (1, 0) if gaps else (1,)), *([(np.inf, 1)] if gaps else [])]:
            upper = np.where(np.isnan(x[:, f]), side, x[:, f] > t).astype(bool)
            parts = [(g[own].sum(axis=0), w[own].sum(axis=0)) for own in (~upper, upper)]
            found[f, float(t), side] = float(sum((a**2 / (b + ridge)).sum() for a, b in parts))
    return found


def test_the_first_tree_has_the_best_cut_and_side(body: str) -> None:
    rng = np.random.default_rng(3)
    sides = set()
    for seed in range(6):
        x = np.round(rng.normal(size=(60, 2)), 1)
        x[rng.random(60) < 0.3, 0] = np.nan
        y = rng.integers(0, 3, 60)
        y[np.isnan(x[:, 0])] = seed % 3
        model = TreeCRF(n_rounds=1, max_depth=1, transitions="none", max_bins=255, min_samples_leaf=1, ridge=0.5)
        model.fit([x], [y])
        p = np.bincount(y, minlength=3) / 60
        slope = np.eye(3)[y] - p
        cuts = slow_cuts(x, np.abs(slope) * (1 - np.abs(slope)), slope, 0.5)
        best = max(cuts, key=cuts.__getitem__)
        tree = model.field_.trees.trees[0][0]
        assert (tree.column[0], tree.threshold[0]) == pytest.approx(best[:2])
        assert tree.missing[0] == best[2] or not np.isnan(x[:, tree.column[0]]).any()
        assert model.rounds_[0].gain == pytest.approx(cuts[best], rel=1e-9)
        sides.add((np.isinf(best[1]), best[2]))
    assert len(sides) > 1, "the data were to ask for several kinds of cuts"


def test_flat_trees_send_missing_values_where_the_grown_ones_do() -> None:
    rng = np.random.default_rng(0)
    x = rng.integers(0, 6, (200, 4)).astype(float)
    z = np.stack([np.sin(x[:, 0] * x[:, 1]), x[:, 2] > x[:, 3], rng.normal(size=200)], axis=1)
    x[rng.random(x.shape) < 0.2] = np.nan
    x[:, 3] = np.nan_to_num(x[:, 3])  # nothing is missing there
    tree = fit_tree(Candidates.of(x), np.ones((200, 3)), z, max_depth=4)
    flat = FlatTree.of(tree)
    new = rng.integers(-1, 8, (300, 4)).astype(float)
    new[rng.random(new.shape) < 0.2] = np.nan
    for rows in (x, new):
        slow = []
        for row in rows:
            node = 0
            while flat.left[node] >= 0:
                value = row[flat.column[node]]
                above = flat.missing[node] if np.isnan(value) else value > flat.threshold[node]
                node = int(flat.left[node] + above)
            slow.append(-1 - flat.left[node])
        assert np.array_equal(flat.leaves(rows), slow)
        assert np.array_equal(tree.leaves(rows), slow)
        assert np.array_equal(flat.leaves(sp.csr_array(rows)), slow)
    assert np.array_equal(tree.leaves(Candidates.of(x)), tree.leaves(x))


def test_a_column_without_gaps_sends_missing_values_where_more_steps_went() -> None:
    x = np.array([[0.0]] * 3 + [[1.0]] * 7)
    y = np.array(["a"] * 3 + ["b"] * 7)
    for table, heavy in ((x, 1), (1.0 - x, 0)):
        model = TreeCRF(n_rounds=1, max_depth=1, min_samples_leaf=1, transitions="none").fit([table], [y])
        assert model.field_.trees.trees[0][0].missing[0] == heavy
        assert model.predict([[[np.nan]]])[0].tolist() == ["b"]
        assert "missing" not in model.rounds_[0].pick


def entropy(labels: np.ndarray) -> float:
    share = np.unique(labels, return_counts=True)[1] / max(len(labels), 1)
    return float(-(share * np.log(share)).sum())


def test_stump_encoders_choose_the_better_answer_of_missing_values(body: str) -> None:
    rng = np.random.default_rng(1)
    said = set()
    for seed in range(5):
        y = rng.integers(0, 2, 80)
        x = np.round(y + rng.normal(scale=0.7, size=80), 1)
        x[rng.random(80) < np.where(y == seed % 2, 0.5, 0.1)] = np.nan
        encoder = StumpEncoder(max_bins=255).fit(x[:, None], y)
        (question,), (gain,) = encoder.questions_, encoder.gains_
        known, gains = np.unique(x[~np.isnan(x)]), []
        answers = [np.isnan(x), *((x > t) | (np.isnan(x) & also) for t in known[:-1] for also in (False, True))]
        for yes in answers:
            gains.append(entropy(y) - sum(np.mean(own) * entropy(y[own]) for own in (yes, ~yes)))
        assert gain == pytest.approx(max(gains), rel=1e-9)
        asked = question.ask(x[:, None]).astype(bool)
        assert entropy(y) - sum(np.mean(own) * entropy(y[own]) for own in (asked, ~asked)) == pytest.approx(gain)
        said.add(question.name().partition("or ")[2])
    assert said == {"", "missing"}


# ----------------------------------------------------------------------------------------------- what it learns


@models
def test_that_a_value_is_missing_tells(name: str, body: str) -> None:
    X, y = holes()
    test = holes(1)
    model = MODELS[name]().fit(X, y)
    assert model.score(*test) > 0.9
    filled = [np.nan_to_num(x) for x in X], [np.nan_to_num(x) for x in test[0]]
    linear = ChainCRF().fit(filled[0], y)
    assert linear.score(filled[1], test[1]) < 0.75, "what a linear chain sees of zeros in their place"


@models
def test_reports_name_the_side(name: str) -> None:
    X, y = holes()
    model = MODELS[name]().fit(X, y)
    assert any("x[1]" in pick and "missing" in pick for pick in model.rounds_.picks)
    if name == "exact":
        told = [feature.name for feature in model.top_features(30)]
        assert any("x[1]" in text and text.endswith("missing") for text in told)
        assert not any("missing" in text and "x[1]" not in text for text in told)
        twin = model.to_crf()
        for one, other in zip(twin.predict_proba(model.transform(X)), model.predict_proba(X), strict=True):
            np.testing.assert_allclose(one, other, atol=1e-9)


@pytest.mark.parametrize("maker", [StumpEncoder, StumpSelector])
def test_encoded_columns_keep_what_is_missing(maker: Any) -> None:
    X, y = holes()
    encoder = maker().fit(X, y)
    names = encoder.get_feature_names_out().tolist()
    assert any(text.startswith("x[1]") and text.endswith("missing") for text in names)
    assert ChainCRF().fit(encoder.transform(X), y).score(encoder.transform(holes(1)[0]), holes(1)[1]) > 0.9
    stream = io.BytesIO()
    encoder.save(stream)
    stream.seek(0)
    copy = crfield.load(stream)
    assert copy.questions_ == encoder.questions_


# ------------------------------------------------------------------------------------- nothing missing, nothing new


@models
def test_a_column_that_is_always_missing_changes_nothing(name: str) -> None:
    X, y = holes(informative=False)
    X = [np.nan_to_num(x) for x in X]
    wide = [np.concatenate([x, np.full((len(x), 1), np.nan)], axis=1) for x in X]
    if name == "edges":  # its window lies in between
        wide = X
    plain, other = MODELS[name]().fit(X, y), MODELS[name]().fit(wide, y)
    assert plain.rounds_ == other.rounds_
    assert not any("missing" in pick for pick in plain.rounds_.picks)
    for one, two in zip(plain.predict_proba(X), other.predict_proba(wide), strict=True):
        assert np.array_equal(one, two)


@models
def test_files_keep_the_side(name: str) -> None:
    X, y = holes()
    model, stream = MODELS[name]().fit(X, y), io.BytesIO()
    model.save(stream)
    stream.seek(0)
    copy = crfield.load(stream)
    for one, two in zip(copy.predict_proba(X), model.predict_proba(X), strict=True):
        assert np.array_equal(one, two)


def test_models_of_before_refuse_missing_values_as_they_did() -> None:
    model = crfield.load(Path(__file__).parents[2] / "stored" / "0.1.0" / "virtual-evidence-plain.crfield")
    with pytest.raises(FeatureError, match=r"node 0: .*Fill in"):
        model.predict([np.full((2, 2), np.nan)])
    trees = TreeSum(1, 1)
    trees.add(
        FlatTree(np.zeros(3, np.int32), np.array([0.5, 0, 0]), np.array([1, -1, -2], np.int32), 1), np.eye(2)[:, :1]
    )
    arrays = {name: array for name, array in trees.state().arrays.items() if name not in ("missing", "gain")}
    old = TreeSum.from_state(State({}, arrays), n_columns=1, n_values=1)
    assert old.score(np.array([[0.0], [1.0]])).tolist() == [[1.0], [0.0]]
    assert old.importances().tolist() == [1.0], "cuts, where no gains are kept"


@pytest.mark.parametrize(
    "damage",
    [
        lambda a: a["missing"].__setitem__(0, 2),
        lambda a: a.update(missing=a["missing"][:-1]),
        lambda a: a.update(missing=a["missing"].astype(np.int64)),
        lambda a: a["gain"].__setitem__(0, np.nan),
    ],
)
def test_damaged_sides_are_refused(damage: Any) -> None:
    x = np.array([[0.0], [1.0], [np.nan]])
    tree = fit_tree(Candidates.of(x), np.ones((3, 1)), np.array([[0.0], [1.0], [5.0]]), max_depth=2)
    trees = TreeSum(1, 1)
    trees.add(FlatTree.of(tree), tree.values)
    arrays = {name: values.copy() for name, values in trees.state().arrays.items()}
    assert len(TreeSum.from_state(State({}, arrays), n_columns=1, n_values=1)) == 1
    damage(arrays)
    with pytest.raises(ModelFileError):
        TreeSum.from_state(State({}, arrays), n_columns=1, n_values=1)


# -------------------------------------------------------------------------------------------------- other forms


@pytest.mark.parametrize("name", ["trees", "exact", "field"])
def test_sparse_matrices_may_miss_values(name: str) -> None:
    X, y = holes(n=4)
    dense = MODELS[name]().fit(X, y)
    sparse = MODELS[name]().fit([sp.csr_array(x) for x in X], y)
    for one, two in zip(dense.predict_proba(X), sparse.predict_proba([sp.csr_array(x) for x in X]), strict=True):
        np.testing.assert_allclose(one, two, atol=1e-9)


def test_graphs_say_that_values_may_be_missing() -> None:
    X, y = holes()
    pairs = [(k, k + 1) for k in range(23)]
    with pytest.raises(FeatureError, match="missing=True"):
        Graph(X[0], {"next": pairs})
    graphs = [Graph(x, {"next": pairs}, missing=True) for x in X]
    assert VirtualEvidenceBoosting(n_rounds=10).fit(graphs, y).score(graphs, y) > 0.9
    assert "x[1]" in " ".join(StumpEncoder().fit(graphs, y).get_feature_names_out())
    with pytest.raises(FeatureError, match="graph 0, node"):
        crfield.GraphCRF().fit(graphs, y)
    with pytest.raises(FeatureError, match="finite"):
        Graph([[np.inf]], missing=True)
    copy = parse_graphs(format_graphs(graphs))[0][0]
    assert copy.missing
    assert np.array_equal(copy.nodes["node"], X[0], equal_nan=True)


def test_infinity_is_refused_with_its_place() -> None:
    X, y = holes(n=2)
    X[1][3, 2] = -np.inf
    for model in (TreeCRF(), VirtualEvidenceBoosting(), BoostedRandomField()):
        with pytest.raises(FeatureError, match="sequence 1"):
            model.fit(X, y)
