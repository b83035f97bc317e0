"""The stream kernels to read: one step of many chains at once, in logs.

    α_0 = start + node_0      α_t(j) = log Σ_i exp(α_{t-1}(i) + edge_t(i, j)) + node_t(j)     normalised at every step
    δ_0 = start + node_0      δ_t(j) = max_i [ δ_{t-1}(i) + edge_t(i, j) ] + node_t(j)        largest kept at 0

The filter and the smoother are advanced for all streams together; Viterbi's survivors stream by stream, since
each commits at its own time. The contract is in `crfield.kernels.stream`.
"""

from __future__ import annotations

import numpy as np

from crfield.kernels.probabilities import log_sum

LARGEST = 1e300


class Scores:
    """Scores of single steps from dense columns."""

    def __init__(
        self,
        mean: np.ndarray,
        deviation: np.ndarray,
        weights: np.ndarray,
        bias: np.ndarray,
        transitions: np.ndarray,
        linked: np.ndarray,
        link_weights: np.ndarray,
    ) -> None:
        columns, labels = weights.shape
        sizes = (mean.shape == deviation.shape == (columns,), bias.shape == (labels,))
        if not all(sizes) or transitions.shape != (labels, labels):
            raise ValueError("the tables do not fit each other")
        if link_weights.shape != (len(linked), labels, labels):
            raise ValueError("the tables of linked columns do not fit")
        if len(linked) and (linked.min() < 0 or linked.max() >= columns):
            raise ValueError("a linked column does not exist")
        self.mean, self.deviation, self.weights, self.bias = mean, deviation, weights, bias
        self.transitions, self.linked, self.link_weights = transitions, linked, link_weights

    def score(self, x: np.ndarray, node: np.ndarray, edge: np.ndarray | None) -> int:
        """Write the scores of rows x; −1, or the place k·D + d of a number that is not finite."""
        if x.shape[1] != len(self.mean) or node.shape != (len(x), len(self.bias)):
            raise ValueError("rows and scores do not fit")
        if not np.isfinite(x).all():
            return int(np.argmin(np.isfinite(x)))
        scaled = (x - self.mean) / self.deviation
        node[:] = scaled @ self.weights + self.bias
        if edge is not None:
            if edge.shape != (len(x), *self.transitions.shape):
                raise ValueError("rows and tables do not fit")
            edge[:] = self.transitions + np.tensordot(scaled[:, self.linked], self.link_weights, axes=1)
        return -1


