"""Contract of the kernels of dense fields: Gaussian filters between all pairs of points, and mean field with them.

    K[i, j] ≈ exp(−½ |f_i − f_j|²)        f: features (D, N), in units of the kernel's widths

N² pairs are never visited. Points are spread over the nodes of a lattice, T nodes each, the nodes are blurred, and
points read them off again: K = gain · S B Sᵀ, in O(N D). Two lattices serve. The *permutohedral* one (`lattice`;
Adams, Baek & Davis 2010, *Fast high-dimensional filtering using the permutohedral lattice*) has room for about ten
dimensions and only the vertices that are needed; its blur is short, so the filter is rough: some 8 % off in an
image's plane and 13 % in five dimensions (`python -m benchmarks dense`). The *regular* one (`grid`) is for pixels
alone: quadratic splines onto nodes a few pixels apart and a sampled Gaussian along each axis, 0.4 % off.

Mean field (`mean_field`; Krähenbühl & Koltun 2011, *Efficient inference in fully connected CRFs with Gaussian edge
potentials*) repeats

    q_i ← softmax( scores_i + Σ_k C_k (K_k q)_i )

with compatibilities C_k: a number (w: agreeing labels gain w), one number for each label, or a table of all pairs,
which is taken as symmetric. Scores are finite. The sum runs over all j, j = i included.

The compiled body works in single precision. The NumPy body has the precision of what it is given, so that double
precision can be had where differences are taken.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from crfield.errors import InputError, ShapeError
from crfield.kernels import choice

NORMALISATIONS = ("symmetric", "before", "after", "none")
MOST_DIMENSIONS = 15
FARTHEST = float(2**19)  # features beyond have too few digits in single precision to find their simplex
FLOOR = 1e-20  # of the sums that are divided by
COARSE = 1.5  # a grid's nodes are at most this share of the width apart
REACH = 3.8  # deviations after which a sampled Gaussian is cut


@dataclass(frozen=True, eq=False)
class Kernel:
    """A filter: N points on M nodes, T each; ``neighbours`` where the nodes are a lattice, ``sizes`` where a grid.

    ``before`` and ``after`` are factors of what goes in and of what comes out; None is one.
    """

    at: np.ndarray  # (N, T) int32
    share: np.ndarray  # (N, T)
    gain: float
    neighbours: np.ndarray | None = None  # (D + 1, M, 2) int32, M for one that is not there
    sizes: tuple[int, ...] = ()
    filters: tuple[np.ndarray, ...] = ()  # half of a symmetric filter along each axis, from its middle
    before: np.ndarray | None = None  # (N,)
    after: np.ndarray | None = None  # (N,)
    sums: np.ndarray | None = None  # (N,) K 1 before it was normalised

    @property
    def n_points(self) -> int:
        """N."""
        return len(self.at)

    @property
    def n_nodes(self) -> int:
        """M."""
        return int(np.prod(self.sizes)) if self.neighbours is None else self.neighbours.shape[1]

    @property
    def parts(self) -> tuple[Any, ...]:
        """What a body takes."""
        factors = (self.before, self.after)
        return (self.at, self.share, *factors, float(self.gain), self.neighbours, self.sizes, self.filters)


def _real(values: Any) -> np.ndarray:
    """Numbers in the precision that the chosen body works in."""
    values = np.asarray(values)
    double = values.dtype == np.float64 and choice.chosen() == "numpy"
    return np.ascontiguousarray(values, np.float64 if double else np.float32)


def _features(features: np.ndarray) -> np.ndarray:
    features = _real(features)
    if features.ndim != 2 or not 1 <= len(features) <= MOST_DIMENSIONS:
        raise ShapeError(f"features must be (D, N) with 1 to {MOST_DIMENSIONS} dimensions, got {features.shape}.")
    if features.size and not (features.max() <= FARTHEST and features.min() >= -FARTHEST):
        raise InputError(
            f"features must be finite and within ±{FARTHEST:,.0f} widths, got {features.min():g} … "
            f"{features.max():g}. Use larger widths, or take away the mean of the features."
        )
    return features


def lattice(
    features: np.ndarray,
    normalisation: str = "none",
    *,
    halo: bool = False,
    volume_gain: bool = False,
    fold: bool = True,
    n_jobs: int = 1,
) -> Kernel:
    """The permutohedral lattice of features (D, N); `normalised` says what normalisations there are.

    ``halo`` adds the vertices around those that carry points, through which more of the blur finds its way: the
    filter's error falls by half, and there are more vertices to blur. ``volume_gain`` scales K to have the
    volume of the Gaussian; otherwise the gain is 1 / (1 + 2^−D), which is what pydensecrf uses.

    >>> kernel = lattice(np.array([[0.0, 0.1, 9.0]]))
    >>> apply(kernel, np.ones((3, 1))).astype(float).round(1).ravel().tolist()
    [1.6, 1.6, 0.8]
    """
    _check_normalisation(normalisation)
    features = _features(features)
    d, n = features.shape
    at, share, sums = (
        np.empty((n, d + 1), np.int32),
        np.empty((n, d + 1), features.dtype),
        np.empty(n, features.dtype),
    )
    gain = 1 / (1 + 2.0**-d)
    if volume_gain:
        gain = float((2 * np.pi) ** (d / 2) * np.sqrt(d + 1) / (2 ** (d + 1) * 1.5 ** (d / 2)))
    folded = fold and normalisation == "symmetric"
    build = choice.body("dense").lattice
    pairs, nodes, _ = build(features, bool(halo), gain, sums, folded, at, share, max(int(n_jobs), 1))
    kernel = Kernel(at, share, gain, neighbours=np.asarray(pairs).reshape(d + 1, nodes, 2), sums=sums)
    return kernel if folded else normalised(kernel, normalisation, fold=fold)


def grid(shape: Sequence[int], widths: Sequence[float]) -> Kernel:
    """The Gaussian of pixel positions: ``widths`` are deviations in pixels along the one to three axes of ``shape``.

    Not normalised; points are the pixels in the order of their array.

    >>> kernel = grid((4, 5), (1.0, 1.0))
    >>> apply(kernel, np.eye(20)[:, :1])[[0, 1, 6], 0].astype(float).round(3).tolist()
    [1.0, 0.607, 0.368]
    """
    if not 1 <= len(shape) <= 3 or len(widths) != len(shape) or min(shape) < 1:
        raise ShapeError(
            f"a grid has one to three axes and a width for each, got {tuple(shape)} and {tuple(widths)}."
        )
    if not all(0.1 <= width <= 1e6 for width in widths):
        raise InputError(f"widths must be numbers of pixels from 0.1 to 1e6, got {tuple(widths)}.")
    real = np.float64 if choice.chosen() == "numpy" else np.float32
    parts = [_axis(int(size), float(width)) for size, width in zip(shape, widths)]
    sizes = tuple(nodes for _, _, nodes, _ in parts)
    if np.prod([float(size) for size in sizes]) >= 2.0**31 - 1:
        raise ShapeError(f"a grid of {tuple(shape)} pixels has too many nodes, {sizes}.")
    at, share = np.zeros((1, 1), np.int64), np.ones((1, 1))
    for place, own, nodes, _ in parts:  # products of the axes: (N, T) grows by (n, t)
        at = (at[:, None, :, None] * nodes + place[None, :, None, :]).reshape(len(at) * len(place), -1)
        share = (share[:, None, :, None] * own[None, :, None, :]).reshape(len(share) * len(own), -1)
    filters = tuple(f.astype(real) for _, _, _, f in parts)
    return Kernel(at.astype(np.int32), share.astype(real), 1.0, sizes=sizes, filters=filters)


def grid_slope(shape: Sequence[int], widths: Sequence[float], axis: int) -> Kernel:
    """The derivative of `grid` in the logarithm of one of its widths: the same nodes with another filter."""
    plain = grid(shape, widths)
    made, size, width = list(plain.filters), int(shape[axis]), float(widths[axis])
    step = 1e-4
    up, down = (_axis(size, width * np.exp(sign * step), like=width)[3] for sign in (1, -1))
    made[axis] = ((up - down) / (2 * step)).astype(plain.share.dtype)
    return replace(plain, filters=tuple(made))


def _axis(size: int, width: float, *, like: float | None = None) -> tuple[np.ndarray, np.ndarray, int, np.ndarray]:
    """Nodes (n, t) and shares (n, t) of the pixels of an axis, the number of nodes, and their filter.

    The filter's variance is that of the Gaussian less that of two splines; ``like`` is the width that the nodes are
    made for, where it is another.
    """
    base = width if like is None else like
    apart = max(1, int(base // COARSE))
    pixels = np.arange(size)
    if apart == 1:
        at, share, nodes, lost = pixels[:, None], np.ones((size, 1)), size, 0.0
    else:
        centre = (2 * pixels + apart) // (2 * apart)
        off = pixels / apart - centre
        at = centre[:, None] + np.arange(3)
        share = np.stack([0.5 * (0.5 - off) ** 2, 0.75 - off**2, 0.5 * (0.5 + off) ** 2], axis=1)
        nodes, lost = int(centre[-1]) + 3, 0.5
    variance = (width / apart) ** 2 - lost
    reach = min(int(np.ceil(REACH * np.sqrt((base / apart) ** 2 - lost))), nodes - 1)
    values = np.exp(-0.5 * np.arange(reach + 1) ** 2 / variance)
    if apart > 1:  # so that the peak at full resolution is one
        far = np.exp(-0.5 * np.arange(1, int(np.ceil(8 * np.sqrt(variance))) + 2) ** 2 / variance)
        values *= np.sqrt(2 * np.pi) * width / (apart * (1 + 2 * far.sum()))
    return at, share, nodes, values


def apply(kernel: Kernel, values: np.ndarray, *, reverse: bool = False, n_jobs: int = 1) -> np.ndarray:
    """(N, C) K values, or Kᵀ values; K is nearly symmetric, and its transpose is exact."""
    values = _real(values)
    if values.ndim != 2 or len(values) != kernel.n_points or values.shape[1] < 1:
        raise ShapeError(f"values must be ({kernel.n_points}, C) with at least one column, got {values.shape}.")
    out = np.empty_like(values)
    choice.body("dense").filter(kernel.parts, values, bool(reverse), out, max(int(n_jobs), 1))
    return out


def normalised(kernel: Kernel, how: str, *, fold: bool = True, n_jobs: int = 1) -> Kernel:
    """The kernel divided by its row sums n: n^−½ K n^−½ ("symmetric"), K n^−1 ("before"), n^−1 K ("after"), or K.

    With ``fold`` symmetric factors go into the shares, where they cost nothing; then K is S B Sᵀ with other shares.

    >>> plain = lattice(np.array([[0.0, 0.1, 9.0]]))
    >>> apply(normalised(plain, "after"), np.ones((3, 1))).astype(float).round(3).ravel().tolist()
    [1.0, 1.0, 1.0]
    """
    _check_normalisation(how)
    if how == "none":
        return kernel
    sums, dtype = kernel.sums, kernel.share.dtype
    if sums is None:
        sums = apply(kernel, np.ones((kernel.n_points, 1), dtype), n_jobs=n_jobs)[:, 0]
    factor = 1 / (sums + FLOOR)
    if how == "symmetric":
        factor = np.sqrt(factor).astype(dtype)
        if fold:
            return replace(kernel, share=kernel.share * factor[:, None], sums=sums)
        return replace(kernel, before=factor, after=factor, sums=sums)
    factor = factor.astype(dtype)
    if how == "before":
        return replace(kernel, sums=sums, before=factor)
    return replace(kernel, sums=sums, after=factor)


def _check_normalisation(how: str) -> None:
    if how not in NORMALISATIONS:
        raise InputError(f"normalisation must be one of {', '.join(map(repr, NORMALISATIONS))}, got {how!r}.")


def feature_gradient(
    kernel: Kernel, features: np.ndarray, left: np.ndarray, right: np.ndarray, *, n_jobs: int = 1
) -> np.ndarray:
    """(D, N) slope of Σ left · (K right) in the features, K the plain `lattice` of them; left and right are (N, C).

    Shares are linear in the features as long as no point leaves its simplex, so this is the derivative of what is
    computed, and not of the Gaussian behind it.
    """
    features, left, right = _features(features), _real(left), _real(right)
    d, n = features.shape
    if kernel.neighbours is None or kernel.at.shape != (n, d + 1) or kernel.before is not None:
        raise ShapeError(f"the kernel must be the plain lattice of these features, ({n}, {d + 1}) shares.")
    if left.ndim != 2 or left.shape != right.shape or len(left) != n or left.shape[1] < 1:
        raise ShapeError(f"left and right must be ({n}, C), got {left.shape} and {right.shape}.")
    out = np.empty_like(features)
    choice.body("dense").feature_gradient(kernel.parts, features, left, right, out, max(int(n_jobs), 1))
    return out


def mean_field(
    scores: np.ndarray,
    kernels: Sequence[Kernel],
    compatibilities: Sequence[float | np.ndarray],
    *,
    steps: int,
    start: np.ndarray | None = None,
    negated: bool = False,
    damping: float = 0.0,
    symmetric: bool = False,
    tol: float = -1.0,
    watch: bool = False,
    n_jobs: int = 1,
) -> tuple[np.ndarray, np.ndarray | None]:
    """Beliefs (N, L) after so many steps from ``start``, or from softmax(scores); and, with ``watch``, their trace.

    ``negated`` says that scores are energies, which have the other sign. ``damping`` λ keeps a part of the logs of
    the last beliefs: log q ← (scores + Σ C K q + λ log q) / (1 + λ) − log Z. ``symmetric`` blurs in both orders and
    takes the mean, which makes K its own transpose where the factors of its two sides are the same. The trace (steps
    + 1, 2) has for every q, the first included, the bound

        Σ_i q_i · (scores_i + ½ Σ_k C_k (K_k q)_i − log q_i)

    and how far the most changed belief moved; steps end when that is at most ``tol``. Watching costs a second filter
    at the end and an exponential for every belief.

    >>> scores = np.array([[0.0, 0.1], [0.0, 3.0]])
    >>> near = lattice(np.zeros((1, 2)))
    >>> mean_field(scores, [near], [2.0], steps=5)[0].astype(float).round(1).tolist()
    [[0.0, 1.0], [0.0, 1.0]]
    """
    scores = np.asarray(scores)
    if scores.dtype != np.float32:
        scores = _real(scores)
    if scores.ndim != 2 or scores.shape[1] < 1:
        raise ShapeError(f"scores must be (N, L) with at least one label, got {scores.shape}.")
    n, labels = scores.shape
    if len(kernels) != len(compatibilities):
        raise ShapeError(f"{len(kernels)} kernels need as many compatibilities, got {len(compatibilities)}.")
    for kernel in kernels:
        if kernel.n_points != n:
            raise ShapeError(f"a kernel of {kernel.n_points} points does not fit scores of {n}.")
    dtype = np.float64 if scores.dtype == np.float64 else np.float32
    related = [_compatibility(c, labels, dtype) for c in compatibilities]
    if start is not None:
        start = np.ascontiguousarray(start, dtype)
        if start.shape != scores.shape:
            raise ShapeError(f"start must have the shape of the scores, {scores.shape}, got {start.shape}.")
    if steps < 0 or not 0 <= damping < 1e30:
        raise InputError(f"steps and damping must not be negative, got {steps} and {damping}.")
    out = np.empty((n, labels), dtype)
    trace = np.zeros((steps + 1, 2)) if watch else None
    own = [kernel.parts for kernel in kernels]
    settings = (start, int(steps), float(damping), bool(symmetric), float(tol))
    infer = choice.body("dense").mean_field
    made = infer(scores, bool(negated), own, related, *settings, out, trace, max(int(n_jobs), 1))
    if made < 0:
        raise InputError("scores must be finite numbers below 1e30 in size.")
    return out, None if trace is None else trace[: made + 1]


def _compatibility(given: float | np.ndarray, labels: int, dtype: Any) -> Any:
    """A number, (row,) for one number a label, or a symmetric table, as the bodies read them."""
    if np.ndim(given) == 0:
        if not np.isfinite(given):
            raise InputError(f"a compatibility must be finite, got {given}.")
        return float(given)
    table = np.asarray(given, dtype)
    if table.shape not in ((labels,), (labels, labels)):
        raise ShapeError(f"a compatibility must be a number, ({labels},) or ({labels}, {labels}), got {table.shape}.")
    if not np.isfinite(table).all():
        raise InputError("a compatibility must be finite.")
    return (np.ascontiguousarray(table),) if table.ndim == 1 else np.ascontiguousarray(0.5 * (table + table.T))
