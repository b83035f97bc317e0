"""Weight between planes: both bodies, and a dual that never falls."""

from __future__ import annotations

import numpy as np
import pytest

from crfield.errors import ShapeError
from crfield.kernels import choice, planes


def part(rng: np.random.Generator, size: int) -> tuple[np.ndarray, ...]:
    gradients = rng.standard_normal((size, 7))
    costs, shares = rng.random(size), rng.dirichlet(np.ones(size))
    shares[rng.random(size) < 0.3] = 0.0
    shares[0] += 1.0 - shares.sum()
    return gradients, costs, shares


@pytest.mark.parametrize("size", [1, 2, 5, 40])
def test_bodies_agree_and_the_dual_rises(size: int) -> None:
    rng, l2 = np.random.default_rng(size), 0.3
    for _ in range(20):
        gradients, costs, shares = part(rng, size)
        products = gradients @ gradients.T

        def dual(alpha: np.ndarray, costs: np.ndarray = costs, gradients: np.ndarray = gradients) -> float:
            weights = -(alpha @ gradients) / l2
            return float(alpha @ costs - 0.5 * l2 * weights @ weights)

        values = costs - gradients @ (shares @ gradients) / l2
        found, moved = shares.copy(), values.copy()
        taken = planes.pair_steps(moved, found, products, l2=l2, least=1e-9, most=20)
        with choice.use("numpy"):
            other, same = shares.copy(), values.copy()
            assert planes.pair_steps(same, other, products, l2=l2, least=1e-9, most=20) == taken
        np.testing.assert_allclose(found, other, rtol=0, atol=1e-9)
        assert dual(found) >= dual(shares) - 1e-12
        assert found.min() >= 0
        assert found.sum() == pytest.approx(shares.sum())
        np.testing.assert_allclose(moved, costs - gradients @ (found @ gradients) / l2, atol=1e-9)


def test_what_does_not_fit(body: str) -> None:
    two = np.zeros(2)
    for shares, products, l2 in ((np.zeros(3), np.eye(2), 1.0), (two, np.eye(3), 1.0), (two, np.eye(2), 0.0)):
        with pytest.raises(ValueError, match=r"planes|l2"):
            planes.pair_steps(two, shares, products, l2=l2, least=0.0, most=1)
    with pytest.raises(ShapeError, match="contiguous"):
        planes.pair_steps(np.zeros(4)[::2], two, np.eye(2), l2=1.0, least=0.0, most=1)
