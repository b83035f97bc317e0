"""Worlds for graphs: the same numbers for the same seed, and the structure that they promise."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine
from crfield.simulate.fields import (
    BUMPS,
    NOISES,
    TAGS,
    make_noisy_images,
    make_potts_grid,
    make_tags,
    noise_scores,
)
from crfield.simulate.order_chains import make_activity_days, make_order_chains
from crfield.simulate.wearable import CONTEXTS, MOTIONS, make_wearable_episodes

Arrays = list[np.ndarray]


def order_chains_written_out(
    seed: int, p: float, k: int, n_chains: int, length: int, n_features: int
) -> tuple[np.ndarray, Arrays, Arrays]:
    """The definition step by step, drawing in the order that seeds stand for."""
    rng = np.random.default_rng(seed)
    chances = rng.uniform(0.45, 0.55, (n_features, 2))
    X, Y = [], []
    for _ in range(n_chains):
        y = np.empty(length, np.int64)
        y[:k] = rng.integers(0, 2, k)
        flip = (rng.random(length - k) >= p).astype(np.int64)
        for n in range(k, length):
            y[n] = y[n - k] ^ flip[n - k]
        X.append((rng.random((length, n_features)) < chances[:, y].T).astype(np.int8))
        Y.append(y)
    return chances, X, Y


def activity_days_written_out(seed: int, n_features: int) -> tuple[Arrays, Arrays, np.ndarray]:
    """The definition step by step, with five activities, twelve days of 92 steps, ten informative features."""
    rng = np.random.default_rng(seed)
    means, deviations = rng.normal(0, 0.8, (5, 10)), np.exp(rng.normal(0, 0.4, (5, 10)))
    order = rng.permutation(n_features)
    X, Y = [], []
    for _ in range(12):
        labels: list[int] = []
        before = -1
        while len(labels) < 92:
            steps, label = int(rng.integers(10, 61)), int(rng.integers(0, 5))
            while label == before:
                label = int(rng.integers(0, 5))
            labels += [label] * steps
            before = label
        y = np.array(labels[:92])
        offset, fresh = rng.normal(0, 0.5, n_features), rng.normal(size=(92, n_features))
        noise = fresh.copy()
        for t in range(1, 92):
            noise[t] = 0.7 * noise[t - 1] + np.sqrt(1 - 0.49) * fresh[t]
        x = noise.copy()
        x[:, :10] = means[y] + deviations[y] * noise[:, :10]
        x += offset
        for j in (1, 4, 7):
            x[:, j] = np.exp(np.clip(x[:, j], -8, 5))
        X.append(x[:, order])
        Y.append(y)
    return X, Y, order


@pytest.mark.parametrize(("seed", "p", "order"), [(1, 0.9, 1), (7, 0.9, 2), (3, 0.95, 5)])
def test_order_chains_are_those_of_the_definition(seed: int, p: float, order: int) -> None:
    chances, X, Y = order_chains_written_out(seed, p, order, 4, 301, 10)
    made = make_order_chains(p, order, n_chains=4, length=301, n_features=10, random_state=seed)
    np.testing.assert_array_equal(made.chances, chances)
    np.testing.assert_array_equal(made.features, X)
    np.testing.assert_array_equal(made.labels, Y)


@pytest.mark.parametrize(("seed", "n_features"), [(1, 30), (4, 17)])
def test_activity_days_are_those_of_the_definition(seed: int, n_features: int) -> None:
    X, Y, order = activity_days_written_out(seed, n_features)
    made = make_activity_days(n_features, random_state=seed)
    np.testing.assert_array_equal(made.features, X)
    np.testing.assert_array_equal(made.labels, Y)
    np.testing.assert_array_equal(made.order, order)
    assert sorted(order[made.informative].tolist()) == list(range(10))


def test_the_true_scores_of_order_chains_reach_the_bayes_ceiling() -> None:
    """Accuracies of the true model on the test chain of seed 1, p = 0.9: .644 as a whole, .700 node by node."""
    made = make_order_chains(0.9, 1, random_state=1)
    scores = Potentials(made.node_scores[0], made.edge_scores[None], Chains.from_lengths([2_000]))
    engine = ChainEngine()
    by_node = engine.infer(scores, Semiring.LOG).node.argmax(axis=1)
    whole = engine.infer(scores, Semiring.MAX).node.argmax(axis=1)
    assert np.mean(by_node == made.labels[0]) == pytest.approx(0.700, abs=0.015)
    assert np.mean(whole == made.labels[0]) == pytest.approx(0.644, abs=0.015)


def test_certain_labels_forbid_their_flips() -> None:
    assert np.isneginf(make_order_chains(1.0, 1, n_chains=0, length=5).edge_scores[0, 1])
    assert np.isneginf(make_order_chains(0.0, 1, n_chains=0, length=5).edge_scores[0, 0])


@pytest.mark.parametrize("noise", NOISES)
def test_pixels_follow_the_noise_of_their_class(noise: str) -> None:
    made = make_noisy_images(12, noise=noise, random_state=5)
    assert made.images.shape == made.labels.shape == (12, 64, 64)
    for label, bumps in enumerate(BUMPS[noise]):
        pixels = made.images[made.labels == label]
        mean = np.mean([m for m, _ in bumps])
        variance = np.mean([s**2 + m**2 for m, s in bumps]) - mean**2
        assert pixels.mean() == pytest.approx(mean, abs=5 * np.sqrt(variance / len(pixels)))
        assert pixels.std() == pytest.approx(np.sqrt(variance), rel=0.03)


def test_bimodal_noise_defeats_a_threshold_but_not_its_own_density() -> None:
    made = make_noisy_images(8, noise="bimodal")
    x, y = made.images.reshape(-1, 1), made.labels.ravel()
    linear = LogisticRegression().fit(x, y).score(x, y)
    local = np.mean(noise_scores(made.images).argmax(axis=-1) == made.labels)
    assert linear < 0.75
    assert 0.85 < local < 0.95


@pytest.mark.parametrize("noise", NOISES)
def test_noise_scores_are_densities(noise: str) -> None:
    grid = np.linspace(-3, 4, 200_001)
    mass = np.exp(noise_scores(grid, noise)).sum(axis=0) * (grid[1] - grid[0])
    np.testing.assert_allclose(mass, 1.0, atol=1e-6)


def test_base_images_are_smooth_and_of_both_classes() -> None:
    for seed in range(10):
        labels = make_noisy_images(4, random_state=seed).labels
        assert ((labels.mean(axis=(1, 2)) > 0.1) & (labels.mean(axis=(1, 2)) < 0.9)).all()
        equal = (labels[:, 1:] == labels[:, :-1]).mean(axis=(1, 2))
        assert (equal > 0.9).all()
        assert len({image.tobytes() for image in labels}) == 4


def test_images_of_any_shape() -> None:
    for shape in ((1, 1), (1, 9), (7, 2), (20, 50)):
        made = make_noisy_images(5, shape, random_state=1)
        assert made.images.shape == (5, *shape)
        assert np.isfinite(made.images).all()


def test_fewer_images_are_the_first_of_more() -> None:
    few, many = make_noisy_images(3, random_state=2), make_noisy_images(9, random_state=2)
    np.testing.assert_array_equal(few.images, many.images[:3])
    np.testing.assert_array_equal(few.labels, many.labels[:3])


def test_the_potts_sampler_agrees_with_two_nodes_written_out() -> None:
    coupling, n_labels = 0.9, 3
    runs = [
        make_potts_grid((1, 2), n_labels=n_labels, coupling=coupling, n_sweeps=6, random_state=seed).labels[0]
        for seed in range(1_500)
    ]
    expected = np.exp(coupling) / (np.exp(coupling) + n_labels - 1)
    equal = np.mean([a == b for a, b in runs])
    assert equal == pytest.approx(expected, abs=4 * np.sqrt(expected * (1 - expected) / len(runs)))


def test_the_pairs_of_a_potts_grid_are_its_neighbours() -> None:
    made = make_potts_grid((4, 3))
    rows, cols = made.pairs // 3, made.pairs % 3
    apart = np.abs(rows[:, 0] - rows[:, 1]) + np.abs(cols[:, 0] - cols[:, 1])
    assert (apart == 1).all()
    assert len({tuple(sorted(pair)) for pair in made.pairs.tolist()}) == len(made.pairs) == 4 * 2 + 3 * 3


def test_what_episodes_never_do() -> None:
    made = make_wearable_episodes(20, length=300, random_state=3)
    vehicle_only, never_there = {"driving"}, {"walking", "running", "upstairs", "downstairs"}
    for motions, contexts in zip(made.motions, made.contexts):
        inside = contexts == "vehicle"
        assert not set(motions[~inside]) & vehicle_only
        assert not set(motions[inside]) & never_there
        left = np.flatnonzero(contexts[1:] != contexts[:-1])
        assert set(motions[left]) <= {"walking", "stationary"}
        assert (motions[left][contexts[left] != "vehicle"] == "walking").all()


def test_every_state_and_context_is_met() -> None:
    made = make_wearable_episodes(random_state=0)
    assert set(np.concatenate(made.motions)) == set(MOTIONS)
    assert set(np.concatenate(made.contexts)) == set(CONTEXTS)
    lengths = [len(motions) for motions in made.motions]
    assert 375 <= min(lengths) < max(lengths) <= 625


def test_each_layer_knows_what_the_other_lacks() -> None:
    """A local classifier of one layer gains much from the label of the other, and from steps before and after."""
    made = make_wearable_episodes(16, length=200, random_state=1)
    for own, labels, other in (
        (made.motion_features, made.motions, made.contexts),
        (made.context_features, made.contexts, made.motions),
    ):
        alone, y = np.concatenate(own), np.concatenate(labels)
        beside = (np.concatenate(other)[:, None] == np.unique(np.concatenate(other))).astype(float)
        train = np.arange(len(y)) < sum(map(len, labels[:8]))
        scores = [
            LogisticRegression(max_iter=2_000).fit(x[train], y[train]).score(x[~train], y[~train])
            for x in (alone, np.hstack([alone, beside]))
        ]
        assert 0.6 < scores[0] < 0.92
        assert scores[1] > scores[0] + 0.04


def test_noise_of_the_sensors_is_correlated() -> None:
    made = make_wearable_episodes(30, length=400, random_state=2)
    rest = np.concatenate([x[y == "stationary"] for x, y in zip(made.motion_features, made.motions)])
    correlation = np.corrcoef(rest.T)
    assert np.abs(correlation[~np.eye(len(correlation), dtype=bool)]).max() > 0.2


def test_tags_depend_on_their_neighbour_in_the_tree_alone() -> None:
    made = make_tags(40_000, random_state=1)
    assert made.tree.tolist() == sorted(made.tree.tolist(), key=lambda pair: pair[1])
    assert len(made.tree) == len(TAGS) - 1
    tag = {name: made.tags[:, k] for k, name in enumerate(TAGS)}
    for water in (0, 1):
        here = tag["water"] == water
        beach, boat = tag["beach"][here], tag["boat"][here]
        assert abs(np.corrcoef(beach, boat)[0, 1]) < 4 / np.sqrt(here.sum())
    assert np.corrcoef(tag["beach"], tag["boat"])[0, 1] > 0.1


@pytest.mark.parametrize(
    "make",
    [
        lambda seed: make_order_chains(random_state=seed, n_chains=2, length=50).features,
        lambda seed: make_activity_days(random_state=seed).features,
        lambda seed: make_noisy_images(2, random_state=seed).images,
        lambda seed: [make_potts_grid(random_state=seed).image],
        lambda seed: make_wearable_episodes(2, length=40, random_state=seed).context_features,
        lambda seed: [make_tags(20, random_state=seed).features],
    ],
)
def test_seeds(make: Callable[[Any], Any]) -> None:
    first, again, other = make(3), make(np.random.default_rng(3)), make(4)
    assert all(np.array_equal(a, b) for a, b in zip(first, again))
    assert not all(np.array_equal(a, b) for a, b in zip(first, other))


@pytest.mark.parametrize(
    "make",
    [
        lambda: make_order_chains(1.5),
        lambda: make_order_chains(order=0),
        lambda: make_order_chains(order=9, length=5),
        lambda: make_activity_days(5, n_informative=10),
        lambda: make_activity_days(n_labels=1),
        lambda: make_noisy_images(noise="pepper"),
        lambda: make_noisy_images(shape=(0, 4)),
        lambda: noise_scores(np.zeros(2), "pepper"),
        lambda: make_potts_grid(noise=0.0),
        lambda: make_wearable_episodes(length=0),
        lambda: make_tags(n_features=0),
    ],
)
def test_impossible_worlds_are_refused(make: Callable[[], Any]) -> None:
    with pytest.raises(InputError, match=r"got|in 0 … 1"):
        make()


def test_nothing_asked_for_nothing_made() -> None:
    assert len(make_order_chains(n_chains=0)) == 0
    assert len(make_activity_days(n_days=0)) == 0
    assert len(make_noisy_images(0)) == 0
    assert len(make_wearable_episodes(0)) == 0
    assert make_tags(0).features.shape == (0, 20)
