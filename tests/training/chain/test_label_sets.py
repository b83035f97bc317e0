"""Chains whose steps may each have one of a few sets of labels: `label_sets.cpp` against the whole table."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.core.target import UNKNOWN, Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.inference.chain import ChainEngine
from crfield.kernels import linear
from crfield.objectives.contrast import Contrast
from crfield.scoring.layout import Layout
from crfield.scoring.linear import LinearScorer
from crfield.training.full_batch import FullBatch
from crfield.training.likelihood import FusedChain
from tests.cases.chains import native_level

LENGTHS = [1, 2, 31, 31, 7, 0, 5, 12, 12, 12, 3, 30, 9, 1, 64, 20, 20, 8, 8]


def case(rng: np.random.Generator, labels: int, size: int, *, scattered: bool, known: float) -> tuple[Batch, Target]:
    """Labels in sets of ``size``, side by side or not; a share ``known`` of the steps has one label."""
    chains = Chains.from_lengths(LENGTHS)
    n = chains.n_nodes
    groups = np.arange(labels) % (labels // size) if scattered else np.arange(labels) // size
    mask = groups == rng.integers(0, groups.max() + 1, n)[:, None]
    first = mask.argmax(axis=1)
    mask[rng.random(n) < known] = False
    mask[np.arange(n), first] = True
    codes = np.where(mask.sum(axis=1) == 1, first, UNKNOWN)
    dense = rng.normal(size=(n, 3))
    columns = Columns(np.zeros(n + 1, np.int64), np.zeros(0, np.int32), 0, None, dense)
    return Batch(chains, columns), Target(chains, labels, codes, mask, rng.random(len(LENGTHS)))


@pytest.mark.parametrize("level", [2, 3, 4])
@pytest.mark.parametrize(("labels", "size"), [(2, 1), (4, 2), (9, 3), (12, 4), (14, 7), (24, 8), (25, 5), (36, 6)])
def test_sets_are_the_masked_table(level: int, labels: int, size: int) -> None:
    rng = np.random.default_rng(labels)
    for scattered, known, scale in ((False, 0.0, 1.0), (True, 0.3, 1.0), (False, 0.9, 20.0)):
        batch, target = case(rng, labels, size, scattered=scattered, known=known)
        layout = Layout.observe(batch, target, bias=True, boundaries=True)
        plain = FullBatch(LinearScorer(layout), batch, target, objective=Contrast(), engine=ChainEngine())
        weights = scale * rng.normal(size=layout.n_weights)
        gradient, expected = np.empty(layout.n_weights), np.empty(layout.n_weights)
        other = plain.evaluate(weights, expected)
        with native_level(level):
            fused = FusedChain(layout, batch, target)
            value = fused.evaluate(weights, gradient)
            np.testing.assert_allclose(value, other, rtol=1e-11)
            np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-10 * np.abs(expected).max())
            again, same = np.empty(layout.n_weights), fused.packed()
            restored = FusedChain.restore(layout, linear.Workspace(layout), same)
            assert restored.evaluate(weights, again) == value
            np.testing.assert_array_equal(again, gradient)
