"""Objectives of the best labelling: perceptron, hinge, and the smooth one between hinge and likelihood.

    margin:       Σ_s weight_s [ max_y (score(y) + cost(y)) − max_{y allowed} score(y) ]
    perceptron:   the same without cost
    soft margin:  Σ_s weight_s [ log Σ_y exp(score(y) + cost(y)) − log Σ_{y allowed} exp score(y) ]

The cost of a labelling is a sum over nodes and is nothing for what the target allows, so it is added to the node
scores and all three are free total − clamped total of the raised scores (`contrast`). The hinge (Taskar, Guestrin &
Koller 2004; Tsochantaridis et al. 2005) is zero once the truth wins by its cost over every other labelling; the
perceptron (Collins 2002) once it wins at all; the soft margin (Gimpel & Smith 2010) never, but it is smooth. Where
the target allows several labels, the hidden ones are set to their best: the latent margin of Yu & Joachims 2009,
which is not convex.

Margin and perceptron are convex and piecewise linear in the scores; the gradient is one of the subgradients. An
engine that is not exact may miss the truth itself although it scores higher than what it found. With one allowed
label everywhere that is put right here: the truth is a labelling too, so the value is never below zero.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from crfield.core.beliefs import Beliefs, Evaluation
from crfield.core.costs import node_costs
from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.target import Target
from crfield.errors import InputError
from crfield.inference.labellings import one_hot, path_scores
from crfield.objectives.contrast import Contrast, Engine

COSTS = ("hamming", "mean_hamming")
Cost = str | tuple[tuple[float, ...], ...]


@dataclass(frozen=True)
class Margin:
    """The hinge: by how much the best labelling, errors counted in its favour, beats the truth.

    ``cost`` is "hamming" (one for each wrong node), "mean_hamming" (the same divided by the number of nodes of the
    graph), or a table of rows for the true label and columns for the label taken, at least 0 and 0 on the diagonal;
    a node that may have several labels pays the smallest. A target that has costs of its own decides instead.
    ``scale`` multiplies it.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> from crfield.inference.chain import ChainEngine
    >>> chains = Chains.from_lengths([2])
    >>> scores = Potentials(np.array([[0.4, 0.0], [3.0, 0.0]]), np.zeros((1, 2, 2)), chains)
    >>> result = Margin().evaluate(scores, Target(chains, 2, np.array([0, 0])), ChainEngine())
    >>> round(result.value, 6), result.node.tolist()
    (0.6, [[-1.0, 1.0], [0.0, 0.0]])
    """

    cost: Cost = "hamming"
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_cost(self.cost, self.scale)

    def evaluate(self, potentials: Potentials, target: Target, engine: Engine) -> Evaluation:
        """Value, and a subgradient in the shape of the potentials; LabelError where the target is impossible."""
        raised = raise_by_cost(potentials, target, cost=self.cost, scale=self.scale)
        return Contrast(Semiring.MAX).evaluate(raised, target, _knowing(target, engine))


@dataclass(frozen=True)
class Perceptron:
    """The perceptron loss: by how much the best labelling beats the truth; `Margin` without a cost.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> from crfield.inference.chain import ChainEngine
    >>> chains = Chains.from_lengths([2])
    >>> scores = Potentials(np.array([[0.4, 0.0], [3.0, 0.0]]), np.zeros((1, 2, 2)), chains)
    >>> round(Perceptron().evaluate(scores, Target(chains, 2, np.array([1, 0])), ChainEngine()).value, 6)
    0.4
    """

    def evaluate(self, potentials: Potentials, target: Target, engine: Engine) -> Evaluation:
        """Value, and a subgradient in the shape of the potentials; LabelError where the target is impossible."""
        return Contrast(Semiring.MAX).evaluate(potentials, target, _knowing(target, engine))


@dataclass(frozen=True)
class SoftMargin:
    """The softmax margin: the likelihood with wrong labellings raised by their cost; options as for `Margin`.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> from crfield.inference.chain import ChainEngine
    >>> chains = Chains.from_lengths([1])
    >>> scores = Potentials(np.zeros((1, 2)), np.zeros((1, 2, 2)), chains)
    >>> round(SoftMargin().evaluate(scores, Target(chains, 2, np.array([0])), ChainEngine()).value, 6)
    1.313262
    """

    cost: Cost = "hamming"
    scale: float = 1.0

    def __post_init__(self) -> None:
        _check_cost(self.cost, self.scale)

    def evaluate(self, potentials: Potentials, target: Target, engine: Engine) -> Evaluation:
        """Value, and gradient in the shape of the potentials; LabelError where the target is impossible."""
        raised = raise_by_cost(potentials, target, cost=self.cost, scale=self.scale)
        return Contrast(Semiring.LOG).evaluate(raised, target, engine)


def raise_by_cost(
    potentials: Potentials, target: Target, *, cost: Cost = "hamming", scale: float = 1.0
) -> Potentials:
    """Scores plus what each label costs: node_n(l) + scale · min over allowed g of cost(g, l).

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> chains = Chains.from_lengths([1])
    >>> scores = Potentials(np.zeros((1, 3)), np.zeros((1, 3, 3)), chains)
    >>> raise_by_cost(scores, Target(chains, 3, np.array([1])), scale=2.0).node.tolist()
    [[2.0, 0.0, 2.0]]
    """
    mask = target.mask
    if target.cost is not None:
        extra = scale * target.cost
    elif isinstance(cost, str):
        extra = np.where(mask, 0.0, scale)
        if cost == "mean_hamming":
            lengths = target.topology.lengths
            extra = extra / lengths[target.topology.sequence_of_node][:, None]
    else:
        table = np.asarray(cost, dtype=np.float64)
        if table.shape != (target.n_labels, target.n_labels):
            raise InputError(
                f"a table of costs for {target.n_labels} labels must be ({target.n_labels}, {target.n_labels}), "
                f"got {table.shape}."
            )
        extra = scale * node_costs(table, mask)
    return replace(potentials, node=potentials.node + extra)


def _check_cost(cost: Cost, scale: float) -> None:
    if not (np.isfinite(scale) and scale >= 0):
        raise InputError(f"scale must be a finite number ≥ 0, got {scale}.")
    if isinstance(cost, str):
        if cost not in COSTS:
            raise InputError(f"cost must be 'hamming', 'mean_hamming' or a table, got {cost!r}.")
        return
    table = np.asarray(cost, dtype=np.float64)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not np.isfinite(table).all():
        raise InputError(f"a table of costs must be square and finite, got shape {table.shape}.")
    if (table < 0).any() or np.diag(table).any():
        raise InputError("a table of costs must be non-negative, and 0 on the diagonal: the truth costs nothing.")


@dataclass(frozen=True, eq=False)
class _Knowing:
    """An engine that knows one more labelling, and takes it where it scores higher than what was found."""

    engine: Engine
    labels: np.ndarray  # (N,)

    def infer(self, potentials: Potentials, semiring: Semiring) -> Beliefs:
        """Beliefs of the better labelling, graph by graph."""
        found = self.engine.infer(potentials, semiring)
        if found.exact:
            return found
        known = path_scores(potentials, self.labels)
        better = known > found.total
        if not better.any():
            return found
        owner = potentials.topology.sequence_of_node
        path = np.where(better[owner], self.labels, found.node.argmax(axis=1))
        total = np.maximum(found.total, known)
        node, edge = one_hot(potentials, path, possible=~np.isneginf(total))
        return replace(found, total=total, node=node, edge=edge)


def _knowing(target: Target, engine: Engine) -> Engine:
    return _Knowing(engine, target.labels) if target.complete.all() else engine
