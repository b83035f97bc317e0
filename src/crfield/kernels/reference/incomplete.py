"""The NumPy body of `kernels.incomplete`: to be read, and used where nothing was compiled."""

from __future__ import annotations

import numpy as np

_TURNS = 200


def map_step(
    plus: np.ndarray,
    minus: np.ndarray,
    weights: np.ndarray,
    scale: float | np.ndarray,
    l2: float,
    smoothing: float,
    longest: float,
    out: np.ndarray,
) -> None:
    """Newton's method, kept in a bracket that always holds the root, and halving it where that is faster."""
    if l2 == 0:
        with np.errstate(divide="ignore", invalid="ignore"):
            step = np.log((minus + smoothing) / (plus + smoothing)) / (2 * scale)
        out[:] = np.clip(np.where(np.isnan(step), 0.0, step), -longest, longest)
        return
    with np.errstate(divide="ignore", invalid="ignore"):
        log_plus, log_minus = np.log(plus), np.log(minus)
        # No exponential outgrows what it has to balance at the root, which bounds the way to it.
        ahead = (np.log(minus + l2 * np.maximum(-weights, 0.0)) - log_plus) / scale
        back = (log_minus - np.log(plus + l2 * np.maximum(weights, 0.0))) / scale
    # The left side rises at least as fast as l2 Δ, so the root is no further than this.
    end = -(plus - minus + l2 * weights) / l2
    low = np.where(end < 0, np.fmax(end, back), 0.0)
    high = np.where(end > 0, np.fmin(end, ahead), 0.0)
    step, moved = np.zeros_like(weights), high - low
    for _ in range(_TURNS):
        up = np.exp(np.minimum(log_plus + scale * step, 700.0))
        down = np.exp(np.minimum(log_minus - scale * step, 700.0))
        value = up - down + l2 * (weights + step)
        high = np.where(value > 0, step, high)
        low = np.where(value <= 0, step, low)
        newton = step - value / (scale * (up + down) + l2)
        # On the steep side of an exponential Newton's steps are all alike; halving is faster.
        poor = (newton < low) | (newton > high) | (2 * np.abs(newton - step) > moved)
        new = np.where(poor, 0.5 * (low + high), newton)
        moved, step = np.abs(new - step), new
        if (moved <= 1e-15 + 1e-14 * np.abs(new)).all():
            break
    out[:] = step


def sweep(
    indptr: np.ndarray,
    indices: np.ndarray,
    values: np.ndarray,
    spans: np.ndarray,
    offsets: np.ndarray,
    owner: np.ndarray,
    labels: np.ndarray,
    prior: np.ndarray,
    weight: np.ndarray,
    scores: np.ndarray,
    heavy: np.ndarray,
    table: np.ndarray,
    loss: int,
    l2: float,
    smoothing: float,
    longest: float,
    tight: bool,
) -> None:
    """Column by column and label by label, each step on weights that know all steps before."""
    off_label = np.arange(heavy.shape[1]) != labels[owner][:, None]
    total = float(heavy[off_label].sum())
    counts, step = np.empty((2, 1)), np.empty(1)
    for column in range(len(indptr) - 1):
        entries = slice(indptr[column], indptr[column + 1])
        runs = spans[indices[entries] + 1] - spans[indices[entries]]
        if not runs.sum():
            continue
        # All cells of the column's rows, and the value at each.
        starts = np.repeat(spans[indices[entries]] - np.concatenate([[0], np.cumsum(runs)[:-1]]), runs)
        cells = starts + np.arange(int(runs.sum()))
        value = np.repeat(values[entries], runs)
        touched = np.unique(owner[cells])
        longest_value = float(np.abs(value).max())
        if longest_value == 0:
            continue
        for label in range(heavy.shape[1]):
            own = labels[owner[cells]] == label
            pushed = value * np.where(
                own, -np.where(off_label[cells], heavy[cells], 0.0).sum(axis=1), heavy[cells, label]
            )
            if tight:
                scale = longest_value
                counts[:, 0] = pushed[pushed > 0].sum(), -pushed[pushed < 0].sum()
            else:
                scale = max(longest_value, 1.0)
                slope = float(pushed.sum()) / scale
                counts[:, 0] = 0.5 * (total + slope), 0.5 * (total - slope)
            plus, minus = np.maximum(counts, 0.0)
            map_step(plus, minus, table[column, label : label + 1], scale, l2, smoothing, longest, step)
            if step[0] == 0.0:
                continue
            table[column, label] += step[0]
            scores[cells, label] += step[0] * value
            mine = np.concatenate([np.arange(offsets[i], offsets[i + 1]) for i in touched])
            total -= float(heavy[mine][off_label[mine]].sum())
            heavy[mine] = _weights(
                scores[mine], owner[mine], labels[owner[mine]], prior[mine], weight[owner[mine]], loss
            )
            total += float(heavy[mine][off_label[mine]].sum())


