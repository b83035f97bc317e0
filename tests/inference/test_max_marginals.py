"""Max-marginals against every labelling, and those of a part of a sequence against those of the whole."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from crfield.inference.max_marginals import MaxMarginals


def world(seed: int, *, steps: int = 6, alike: bool, second_order: bool) -> tuple[np.ndarray, np.ndarray, dict]:
    """Scores of nodes and edges of three labels, and the automaton of pairs of labels where asked."""
    rng, size = np.random.default_rng(seed), 3
    node = rng.normal(size=(steps, size))
    states = size + size * size if second_order else size
    score = rng.normal(size=(1 if alike else steps - 1, states, size))
    if not second_order:
        return node, score, {}
    last = np.concatenate([np.arange(size), np.tile(np.arange(size), size)])  # the label that a state ends in
    after = size + last[:, None] * size + np.arange(size)
    return node, score, {"after": after, "label": last}


def enumerated(node: np.ndarray, score: np.ndarray, given: dict) -> np.ndarray:
    """(T, L) the best score of any labelling with each label at each step."""
    out = np.full(node.shape, -np.inf)
    for labels in product(range(node.shape[1]), repeat=len(node)):
        total, state = node[0, labels[0]], labels[0]
        for t, label in enumerate(labels[1:], 1):
            total += score[0 if len(score) == 1 else t - 1, state, label] + node[t, label]
            state = given["after"][state, label] if given else label
        for t, label in enumerate(labels):
            out[t, label] = max(out[t, label], total)
    return out


CASES = pytest.mark.parametrize(("alike", "second_order"), [(True, False), (False, False), (True, True)])


@CASES
def test_every_labelling(alike: bool, second_order: bool) -> None:
    node, score, given = world(0, alike=alike, second_order=second_order)
    node[2, 1] = -np.inf
    best = MaxMarginals.of(node, score, **given)
    found = np.array([best.labels(t) for t in range(len(node))])
    np.testing.assert_allclose(found, enumerated(node, score, given), atol=1e-12)


@CASES
def test_a_part_is_swept_as_the_whole(alike: bool, second_order: bool) -> None:
    for seed, (first, last) in enumerate([(0, 5), (0, 2), (2, 3), (1, 4), (3, 5), (5, 5), (0, 0)]):
        node, score, given = world(seed, alike=alike, second_order=second_order)
        other, _, _ = world(seed + 50, alike=alike, second_order=second_order)
        changed, edges = node.copy(), score.copy()
        changed[first : last + 1] = other[first : last + 1]
        changed[last, 0] = -np.inf
        if not alike:
            edges[first:last] *= -1.0
        part = MaxMarginals.of(node, score, **given).within(first, last, changed, edges)
        whole = MaxMarginals.of(changed, edges, **given)
        for t in range(first, last + 1):
            np.testing.assert_array_equal(part.labels(t), whole.labels(t))
        if not second_order:
            for t in range(first, last):
                np.testing.assert_array_equal(part.pairs(t), whole.pairs(t))
