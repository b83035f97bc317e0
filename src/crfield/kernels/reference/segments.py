"""The segment kernels to read: logs forwards, conditional probabilities backwards, one sequence at a time.

    a_n(j) = log Σ_d exp(segment(n, d, j) + g_{n-d}(j))          everything that ends with a segment of j at n
    g_n(j) = log Σ_i exp(a_n(i) + edge(i, j))                    … and goes on with j;  g_{-1} = 0

Both are kept relative to a running offset, so that they stay small however long the sequence is. A segment bridges up
to D steps, so the offsets it meets differ; their differences are sums of at most D increments and lose nothing.

Going back there is no second recursion in logs: the gradient of a log-sum-exp is a distribution. With

    w_n(d | j) = exp(segment(n, d, j) + g_{n-d}(j) - a_n(j))     of segments of j that end at n, how long they are
    v_n(i | j) = exp(a_n(i) + edge(i, j) - g_n(j))               what stood before a segment of j that begins at n + 1

    p(n, d, j) = end_n(j) w_n(d | j)
    start_m(j) = Σ_d p(m + d - 1, d, j)      end_n(i) = Σ_j v_n(i | j) start_{n+1}(j)

Only products and sums of probabilities: nothing can overflow, and forbidden segments have the probability zero
wherever they stand. The same pass with maxima and their places gives the best segmentation.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from math import fsum

import numpy as np

from crfield.kernels.probabilities import log_sum
from crfield.kernels.reference.chain import check_offsets, check_rows

# A table (K, M): for each column its total, and what that is made of.
Fold = Callable[[np.ndarray], tuple[np.ndarray, np.ndarray]]


def _check(offsets: np.ndarray, segment: np.ndarray, edge: np.ndarray) -> None:
    check_offsets(offsets)
    labels = segment.shape[2]
    if len(segment) != offsets[-1] or min(segment.shape[1:]) < 1:
        raise ValueError("segment scores do not fit")
    if edge.shape[1:] != (labels, labels):
        raise ValueError("edge scores do not fit the labels")
    if len(edge) not in (1, _edges(offsets)):
        raise ValueError("edge scores do not fit the edges")


def _edges(offsets: np.ndarray) -> int:
    return int(np.maximum(np.diff(offsets) - 1, 0).sum())


def _first_edges(offsets: np.ndarray) -> np.ndarray:
    return np.concatenate([[0], np.cumsum(np.maximum(np.diff(offsets) - 1, 0))])


def _exp(x: np.ndarray, shift: np.ndarray) -> np.ndarray:
    """exp(x - shift), zero where the shift is −∞."""
    return np.exp(x - np.where(np.isneginf(shift), 0.0, shift)) * ~np.isneginf(shift)


def sum_product(
    offsets: np.ndarray,
    segment: np.ndarray,
    edge: np.ndarray,
    total: np.ndarray,
    segment_out: np.ndarray,
    edge_out: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.segments.sum_product`; results go to the last three arrays."""
    _check(offsets, segment, edge)
    segment_out[:] = 0.0
    edge_out[:] = 0.0
    first_edge = _first_edges(offsets)
    for s, (first, last) in enumerate(pairwise(offsets.tolist())):
        tables = edge if len(edge) == 1 else edge[first_edge[s] : first_edge[s + 1]]
        found, p, pairs = _sum_sequence(segment[first:last], tables)
        total[s], segment_out[first:last] = found, p
        if len(edge_out) == 1:
            edge_out[0] += pairs.sum(axis=0)
        else:
            edge_out[first_edge[s] : first_edge[s + 1]] = pairs


def _windows(g: np.ndarray, rise: np.ndarray, n: int, reach: int) -> np.ndarray:
    """(reach, L) g before segments of 1, 2, … steps that end at n, relative to the offset at n − 1."""
    back = np.concatenate([[0.0], np.cumsum(rise[n - reach + 1 : n][::-1])])
    return g[n - reach + 1 : n + 1][::-1] - back[:, None]


