"""NumPy bodies of the kernels of dense fields; the contract is in `crfield.kernels.dense`.

A point's place in the permutohedral lattice (Adams, Baek & Davis 2010, section 3): features are lifted to the plane
of D + 1 coordinates whose sum is zero; the nearest point with coordinates that are multiples of D + 1 is one corner
of the simplex around it, the order of the residuals says which simplex it is, and their differences are the shares of
its corners.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np


class Embedded(NamedTuple):
    """Where points lie: the first corner of the simplex, the order of the residuals, and the shares of the
    corners."""

    first: np.ndarray  # (N, D + 1) integers, in units of D + 1
    rank: np.ndarray  # (N, D + 1) 0 for the largest residual
    share: np.ndarray  # (N, D + 1)


def scales(d: int, dtype: Any) -> np.ndarray:
    """(D,) factors of the features: blurring in the lattice then has the variance of a Gaussian of deviation 1."""
    i = np.arange(d, dtype=dtype)
    return np.sqrt(dtype(2) / dtype(3)) * dtype(d + 1) / np.sqrt((i + 1) * (i + 2))


def embed(features: np.ndarray) -> Embedded:
    """The simplex around every point of features (D, N)."""
    d, n = features.shape
    real = features.dtype.type
    lifted, total = np.empty((n, d + 1), real), np.zeros(n, real)
    for j in range(d, 0, -1):
        c = features[j - 1] * scales(d, real)[j - 1]
        lifted[:, j] = total - real(j) * c
        total = total + c
    lifted[:, 0] = total
    rounded = np.rint(lifted * (real(1) / real(d + 1)))
    residual = lifted - rounded * real(d + 1)
    less = residual[:, :, None] < residual[:, None, :]  # i below j; of two that are equal the first comes later
    rank = rounded.sum(axis=1, keepdims=True).repeat(d + 1, axis=1)
    for i in range(d):
        for j in range(i + 1, d + 1):
            rank[:, i] += less[:, i, j]
            rank[:, j] += ~less[:, i, j]
    step = (rank < 0).astype(real) - (rank > d)  # the rounded point may lie off the plane
    rank += step * (d + 1)
    residual = (residual - step * real(d + 1)) * (real(1) / real(d + 1))
    ranks = rank.astype(np.int64)
    by_rank = np.empty_like(residual)
    np.put_along_axis(by_rank, ranks, residual, axis=1)
    share = np.empty_like(residual)
    share[:, 0] = by_rank[:, d] + real(1) - by_rank[:, 0]
    for k in range(1, d + 1):
        share[:, k] = by_rank[:, d - k] - by_rank[:, d - k + 1]
    return Embedded((rounded + step).astype(np.int64), ranks, share)


def lattice(
    features: np.ndarray,
    halo: bool,
    gain: float,
    sums: np.ndarray,
    fold: bool,
    at: np.ndarray,
    share: np.ndarray,
    n_jobs: int,
) -> tuple[np.ndarray, int, bool]:
    """Vertices and shares of every point; returns the pairs of neighbours, flat, and the number of vertices.

    ``sums`` become gain · K 1; with ``fold`` shares are divided by their roots.
    """
    d, n = features.shape
    place = embed(features)
    share[:] = place.share
    corners = np.empty((n, d + 1, d + 1), np.int64)
    for k in range(d + 1):
        corners[:, k] = place.first * (d + 1) + np.where(place.rank <= d - k, k, k - (d + 1))
    numbers: dict[bytes, int] = {}
    listed = corners.reshape(n * (d + 1), d + 1)
    for place_of, row in enumerate(listed):
        at.reshape(-1)[place_of] = numbers.setdefault(row.tobytes(), len(numbers))
    steps = np.ones((d + 1, d + 1), np.int64) - (d + 1) * np.eye(d + 1, dtype=np.int64)
    if halo:
        for key in list(numbers):
            vertex = np.frombuffer(key, np.int64)
            for step in steps:
                numbers.setdefault((vertex + step).tobytes(), len(numbers))
                numbers.setdefault((vertex - step).tobytes(), len(numbers))
    nodes = len(numbers)
    pairs = np.full((d + 1, nodes, 2), nodes, np.int32)
    for key, number in numbers.items():
        vertex = np.frombuffer(key, np.int64)
        for j, step in enumerate(steps):
            following = numbers.get((vertex + step).tobytes())
            if following is not None:
                pairs[j, number, 1] = following
                pairs[j, following, 0] = number
    parts = (at, share, None, None, gain, pairs, (), ())
    sums[:] = _filtered(parts, np.ones((n, 1), share.dtype), False)[:, 0]
    if fold:
        share *= (1 / np.sqrt(sums + 1e-20))[:, None]
    return pairs.reshape(-1), nodes, True


def _spread(parts: tuple[Any, ...], values: np.ndarray) -> np.ndarray:
    """(M + 1, C) Sᵀ values; the last row stands for neighbours that are not there."""
    at, share, _, _, _, neighbours, sizes, _ = parts
    nodes = np.zeros(((int(np.prod(sizes)) if neighbours is None else neighbours.shape[1]) + 1, values.shape[1]))
    nodes = nodes.astype(values.dtype)
    for t in range(at.shape[1]):
        np.add.at(nodes, at[:, t], share[:, t, None] * values)
    return nodes


def _gather(parts: tuple[Any, ...], nodes: np.ndarray) -> np.ndarray:
    """(N, C) gain · S nodes."""
    at, share, gain = parts[0], parts[1], parts[4]
    return nodes.dtype.type(gain) * sum(share[:, t, None] * nodes[at[:, t]] for t in range(at.shape[1]))


def _blurred(parts: tuple[Any, ...], nodes: np.ndarray, reverse: bool) -> np.ndarray:
    """B nodes: every direction of the lattice, or axis of the grid, after the other."""
    neighbours, sizes, filters = parts[5:]
    half = nodes.dtype.type(0.5)
    if neighbours is not None:
        for pair in neighbours[::-1] if reverse else neighbours:
            nodes = nodes.copy()
            nodes[:-1] += half * (nodes[pair[:, 0]] + nodes[pair[:, 1]])
        return nodes
    table = nodes[:-1].reshape(*sizes, nodes.shape[1])
    for axis, values in enumerate(filters):
        moved = np.moveaxis(table, axis, 0)
        total = values[0] * moved
        for step in range(1, len(values)):
            total[step:] += values[step] * moved[:-step]
            total[:-step] += values[step] * moved[step:]
        table = np.moveaxis(total, 0, axis)
    return np.concatenate([table.reshape(-1, nodes.shape[1]), nodes[-1:]])


def _filtered(parts: tuple[Any, ...], values: np.ndarray, reverse: bool, *, both: bool = False) -> np.ndarray:
    """K values, or Kᵀ values; with ``both`` the blur is the mean of both orders."""
    first, second = (parts[3], parts[2]) if reverse else (parts[2], parts[3])
    values = values if first is None else first[:, None] * values
    nodes = _spread(parts, values)
    blurred = _blurred(parts, nodes, reverse)
    if both:
        blurred = values.dtype.type(0.5) * (blurred + _blurred(parts, nodes, not reverse))
    out = _gather(parts, blurred)
    return out if second is None else second[:, None] * out


def filter(parts: tuple[Any, ...], values: np.ndarray, reverse: bool, out: np.ndarray, n_jobs: int) -> None:
    """K values, or Kᵀ values."""
    out[:] = _filtered(parts, values, reverse)


def feature_gradient(
    parts: tuple[Any, ...], features: np.ndarray, left: np.ndarray, right: np.ndarray, out: np.ndarray, n_jobs: int
) -> None:
    """Slope of Σ left · K right in the features.

    In the share of corner k of point i it is left_i · (B Sᵀ right) + right_i · (Bᵀ Sᵀ left) at that corner. Shares
    are differences of residuals in the order of their ranks, and residuals are linear in the features.
    """
    d = len(features)
    at, gain, rank = parts[0], parts[4], embed(features).rank
    there, back = _blurred(parts, _spread(parts, right), False), _blurred(parts, _spread(parts, left), True)
    pull = gain * np.stack(
        [(left * there[at[:, k]]).sum(axis=1) + (right * back[at[:, k]]).sum(axis=1) for k in range(d + 1)], axis=1
    )
    by_rank = np.stack([pull[:, d - q] - pull[:, (d - q + 1) % (d + 1)] for q in range(d + 1)], axis=1) / (d + 1)
    lifted = np.take_along_axis(by_rank, rank, axis=1)  # (N, D + 1)
    total = np.zeros(len(lifted))
    for j in range(d):
        total = total + lifted[:, j]
        out[j] = scales(d, features.dtype.type)[j] * (total - (j + 1) * lifted[:, j + 1])


def mean_field(
    scores: np.ndarray,
    negated: bool,
    kernels: list[tuple[Any, ...]],
    compatibilities: list[Any],
    start: np.ndarray | None,
    steps: int,
    damping: float,
    symmetric: bool,
    tol: float,
    out: np.ndarray,
    trace: np.ndarray | None,
    n_jobs: int,
) -> int:
    """Steps of mean field; returns how many were made, or −1 where a score is not finite."""
    if scores.size and not (np.abs(scores) < 1e30).all():
        return -1
    scores = -scores if negated else scores

    def messages(q: np.ndarray) -> np.ndarray:
        total = np.zeros_like(q)
        for parts, related in zip(kernels, compatibilities):
            k = _filtered(parts, q, False, both=symmetric)
            if isinstance(related, tuple):
                k = k * related[0]
            elif isinstance(related, np.ndarray):
                k = k @ related.T
            else:
                k = q.dtype.type(related) * k
            total += k
        return total

    q = softmax(scores) if start is None else start / start.sum(axis=1, keepdims=True)
    made = 0
    for step in range(steps + (trace is not None)):
        sent = messages(q)
        if trace is not None:
            logs = np.log(np.maximum(q, 1e-300))
            trace[step, 0] = (q * (scores + 0.5 * sent - logs)).sum(dtype=np.float64)
            if step == steps or (step and trace[step, 1] <= tol):
                break
        scored = scores + sent
        if damping:
            scored = (scored + damping * np.log(np.maximum(q, 1e-37))) / (1 + damping)
        after = softmax(scored)
        if trace is not None:
            trace[step + 1, 1] = np.abs(after - q).max(initial=0.0)
        q, made = after, step + 1
    out[:] = q
    return made


def softmax(scores: np.ndarray) -> np.ndarray:
    """Rows of scores to probabilities."""
    powers = np.exp(scores - scores.max(axis=1, keepdims=True))
    return powers / powers.sum(axis=1, keepdims=True)