class Recursion:
    """The messages of B streams, kept in the arrays that are handed in."""

    def __init__(
        self,
        start: np.ndarray,
        transitions: np.ndarray,
        steps: np.ndarray,
        total: np.ndarray,
        alpha: np.ndarray,
        nodes: np.ndarray,
        edges: np.ndarray,
        delta: np.ndarray,
        back: np.ndarray,
        origin: np.ndarray,
        oldest: np.ndarray,
    ) -> None:
        streams, window, labels = alpha.shape
        slots = back.shape[1]
        fits = start.shape == (labels,) and transitions.shape == (labels, labels) and nodes.shape == alpha.shape
        fits &= len(steps) == len(total) == len(oldest) == streams and delta.shape == origin.shape == (
            streams,
            labels,
        )
        fits &= edges.shape in ((streams, 0, labels, labels), (streams, window, labels, labels))
        if not fits or back.shape != (streams, slots, labels) or not window or not labels:
            raise ValueError("the arrays of the streams do not fit each other")
        self.start, self.transitions, self.steps, self.total, self.alpha = start, transitions, steps, total, alpha
        self.nodes, self.edges, self.delta, self.back, self.origin, self.oldest = (
            nodes,
            edges,
            delta,
            back,
            origin,
            oldest,
        )

    def push(
        self,
        which: np.ndarray,
        node: np.ndarray,
        edge: np.ndarray | None,
        probabilities: np.ndarray,
        smoothed: np.ndarray,
        committed: np.ndarray,
        counts: np.ndarray,
    ) -> None:
        """Advance the streams ``which`` (rising) by one step each."""
        streams, window, labels = self.alpha.shape
        slots, varied = self.back.shape[1], self.edges.shape[1] > 0
        rows = len(which)
        if rows and (which[0] < 0 or which[-1] >= streams or (np.diff(which) <= 0).any()):
            raise ValueError("streams must be named once each, in rising order")
        if node.shape != (rows, labels) or not node.shape == probabilities.shape == smoothed.shape:
            raise ValueError("scores and answers must have a row for each stream")
        if counts.shape != (rows, 2) or committed.shape != (rows, slots):
            raise ValueError("committed labels need a row for each stream")
        if (edge is None) == varied or (edge is not None and edge.shape != (rows, labels, labels)):
            raise ValueError("edges must be given where each step has a table of its own, and only there")
        _check(node)
        if edge is not None:
            _check(edge)
        begun = self.steps[which]
        late = self.oldest[which]
        if (begun < 0).any() or (slots and ((late < 0) | (late > begun) | (begun - late >= slots)).any()):
            raise ValueError("the state of a stream is damaged")
        if slots and ((self.back < 0) | (self.back >= labels)).any():
            raise ValueError("the state of a stream is damaged")
        table = np.broadcast_to(self.transitions, (rows, labels, labels)) if edge is None else edge
        before = self.alpha[which, (begun - 1) % window]
        message = log_sum(before[:, :, None] + table, axis=1)
        found = np.where((begun == 0)[:, None], self.start, message) + node
        total = log_sum(found, axis=1)
        possible = ~np.isneginf(total)
        found = np.where(possible[:, None], found - np.where(possible, total, 0.0)[:, None], -np.inf)
        slot = begun % window
        self.total[which] += total
        self.alpha[which, slot], self.nodes[which, slot] = found, node
        if edge is not None:
            self.edges[which, slot] = edge
        probabilities[:] = np.exp(found)
        self._smooth(which, begun, smoothed)
        counts[:] = 0
        if slots:
            for k, b in enumerate(which.tolist()):
                counts[k] = self._survive(b, int(begun[k]), node[k], table[k], committed[k])
        self.steps[which] += 1

    def _smooth(self, which: np.ndarray, now: np.ndarray, out: np.ndarray) -> None:
        """p(y_{t − lag} | x_0 … x_t), NaN where the stream is younger."""
        window = self.alpha.shape[1]
        later = np.zeros(out.shape)
        for back in range(window - 1):
            slot = (now - back) % window
            table = self.edges[which, slot] if self.edges.shape[1] else self.transitions[None]
            later = log_sum(table + (self.nodes[which, slot] + later)[:, None, :], axis=2)
            later -= np.where(np.isneginf(later.max(axis=1)), 0.0, later.max(axis=1))[:, None]
        joint = self.alpha[which, (now - (window - 1)) % window] + later
        top = joint.max(axis=1, keepdims=True)
        weight = np.exp(joint - np.where(np.isneginf(top), 0.0, top))
        share = weight.sum(axis=1, keepdims=True)
        out[:] = np.divide(weight, share, out=np.zeros_like(weight), where=share > 0)
        out[now < window - 1] = np.nan

    def _survive(
        self, b: int, now: int, node: np.ndarray, table: np.ndarray, committed: np.ndarray
    ) -> tuple[int, int]:
        """One step of Viterbi's survivors of stream b: labels committed, and how many of them were forced."""
        slots, labels = self.back.shape[1:]
        if now == 0:
            delta, came = self.start + node, np.arange(labels)
        else:
            paths = self.delta[b][:, None] + table
            came = paths.argmax(axis=0)
            delta = paths.max(axis=0) + node
        top = delta.max()
        delta = delta - top if top > -np.inf else delta
        self.back[b, now % slots], self.delta[b] = came, delta
        self.origin[b] = np.arange(labels) if self.oldest[b] == now else self.origin[b][came]
        count = self._agree(b, now, committed, 0)
        forced = count if top == -np.inf else 0
        if now - self.oldest[b] + 1 >= slots:
            label = int(self.origin[b, int(np.argmax(self.delta[b]))])
            committed[count] = label
            self.delta[b, self.origin[b] != label] = -np.inf
            self.oldest[b] += 1
            self._look_back(b, now)
            forced += 1
            count = self._agree(b, now, committed, count + 1)
        return count, forced

    def _agree(self, b: int, now: int, committed: np.ndarray, count: int) -> int:
        """Commit what all survivors have in common."""
        slots = self.back.shape[1]
        alive = np.flatnonzero(self.delta[b] > -np.inf)
        alive = alive if len(alive) else np.zeros(1, np.int64)
        oldest = int(self.oldest[b])
        if oldest > now or len(np.unique(self.origin[b][alive])) > 1:
            return count
        step = now
        while len(alive) > 1:
            alive = np.unique(self.back[b, step % slots][alive])
            step -= 1
        label = int(alive[0])
        for s in range(step, oldest - 1, -1):
            committed[count + s - oldest] = label
            label = int(self.back[b, s % slots, label])
        self.oldest[b] = step + 1
        self._look_back(b, now)
        return count + step - oldest + 1

    def _look_back(self, b: int, now: int) -> None:
        """The label that each survivor has at the oldest step without one."""
        labels = np.arange(self.back.shape[2])
        for s in range(now, int(self.oldest[b]), -1):
            labels = self.back[b, s % self.back.shape[1]][labels]
        self.origin[b] = labels


def _check(scores: np.ndarray) -> None:
    if not (scores <= LARGEST).all() or ((scores < -LARGEST) & ~np.isneginf(scores)).any():
        raise ValueError("scores must be numbers up to 1e300 in size, or -inf")
