"""Primal–dual epochs to read: one sequence after the other, every vector as long as the weights.

The compiled body visits only the columns that a sequence has and works in single precision; here all is double but
the table.
"""

from __future__ import annotations

import numpy as np

from crfield.kernels.reference import chain as chain_numpy
from crfield.kernels.reference.linear import BatchArrays, Problem, pull, scores_of

TINY = 1e-9
NOTHING = 1e-8  # a distance that may be rounding, and says nothing of a step's length
WEIGHT, DUAL, STEP, SHARE = range(4)


class _Sequence:
    """The columns of one sequence, its gold labels and what it counts."""

    def __init__(self, problem: Problem, number: int, rows: np.ndarray) -> None:
        self.batch: BatchArrays = problem.part(np.array([number])).batch
        self.rows = rows  # of the table
        self.weight = float(problem.weight[number])
        first, last = problem.batch.offsets[number : number + 2]
        self.labels = problem.mask[first:last].argmax(axis=1)
        self.node = np.eye(problem.model.labels)[self.labels]
        square = np.zeros((problem.model.labels,) * 2)
        np.add.at(square, (self.labels[:-1], self.labels[1:]), 1.0)
        self.edge = square


class PrimalDual:
    """Body of `crfield.kernels.dual.PrimalDual`."""

    def __init__(self, problem: Problem, penalised: np.ndarray | None, width: int) -> None:
        model = problem.model
        if model.edge_features:
            raise ValueError("primal-dual steps do not know edge features")
        if (problem.mask.sum(axis=1) != 1).any():
            raise ValueError("primal-dual steps need one known label a step")
        if not 1 <= width <= 64:
            raise ValueError("width must lie in 1 … 64")
        self.model, n = model, model.n_weights
        if fixed_scores(model) or model.labels >= 48:
            width = 1
        self.blocks: list[list[int]] = []
        self.parts: list[_Sequence] = []
        self.sequences: list[int] = []
        at = 0
        lengths = np.diff(problem.batch.offsets)
        for group in problem.groups:
            for chosen in (group[k : k + width] for k in range(0, len(group), width)):
                # rows lie step by step: first those of all first steps
                places = [(t, b) for t in range(lengths[chosen[0]]) for b, s in enumerate(chosen) if t < lengths[s]]
                own = [
                    np.array([at + k for k, (_, b) in enumerate(places) if b == c], int) for c in range(len(chosen))
                ]
                self.blocks.append(list(range(len(self.parts), len(self.parts) + len(chosen))))
                self.sequences += [int(s) for s in chosen]
                self.parts += [_Sequence(problem, int(s), rows) for s, rows in zip(chosen, own)]
                at += len(places)
        self.n_rows, self.n_sequences, self.n_blocks = at, len(self.parts), len(self.blocks)
        penal = np.ones(n) if penalised is None else (penalised != 0).astype(float)
        penal[: model.part["bias"].start] = 1.0
        self.penalised = penal
        counts = sum((self._has(part) for part in self.parts), np.zeros(n))
        self.vectors = [np.zeros(n), np.zeros(n), np.zeros(n)]
        self.share = np.divide(1.0, counts, out=np.zeros(n), where=counts > 0)
        self.node = np.zeros((at, model.labels), np.float32)
        self.pairs = np.zeros((self.n_sequences, len(model.pairs)), np.float32)
        self.told = np.zeros((self.n_sequences, 2))
        self.curved = np.zeros(n)

    def _pull(self, part: _Sequence, node: np.ndarray, pairs: np.ndarray) -> np.ndarray:
        out, table = np.zeros(self.model.n_weights), np.zeros(self.model.labels**2)
        table[self.model.pairs] = pairs
        pull(self.model, part.batch, node, table.reshape(1, self.model.labels, self.model.labels), out)
        return out

    def _has(self, part: _Sequence) -> np.ndarray:
        """(W,) whether the sequence has the column of a weight; all have those that every sequence could have."""
        indptr, indices, _ = part.batch.node
        whole = BatchArrays(part.batch.offsets, indptr, indices, None, part.batch.dense, None, None, None, None)  # type: ignore[arg-type]
        has = np.zeros(self.model.n_weights)
        ones = np.ones((len(part.labels), self.model.labels))
        pull(self.model, whole, ones, np.zeros((1, self.model.labels, self.model.labels)), has)
        has = (has > 0).astype(float)
        has[self.model.part["dense"].start :] = 1.0
        return has

    def set(self, what: int, flat: np.ndarray) -> None:
        if flat.shape != (self.model.n_weights,):
            raise ValueError("the vector does not fit")
        if what == SHARE:
            self.share = flat.copy()
        else:
            self.vectors[what] = flat.copy()

    def get(self, what: int, out: np.ndarray) -> None:
        out[:] = self.share if what == SHARE else self.vectors[what]

    def curvature(self, out: np.ndarray) -> None:
        out[:] = self.curved

    def pull_table(self, out: np.ndarray) -> float:
        out[:] = 0.0
        for number, part in enumerate(self.parts):
            out += self._pull(part, self.node[part.rows].astype(float), self.pairs[number].astype(float))
        return float(self.told[:, 0].sum())

    def set_table(self, node: np.ndarray, pairs: np.ndarray, told: np.ndarray) -> None:
        if node.shape != self.node.shape or pairs.shape != self.pairs.shape or told.shape != self.told.shape:
            raise ValueError("the table does not fit")
        self.node, self.pairs, self.told = node.copy(), pairs.copy(), told.copy()

    def get_table(self, node: np.ndarray, pairs: np.ndarray, told: np.ndarray) -> None:
        node[:], pairs[:], told[:] = self.node, self.pairs, self.told

    def epoch(
        self,
        order: np.ndarray,
        adagrad: bool,
        curvature: bool,
        lengths: bool,
        damping: float,
        rate: float,
        l1: float,
        l2: float,
    ) -> float:
        if len(order) and (order.min() < 0 or order.max() >= self.n_blocks):
            raise ValueError("block out of range")
        model, spread = self.model, _Spread(self.model)
        loss = 0.0
        for block in order:
            w = self.vectors[WEIGHT].copy()  # marginals of a block are those before its first step
            for number in self.blocks[block]:
                part = self.parts[number]
                node, edge = scores_of(model, part.batch, w)
                total, p = np.empty(1), np.empty_like(node)
                pairs = np.empty((1, model.labels, model.labels))
                chain_numpy.sum_product(part.batch.offsets, node, edge, total, p, pairs, False, 1)
                change, met = p - part.node, (pairs[0] - part.edge).reshape(-1)[model.pairs]
                gold = (node * part.node).sum() + edge[0][part.labels[:-1], part.labels[1:]].sum()
                here = part.weight * float(total[0] - gold)
                gradient = part.weight * self._pull(part, change, met)
                loss += here
                if curvature:
                    spread.add(self, part, p, pairs[0].reshape(-1)[model.pairs])
                self._step(number, change, met, here - float(gradient @ w), adagrad, lengths, damping, rate, l1, l2)
        self.curved = spread.diagonal() if curvature else np.zeros(model.n_weights)
        return loss

    def _step(
        self,
        number: int,
        change: np.ndarray,
        met: np.ndarray,
        entropy: float,
        adagrad: bool,
        lengths: bool,
        damping: float,
        rate: float,
        l1: float,
        l2: float,
    ) -> None:
        part, (w, d, tau) = self.parts[number], self.vectors
        stored = self.node[part.rows].astype(float)
        delta, delta_pairs = part.weight * change - stored, part.weight * met - self.pairs[number]
        delta[np.abs(delta) <= TINY] = 0.0
        v = self._pull(part, delta, delta_pairs)
        has = self._has(part) > 0
        share, gamma = self.share, 1.0
        if adagrad:
            x = v + l2 * self.penalised * w * share
            known = has & (tau > 0)
            tau[known] += x[known] ** 2
            reach = np.zeros_like(w)
            reach[known] = rate / np.sqrt(tau[known])
            w -= reach * x
        else:
            if lengths:
                back = 1 / part.weight if part.weight > 0 else 0.0
                before = np.maximum(back * stored + part.node, 0.0)
                now = change + part.node
                gap = float((delta * np.log((now + TINY) / (before + TINY))).sum())
                if gap > NOTHING:
                    self.told[number, 1] = float((tau * v * v).sum()) / gap
            gamma = damping / (1 + self.told[number, 1])
            reach = np.where(has, tau, 0.0)
            w -= reach * (gamma * v + (d + l2 * self.penalised * w) * share)
        if l1 > 0:
            by = reach * share * l1 * self.penalised
            w[:] = np.sign(w) * np.maximum(np.abs(w) - by, 0.0)
        d += gamma * v
        self.node[part.rows] = stored + gamma * delta
        self.pairs[number] += (gamma * delta_pairs).astype(np.float32)
        self.told[number, 0] += gamma * (entropy - self.told[number, 0])