def _shares(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Log of the sum down each column, and what each entry has of it; zero where there is none."""
    total = log_sum(x, axis=0)
    return total, _exp(x, total)


def _largest(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The largest entry of each column, and where it stands."""
    return np.max(x, axis=0), np.argmax(x, axis=0)


def _forwards(scores: np.ndarray, edge: np.ndarray, fold: Fold) -> tuple[float, list[np.ndarray], list[np.ndarray]]:
    """Total of one sequence; at each step what ``fold`` says of the lengths, and of the labels before the next.

    The last entry of the latter is of the end of the sequence, one column.
    """
    steps, most, labels = scores.shape
    g = np.zeros((steps + 1, labels))  # row n + 1: g after step n, its largest entry zero
    rise = np.zeros(steps)
    lengths, before = [], []
    for n in range(steps):
        reach = min(most, n + 1)
        a, said = fold(scores[n, :reach] + _windows(g, rise, n, reach))
        lengths.append(said)
        onwards, said = fold(a[:, None] + (edge[0 if len(edge) == 1 else n] if n + 1 < steps else 0.0))
        before.append(said)
        top = onwards.max()
        rise[n] = 0.0 if np.isneginf(top) else top
        g[n + 1] = onwards - rise[n]
    return fsum(rise) + float(g[steps].max()), lengths, before


def _sum_sequence(scores: np.ndarray, edge: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Total, segment marginals (T, D, L) and edge marginals (T − 1, L, L) of one sequence."""
    steps, most, labels = scores.shape
    p, pairs = np.zeros_like(scores), np.zeros((max(steps - 1, 0), labels, labels))
    if not steps:
        return 0.0, p, pairs
    total, lengths, before = _forwards(scores, edge, _shares)
    start = np.zeros((steps + 1, labels))
    end = before[-1][:, 0]
    for n in range(steps - 1, -1, -1):
        if n + 1 < steps:
            pairs[n] = before[n] * start[n + 1]
            end = pairs[n].sum(axis=1)
        reach = min(most, n + 1)
        p[n, :reach] = lengths[n] * end
        start[n - reach + 1 : n + 1] += p[n, :reach][::-1]
    return total, p, pairs


def max_product(
    offsets: np.ndarray,
    segment: np.ndarray,
    edge: np.ndarray,
    total: np.ndarray,
    length: np.ndarray,
    label: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.segments.max_product`; results go to the last three arrays."""
    _check(offsets, segment, edge)
    first_edge = _first_edges(offsets)
    length[:] = 0
    for s, (first, last) in enumerate(pairwise(offsets.tolist())):
        tables = edge if len(edge) == 1 else edge[first_edge[s] : first_edge[s + 1]]
        total[s] = _best_sequence(segment[first:last], tables, length[first:last], label[first:last])


def _best_sequence(scores: np.ndarray, edge: np.ndarray, length: np.ndarray, label: np.ndarray) -> float:
    """Total of the best segmentation of one sequence; its lengths and labels are written."""
    if not len(scores):
        return 0.0
    total, lengths, before = _forwards(scores, edge, _largest)
    n, j = len(scores) - 1, int(before[-1][0])
    while n >= 0:
        d = int(lengths[n][j]) + 1
        length[n], label[n - d + 1 : n + 1] = d, j
        n -= d
        if n >= 0:
            j = int(before[n][j])
    return total


# ------------------------------------------------------------------------------------------- from parts and back


def _check_parts(
    offsets: np.ndarray,
    limit: np.ndarray,
    parts: list[np.ndarray | None],
    length: np.ndarray,
    where: tuple[np.ndarray, ...],
    items: tuple[np.ndarray, ...],
    weight: np.ndarray,
) -> None:
    check_offsets(offsets)
    most, labels = length.shape
    if limit.shape != (labels,) or limit.min() < 1 or limit.max() > most:
        raise ValueError("limits do not fit the lengths")
    for part in parts:
        if part is not None and part.shape != (offsets[-1], labels):
            raise ValueError("a part does not fit the steps")
    ptr, steps, item = where
    item_ptr, item_label = items
    check_rows(ptr, item, int(offsets[-1]), len(item_ptr) - 1)
    check_rows(item_ptr, item_label, len(item_ptr) - 1, labels)
    reach = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets)) + 1
    if len(steps) != len(item) or (len(steps) and (steps.min() < 1 or steps.max() > most)):
        raise ValueError("a marked segment is too long")
    if (steps > np.repeat(reach, np.diff(ptr))).any():
        raise ValueError("a marked segment begins before its sequence")
    if len(weight) != len(item_label):
        raise ValueError("weights do not fit the items")


