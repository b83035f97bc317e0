"""Contract of the primal–dual kernel: epochs over the sequences of a chain problem, with a table of stored marginals.

The problem is F(w) = Σ_i c_i (log Z_i(w) − score_i(gold)) + l1 ‖w‖₁ + ½ l2 ‖w‖². For each sequence i the table holds

    P_i (T_i, L)   c_i (marginals of the labels − gold)        of some distribution of its labellings
    Q_i (P,)       c_i (expected − gold transitions)           of the same
    h_i            c_i times its entropy, or less; less the fixed scores that it expects beside those of gold

and d (W,) is what P and Q come to when they are pulled back to the weights: the gradient of Σ_i if the table were
that of the present weights. n_f is the number of sequences that have the column of weight f. A step takes one
sequence:

    Δ   = (marginals at w − gold) c_i − (P_i, Q_i)          v = Δ pulled back, summed over the steps of the sequence
    J   = Σ_t Σ_j Δ_tj log (p_tj / q_tj)                     p at w, q of the table; labels of single steps only
    γ   = damping · J / (J + Σ_f τ_f v_f²)                   the share of the way from the table to w's marginals
    w_f −= τ_f (γ v_f + (d_f + l2 w_f) / n_f)                d_f += γ v_f
    w_f  = soft(w_f, τ_f l1 / n_f)                           where there is an l1 penalty
    P_i, Q_i += γ Δ                                          h_i += γ (c_i entropy at w − h_i)

An epoch of AdaGrad instead goes w_f −= rate x / √s_f with x = v_f + l2 w_f / n_f and s_f = 1 + Σ x² kept where τ is,
and leaves in the table what it met (γ = 1). A mixture of distributions has at least the mixture of their entropies,
so Σ h_i + dᵀw is never above the data's part of F at any w: a plane below it (`optimize.planes`).

Sequences are taken in *blocks* of up to ``width`` of similar length, whose marginals are computed together at the
weights before the first of their steps; the steps themselves come one after the other. The compiled body keeps
weights, d, τ and the table in single precision, so an optimum comes out to some seven digits; d may drift from the
table by as much, and `pull_table` tells what the table stands for.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from crfield.kernels import choice
from crfield.kernels.linear import Problem

WIDTH = 8  # sequences of a block
WEIGHT, DUAL, STEP, SHARE = range(4)


@dataclass(frozen=True, eq=False)
class Table:
    """What a run remembers of every sequence, in the order of the blocks."""

    node: np.ndarray  # (N, L) float32
    pairs: np.ndarray  # (B, P) float32
    told: np.ndarray  # (B, 2) h, and Σ τ v² / J of the last visit


class PrimalDual:
    """The state of primal–dual epochs on a problem whose steps all have one known label, without edge features.

    >>> from crfield.core.target import Target
    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Batch, Columns
    >>> from crfield.scoring.layout import Layout
    >>> batch = Batch(Chains.from_lengths([2, 2]), Columns.from_rows([[0], [1], [0], [1]], width=2))
    >>> target = Target(batch.topology, 2, np.array([0, 1, 0, 1]))
    >>> layout = Layout.observe(batch, target, boundaries=False)
    >>> state = PrimalDual(Problem(layout, batch, target.labels, None, None))
    >>> state.set_steps(np.full(layout.n_weights, 0.5))
    >>> losses = [state.epoch(np.arange(state.n_blocks), l2=1.0) for _ in range(3)]
    >>> losses[2] < losses[0]
    True
    """

    def __init__(self, problem: Problem, penalised: np.ndarray | None = None, *, width: int = WIDTH) -> None:
        self.n_weights, self._shape = problem.n_weights, (problem.n_labels, problem.n_pairs)
        self._state = choice.body("dual").PrimalDual(problem.body, penalised, width)

    @property
    def n_blocks(self) -> int:
        """Blocks of sequences, which an order is made of."""
        return int(self._state.n_blocks)

    def epoch(
        self,
        order: np.ndarray,
        *,
        l1: float = 0.0,
        l2: float = 0.0,
        damping: float = 0.5,
        adagrad: float = 0.0,
        curvature: bool = False,
        lengths: bool = True,
    ) -> float:
        """Steps over the blocks in ``order``; gives the loss met on the way.

        ``adagrad`` is the rate of an epoch of AdaGrad, 0 for primal–dual steps. With ``curvature``, what `curvature`
        gives is summed on the way. Without ``lengths`` the ratio Σ τ v² / J of each sequence's last visit serves.
        """
        order = np.ascontiguousarray(order, dtype=np.int64)
        rate = float(adagrad)
        return float(self._state.epoch(order, rate > 0, curvature, lengths, damping, rate, l1, l2))

    def fill(self) -> None:
        """Bring the table to the present weights, which stay; `curvature` then is that of these weights."""
        steps = self._get(STEP)
        self._state.set(STEP, np.zeros(self.n_weights))
        order = np.arange(self.n_blocks, dtype=np.int64)
        self._state.epoch(order, True, True, False, 1.0, 0.0, 0.0, 0.0)  # AdaGrad at rate 0: the whole way, no steps
        self._state.set(STEP, steps)

    def weights(self) -> np.ndarray:
        """(W,)."""
        return self._get(WEIGHT)

    def dual(self) -> np.ndarray:
        """(W,) d."""
        return self._get(DUAL)

    def steps(self) -> np.ndarray:
        """(W,) τ, or the sums of AdaGrad."""
        return self._get(STEP)

    def counts(self) -> np.ndarray:
        """(W,) n_f; 0 for columns that no sequence has."""
        share = self._get(SHARE)
        return np.rint(np.divide(1.0, share, out=np.zeros_like(share), where=share > 0))

    def set_counts(self, counts: np.ndarray) -> None:
        """n_f (W,), where the sequences at hand are some of those that the table and d are of."""
        counts = np.asarray(counts, dtype=np.float64)
        self._set(SHARE, np.divide(1.0, counts, out=np.zeros_like(counts), where=counts > 0))

    def sequences(self) -> np.ndarray:
        """(B,) the number in the problem of each sequence of the table."""
        return np.array(self._state.sequences, dtype=np.int64)

    def set_weights(self, weights: np.ndarray) -> None:
        """Go on from these weights, with the table as it is."""
        self._set(WEIGHT, weights)

    def set_steps(self, steps: np.ndarray) -> None:
        """τ (W,)."""
        self._set(STEP, steps)

    def curvature(self) -> np.ndarray:
        """(W,) about the diagonal of the second derivative, met in the last epoch; 0 if that did not sum it."""
        out = np.empty(self.n_weights)
        self._state.curvature(out)
        return out

    def plane(self) -> tuple[np.ndarray, float]:
        """(a, b) with Σ_i loss_i(w) ≥ aᵀw + b at any w, from the table."""
        out = np.empty(self.n_weights)
        return out, float(self._state.pull_table(out))

    def table(self) -> Table:
        """A copy of the table."""
        labels, pairs = self._shape
        n = int(self._state.n_sequences)
        table = Table(
            np.empty((int(self._state.n_rows), labels), np.float32),
            np.empty((n, pairs), np.float32),
            np.empty((n, 2)),
        )
        self._state.get_table(table.node, table.pairs, table.told)
        return table

    def restore(self, weights: np.ndarray, dual: np.ndarray, steps: np.ndarray, table: Table) -> None:
        """Go on where another run was."""
        for what, vector in ((WEIGHT, weights), (DUAL, dual), (STEP, steps)):
            self._set(what, vector)
        self._state.set_table(table.node, table.pairs, table.told)

    def _get(self, what: int) -> np.ndarray:
        out = np.empty(self.n_weights)
        self._state.get(what, out)
        return out

    def _set(self, what: int, vector: np.ndarray) -> None:
        self._state.set(what, np.ascontiguousarray(vector, dtype=np.float64))
