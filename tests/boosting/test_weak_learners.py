"""Weak learners: what stumps, categories and trees find, on columns of every kind."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from crfield.boosting.weak_learners.candidates import SAMPLE, Candidates, thresholds_of
from crfield.boosting.weak_learners.responses import centred, working_responses
from crfield.boosting.weak_learners.stumps import Categories, Stump, best_stump
from crfield.boosting.weak_learners.trees import RegressionTree, fit_tree
from crfield.errors import FeatureError, InputError, LabelError, ShapeError


def weighted_errors(weight: np.ndarray, response: np.ndarray, values: np.ndarray) -> float:
    return float((weight * (response - values) ** 2).sum())


def problem(seed: int, rows: int = 120, classes: int = 3) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = np.concatenate([rng.normal(size=(rows, 3)), rng.integers(0, 3, (rows, 2))], axis=1)
    weight = rng.random((rows, classes)) + 0.1
    response = (
        rng.normal(size=(rows, classes)) + (x[:, [1]] > 0.3) * np.arange(classes) + (x[:, [3]] == 2) * (x[:, [0]] > 0)
    )
    return x, weight, response


# ------------------------------------------------------------------------------------------------ responses


def test_responses_of_two_classes_mirror_each_other_to_the_last_bit() -> None:
    rng = np.random.default_rng(0)
    p = rng.random(500)
    weight, response = working_responses(np.stack([1 - p, p], axis=1), rng.integers(0, 2, 500), limit=100.0)
    assert (weight[:, 0] == weight[:, 1]).all()
    assert (response[:, 0] == -response[:, 1]).all()


def test_responses_are_those_of_the_definition() -> None:
    p = np.array([[0.7, 0.2, 0.1], [1.0, 0.0, 0.0], [0.2, 0.3, 0.5]])
    weight, response = working_responses(p, np.array([1, 2, -1]))
    np.testing.assert_allclose(weight, [[0.21, 0.16, 0.09], [1e-6, 1e-6, 1e-6], [0, 0, 0]], atol=1e-15)
    np.testing.assert_allclose(response, [[-1 / 0.3, 4.0, -1 / 0.9], [-4.0, 0.0, 4.0], [0, 0, 0]], atol=1e-12)


def test_responses_refuse_what_does_not_fit() -> None:
    with pytest.raises(LabelError, match=r"0 … 1"):
        working_responses(np.full((2, 2), 0.5), np.array([0, 2]))
    with pytest.raises(ShapeError, match="beliefs"):
        working_responses(np.full((2, 2), 0.5), np.array([0]))


def test_centred_steps_sum_to_zero() -> None:
    values = np.random.default_rng(0).normal(size=(4, 5))
    np.testing.assert_allclose(centred(values).sum(axis=1), 0.0, atol=1e-12)
    np.testing.assert_allclose(centred(values + 3.0), centred(values), atol=1e-12)


# ------------------------------------------------------------------------------------------------ candidates


def test_few_values_are_cut_between_all_of_them() -> None:
    assert thresholds_of(np.array([0.0, 0.0, 1.0, 5.0]), 32).tolist() == [0.5, 3.0]
    assert thresholds_of(np.zeros(0), 32).tolist() == []
    assert thresholds_of(np.array([3.0]), 32).tolist() == []


def test_many_values_are_cut_into_bins_of_like_size(body: str) -> None:
    rng = np.random.default_rng(0)
    for values in (rng.normal(size=10_000), rng.exponential(size=999) ** 4):
        cut = Candidates.of(values[:, None])
        assert len(cut.thresholds[0]) == 31
        sizes = np.bincount(cut.packed.column(0))
        assert sizes.max() - sizes.min() <= 1


def test_heavy_values_take_the_place_of_several_quantiles() -> None:
    values = np.sort(np.concatenate([np.zeros(900), np.arange(1.0, 101.0)]))
    at = thresholds_of(values, 10)
    assert at[0] == 0.5
    assert len(at) <= 9


def test_thresholds_lie_between_neighbours_of_any_size() -> None:
    tiny = np.array([1.0, np.nextafter(1.0, 2.0)])
    assert (thresholds_of(tiny, 4) == tiny[0]).all()
    huge = np.array([-1.7e308, 1.7e308])
    assert thresholds_of(huge, 4).tolist() == [0.0]


def test_a_sample_serves_large_tables_and_misses_no_rare_value(body: str) -> None:
    rows = 2 * SAMPLE + 5
    rng = np.random.default_rng(0)
    table = np.stack([rng.normal(size=rows), np.zeros(rows), np.zeros(rows)], axis=1)
    table[3, 1], table[4, 1], table[5, 2] = 1.0, 2.0, np.nan
    cut = Candidates.of(table)
    sizes = np.bincount(cut.packed.column(0))
    assert len(sizes) == 32
    assert sizes.max() < 1.2 * sizes.min()
    assert cut.thresholds[1].tolist() == [0.5, 1.5]
    assert cut.packed.column(1)[[2, 3, 4]].tolist() == [0, 1, 2]
    assert cut.missing.tolist() == [False, False, True]
    assert cut.packed.column(2)[[4, 5]].tolist() == [0, 1]


def test_rare_categories_share_a_leaf() -> None:
    values = np.concatenate([np.repeat(np.arange(255.0), 2), np.arange(300.0, 340.0)])
    cut = Candidates.of(values[:, None], discrete=[0])
    assert len(cut.thresholds[0]) == 255
    assert (cut.packed.column(0)[510:] == 255).all()


def test_columns_that_cannot_be_read_are_refused() -> None:
    with pytest.raises(FeatureError, match="column 1 is infinite at its entry 2"):
        Candidates.of(np.array([[1.0, 2.0], [1.0, 3.0], [1.0, np.inf]]))
    with pytest.raises(FeatureError, match="column 0 is infinite at its entry 1"):
        Candidates.of(sparse.csc_matrix(np.array([[0.0], [-np.inf]])))
    with pytest.raises(FeatureError, match="numbers"):
        Candidates.of(np.array([["a"], ["b"]]))
    with pytest.raises(ShapeError, match="n_columns"):
        Candidates.of(np.arange(3.0))
    with pytest.raises(InputError, match="max_bins"):
        Candidates.of(np.ones((2, 1)), max_bins=256)
    with pytest.raises(ShapeError, match="column 4"):
        Candidates.of(np.ones((2, 1)), discrete=[4])


# ---------------------------------------------------------------------------------------------------- stumps


@pytest.mark.parametrize("form", ["dense", "sparse"])
def test_the_best_stump_explains_most(body: str, form: str) -> None:
    x, weight, response = problem(1)
    x[x < 0] = 0.0
    data = sparse.csr_matrix(x) if form == "sparse" else x
    cut = Candidates.of(data, max_bins=100)
    found = best_stump(cut, weight, response)
    assert isinstance(found, Stump)
    base = weighted_errors(weight, response, np.zeros(1))
    best = np.inf
    for f in range(x.shape[1]):
        for t in np.unique(x[:, f])[:-1]:
            values = np.empty_like(response)
            for side in (x[:, f] <= t, x[:, f] > t):
                values[side] = (weight * response)[side].sum(axis=0) / weight[side].sum(axis=0)
            best = min(best, weighted_errors(weight, response, values))
    assert weighted_errors(weight, response, found.apply(data)) == pytest.approx(best, rel=1e-12)
    assert found.gain == pytest.approx(base - best, rel=1e-12)
    np.testing.assert_array_equal(found.leaves(data), found.leaves(cut))
    np.testing.assert_array_equal(found.leaves(data), x[:, found.column] > found.threshold)


def test_two_classes_cost_one_and_are_the_same(body: str) -> None:
    rng = np.random.default_rng(2)
    x, p = rng.normal(size=(90, 4)), rng.random(90)
    weight, response = working_responses(np.stack([1 - p, p], axis=1), rng.integers(0, 2, 90))
    cut = Candidates.of(x)
    one = best_stump(cut, weight, response, ridge=0.5)
    other = best_stump(cut, weight * (1 + np.array([1e-15, 0.0])), response, ridge=0.5)  # no longer mirrored
    assert isinstance(one, Stump)
    assert isinstance(other, Stump)
    assert (one.column, one.threshold) == (other.column, other.threshold)
    assert one.gain == pytest.approx(other.gain, rel=1e-12)
    np.testing.assert_allclose(one.values, other.values, rtol=1e-12)


def test_missing_values_go_to_the_better_side_or_stand_alone(body: str) -> None:
    ones = np.ones((6, 1))
    x = np.array([[0.0], [1.0], [2.0], [3.0], [np.nan], [np.nan]])
    for z, missing in (([1, 1, -1, -1, 1, 1], 0), ([1, 1, -1, -1, -1, -1], 1)):
        found = best_stump(Candidates.of(x), ones, np.array(z, float)[:, None])
        assert isinstance(found, Stump)
        assert (found.threshold, found.missing) == (1.5, missing)
        assert found.apply(x).ravel().tolist() == z
    alone = best_stump(Candidates.of(x), ones, np.array([[1.0], [1.0], [1.0], [1.0], [-2.0], [-2.0]]))
    assert isinstance(alone, Stump)
    assert alone.threshold == np.inf
    assert alone.apply(x).ravel().tolist() == [1, 1, 1, 1, -2, -2]
    np.testing.assert_array_equal(alone.leaves(Candidates.of(x)), alone.leaves(x))


def test_values_that_were_never_missing_go_where_most_rows_went(body: str) -> None:
    x = np.array([[0.0], [1.0], [1.0]])
    found = best_stump(Candidates.of(x), np.ones((3, 1)), np.array([[1.0], [-1.0], [-1.0]]))
    assert isinstance(found, Stump)
    assert found.leaves(np.array([[np.nan]])).tolist() == [1]


def test_categories_compete_with_stumps(body: str) -> None:
    rng = np.random.default_rng(3)
    kinds = rng.integers(0, 4, 200).astype(float)
    kinds[:5] = np.nan
    x = np.stack([rng.normal(size=200), kinds], axis=1)
    response = np.where(np.isin(kinds, [0, 2]), 1.0, -1.0)[:, None]
    weight = rng.random((200, 1)) + 0.1
    found = best_stump(Candidates.of(x, discrete=[1]), weight, response, ridge=0.25)
    assert isinstance(found, Categories)
    assert found.categories.tolist() == [0.0, 1.0, 2.0, 3.0]
    for leaf, own in enumerate([kinds == 0, kinds == 1, kinds == 2, kinds == 3, np.isnan(kinds)]):
        wanted = (weight * response)[own].sum() / (weight[own].sum() + 0.25)
        assert found.values[leaf, 0] == pytest.approx(wanted, rel=1e-12)
    assert found.leaves(np.array([[0.0, 9.0], [0.0, 1.0]])).tolist() == [4, 1]
    np.testing.assert_array_equal(found.leaves(x), found.leaves(Candidates.of(x, discrete=[1])))


def test_nothing_to_cut_is_none(body: str) -> None:
    ones = np.ones((4, 1))
    assert best_stump(Candidates.of(np.full((4, 2), 3.0)), ones, ones) is None
    assert best_stump(Candidates.of(np.ones((4, 0))), ones, ones) is None
    assert best_stump(Candidates.of(np.full((4, 1), np.nan)), ones, ones) is None
    assert best_stump(Candidates.of(np.arange(4.0)[:, None]), 0 * ones, ones) is None
    assert best_stump(Candidates.of(np.ones((0, 2))), np.ones((0, 1)), np.ones((0, 1))) is None


def test_rows_without_weight_do_not_count(body: str) -> None:
    x, weight, response = problem(4)
    weight[60:] = 0.0
    cut = Candidates.of(x, max_bins=200)
    found, alone = best_stump(cut, weight, response), best_stump(Candidates.of(x[:60]), weight[:60], response[:60])
    assert found is not None
    assert alone is not None
    assert (found.column, found.gain) == (alone.column, pytest.approx(alone.gain, rel=1e-12))


def test_equal_columns_are_a_tie_for_the_first(body: str) -> None:
    x, weight, response = problem(5)
    twice = np.concatenate([x[:, [2]], x, x], axis=1)
    one, other = best_stump(Candidates.of(x), weight, response), best_stump(Candidates.of(twice), weight, response)
    assert one is not None
    assert other is not None
    assert other.column == (0 if one.column == 2 else one.column + 1)


def test_learners_refuse_other_columns() -> None:
    with pytest.raises(ShapeError, match="column 3"):
        Stump(3, 0.5, np.zeros((2, 1)), 1.0).leaves(np.ones((2, 2)))
    with pytest.raises(ShapeError, match="weight and response"):
        best_stump(Candidates.of(np.ones((3, 1))), np.ones((2, 1)), np.ones((2, 1)))


# ----------------------------------------------------------------------------------------------------- trees


def check_tree(tree: RegressionTree, x: np.ndarray, weight: np.ndarray, response: np.ndarray, ridge: float) -> None:
    """Leaf values are means of their rows, and the gain is theirs."""
    leaves, gain = tree.leaves(x), 0.0
    for leaf in range(len(tree.values)):
        own = leaves == leaf
        product, total = (weight * response)[own].sum(axis=0), weight[own].sum(axis=0) + ridge
        if own.any():
            np.testing.assert_allclose(tree.values[leaf], product / total, rtol=1e-9, atol=1e-12)
            gain += float((product**2 / total).sum())
    assert tree.gain == pytest.approx(gain, rel=1e-9)


@pytest.mark.parametrize(("depth", "min_leaf", "ridge"), [(1, 1, 0.0), (2, 1, 0.0), (3, 9, 1.5), (4, 1, 0.0)])
def test_trees_keep_their_word(body: str, depth: int, min_leaf: int, ridge: float) -> None:
    x, weight, response = problem(6, rows=300)
    x[::7, 2] = np.nan
    cut = Candidates.of(x, discrete=[3])
    tree = fit_tree(cut, weight, response, max_depth=depth, min_leaf=min_leaf, ridge=ridge)
    check_tree(tree, x, weight, response, ridge)
    np.testing.assert_array_equal(tree.leaves(x), tree.leaves(cut))
    sizes = np.bincount(tree.leaves(x), minlength=len(tree.values))
    assert sizes[sizes > 0].min() >= min_leaf
    added = sum(one.gain for one in tree.cuts if one is not None)
    root = float(((weight * response).sum(axis=0) ** 2 / (weight.sum(axis=0) + ridge)).sum())
    assert tree.gain == pytest.approx(root + added, rel=1e-9)


def test_a_tree_of_one_cut_is_the_best_stump(body: str) -> None:
    x, weight, response = problem(7)
    cut = Candidates.of(x)
    stump, tree = best_stump(cut, weight, response), fit_tree(cut, weight, response, max_depth=1)
    assert stump is not None
    assert tree.gain == pytest.approx(stump.gain, rel=1e-12)
    np.testing.assert_allclose(tree.apply(x), stump.apply(x), rtol=1e-12)


def test_trees_see_conjunctions_that_stumps_do_not(body: str) -> None:
    rng = np.random.default_rng(8)
    x = rng.integers(0, 2, (400, 6)).astype(float)
    z = np.where((x[:, 1] == 1) & (x[:, 4] == 1), 1.0, -1.0)[:, None]
    tree = fit_tree(Candidates.of(x), np.ones((400, 1)), z, max_depth=2)
    np.testing.assert_allclose(tree.apply(x), z, atol=1e-9)
    assert {one.column for one in tree.cuts if one is not None} == {1, 4}
    assert len(tree.values) == 3  # the pure half is not cut again


def test_sparse_trees_are_the_dense_ones(body: str) -> None:
    x, weight, response = problem(9, rows=200)
    x[np.random.default_rng(0).random(x.shape) < 0.5] = 0.0
    dense = fit_tree(Candidates.of(x), weight, response, max_depth=3)
    thin = fit_tree(Candidates.of(sparse.csc_matrix(x)), weight, response, max_depth=3)
    np.testing.assert_array_equal(dense.leaves(x), thin.leaves(sparse.csc_matrix(x)))
    np.testing.assert_allclose(dense.values, thin.values, rtol=1e-9)


def test_a_tree_that_cannot_cut_is_a_leaf(body: str) -> None:
    for x in (np.ones((4, 1)), np.ones((4, 0))):
        tree = fit_tree(Candidates.of(x), np.ones((4, 1)), np.arange(4.0)[:, None])
        assert tree.cuts == (None,)
        assert tree.apply(x).ravel().tolist() == [1.5] * 4