def _marked(
    where: tuple[np.ndarray, ...], items: tuple[np.ndarray, ...]
) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Node, length − 1, label and weight number of every marked segment."""
    ptr, steps, item = where
    item_ptr, item_label = items
    node = np.repeat(np.arange(len(ptr) - 1), np.diff(ptr))
    count = np.diff(item_ptr)[item]
    number = np.arange(count.sum()) + np.repeat(item_ptr[item] - (np.cumsum(count) - count), count)
    return np.repeat(node, count), np.repeat(steps - 1, count), item_label[number], number


def _running(offsets: np.ndarray, most: int) -> np.ndarray:
    """(N, D) whether the segment of d steps that ends at n lies within its sequence."""
    reach = np.arange(offsets[-1]) - np.repeat(offsets[:-1], np.diff(offsets)) + 1
    return reach[:, None] >= np.arange(1, most + 1)


def expand(
    offsets: np.ndarray,
    limit: np.ndarray,
    node: np.ndarray,
    first: np.ndarray | None,
    last: np.ndarray | None,
    mean: np.ndarray | None,
    length: np.ndarray,
    ptr: np.ndarray,
    steps: np.ndarray,
    item: np.ndarray,
    item_ptr: np.ndarray,
    item_label: np.ndarray,
    weight: np.ndarray,
    out: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.segments.expand`; the scores go to ``out`` (N, D, L)."""
    _check_parts(
        offsets, limit, [node, first, last, mean], length, (ptr, steps, item), (item_ptr, item_label), weight
    )
    nodes, (most, labels) = int(offsets[-1]), length.shape
    if out.shape != (nodes, most, labels):
        raise ValueError("out has the wrong shape")
    within = _running(offsets, most)
    content = np.zeros((nodes, labels))
    average = np.zeros((nodes, labels))
    for d in range(most):
        rows = np.flatnonzero(within[:, d])
        content[rows] += node[rows - d]
        score = content + length[d]
        if mean is not None:
            average[rows] += mean[rows - d]
            score += average / (d + 1)
        if last is not None:
            score += last
        if first is not None:
            score[rows] += first[rows - d]
        out[:, d] = score
    place, long, label, number = _marked((ptr, steps, item), (item_ptr, item_label))
    np.add.at(out, (place, long, label), weight[number])
    out[:, np.arange(1, most + 1)[:, None] > limit] = -np.inf
    out[~within] = -np.inf


def expectations(
    offsets: np.ndarray,
    limit: np.ndarray,
    space: np.ndarray,
    node: np.ndarray,
    first: np.ndarray | None,
    last: np.ndarray | None,
    mean: np.ndarray | None,
    length: np.ndarray,
    ptr: np.ndarray,
    steps: np.ndarray,
    item: np.ndarray,
    item_ptr: np.ndarray,
    item_label: np.ndarray,
    weight: np.ndarray,
    edge: np.ndarray,
    factor: np.ndarray,
    total: np.ndarray,
    node_out: np.ndarray,
    first_out: np.ndarray | None,
    last_out: np.ndarray | None,
    mean_out: np.ndarray | None,
    length_out: np.ndarray,
    weight_out: np.ndarray,
    edge_out: np.ndarray,
    n_jobs: int,
) -> None:
    """Body of `crfield.kernels.segments.expectations`: expand, sum, and the adjoint of expand."""
    nodes, (most, labels) = int(offsets[-1]), length.shape
    width = node.shape[1]
    if len(space) and (space.shape != (labels,) or space.min() < 0 or space.max() >= width):
        raise ValueError("labels of states do not fit")
    if len(space):
        node, first, last, mean = (  # type: ignore[assignment]
            None if part is None else part[:, space] for part in (node, first, last, mean)
        )

    def of_labels(table: np.ndarray) -> np.ndarray:
        """(N, S) of states to (N, L) of labels."""
        return table if not len(space) else table @ np.eye(width)[space]

    scores = np.empty((nodes, most, labels))
    parts = (offsets, limit, node, first, last, mean, length, ptr, steps, item, item_ptr, item_label, weight)
    expand(*parts, scores, 1)
    p, pairs = np.empty_like(scores), np.zeros((_edges(offsets), labels, labels))
    _check(offsets, scores, edge)
    first_edge = _first_edges(offsets)
    for s, (begin, end) in enumerate(pairwise(offsets.tolist())):
        own = slice(first_edge[s], first_edge[s + 1])
        total[s], p[begin:end], pairs[own] = _sum_sequence(scores[begin:end], edge if len(edge) == 1 else edge[own])
        p[begin:end] *= factor[s]
        pairs[own] *= factor[s]
    edge_out[:] = pairs.sum(axis=0)[None] if len(edge_out) == 1 else pairs
    length_out[:] = p.sum(axis=0)
    place, d, label, number = _marked((ptr, steps, item), (item_ptr, item_label))
    weight_out[:] = np.bincount(number, p[place, d, label], minlength=len(weight))
    node_out[:] = of_labels(_spread(np.cumsum(p[:, ::-1], axis=1)[:, ::-1]))
    if mean is not None and mean_out is not None:
        shared = p / np.arange(1, most + 1)[:, None]
        mean_out[:] = of_labels(_spread(np.cumsum(shared[:, ::-1], axis=1)[:, ::-1]))
    if last is not None and last_out is not None:
        last_out[:] = of_labels(p.sum(axis=1))
    if first is not None and first_out is not None:
        first_out[:] = of_labels(_spread(p))


def _spread(table: np.ndarray) -> np.ndarray:
    """(N, L) Σ_d table[n + d - 1, d - 1]; impossible segments have the probability zero."""
    out = np.zeros((table.shape[0], table.shape[2]))
    for back in range(min(table.shape[1], len(table))):
        out[: len(table) - back] += table[back:, back]
    return out
