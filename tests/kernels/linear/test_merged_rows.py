"""Columns that come with others: the compiled body adds them up once, and nothing else may change."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.core.target import Target
from crfield.core.topology import Chains
from crfield.data.batch import Batch, Columns
from crfield.kernels import choice, linear
from crfield.scoring.layout import Layout


def nested(rng: np.random.Generator, labels: int, *, twice: bool, rare: bool) -> tuple[Batch, Target]:
    """Tags with their unigrams, bigrams and trigrams as columns, as a template would make them."""
    chains = Chains.from_lengths(rng.integers(1, 12, size=60))
    tags = rng.integers(0, 3, size=chains.n_nodes + 2)
    rows = []
    for n in range(chains.n_nodes):
        a, b, c = (int(tag) for tag in tags[n : n + 3])
        row = [a, 3 + b, 6 + c, 9 + 3 * a + b, 18 + 3 * b + c, 27 + 9 * a + 3 * b + c]
        if rare and rng.random() < 0.2:
            row = row[: int(rng.integers(0, 6))]  # a column that is usually implied stands alone here
        if twice and rng.random() < 0.3:
            row.append(row[0] if row else 0)
        rows.append(row)
    batch = Batch(chains, Columns.from_rows(rows, width=54))
    return batch, Target(chains, labels, rng.integers(0, labels, size=chains.n_nodes).astype(np.int32))


@pytest.mark.parametrize("labels", [2, 5, 22])
@pytest.mark.parametrize("twice", [False, True])
@pytest.mark.parametrize("rare", [False, True])
def test_merged_rows_change_nothing(labels: int, twice: bool, rare: bool) -> None:
    rng = np.random.default_rng(labels)
    batch, target = nested(rng, labels, twice=twice, rare=rare)
    layout = Layout.observe(batch, target, bias=True)
    weights = rng.normal(size=layout.n_weights)
    found = {}
    for body in ("native", "numpy"):
        try:
            with choice.use(body):
                problem = linear.Problem(layout, batch, target.labels, None, None)
        except ImportError:
            pytest.skip("the compiled kernels are not built here")
        if body == "native":
            assert problem._problem.n_merged > 10
        gradient, stepped = np.empty_like(weights), weights.copy()
        value = problem.evaluate(weights, gradient, n_jobs=2)
        order = np.random.default_rng(0).permutation(problem.n_groups)
        loss = problem.descend(stepped, order, step=0.05, done=0.0, horizon=10.0, l2=1.0)
        found[body] = (value, gradient, problem.curvature(weights), loss, stepped)
    for native, plain in zip(found["native"], found["numpy"]):
        np.testing.assert_allclose(native, plain, rtol=1e-10, atol=1e-11)
