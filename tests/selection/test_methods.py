"""Methods of selection beside grafting and the ℓ1 path: scores against brute force, paths, edges."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.errors import InputError, ShapeError
from crfield.features.lazy_columns import MatrixColumns
from crfield.inference.chain import ChainEngine
from crfield.selection import choice
from crfield.selection.methods import stability
from crfield.selection.methods.filters import mutual_information, relieff
from crfield.selection.methods.gain import Moved, _climb, fall_apart, gain_path, gains, slope_apart
from crfield.selection.methods.grafting import graft
from crfield.selection.methods.m_grafting import block_contrasts, cut_into_blocks, m_graft, pick
from crfield.selection.methods.stability import _pieces, _whole_target, expected_false, frequencies, stability_path
from crfield.selection.methods.wrapper import wrapper_path
from crfield.selection.problem import SelectionProblem
from crfield.simulate.weak_features import make_linked_features, make_weak_features, powers

LENGTHS = [9, 1, 6, 2]


def small(seed: int, n_labels: int = 3):
    """Columns of both links, scores, beliefs and labels on four chains."""
    rng = np.random.default_rng(seed)
    chains = Chains.from_lengths(LENGTHS)
    state = np.stack([rng.normal(size=18), rng.integers(0, 2, 18)], axis=1)
    trans = np.stack([rng.integers(0, 2, 18), rng.normal(size=18)], axis=1)
    columns = MatrixColumns(state, chains=chains, n_labels=n_labels, transition=trans)
    scores = Potentials(
        rng.normal(size=(18, n_labels)), rng.normal(size=(chains.n_edges, n_labels, n_labels)), chains
    )
    y = rng.integers(0, n_labels, 18)
    return columns, scores, ChainEngine().infer(scores, Semiring.LOG), Target(chains, n_labels, y)


def local_scores(columns: MatrixColumns, number: int, stand_in: np.ndarray) -> np.ndarray:
    """(N, L) G_t(y), written as in the definition, step by step and label by label."""
    place = columns.places(np.array([number]))
    x = columns.chunk(place.column)[:, 0]
    previous, label = int(place.previous[0]), int(place.label[0])

    def feature(t: int, before: int, now: int) -> float:
        return x[t] * (now == label) * (previous < 0 or before == previous)

    found = np.zeros((len(x), columns.n_labels))
    for first, last in zip(columns.chains.offsets[:-1], columns.chains.offsets[1:]):
        for t in range(first, last):
            for label_here in range(columns.n_labels):
                before = stand_in[t - 1] if t > first else -2
                if previous < 0 or t > first:
                    found[t, label_here] += feature(t, before, label_here)
                if previous >= 0 and t + 1 < last:
                    found[t, label_here] += feature(t + 1, label_here, stand_in[t + 1])
    return found


def test_one_matrix_for_both_links() -> None:
    x = np.arange(6.0).reshape(3, 2)
    columns = MatrixColumns(x, chains=Chains.from_lengths([3]), n_labels=2, transition=x)
    assert (columns.chunk(np.array([1, 2, 3])) == x[:, [1, 0, 1]]).all()


# ---------------------------------------------------------------------------------------------------------- gains


@pytest.mark.parametrize("where", ["all", "mistakes"])
@pytest.mark.parametrize("base", ["marginal", "conditional"])
@pytest.mark.parametrize("neighbours", ["truth", "model"])
def test_gain_is_the_best_of_its_definition(neighbours: str, base: str, where: str) -> None:
    columns, scores, beliefs, target = small(3)
    y = target.labels
    steps = fall_apart(
        columns.chains,
        beliefs.node,
        y,
        edge=beliefs.edge,
        neighbours=neighbours,
        base=base,
        where=where,
    )
    gain, weight = gains(columns, np.arange(columns.n_candidates), steps, variance=10.0)
    stand_in = y if neighbours == "truth" else beliefs.node.argmax(axis=1)
    chances = beliefs.node
    if base == "conditional":
        heads = columns.chains.heads
        local = scores.node.copy()
        for e, t in enumerate(heads):
            local[t] += scores.edge[e, stand_in[t - 1]]
            local[t - 1] += scores.edge[e, :, stand_in[t]]
        chances = np.exp(local) / np.exp(local).sum(axis=1, keepdims=True)
    rows = np.arange(18) if where == "all" else np.flatnonzero(beliefs.node.argmax(axis=1) != y)
    for number in range(columns.n_candidates):
        moved = local_scores(columns, number, stand_in)[rows]

        def loss(mu: float, moved: np.ndarray = moved) -> float:
            total = np.log((chances[rows] * np.exp(mu * moved)).sum(axis=1)).sum()
            return total - mu * moved[np.arange(len(rows)), y[rows]].sum() + mu * mu / 20

        best = minimize_scalar(loss, bounds=(-30, 30), method="bounded", options={"xatol": 1e-9})
        assert gain[number] == pytest.approx(-best.fun, abs=2e-6)
        assert -loss(weight[number]) == pytest.approx(gain[number], abs=1e-9)


def test_gain_without_prior_stays_finite_where_labels_are_parted() -> None:
    chains = Chains.from_lengths([4])
    columns = MatrixColumns(np.array([[1.0], [1], [0], [0]]), chains=chains, n_labels=2)
    steps = fall_apart(chains, np.full((4, 2), 0.5), np.array([0, 0, 1, 1]))
    gain, weight = gains(columns, np.array([0]), steps, variance=None)
    assert np.isfinite(weight).all()
    assert gain[0] == pytest.approx(2 * np.log(2), abs=1e-3)


def test_gain_of_what_never_shows_is_nothing() -> None:
    columns, _, beliefs, target = small(5)
    nothing = MatrixColumns(np.zeros((18, 1)), chains=columns.chains, n_labels=3, transition=np.zeros((18, 1)))
    gain, weight = gains(nothing, np.arange(12), fall_apart(columns.chains, beliefs.node, target.labels))
    assert not gain.any()
    assert not weight.any()


@pytest.mark.filterwarnings("error::RuntimeWarning")
def test_gain_of_a_marginal_that_rounding_brought_above_one() -> None:
    """1 − p must not become negative: far down, the sum of both parts would change its sign."""
    p = np.array([[1.0 + 2e-16], [0.3], [1.0]])
    weight, gain = _climb(Moved(np.array([[1.0], [2.0], [-1.0]]), p, None, None, np.array([-900.0])), 1e-9)
    assert weight[0] < 0
    assert np.isfinite(gain).all()


def test_gain_words() -> None:
    columns, _, beliefs, target = small(5)
    for options in ({"neighbours": "friends"}, {"base": "joint"}, {"where": "here"}, {"base": "conditional"}):
        with pytest.raises(InputError):
            fall_apart(columns.chains, beliefs.node, target.labels, **options)
    with pytest.raises(ShapeError):
        fall_apart(columns.chains, beliefs.node[:5], target.labels)
    steps = fall_apart(columns.chains, beliefs.node, target.labels)
    with pytest.raises(InputError):
        gains(columns, np.array([0]), steps, variance=-1.0)


# ------------------------------------------------------------------------------------------------------ m-grafting


@pytest.mark.parametrize("length", [1, 2, 4, 100])
def test_contrasts_of_blocks_sum_to_the_gradient(length: int) -> None:
    columns, _, beliefs, target = small(7)
    node = target.mask - beliefs.node
    edge = -beliefs.edge
    edge[
        np.arange(columns.chains.n_edges),
        target.labels[columns.chains.heads - 1],
        target.labels[columns.chains.heads],
    ] += 1
    blocks = cut_into_blocks(columns.chains, length)
    assert sorted(blocks[blocks >= 0].tolist()) == list(range(18))
    assert all(len(set(columns.chains.sequence_of_node[row[row >= 0]])) == 1 for row in blocks)
    numbers = np.random.default_rng(0).permutation(columns.n_candidates)
    found = block_contrasts(columns, numbers, node, edge, blocks)
    np.testing.assert_allclose(found.sum(axis=0), columns.scores(node, edge)[numbers], atol=1e-12)
    if length == 1:
        place = columns.places(numbers)
        k = int(np.flatnonzero(place.previous < 0)[0])
        x = columns.chunk(place.column[k : k + 1])[:, 0]
        np.testing.assert_allclose(found[:, k], x * node[:, place.label[k]], atol=1e-12)


def test_pick_passes_by_copies_and_what_never_occurs() -> None:
    rng = np.random.default_rng(2)
    one, two = rng.normal(0.3, 1, 500), rng.normal(0.2, 1, 500)
    never = np.full(500, -1e-4)  # constant sign: g² = h
    chosen, weights = pick(np.stack([never, one, one + 0.01 * rng.normal(size=500), two], axis=1), 2)
    assert set(chosen.tolist()) in ({1, 3}, {2, 3})
    mass = np.exp(-np.stack([never, one, one, two], axis=1)[:, [1, 3]] @ weights)
    assert abs(one @ mass) / mass.sum() < 0.02  # at the optimum of the criterion its weighted mean is gone


def test_blocks_without_steps() -> None:
    chains = Chains.from_lengths([])
    assert cut_into_blocks(chains, 3).shape == (0, 3)
    assert len(pick(np.zeros((0, 4)), 2)[0]) == 0
    with pytest.raises(InputError):
        cut_into_blocks(chains, 0)


# --------------------------------------------------------------------------------------------------------- filters


def test_information_is_that_of_the_table() -> None:
    rng = np.random.default_rng(1)
    chains = Chains.from_lengths([400])
    y = rng.integers(0, 3, 400)
    x = (rng.random(400) < 0.2 + 0.3 * (y == 1)).astype(float)
    found = mutual_information(MatrixColumns(x[:, None], chains=chains, n_labels=3), Target(chains, 3, y))
    for label in range(3):
        joint = np.array([[((x == a) & ((y == label) == b)).mean() for b in (False, True)] for a in (0, 1)])
        expected = (joint * np.log(joint / (joint.sum(1, keepdims=True) * joint.sum(0)))).sum()
        assert found[label] == pytest.approx(expected, abs=1e-12)


def test_information_of_a_transition_reads_the_later_step() -> None:
    rng = np.random.default_rng(4)
    chains = Chains.from_lengths([200, 1, 100])
    y = rng.integers(0, 2, 301)
    change = np.r_[0, y[1:] != y[:-1]].astype(float)
    columns = MatrixColumns(None, chains=chains, n_labels=2, transition=change[:, None])
    found = mutual_information(columns, Target(chains, 2, y)).reshape(2, 2)
    assert found[0, 1] > 0.1
    assert found[1, 0] > 0.1
    assert mutual_information(columns, Target(chains, 2, y[::-1])).max() < 0.05


def test_rare_values_above_many_zeros_have_a_cell_of_their_own() -> None:
    chains = Chains.from_lengths([300])
    y = (np.arange(300) % 15 == 0).astype(int)
    x = np.where(y, 1.0 + np.arange(300) / 300, 0.0)
    found = mutual_information(MatrixColumns(x[:, None], chains=chains, n_labels=2), Target(chains, 2, y))
    share = 1 / 15
    assert found[1] == pytest.approx(-share * np.log(share) - (1 - share) * np.log(1 - share), abs=1e-9)


def test_relieff_sees_what_only_pairs_of_columns_tell() -> None:
    """Parity of two columns: each alone tells nothing, which a filter by information cannot see."""
    rng = np.random.default_rng(6)
    chains = Chains.from_lengths([600])
    x = rng.integers(0, 2, (600, 4)).astype(float)
    y = (x[:, 0] != x[:, 1]).astype(int)
    columns, target = MatrixColumns(x, chains=chains, n_labels=2), Target(chains, 2, y)
    weight, told = relieff(columns, target).reshape(4, 2), mutual_information(columns, target).reshape(4, 2)
    assert weight[:2].min() > weight[2:].max() + 0.1
    assert told.max() < 0.02


def test_relieff_is_its_formula() -> None:
    rng = np.random.default_rng(9)
    x, y = rng.random((40, 3)), rng.integers(0, 3, 40)
    x[:, 0] += y
    chains = Chains.from_lengths([40])
    found = relieff(MatrixColumns(x, chains=chains, n_labels=3), Target(chains, 3, y), n_neighbours=4).reshape(3, 3)
    scaled = (x - x.min(axis=0)) / np.ptp(x, axis=0)
    apart = np.abs(scaled[:, None] - scaled).sum(axis=2)
    share = np.bincount(y) / 40
    told = np.zeros((40, 3))
    for step in range(40):
        for other in range(3):
            those = np.flatnonzero((y == other) & (np.arange(40) != step))
            near = those[np.argsort(apart[step, those])[:4]]
            gap = np.abs(scaled[near] - scaled[step]).mean(axis=0)
            told[step] += -gap if other == y[step] else share[other] / (1 - share[y[step]]) * gap
    expected = np.stack([told[y == label].mean(axis=0) for label in range(3)], axis=1)
    np.testing.assert_allclose(found, expected, atol=1e-12)


def test_relieff_takes_rare_pairs_and_constant_columns() -> None:
    rng = np.random.default_rng(8)
    chains = Chains.from_lengths([500, 1])
    y = np.repeat([0, 1, 0], [200, 250, 51])
    change = np.r_[0, y[1:] != y[:-1]].astype(float)
    x = np.stack([change, np.ones(501), rng.normal(size=501)], axis=1)
    columns = MatrixColumns(None, chains=chains, n_labels=2, transition=x)
    weight = relieff(columns, Target(chains, 2, y), pool=120, n_samples=60).reshape(3, 2, 2)
    assert np.isfinite(weight).all()
    assert not weight[1].any()
    assert weight[0, 0, 1] > 0.9
    assert weight[0, 1, 0] > 0.9
    same = relieff(columns, Target(chains, 2, y), pool=120, n_samples=60).reshape(3, 2, 2)
    assert (same == weight).all()


def test_filters_take_nothing_and_single_steps() -> None:
    for lengths in ([], [1], [1, 1]):
        chains = Chains.from_lengths(lengths)
        columns = MatrixColumns(
            np.ones((sum(lengths), 1)), chains=chains, n_labels=2, transition=np.ones((sum(lengths), 1))
        )
        target = Target(chains, 2, np.zeros(sum(lengths), int))
        for scores in (mutual_information(columns, target), relieff(columns, target)):
            assert scores.shape == (6,)
            assert not scores.any()
    with pytest.raises(InputError):
        mutual_information(columns, target, n_bins=1)
    with pytest.raises(InputError):
        relieff(columns, target, n_samples=0)


# ---------------------------------------------------------------------------------------------------------- worlds


def test_copies_fade_and_never_know_more_than_the_copy_before() -> None:
    world = make_weak_features(20_000, n_groups=2, n_copies=5, random_state=1)
    x, y = world.features[0], world.labels[0]
    same = np.isclose(x.reshape(-1, 2, 5), x.reshape(-1, 2, 5)[:, :, :1])
    np.testing.assert_allclose(same.mean(axis=(0, 1)), 1 - 0.05 * np.arange(5), atol=0.01)
    assert (same[:, :, :-1] >= same[:, :, 1:]).all()
    assert (y[1:] == y[:-1]).mean() == pytest.approx(0.75, abs=0.02)
    assert x[y == 1, 0].mean() == pytest.approx(1, abs=0.2)
    assert x[:, 0].std() == pytest.approx(5.1, abs=0.2)
    gone = ~same[:, 0, 4]
    assert x[gone, 4].std() == pytest.approx(np.sqrt(50), abs=0.5)
    assert abs(x[gone & (y == 1), 4].mean()) < 0.5


def test_linked_columns_tell_of_change_alone() -> None:
    world = make_linked_features(20_000, n_pairs=3, n_chains=2, random_state=2)
    x, y = world.features[1][1:], world.labels[1]
    changed, now = y[1:] != y[:-1], y[1:]
    odd, even = x[:, world.of_change], x[:, ~world.of_change]
    np.testing.assert_allclose(odd[changed].mean(0) - odd[~changed].mean(0), 2, atol=0.35)
    np.testing.assert_allclose(odd[now == 1].mean(0) - odd[now == 0].mean(0), 0, atol=0.35)
    np.testing.assert_allclose(even[now == 1].mean(0) - even[now == 0].mean(0), 2, atol=0.35)


def test_worlds_repeat_and_refuse() -> None:
    for make in (make_weak_features, make_linked_features):
        one, two, other = make(50, random_state=3), make(50, random_state=3), make(50, random_state=4)
        assert (one.features[0] == two.features[0]).all()
        assert (one.features[0] != other.features[0]).any()
        assert len(one.names) == one.features[0].shape[1] == len(set(one.names))
        for wrong in ({"length": 0}, {"n_chains": 0}, {"stay": 1.5}, {"deviation": 0.0}):
            with pytest.raises(InputError):
                make(**wrong)
    with pytest.raises(InputError):
        make_weak_features(5, n_copies=40)
    with pytest.raises(InputError):
        make_linked_features(5, n_pairs=0)
    with pytest.raises(ShapeError):
        powers(np.zeros(3))


# ----------------------------------------------------------------------------------------------------------- paths

METHODS = {
    "gain": {},
    "m-grafting": {"m": 2, "block": 4},
    "stability": {"n_resamples": 6, "q": 2, "threshold": 0.3},
    "mutual-information": {"m": 2},
    "relieff": {"m": 2},
    "wrapper": {"max_features": 3, "shortlist": 5},
}


def weak(seed: int = 0, length: int = 250, **spans: object) -> SelectionProblem:
    world = make_weak_features(length, n_groups=3, n_copies=2, n_chains=4, deviation=2.0, random_state=seed)
    chains = Chains.from_lengths([length] * 4)
    values = powers(np.concatenate(world.features))
    columns = MatrixColumns(values, chains=chains, n_labels=2, transition=values[:, :2])
    return SelectionProblem(columns, Target(chains, 2, np.concatenate(world.labels)), **spans)


@pytest.mark.parametrize("method", METHODS)
def test_every_method_leaves_a_path(method: str) -> None:
    problem = weak(spans=[(0, 250), (250, 500)], held_spans=[(500, 750), (750, 1000)])
    options = {"max_features": 6, **METHODS[method]}
    path = choice.run(method, problem, **options)
    assert path[0].n_features == 0
    assert path.best.held_error < path[0].held_error - 0.1
    sizes = [one.n_features for one in path]
    assert sizes == sorted(sizes)
    assert sizes[-1] <= 6
    assert path.stop_reason
    for before, one in zip(path.rounds, path.rounds[1:]):
        new = set(one.model.active.tolist()) - set(before.model.active.tolist())
        assert set(one.added) == {problem.name(k) for k in new}
        assert one.model.loss < before.model.loss
        assert one.seconds >= before.seconds
        held = problem.held_out(one.model)
        assert (held.error, held.nll) == pytest.approx((one.held_error, one.held_nll))
    again = choice.run(method, weak(spans=[(0, 250), (250, 500)], held_spans=[(500, 750), (750, 1000)]), **options)
    assert again.entered() == path.entered()
    assert (again.best.model.weights == path.best.model.weights).all()


@pytest.mark.parametrize("method", METHODS)
def test_methods_bear_what_is_hard(method: str) -> None:
    """One label only, a constant column, a single step, sequences without steps."""
    chains = Chains.from_lengths([0, 12, 1])
    rng = np.random.default_rng(0)
    x = np.stack([np.ones(13), rng.normal(size=13)], axis=1)
    columns = MatrixColumns(x, chains=chains, n_labels=2, transition=x)
    for labels in (np.zeros(13, int), np.arange(13) % 2):
        options = {**METHODS[method], "max_features": 2}
        path = choice.run(method, SelectionProblem(columns, Target(chains, 2, labels)), **options)
        assert np.isfinite(path[-1].model.weights).all()
        assert not any(name.startswith(("s0", "t0")) for _, name in path.entered())


@pytest.mark.parametrize("method", METHODS)
def test_watch_ends_a_method(method: str) -> None:
    seen = []
    path = choice.run(method, weak(), watch=lambda one: seen.append(one.number) or len(seen) == 2, **METHODS[method])
    assert len(path) == 2
    assert seen == [0, 1]
    assert path.stop_reason == "callback"


def test_gain_wants_every_label() -> None:
    problem = weak()
    target = problem.train.target
    labels, allowed = target.labels.copy(), np.ones((1000, 2), bool)
    labels[3] = -1
    partial = SelectionProblem(problem.candidates, Target(target.topology, 2, labels, allowed))
    with pytest.raises(InputError, match="one known label"):
        gain_path(partial)
    assert len(graft(partial, max_features=1)) == 2


def test_slopes_of_gains_are_the_slopes_at_zero() -> None:
    columns, _, beliefs, target = small(11)
    for neighbours in ("truth", "model"):
        steps = fall_apart(columns.chains, beliefs.node, target.labels, neighbours=neighbours)
        slopes = columns.scores(*slope_apart(columns.chains, steps))
        stand_in = target.labels if neighbours == "truth" else beliefs.node.argmax(axis=1)
        for number in range(columns.n_candidates):
            moved = local_scores(columns, number, stand_in)
            expected = moved[np.arange(18), target.labels].sum() - (beliefs.node * moved).sum()
            assert slopes[number] == pytest.approx(expected, abs=1e-12)


def test_halves_are_halves_and_frequencies_shares() -> None:
    problem = weak(spans=[(10, 250), (250, 480), (760, 1000)])
    cut = _pieces(problem, 12)
    rows = np.concatenate([np.arange(a, b) for a, b in cut])
    assert (rows == problem.train.rows).all()
    assert 10 <= len(cut) <= 14
    whole = _whole_target(problem)
    assert (whole.labels[problem.train.rows] == problem.train.target.labels).all()
    found = frequencies(problem, n_resamples=4, q=2, pieces=12)
    assert set(np.unique(found * 4).tolist()) <= {0.0, 1.0, 2.0, 3.0, 4.0}
    assert found.max() == 1.0
    assert 1 <= found.sum() <= 4
    by_path = frequencies(problem, selector="l1-path", n_resamples=4, q=2, pieces=12)
    assert by_path.max() >= 0.5
    assert np.count_nonzero(by_path) <= 8


def test_halves_come_in_pairs_that_share_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, seen = weak(), []

    def first(part: SelectionProblem, *_: object) -> np.ndarray:
        seen.append(set(part.train.rows.tolist()))
        return np.array([4, 9]) if len(seen) % 2 else np.array([5])  # column 2 with either label; column 4

    monkeypatch.setattr(stability, "_first", first)
    found = frequencies(problem, n_resamples=4)
    for one, other in ((seen[0], seen[1]), (seen[2], seen[3])):
        assert not one & other
        assert one | other == set(range(1000))
    assert seen[0] != seen[2]
    assert {k: found[k] for k in np.flatnonzero(found).tolist()} == {4: 1.0, 5: 0.5, 9: 0.5}


def test_stability_refuses() -> None:
    problem = weak()
    for wrong in ({"selector": "luck"}, {"n_resamples": 1}, {"q": 0}, {"pieces": 1}, {"threshold": 0.0}):
        with pytest.raises(InputError):
            stability_path(problem, **wrong)
    with pytest.raises(InputError):
        expected_false(10, 0.5, 100)
    short = MatrixColumns(np.zeros((1, 1)), chains=Chains.from_lengths([1]), n_labels=2)
    with pytest.raises(InputError, match="halves"):
        stability_path(SelectionProblem(short, Target(short.chains, 2, np.array([0]))))


def test_wrapper_takes_the_best_of_all_when_all_are_tried() -> None:
    problem = weak(spans=[(0, 250), (250, 500)], held_spans=[(500, 750), (750, 1000)])
    path = wrapper_path(problem, shortlist=None, max_features=1, criterion="nll", trial_steps=20)
    tried = [problem.held_out(problem.fit([k], l2=0.01)).nll for k in range(problem.n_candidates)]
    assert path[1].held_nll == pytest.approx(min(tried), abs=1e-4)


def test_shortlists_change_nothing_when_they_are_long() -> None:
    problem = weak()
    every = gain_path(problem, max_features=3, shortlist=None)
    assert gain_path(problem, max_features=3, shortlist=10_000).entered() == every.entered()
    assert (
        m_graft(problem, m=2, max_features=4, shortlist=None).entered()
        == m_graft(problem, m=2, max_features=4).entered()
    )
