"""The online kernels to read: one sequence cut out of the batch, scored by `linear_numpy`, all weights in one vector.

The compiled body changes only the weights of columns that a sequence holds, and lets penalties wait until a weight is
next read. Here everything is a vector as long as the weights; which of them a step reads is a mask, so that the lazy
penalties are the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from crfield.kernels.reference import chain as chain_numpy
from crfield.kernels.reference.linear import BatchArrays, Model, pull, scores_of

Told = tuple[float, int, float]
LIKELIHOOD, SOFTMAX_MARGIN, PERCEPTRON, HINGE = range(4)
ENOUGH = 0.1  # of what a mixture fell short at the first step of a visit: less ends the visit


class Trainer:
    """Body of `crfield.kernels.online.Trainer`."""

    def __init__(
        self,
        layout: tuple[Any, ...],
        batch: tuple[Any, ...],
        labels: np.ndarray,
        allowed: np.ndarray | None,
        weight: np.ndarray | None,
        cost: np.ndarray | None,
        weights: np.ndarray,
        penalise_intercepts: bool,
    ) -> None:
        self.model, self.batch = Model(*layout), BatchArrays(*batch)
        self.batch.check(self.model)
        nodes, n_labels = int(self.batch.offsets[-1]), self.model.labels
        self.n_sequences = len(self.batch.offsets) - 1
        self.weight = np.ones(self.n_sequences) if weight is None else weight
        if labels.shape != (nodes,) or self.weight.shape != (self.n_sequences,):
            raise ValueError("labels do not fit the nodes, or weight the sequences")
        if len(labels) and (labels.min() < -1 or labels.max() >= n_labels):
            raise ValueError("label code out of range")
        if any(x is not None and x.shape != (nodes, n_labels) for x in (allowed, cost)):
            raise ValueError("allowed or costs do not fit the nodes")
        if allowed is None and (labels < 0).any():
            raise ValueError("an unknown label needs the table of allowed labels")
        if not (np.isfinite(self.weight).all() and (self.weight >= 0).all()):
            raise ValueError("weights must be finite and at least 0")
        if cost is not None and not (np.isfinite(cost).all() and (cost >= 0).all()):
            raise ValueError("costs must be finite and at least 0")
        self.labels = labels
        self.mask = np.arange(n_labels) == labels[:, None] if allowed is None else allowed != 0
        self.mask[labels >= 0] = np.arange(n_labels) == labels[labels >= 0, None]
        if not self.mask.any(axis=1).all():
            raise ValueError("a step allows no label at all")
        self.cost = np.where(self.mask, 0.0, 1.0) if cost is None else cost
        self.penalised = np.ones(self.model.n_weights, dtype=bool)
        if not penalise_intercepts:
            for name in ("bias", "start", "end"):
                self.penalised[self.model.part[name]] = False
        self.set_weights(weights)

    # ------------------------------------------------------------------ state

    def set_weights(self, w: np.ndarray) -> None:
        if w.shape != (self.model.n_weights,):
            raise ValueError("weights do not fit the model")
        self.w = w.copy()
        self.late, self.visits = np.zeros_like(w), 1
        self.variance, self.squares, self.received = np.ones_like(w), np.zeros_like(w), np.zeros_like(w)
        self.seen, self.shrunk, self.pushed = np.zeros_like(w), 0.0, 0.0
        self.planes: dict[int, list[tuple[np.ndarray, float]]] = {}

    def weights(self, out: np.ndarray) -> None:
        out[:] = self.w

    def average(self, out: np.ndarray) -> None:
        out[:] = self.w - self.late / self.visits

    def evaluate(self, w: np.ndarray, loss: int) -> float:
        if w.shape != self.w.shape:
            raise ValueError("weights do not fit the model")
        kept, self.w = self.w, w
        try:
            steps = [self._loss(int(s), loss)[0] for s in range(self.n_sequences) if self._steps(s)]
        finally:
            self.w = kept
        return float(sum(steps))

    # --------------------------------------------------------------- sequences

    def _steps(self, s: int) -> int:
        return int(self.batch.offsets[s + 1] - self.batch.offsets[s])

    def _order(self, order: np.ndarray) -> Iterable[int]:
        if len(order) and (order.min() < 0 or order.max() >= self.n_sequences):
            raise ValueError("sequence out of range")
        return (int(s) for s in order if self._steps(s))

    def _part(self, s: int) -> tuple[BatchArrays, slice]:
        """One sequence as a batch, and its nodes."""
        offsets = self.batch.offsets
        rows = slice(int(offsets[s]), int(offsets[s + 1]))
        edges = np.concatenate([[0], np.cumsum(np.maximum(np.diff(offsets) - 1, 0))])
        between = slice(int(edges[s]), int(edges[s + 1]))
        dense, edge_dense = self.batch.dense, self.batch.edge_dense
        part = BatchArrays(
            np.array([0, rows.stop - rows.start]),
            *_rows(self.batch.node, rows),
            None if dense is None else dense[rows],
            *_rows(self.batch.edge, between),
            None if edge_dense is None else edge_dense[between],
        )
        return part, rows

    def _scores(self, part: BatchArrays) -> tuple[np.ndarray, np.ndarray]:
        node, edge = scores_of(self.model, part, self.w)
        return node, np.ascontiguousarray(edge)

    def _features(self, part: BatchArrays, path: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
        """(W,) the features of a labelling."""
        labels, out = self.model.labels, np.zeros(self.model.n_weights)
        node, edge = np.zeros((len(path), labels)), np.zeros(shape)
        node[np.arange(len(path)), path] = 1.0
        at = np.arange(len(path) - 1) if self.model.edge_features else np.zeros(len(path) - 1, np.int64)
        np.add.at(edge, (at, path[:-1], path[1:]), 1.0)
        pull(self.model, part, node, edge, out)
        return out

    def _choose(self, s: int, margin: bool) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """Loss, best path, gold path and features(best) − features(gold)."""
        part, rows = self._part(s)
        node, edge = self._scores(part)
        clamped, gold = _best_path(np.where(self.mask[rows], node, -np.inf), edge)
        _check_total(clamped)
        steps = np.arange(len(gold))
        if margin:
            node = node + self.cost[rows]
            clamped += float(self.cost[rows][steps, gold].sum())
        total, best = _best_path(node, edge)
        wrong = not self.mask[rows][steps, best].all()
        difference = self._features(part, best, edge.shape) - self._features(part, gold, edge.shape)
        loss = max(0.0, total - clamped) if wrong or margin else 0.0
        return loss, best, gold, difference

    def _distance(self, s: int, path: np.ndarray) -> float:
        rows = slice(int(self.batch.offsets[s]), int(self.batch.offsets[s + 1]))
        return float(self.cost[rows][np.arange(len(path)), path].sum())

    def _loss(self, s: int, loss: int) -> tuple[float, np.ndarray]:
        """Weighted loss of one sequence and its (sub)gradient."""
        if loss in (PERCEPTRON, HINGE):
            value, _, _, gradient = self._choose(s, loss == HINGE)
            return float(self.weight[s] * value), self.weight[s] * gradient * (value > 0)
        part, rows = self._part(s)
        node, edge = self._scores(part)
        if loss == SOFTMAX_MARGIN:
            node = node + self.cost[rows]
        free, p, pairs = _marginals(part, node, edge)
        clamped, q, gold = _marginals(part, np.where(self.mask[rows], node, -np.inf), edge)
        _check_total(clamped)
        gradient, table = np.zeros(self.model.n_weights), pairs - gold
        if not self.model.edge_features:
            table = table.sum(axis=0, keepdims=True)
        pull(self.model, part, p - q, table, gradient)
        return float(self.weight[s] * (free - clamped)), self.weight[s] * gradient

    def _read(self, s: int) -> np.ndarray:
        """(W,) bool: the weights that a sequence reads, those of all sequences among them."""
        model, (part, _) = self.model, self._part(s)
        read = np.ones(model.n_weights, dtype=bool)
        columns = np.isin(np.arange(model.columns), part.node[1])  # type: ignore[arg-type]
        read[model.part["node"]] = columns[model.node_at // model.labels]
        if model.edge_columns:
            columns = np.isin(np.arange(model.edge_columns), part.edge[1])  # type: ignore[arg-type]
            read[model.part["edge"]] = columns[model.edge_at // model.labels**2]
        return read

    # ---------------------------------------------------------------- mistakes

    def _mistakes(
        self, order: np.ndarray, step_of: Callable[[int, float, np.ndarray, np.ndarray], np.ndarray]
    ) -> Told:
        met, mistakes = 0.0, 0
        for s in self._order(order):
            if not self.weight[s] > 0:
                continue
            loss, best, _, difference = self._choose(s, margin=False)
            rows = slice(int(self.batch.offsets[s]), int(self.batch.offsets[s + 1]))
            if not self.mask[rows][np.arange(len(best)), best].all():
                met += float(self.weight[s]) * loss
                mistakes += 1
                change = step_of(s, loss, best, -difference)
                self.w += change
                self.late += self.visits * change
            self.visits += 1
        return met, mistakes, 0.0

    def perceptron(self, order: np.ndarray) -> Told:
        return self._mistakes(order, lambda s, loss, best, d: self.weight[s] * d)

    def passive_aggressive(self, order: np.ndarray, variant: int, aggressiveness: float) -> Told:
        if variant not in (0, 1, 2) or not aggressiveness > 0:
            raise ValueError("no such variant, or C not above 0")

        def step(s: int, loss: float, best: np.ndarray, d: np.ndarray) -> np.ndarray:
            norm, bound = float(d @ d), aggressiveness * float(self.weight[s])
            suffered = loss + np.sqrt(self._distance(s, best))
            if norm == 0:
                return 0.0 * d
            if variant == 0:
                return self.weight[s] * suffered / norm * d
            return (min(bound, suffered / norm) if variant == 1 else suffered / (norm + 0.5 / bound)) * d

        return self._mistakes(order, step)

    def arow(self, order: np.ndarray, regularity: float) -> Told:
        if not regularity > 0:
            raise ValueError("r must be above 0")

        def step(s: int, loss: float, best: np.ndarray, d: np.ndarray) -> np.ndarray:
            r, before = regularity / float(self.weight[s]), self.variance
            size = (loss + self._distance(s, best)) / (float(before @ d**2) + r)
            self.variance = before * r / (r + before * d**2)
            return size * before * d

        return self._mistakes(order, step)

    # ---------------------------------------------------------- gradient steps

    def _steps_of(
        self,
        order: np.ndarray,
        batch: int,
        loss: int,
        before: Callable[[np.ndarray, float], None],
        after: Callable[[int, float, np.ndarray], None],
    ) -> Told:
        if not 1 <= batch <= 64 or loss not in range(4):
            raise ValueError("batch must lie in 1 … 64, loss in 0 … 3")
        list(self._order(order))
        total = int((np.diff(self.batch.offsets) > 0).sum())
        met, moved, share = 0.0, 0, 1.0
        for number, first in enumerate(range(0, len(order), batch)):
            some = [int(s) for s in order[first : first + batch] if self._steps(int(s))]
            if not some:
                continue
            read = np.any([self._read(s) for s in some], axis=0)
            share = len(some) / total
            before(read & self.penalised, share)
            parts = [self._loss(s, loss) for s in some]
            value = sum(v for v, _ in parts)
            met, moved = met + value, moved + (value > 0)
            after(number, share, np.sum([g for _, g in parts], axis=0))
        before(self.penalised, share)
        return met, int(moved), 0.0

    def descend(self, order: np.ndarray, rates: np.ndarray, batch: int, loss: int, l1: float, l2: float) -> Told:
        if len(rates) * batch < len(order):
            raise ValueError("a rate is missing")

        def catch_up(read: np.ndarray, share: float) -> None:
            w = self.w[read] * np.exp(self.shrunk - self.seen[read])
            self.seen[read] = self.shrunk
            if self.pushed > 0:
                received = self.received[read]
                above, below = (
                    np.maximum(0.0, w - (self.pushed + received)),
                    np.minimum(0.0, w + self.pushed - received),
                )
                moved = np.where(w > 0, above, below)
                self.received[read] += moved - w
                w = moved
            self.w[read] = w

        def step(number: int, share: float, gradient: np.ndarray) -> None:
            self.w -= rates[number] * gradient
            self.shrunk += np.log1p(-min(0.5, rates[number] * l2 * share))
            self.pushed += rates[number] * l1 * share

        return self._steps_of(order, batch, loss, catch_up, step)

    def adagrad(self, order: np.ndarray, rate: float, batch: int, loss: int, l1: float, l2: float) -> Told:
        def catch_up(read: np.ndarray, share: float) -> None:
            missed, root, size = self.shrunk - self.seen[read], np.sqrt(self.squares[read]), np.abs(self.w[read])
            met = root > 0
            pull_, bend = missed * rate * l1 * share, missed * rate * l2 * share
            size[met] = (np.maximum(0.0, size * root - pull_) / np.where(met, root + bend, 1.0))[met]
            self.w[read] = np.where(self.w[read] < 0, -size, size)
            self.seen[read] = self.shrunk

        def step(number: int, share: float, gradient: np.ndarray) -> None:
            self.squares += gradient**2
            met = self.squares > 0
            self.w[met] -= rate * gradient[met] / np.sqrt(self.squares[met])
            self.shrunk += 1

        return self._steps_of(order, batch, loss, catch_up, step)

    # ---------------------------------------------------------------- the dual

    def frank_wolfe(self, order: np.ndarray, l2: float, steps: int) -> Told:
        if not (l2 > 0 and steps >= 1):
            raise ValueError("l2 must be above 0, steps at least 1")
        if (self.labels < 0).any():
            raise ValueError("the dual of the hinge needs complete labels")
        met, moved, missing = 0.0, 0, 0.0
        for s in self._order(order):
            first = 0.0
            for visit in range(steps if self.weight[s] > 0 else 0):
                loss, short, stepped = self._pairwise_step(s, l2, ENOUGH * first)
                if visit == 0:
                    first, met, missing = short, met + loss, missing + short
                moved += stepped
                if not stepped:
                    break
        return met, moved, missing

    def _pairwise_step(self, s: int, l2: float, enough: float) -> tuple[float, float, bool]:
        """Shift share to the best labelling from the worst; hinge, what the mixture fell short, whether it did."""
        weight, (part, rows) = float(self.weight[s]), self._part(s)
        gold = self.labels[rows].astype(np.int64)
        planes = self.planes.setdefault(s, [(gold, weight)])
        node, edge = self._scores(part)

        def value(path: np.ndarray) -> float:
            at = np.arange(len(path) - 1) if self.model.edge_features else 0
            return float(node[np.arange(len(path)), path].sum() + edge[at, path[:-1], path[1:]].sum())

        _check_total(value(gold))
        values = [self._distance(s, path) + value(path) for path, _ in planes]
        top, best = _best_path(node + self.cost[rows], edge)
        loss = weight * max(0.0, top - value(gold))
        short = max(0.0, weight * top - sum(share * v for (_, share), v in zip(planes, values)))
        down = int(np.argmin(values))
        gain, (worst, share) = top - values[down], planes[down]
        if short < enough or not gain > 1e-12 * (1 + abs(top)):
            return loss, short, False
        difference = self._features(part, best, edge.shape) - self._features(part, worst, edge.shape)
        bend = float(difference @ difference) / l2
        step = share if gain >= bend * share else gain / bend
        self.w -= step / l2 * difference
        up = next((k for k, (path, _) in enumerate(planes) if (path == best).all()), len(planes))
        planes[up:] = [(best, step + (planes[up][1] if up < len(planes) else 0.0)), *planes[up + 1 :]]
        planes[down : down + 1] = [(worst, share - step)] if share - step > 0 else []
        return loss, short, True

    def mixture_cost(self) -> float:
        gold = self.labels
        rest = [s for s in range(self.n_sequences) if s not in self.planes and self._steps(s)] if self.planes else []
        offsets = self.batch.offsets
        waiting = sum(self.weight[s] * self._distance(s, gold[offsets[s] : offsets[s + 1]]) for s in rest)
        mixed = sum(share * self._distance(s, path) for s, planes in self.planes.items() for path, share in planes)
        return float(waiting + mixed)


def _rows(part: tuple[Any, Any, Any], rows: slice) -> tuple[Any, Any, Any]:
    indptr, indices, values = part
    if indptr is None or indices is None:
        return None, None, None
    here = slice(int(indptr[rows.start]), int(indptr[rows.stop]))
    starts = indptr[rows.start : rows.stop + 1] - indptr[rows.start]
    return starts, indices[here], None if values is None else values[here]


def _check_total(total: float) -> None:
    if np.isneginf(total):
        raise ValueError("what is allowed of a sequence is forbidden by fixed scores")
    if not np.isfinite(total):
        raise ValueError("scores are not finite any more")


def _best_path(node: np.ndarray, edge: np.ndarray) -> tuple[float, np.ndarray]:
    total, path = np.zeros(1), np.zeros(len(node), np.int32)
    chain_numpy.max_product(np.array([0, len(node)]), node, edge, total, path, 1)
    return float(total[0]), path.astype(np.int64)


def _marginals(part: BatchArrays, node: np.ndarray, edge: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    total, p = np.zeros(1), np.empty_like(node)
    pairs = np.zeros((max(0, len(node) - 1), *edge.shape[1:]))
    chain_numpy.sum_product(part.offsets, node, edge, total, p, pairs, True, 1)
    return float(total[0]), p, pairs
