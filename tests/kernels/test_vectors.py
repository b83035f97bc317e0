"""Vector kernels: both bodies against formulas written out here, and the two-loop recursion against matrices."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crfield.errors import InputError, ShapeError
from crfield.kernels import choice, vectors

SIZES = [0, 1, 7, 1000, 16384, 16385, 70_001]  # around the blocks and tiles of the compiled body


def normal(seed: int, n: int, count: int) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(n) for _ in range(count)]


def half_mask(n: int) -> np.ndarray:
    return (np.arange(n) % 3 != 0).astype(np.uint8)


def close(a: float | np.ndarray, b: float | np.ndarray, *, rtol: float = 1e-12) -> None:
    np.testing.assert_allclose(a, b, rtol=rtol, atol=rtol * (1 + float(np.max(np.abs(b), initial=0.0))))


@pytest.mark.parametrize("n", SIZES)
def test_plain_operations(body: str, n: int) -> None:
    w, d = normal(1, n, 2)
    out = np.full(n, np.nan)
    vectors.step(w, d, 0.25, out)
    close(out, w + 0.25 * d)
    scale = 1 + np.sum(np.abs(w * d))
    assert abs(vectors.dot(w, d) - np.sum(w * d)) <= 1e-12 * scale
    close(vectors.l1_norm(w), np.abs(w).sum())
    close(vectors.l1_norm(w, penalised=half_mask(n)), np.abs(w[half_mask(n) == 1]).sum())


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_add_ridge(body: str, n: int, masked: bool) -> None:
    w, g, d = normal(2, n, 3)
    mask = half_mask(n) if masked else None
    held = w * (1 if mask is None else mask)
    expected = g + 0.7 * held
    got = vectors.add_ridge(w, g, 0.7, penalised=mask, direction=d)
    close(g, expected)
    close(got.value, 0.35 * np.sum(held**2))
    close(got.squared_norm, np.sum(expected**2))
    assert abs(got.slope - np.sum(expected * d)) <= 1e-12 * (1 + np.sum(np.abs(expected * d)))
    assert vectors.add_ridge(w, g, 0.0, penalised=mask).slope == 0.0


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("n", SIZES)
def test_orthant_operations(body: str, n: int, masked: bool) -> None:
    w, g, d = normal(3, n, 3)
    w[::4] = 0.0
    w[1::8] = -0.0
    mask = half_mask(n) if masked else None
    on = np.ones(n, bool) if mask is None else mask == 1
    pseudo, l1 = g.copy(), 0.4
    for k in range(min(n, 3000)):
        if on[k]:
            low = g[k] - l1 if w[k] <= 0 else g[k] + l1  # one-sided derivatives
            high = g[k] + l1 if w[k] >= 0 else g[k] - l1
            pseudo[k] = low if low > 0 else high if high < 0 else 0.0
    out = np.full(n, np.nan)
    norm = vectors.pseudo_gradient(w, g, l1, out, penalised=mask)
    close(out[:3000], pseudo[:3000])
    close(norm, np.sum(out**2))
    pseudo = out.copy()
    d[(w == 0) & on & (d * pseudo >= 0)] = 0.0
    moved = vectors.orthant_step(w, g, d, 0.8, l1, out, penalised=mask)
    expected = w + 0.8 * d
    expected[on & (np.sign(expected) * np.sign(w) < 0)] = 0.0
    close(out, expected)
    assert moved.n_active == np.count_nonzero(expected)
    close(moved.l1_norm, np.abs(expected[on]).sum())
    terms = pseudo * (expected - w)
    assert abs(moved.slope - terms.sum()) <= 1e-12 * (1 + np.abs(terms).sum())


def inverse_curvature(pairs: list[tuple[np.ndarray, np.ndarray]], diagonal: np.ndarray) -> np.ndarray:
    """H as a matrix, by the BFGS formula."""
    n = len(diagonal)
    s, y = pairs[-1]
    h = np.diag(diagonal) * (s @ y) / (y @ (diagonal * y))
    for s, y in pairs:
        left = np.eye(n) - np.outer(s, y) / (s @ y)
        h = left @ h @ left.T + np.outer(s, s) / (s @ y)
    return h


@settings(max_examples=40, deadline=None)
@given(
    st.integers(1, 12),
    st.integers(1, 5),
    st.integers(1, 9),
    st.booleans(),
    st.booleans(),
    st.sampled_from(["native", "numpy"]),
    st.integers(0, 10**6),
)
def test_direction_is_the_bfgs_matrix(
    n: int, memory: int, pushes: int, single: bool, scaled: bool, name: str, seed: int
) -> None:
    if name == "native":
        pytest.importorskip("crfield.kernels._vectors")
    rng = np.random.default_rng(seed)
    hessian = np.diag(rng.uniform(0.5, 2.0, n))
    diagonal = rng.uniform(0.5, 2.0, n) if scaled else np.ones(n)
    kind = np.float32 if single else np.float64
    with choice.use(name):
        history = vectors.History(n, memory, single=single, diagonal=diagonal if scaled else None)
        pairs: list[tuple[np.ndarray, np.ndarray]] = []
        w = rng.standard_normal(n)
        for _ in range(pushes):
            new = w + rng.standard_normal(n)
            assert history.push(new, w, hessian @ new, hessian @ w)
            pairs.append(
                tuple((a - b).astype(kind).astype(float) for a, b in ((new, w), (hessian @ new, hessian @ w)))
            )
            w = new
        pairs = pairs[-memory:]
        assert len(history) == len(pairs)
        g, out = rng.standard_normal(n), np.empty(n)
        slope = history.direction(g, out)
    expected = -inverse_curvature(pairs, diagonal) @ g
    np.testing.assert_allclose(out, expected, rtol=1e-8, atol=1e-8 * np.abs(expected).max())
    assert slope == pytest.approx(g @ out, rel=1e-12)
    assert slope < 0


def run_history(name: str, *, n: int, single: bool, scaled: bool, masked: bool, n_jobs: int) -> list[np.ndarray]:
    """Directions of a few steps, with the history filled beyond its memory."""
    rng = np.random.default_rng(5)
    curvature = rng.uniform(0.5, 2.0, n)
    diagonal = rng.uniform(0.5, 2.0, n) if scaled else None
    mask = half_mask(n) if masked else None
    results = []
    with choice.use(name):
        history = vectors.History(n, 4, single=single, diagonal=diagonal, n_jobs=n_jobs)
        w = rng.standard_normal(n)
        for _ in range(7):
            new = w + rng.standard_normal(n)
            new[::5] = 0.0
            steepest = curvature * new
            out = steepest.copy()  # the direction may replace the gradient it was made from
            kept, slope = history.advance(
                new, w, curvature * new, curvature * w, out, out, orthant=new if masked else None, penalised=mask
            )
            assert kept
            results += [out, np.array([slope])]
            w = new
    return results


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("single", [False, True])
def test_bodies_agree(single: bool, scaled: bool, masked: bool) -> None:
    pytest.importorskip("crfield.kernels._vectors")
    options = {"n": 40_000, "single": single, "scaled": scaled, "masked": masked, "n_jobs": 1}
    for native, plain in zip(run_history("native", **options), run_history("numpy", **options), strict=True):
        np.testing.assert_allclose(native, plain, rtol=1e-9, atol=1e-12 * np.abs(plain).max())


@pytest.mark.parametrize("single", [False, True])
def test_threads_do_not_change_a_bit(single: bool) -> None:
    pytest.importorskip("crfield.kernels._vectors")
    runs = [
        run_history("native", n=100_003, single=single, scaled=True, masked=True, n_jobs=jobs)
        for jobs in (1, 2, 4, 9)
    ]
    for other in runs[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(runs[0], other, strict=True))
    a, b = normal(8, 100_003, 2)
    with choice.use("native"):
        assert len({vectors.dot(a, b, n_jobs=jobs) for jobs in (1, 2, 3, 8)}) == 1


def test_advance_is_push_then_direction(body: str) -> None:
    w, v, g, h = normal(9, 500, 4)
    g, h = 2 * w + 0.1 * g, 2 * v + 0.1 * h
    one, two = vectors.History(500, 3), vectors.History(500, 3)
    out, other = np.empty(500), np.empty(500)
    for sign in (1.0, -1.0, 0.5, 0.25):
        kept = one.push(sign * w, v, sign * g, h)
        slope = one.direction(g, out)
        assert two.advance(sign * w, v, sign * g, h, g, other) == (kept, pytest.approx(slope, rel=1e-12))
        close(other, out, rtol=1e-11)
    one.clear()
    assert len(one) == 0
    assert one.direction(g, out) == pytest.approx(-g @ g)
    assert np.array_equal(out, -g)


def test_bad_curvature_is_not_kept(body: str) -> None:
    zero, one = np.zeros(3), np.ones(3)
    history = vectors.History(3, 2, single=True)
    assert not history.push(one, zero, -one, zero)  # concave
    assert not history.push(one, zero, zero, zero)  # flat
    assert not history.push(zero, zero, one, zero)  # no step
    assert not history.push(1e300 * one, zero, one, zero)  # beyond float32
    assert not history.push(np.nan * one, zero, one, zero)
    assert len(history) == 0
    out = np.empty(3)
    history.direction(one, out)
    assert np.array_equal(out, -one)
    assert history.push(one, zero, 2 * one, zero)
    history.direction(one, out)
    close(out, -0.5 * one)


def test_mistakes_are_named(body: str) -> None:
    w = np.zeros(3)
    with pytest.raises(ShapeError, match="3 entries"):
        vectors.dot(w, np.zeros(4))
    with pytest.raises(ShapeError, match="float64"):
        vectors.dot(w, np.zeros(3, np.float32))
    with pytest.raises(ShapeError, match="contiguous"):
        vectors.dot(w, np.zeros(6)[::2])
    with pytest.raises(ShapeError, match="penalised"):
        vectors.l1_norm(w, penalised=np.ones(2, np.uint8))
    with pytest.raises(ShapeError, match="length 3"):
        vectors.History(3, 2).direction(np.zeros(4), np.zeros(4))
    with pytest.raises(ShapeError, match="length 3"):
        vectors.History(3, 2, diagonal=np.ones(2))
    with pytest.raises(InputError, match="memory"):
        vectors.History(3, 0)


def test_native_checks_for_itself() -> None:
    native = pytest.importorskip("crfield.kernels._vectors")
    w, long = np.zeros(3), np.zeros(4)
    with pytest.raises(ValueError, match="must have 3 entries"):
        native.step(w, w, 1.0, long, 1)
    with pytest.raises(ValueError, match="penalised"):
        native.l1_norm(w, np.zeros(1, np.uint8), 1)
    with pytest.raises(ValueError, match="diagonal"):
        native.History(3, 2, False, long, 1)
    with pytest.raises(ValueError, match="memory"):
        native.History(3, 0, False, None, 1)
    with pytest.raises(ValueError, match="negative"):
        native.History(-1, 2, False, None, 1)
    with pytest.raises(TypeError):
        native.step(w, w, 1.0, np.zeros(3, np.float32), 1)
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    with pytest.raises(TypeError):
        native.step(w, w, 1.0, frozen, 1)
    assert native.dot(frozen, frozen, -3) == 0.0