def _weights(
    scores: np.ndarray, owner: np.ndarray, labels: np.ndarray, prior: np.ndarray, weight: np.ndarray, loss: int
) -> np.ndarray:
    """W (M, Y) of the cells of some data; see `boosting.incomplete.losses`."""
    contrast = scores - scores[np.arange(len(scores)), labels][:, None]
    if loss == 0:
        return np.exp(np.minimum(contrast, 700.0)) * (prior * weight)[:, None]
    top = contrast.max(axis=1)
    raised = np.exp(contrast - top[:, None])
    normaliser = raised.sum(axis=1)
    log_z = top + np.log(normaliser)
    if loss == 2:
        share = prior
    else:
        starts = np.flatnonzero(np.diff(owner, prepend=-1))
        runs = np.diff(starts, append=len(owner))
        power = np.log(prior) + (log_z if loss == 1 else -log_z)
        share = np.exp(power - np.repeat(np.maximum.reduceat(power, starts), runs))
        share /= np.repeat(np.add.reduceat(share, starts), runs)
    return raised * (share * weight / normaliser)[:, None]


def bag_sums(
    indptr: np.ndarray,
    indices: np.ndarray,
    counts: np.ndarray,
    per_point: np.ndarray,
    shares: np.ndarray,
    log_on: np.ndarray,
    log_off: np.ndarray,
    hidden: np.ndarray,
    table: np.ndarray,
    labels: np.ndarray,
    logs: np.ndarray,
    tilted: np.ndarray,
) -> None:
    """Entries along rows, labels first, so that every operation is one on long arrays."""
    words, n = len(table) // 2, len(indptr) - 1
    rows = np.repeat(np.arange(n), np.diff(indptr))
    on, off = (np.take(np.ascontiguousarray(half.T), indices, axis=1) for half in (table[:words], table[words:]))
    known = np.flatnonzero(labels[rows] >= 0)
    for score in (on, off):
        score[:, known] -= score[labels[rows[known]], known]
        score *= per_point
    up, down = on + log_on, off + log_off
    with np.errstate(invalid="ignore"):
        ahead = up - down
        small = np.exp(-np.abs(ahead))
    share = np.where(hidden, np.where(ahead >= 0, 1.0, small) / (1.0 + small), shares)
    found = np.where(hidden, np.maximum(up, down) + np.log(1.0 + small), share * on + (1.0 - share) * off) * counts
    logs[:] = np.stack([np.bincount(rows, row, n) for row in found], axis=1)
    tilted[:] = share.T


def bag_expected(
    indptr: np.ndarray,
    indices: np.ndarray,
    counts: np.ndarray,
    per_point: np.ndarray,
    tilted: np.ndarray,
    weight: np.ndarray,
    labels: np.ndarray,
    out: np.ndarray,
) -> None:
    """Each entry added at its word, once for each label."""
    words, n_labels = len(out) // 2, out.shape[1]
    rows = np.repeat(np.arange(len(indptr) - 1), np.diff(indptr))
    mass = weight[rows] * (counts * per_point)[:, None]
    on = mass * tilted
    target = np.where(labels[rows][:, None] >= 0, labels[rows][:, None], np.arange(n_labels))
    place = (indices[:, None] * n_labels + target).ravel()
    for half, values in ((out[:words], on), (out[words:], mass - on)):
        half[:] = np.bincount(place, values.ravel(), words * n_labels).reshape(words, n_labels)
