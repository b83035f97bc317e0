"""Mean field on dense fields: monotone where it says so, truthful about convergence, a bound of what is
enumerated."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from crfield.errors import InputError
from crfield.inference.dense import DenseField, DenseMeanField, Places, damping_of, gaussian_kernel, norm_bound
from crfield.kernels import choice, dense


def field(compatibility: float | np.ndarray, *, labels: int = 3, how: str = "symmetric", seed: int = 0) -> DenseField:
    rng = np.random.default_rng(seed)
    colours = np.kron(rng.integers(0, 3, (4, 4)), np.ones((4, 4))).reshape(-1, 1) + rng.normal(size=(256, 1))
    places = Places.of_grid((16, 16))
    kernels = [gaussian_kernel(places, None, 2.0), gaussian_kernel(places, colours, 6.0, 1.0)]
    filters = [kernel.normalised(how) for kernel in kernels]
    return DenseField(rng.normal(size=(256, labels)), filters, [compatibility, compatibility])


def table(seed: int) -> np.ndarray:
    made = 4.0 * np.random.default_rng(seed).normal(size=(3, 3))
    return made + made.T


@pytest.mark.parametrize("compatibility", [4.0, -4.0, np.array([3.0, -5.0, 0.0]), table(0), table(1)])
@pytest.mark.parametrize("how", ["symmetric", "none"])
def test_convergent_never_goes_down(compatibility: float | np.ndarray, how: str) -> None:
    scaled = compatibility * (1.0 if how == "symmetric" else 0.02)
    found = DenseMeanField("convergent", 300, 1e-4, watch=True).infer(field(scaled, how=how))
    assert found.bound is not None
    assert np.diff(found.bound).min() > -1e-3  # of some 500, in single precision
    assert found.bound[-1] > found.bound[0]
    assert found.converged == (found.change <= 1e-4)


def test_parallel_oscillates_and_says_so() -> None:
    repelled = field(-40.0)
    plain = DenseMeanField("parallel", 200, 1e-3, watch=True).infer(repelled)
    assert not plain.converged
    assert plain.change > 0.1
    calm = DenseMeanField("convergent", 2000, 1e-3, watch=True).infer(repelled)
    assert calm.converged
    assert calm.bound is not None
    assert plain.bound is not None
    assert calm.bound[-1] > plain.bound[-1]


def test_attraction_needs_no_damping() -> None:
    attracted = field(4.0)
    assert damping_of(attracted) == 0
    assert damping_of(field(-4.0)) == pytest.approx(0.5 * 8.0, rel=0.1)
    for kernel in attracted.kernels:
        k = dense.apply(kernel, np.eye(256)).astype(np.float64)
        norm = np.linalg.eigvalsh(0.5 * (k + k.T))[-1]
        assert norm - 1e-4 <= norm_bound(kernel) < norm + 0.15
    settled = DenseMeanField("parallel", 500, 1e-4, watch=True).infer(attracted)
    assert settled.converged
    assert settled.steps < 500
    again = DenseMeanField("parallel", 1, 1e-4, watch=True).infer(attracted, start=settled.node)
    np.testing.assert_allclose(again.node, settled.node, atol=2e-4)


def test_not_watching_is_the_same_and_promises_nothing() -> None:
    one = field(2.0)
    plain, watched = (DenseMeanField(steps=5, tol=0.0, watch=watch).infer(one) for watch in (False, True))
    np.testing.assert_allclose(plain.node, watched.node, atol=1e-5)
    assert plain.bound is None
    assert not plain.converged
    assert watched.steps == 5


def test_the_bound_is_one_where_points_do_not_meet_themselves() -> None:
    """log Z by enumeration, of a field without self pairs: the objective less their share lies below it."""
    rng = np.random.default_rng(0)
    with choice.use("numpy"):
        kernel = dense.lattice(rng.normal(size=(2, 6)), "symmetric")
        k = dense.apply(kernel, np.eye(6))
        k = 0.5 * (k + k.T)
        own, compatibility = np.diag(k).copy(), table(2) / 4
        scores = rng.normal(size=(6, 3))
        joint = DenseField(scores, [kernel], [compatibility])
        found = DenseMeanField("convergent", 500, 1e-9, watch=True).infer(joint)
    q = found.node
    assert found.bound is not None
    bound = found.bound[-1] - 0.5 * float(own @ np.einsum("nl,lm,nm->n", q, compatibility, q))
    np.fill_diagonal(k, 0.0)
    energies = [
        sum(scores[i, y[i]] for i in range(6))
        + 0.5 * sum(k[i, j] * compatibility[y[i], y[j]] for i in range(6) for j in range(6))
        for y in product(range(3), repeat=6)
    ]
    total = np.logaddexp.reduce(energies)
    assert bound <= total
    assert bound > total - 2.0


def test_one_sided_kernels_have_no_bound_to_climb() -> None:
    with pytest.raises(InputError, match="one side"):
        DenseMeanField("convergent").infer(field(1.0, how="before"))
    with pytest.raises(InputError, match="update"):
        DenseMeanField("best").infer(field(1.0))


@pytest.mark.parametrize("shape", [(30, 40), (7, 8, 9)])
def test_high_accuracy_is_nearer(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    places = Places.of_grid(shape)
    n = places.n_points
    colours = 30 * np.cumsum(rng.normal(size=(n, 2)), axis=0) / np.sqrt(n) + rng.normal(size=(n, 2))
    q = rng.random((n, 2)) * 2 - 1
    for own, width in ((None, None), (colours, 4.0)):
        scaled = [places.positions / 4.0] + ([] if own is None else [own.T / width])
        f = np.concatenate(scaled).astype(np.float64)
        exact = np.exp(-0.5 * ((f[:, :, None] - f[:, None, :]) ** 2).sum(axis=0))
        factor = 1 / np.sqrt(exact.sum(axis=1))
        wanted = factor[:, None] * (exact @ (factor[:, None] * q))
        errors = [
            np.linalg.norm(
                dense.apply(gaussian_kernel(places, own, 4.0, width, accuracy=a).normalised("symmetric"), q) - wanted
            )
            for a in ("standard", "high")
        ]
        assert errors[1] < (0.2 if own is None else 0.75) * errors[0]
