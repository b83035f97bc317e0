"""NumPy body of the boosting kernels, to be read. The contract is in `crfield.kernels.boost`."""

from __future__ import annotations

import numpy as np

NO_WEIGHT, TIE = 1e-12, 1e-10  # as in the contract


def bin_codes(
    table: np.ndarray, begin: np.ndarray, cuts: np.ndarray, codes: np.ndarray, seen: np.ndarray, n_jobs: int
) -> None:
    """codes (F, N) = thresholds below each value of table (N, F); seen (F,) = 1 missing + 2 infinite."""
    for f in range(table.shape[1]):
        values, own = table[:, f].astype(np.float64), cuts[begin[f] : begin[f + 1]]
        gaps = np.isnan(values)
        codes[f] = np.where(gaps, len(own) + 1, np.searchsorted(own, values, side="left"))
        seen[f] = gaps.any() + 2 * np.isinf(values).any()


def code_words(codes: np.ndarray, strides: np.ndarray, words: np.ndarray, joint: np.ndarray, n_jobs: int) -> None:
    """joint_g += Σ_f∈g stride_f · code_f, columns (F, N) into words (G, N)."""
    for row, stride, word in zip(codes, strides, words, strict=True):
        joint[word] += (row.astype(np.uint16) * np.uint16(stride)).astype(np.uint16)


def histograms(
    joint: np.ndarray,
    sizes: np.ndarray,
    word: np.ndarray,
    stride: np.ndarray,
    offsets: np.ndarray,
    indptr: np.ndarray,
    entries: np.ndarray,
    codes: np.ndarray,
    sparse: np.ndarray,
    zero: np.ndarray,
    pairs: np.ndarray,
    rows: np.ndarray | None,
    out: np.ndarray,
    n_jobs: int,
) -> None:
    """out (C, T, 2) = sums of pairs (C, N, 2) by column and bin."""
    n_rows = pairs.shape[1]
    for sums, pair in zip(out, pairs, strict=True):
        some = pair if rows is None else pair[rows]
        for g, size in enumerate(sizes):
            key = joint[g] if rows is None else joint[g, rows]
            table = np.stack([np.bincount(key, some[:, k], minlength=size) for k in (0, 1)], axis=1)
            for f in np.flatnonzero(word == g):
                bins = offsets[f + 1] - offsets[f]
                column = np.arange(size) // stride[f] % bins
                for k in (0, 1):
                    sums[offsets[f] : offsets[f + 1], k] = np.bincount(column, table[:, k], minlength=bins)
        if len(sparse):
            inside = np.ones(n_rows, bool)
            if rows is not None:
                inside[:] = False
                inside[rows] = True
            total = some.sum(axis=0)
            for s, f in enumerate(sparse):
                place = slice(indptr[s], indptr[s + 1])
                kept = inside[entries[place]]
                row, code = entries[place][kept], codes[place][kept]
                bins = offsets[f + 1] - offsets[f]
                own = sums[offsets[f] : offsets[f + 1]]
                for k in (0, 1):
                    own[:, k] = np.bincount(code, pair[row, k], minlength=bins)
                if len(row) < len(some):
                    own[zero[s]] += total - own.sum(axis=0)


def best_cuts(
    sums: np.ndarray,
    offsets: np.ndarray,
    nominal: np.ndarray,
    missing: np.ndarray,
    ridge: float,
    counts: np.ndarray,
    least: float,
    gain: np.ndarray,
    cut: np.ndarray,
    side: np.ndarray,
    n_jobs: int,
) -> None:
    """The best cut of every column, from sums (C, T, 2)."""
    for f in range(len(gain)):
        table = sums[:, offsets[f] : offsets[f + 1]]
        count = counts[offsets[f] : offsets[f + 1]] if len(counts) else None
        gain[f], cut[f], side[f] = -np.inf, -1, 1
        nothing = NO_WEIGHT * table[:, :, 0].sum(axis=1)
        if nominal[f]:
            used = table[0, :, 0] > nothing[0]
            if used.sum() >= 2 and (count is None or (count[used] >= least).all()):
                gain[f], cut[f] = _worth(table[:, used], ridge).sum(), 0
            continue
        n = table.shape[1] - int(missing[f])
        lost = table[:, n:].sum(axis=1)
        lost_count = 0.0 if count is None else count[n:].sum()
        for k in range(n - 1 + int(missing[f])):
            below, above = table[:, : k + 1].sum(axis=1), table[:, k + 1 : n].sum(axis=1)
            for where in (1, 0) if missing[f] and k < n - 1 else (1,):
                leaves = np.stack([below + lost * (where == 0), above + lost * (where == 1)], axis=1)
                if not (leaves[:, :, 0] > nothing[:, None]).all():
                    continue
                if count is not None:
                    left, right = count[: k + 1].sum(), count[k + 1 : n].sum()
                    if min(left + lost_count * (where == 0), right + lost_count * (where == 1)) < least:
                        continue
                worth = _worth(leaves, ridge).sum()
                if cut[f] < 0 or worth > gain[f] * (1.0 + TIE):
                    gain[f], cut[f], side[f] = worth, k, where


def _worth(leaves: np.ndarray, ridge: float) -> np.ndarray:
    """(Σ w z)² / (Σ w + ridge)."""
    return leaves[..., 1] ** 2 / (leaves[..., 0] + ridge)


def logit_pairs(
    scores: np.ndarray,
    labels: np.ndarray,
    weight: np.ndarray | None,
    limit: float,
    least: float,
    pairs: np.ndarray,
    n_jobs: int,
) -> float:
    """pairs (C, N, 2) = (w, w z) of softmax scores; the weighted sum of −log p(label)."""
    classes = scores.shape[1]
    known = labels >= 0
    by = known * (1.0 if weight is None else weight)
    shifted = scores - scores.max(axis=1, keepdims=True)
    p = np.exp(shifted)
    total = p.sum(axis=1, keepdims=True)
    p /= total
    loss = np.log(total[:, 0]) - shifted[np.arange(len(scores)), np.maximum(labels, 0)]
    for c, out in zip([1] if classes == 2 else range(classes), pairs, strict=True):
        w = np.maximum(p[:, c] * (1.0 - p[:, c]), least)
        z = np.clip(((labels == c) - p[:, c]) / w, -limit, limit)
        out[:, 0], out[:, 1] = by * w, by * w * z
    return float((by * loss).sum())


def add_by_code(scores: np.ndarray, codes: np.ndarray, values: np.ndarray, n_jobs: int) -> None:
    """scores (N, K) += values[codes]."""
    scores += values[codes]