class _Spread:
    """Sums of Σ x² p (1 − p), as `Problem.curvature` has them, from sequences one by one."""

    def __init__(self, model) -> None:  # type: ignore[no-untyped-def]
        self.model, self.sum = model, np.zeros(model.n_weights)
        self.variance, self.counts = np.zeros(model.labels), np.zeros(len(model.pairs))

    def add(self, owner: PrimalDual, part: _Sequence, p: np.ndarray, pairs: np.ndarray) -> None:
        indptr, indices, values = part.batch.node
        dense = part.batch.dense
        squared = BatchArrays(
            part.batch.offsets,
            indptr,  # type: ignore[arg-type]
            indices,  # type: ignore[arg-type]
            None if values is None else values**2,
            None if dense is None else dense**2,
            *(None,) * 4,
        )
        spread = part.weight * (p - p * p)
        out = np.zeros(self.model.n_weights)
        pull(self.model, squared, spread, np.zeros((1, self.model.labels, self.model.labels)), out)
        self.sum += out
        self.variance += spread.sum(axis=0)
        self.counts += part.weight * pairs

    def diagonal(self) -> np.ndarray:
        """Expected transitions into a label share the label's variance in proportion."""
        later = self.model.pairs % self.model.labels
        into = np.bincount(later, self.counts, minlength=self.model.labels)[later]
        share = np.divide(self.counts, into, out=np.full(len(later), 1 / self.model.labels), where=into > 0)
        self.sum[self.model.part["pairs"]] = share * self.variance[later]
        return self.sum


def fixed_scores(model) -> bool:  # type: ignore[no-untyped-def]
    """Whether there are constants beside what the weights score."""
    return any(np.any(table != 0) for table in model.fixed)
