"""Contract of the online kernels: trainers that go from sequence to sequence and change weights as they go.

A `Trainer` holds a layout, a labelled batch and the weights; each of its methods is a pass over the sequences in the
order given, in one call, and tells what it `Met`. What a step costs is what its sequence holds: only the columns
that are there are read, brought up to date and changed. Where labels are partly known the gold path is the best of
what is allowed. Ties go to the smallest label.

With d = features(gold) − features(best), ρ = Σ_t cost(best_t), l = score(best) − score(gold) and v the sequence's
weight, for sequences whose best path is wrong:

    perceptron           w += v d
    passive_aggressive   w += τ d   with, for m = l + √ρ,  τ = v m / |d|²;  min(v C, m / |d|²);  m / (|d|² + 1 / 2vC)
    arow                 w += (l + ρ) / (dᵀΣd + r/v) Σ d,     Σ⁻¹ += diag(d²) v / r,     Σ = 1 at first

For every batch of b sequences, with g the gradient of their loss, N sequences in all, η the rate:

    descend   w ← (w − η g) shrunk by the factor 1 − η l2 b/N, then pulled to zero by the l1 penalty due:
              u = Σ η l1 b/N so far, less what the weight received already (Tsuruoka et al. 2009)
    adagrad   G += g²,  w ← w − η g / √G;  before a weight is next read, after k steps, the proximal step of all k
              penalties:  |w| ← (|w| − kη l1 (b/N) / √G)⁺ / (1 + kη l2 (b/N) / √G)

Both bring all weights up to date at the end of a pass. `frank_wolfe` makes pairwise steps on the dual of the hinge:
see `crfield.training.graph.frank_wolfe`.

Losses: "likelihood" log Z − clamped log Z; "softmax_margin" the same with costs added to node scores; "perceptron"
best − best allowed; "hinge" the same with costs.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from crfield.errors import InputError, LabelError, ShapeError
from crfield.kernels import choice
from crfield.kernels.linear import batch_parts, layout_parts

LOSSES = ("likelihood", "softmax_margin", "perceptron", "hinge")
VARIANTS = ("PA", "PA-I", "PA-II")


class Met(NamedTuple):
    """What a pass met: the loss, each sequence at the weights of its visit; sequences (or batches) that moved the
    weights; and, of Frank–Wolfe, by how much the mixtures fell short of the best labellings.

    >>> Met(2.5, 3).missing
    0.0
    """

    loss: float
    mistakes: int
    missing: float = 0.0


class Trainer:
    """Weights on their way over a labelled batch.

    ``layout`` and ``batch`` as in `crfield.kernels.linear`; ``labels`` (N,) int32 with −1 where row n of ``allowed``
    (N, L) decides; ``weight`` (B,) or None; ``cost`` (N, L) or None for one for each label that is not allowed.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> from crfield.data.batch import Batch, Columns
    >>> from crfield.scoring.layout import Layout
    >>> batch = Batch(Chains.from_lengths([2]), Columns.from_rows([[0], [1]], width=2))
    >>> layout = Layout(n_labels=2, n_columns=2, edge_ptr=np.zeros(1, np.int64), edge_pair=np.zeros(0, np.int32))
    >>> trainer = Trainer(layout, batch, np.array([0, 1], np.int32))
    >>> trainer.perceptron([0, 0])
    Met(loss=0.0, mistakes=1, missing=0.0)
    >>> trainer.weights().tolist(), trainer.average().round(3).tolist()
    ([0.0, 0.0, -1.0, 1.0], [0.0, 0.0, -0.667, 0.667])
    """

    def __init__(
        self,
        layout: Any,
        batch: Any,
        labels: np.ndarray,
        allowed: np.ndarray | None = None,
        weight: np.ndarray | None = None,
        cost: np.ndarray | None = None,
        *,
        start: np.ndarray | None = None,
        penalise_intercepts: bool = True,
    ) -> None:
        self.n_weights: int = layout.n_weights
        self.n_sequences: int = batch.topology.n_sequences
        first = np.zeros(self.n_weights) if start is None else np.ascontiguousarray(start, dtype=np.float64)
        if not np.isfinite(first).all():
            raise InputError("the weights to start from must be finite numbers.")
        self._trainer = choice.body("online").Trainer(
            layout_parts(layout),
            batch_parts(batch),
            np.ascontiguousarray(labels, dtype=np.int32),
            None if allowed is None else np.ascontiguousarray(allowed, dtype=np.uint8),
            None if weight is None else np.ascontiguousarray(weight, dtype=np.float64),
            None if cost is None else np.ascontiguousarray(cost, dtype=np.float64),
            first,
            bool(penalise_intercepts),
        )

    def weights(self) -> np.ndarray:
        """(W,) as they are now."""
        out = np.empty(self.n_weights)
        self._trainer.weights(out)
        return out

    def average(self) -> np.ndarray:
        """(W,) the mean of the weights after each visit, with the start counted once; of the first three trainers."""
        out = np.empty(self.n_weights)
        self._trainer.average(out)
        return out

    def set_weights(self, weights: np.ndarray) -> None:
        """A new start: all that is kept beside the weights is forgotten."""
        self._trainer.set_weights(np.ascontiguousarray(weights, dtype=np.float64))

    def _call(self, method: str, *arguments: Any) -> Any:
        try:
            return getattr(self._trainer, method)(*arguments)
        except ValueError as error:
            if "forbidden" in str(error):
                raise LabelError(f"{error}. Do labels and constraints fit together?") from None
            if "not finite" in str(error):
                raise InputError(
                    f"{error}: the steps were too large. Choose a smaller rate, or scale numeric features."
                ) from None
            raise

    def evaluate(self, weights: np.ndarray, *, loss: str) -> float:
        """Σ_s weight_s loss_s at the weights given; the trainer's own stay."""
        return float(self._call("evaluate", np.ascontiguousarray(weights, dtype=np.float64), _loss(loss)))

    def perceptron(self, order: Any) -> Met:
        """A pass of the averaged perceptron."""
        return Met(*self._call("perceptron", _order(order)))

    def passive_aggressive(self, order: Any, *, variant: str = "PA-I", aggressiveness: float = 1.0) -> Met:
        """A pass of passive-aggressive steps; ``aggressiveness`` is C."""
        if variant not in VARIANTS:
            raise InputError(f"variant must be one of {', '.join(map(repr, VARIANTS))}, got {variant!r}.")
        number = VARIANTS.index(variant)
        return Met(*self._call("passive_aggressive", _order(order), number, _positive("C", aggressiveness)))

    def arow(self, order: Any, *, regularity: float = 1.0) -> Met:
        """A pass of AROW; ``regularity`` is r."""
        return Met(*self._call("arow", _order(order), _positive("r", regularity)))

    def descend(
        self,
        order: Any,
        rates: Any,
        *,
        batch: int = 1,
        loss: str = "likelihood",
        l1: float = 0.0,
        l2: float = 0.0,
    ) -> Met:
        """A pass of stochastic gradient steps, a rate for each ``batch`` sequences; l1, l2 of the whole objective."""
        sizes = np.ascontiguousarray(rates, dtype=np.float64)
        if sizes.ndim != 1 or not (np.isfinite(sizes).all() and (sizes >= 0).all()):
            raise ShapeError("rates must be a 1-D array of finite numbers ≥ 0.")
        penalties = (_not_negative("l1", l1), _not_negative("l2", l2))
        return Met(*self._call("descend", _order(order), sizes, int(batch), _loss(loss), *penalties))

    def adagrad(
        self,
        order: Any,
        *,
        rate: float,
        batch: int = 1,
        loss: str = "likelihood",
        l1: float = 0.0,
        l2: float = 0.0,
    ) -> Met:
        """A pass of AdaGrad."""
        penalties = (_not_negative("l1", l1), _not_negative("l2", l2))
        return Met(
            *self._call("adagrad", _order(order), _positive("rate", rate), int(batch), _loss(loss), *penalties)
        )

    def frank_wolfe(self, order: Any, *, l2: float, steps: int = 1) -> Met:
        """A pass of pairwise Frank–Wolfe steps, up to ``steps`` a visit; the first starts from zero weights."""
        return Met(*self._call("frank_wolfe", _order(order), _positive("l2", l2), max(1, int(steps))))

    def mixture_cost(self) -> float:
        """Σ_i Σ_y α_i(y) cost_i(y): the dual value is this less ½ l2 |w|²."""
        return float(self._trainer.mixture_cost())


def _order(order: Any) -> np.ndarray:
    numbers = np.ascontiguousarray(order, dtype=np.int64)
    if numbers.ndim != 1:
        raise ShapeError(f"order must be a 1-D array of sequence numbers, got shape {numbers.shape}.")
    return numbers


def _loss(name: str) -> int:
    if name not in LOSSES:
        raise InputError(f"loss must be one of {', '.join(map(repr, LOSSES))}, got {name!r}.")
    return LOSSES.index(name)


def _positive(name: str, value: float) -> float:
    if not (np.isfinite(value) and value > 0):
        raise InputError(f"{name} must be a finite number > 0, got {value}.")
    return float(value)


def _not_negative(name: str, value: float) -> float:
    if not (np.isfinite(value) and value >= 0):
        raise InputError(f"{name} must be a finite number ≥ 0, got {value}.")
    return float(value)
