"""What an error costs: from the user's weights of labels and table of costs to one number for each node and label.

    cost_n(l) = min over allowed g of  weight(g) · table(g, l)          (one gold label: the row of that label)

``table`` is the user's, 1 off the diagonal without one; ``weight`` weighs true labels, so that missing a rare one can
count more. The cost of what is allowed is 0. Objectives of costs (`crfield.objectives.margin`) raise the scores of
wrong labels by it, so that they must lose by that much; the likelihood has no use for it.

"balanced" is scikit-learn's: weight(g) = steps / (labels · steps of g), counted on steps of one known label and by
the weight of their sequence.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any

import numpy as np

from crfield.core.checks import is_number
from crfield.core.target import UNKNOWN, Target
from crfield.errors import InputError, LabelError


def label_weights(class_weight: Any, labels: Sequence[Hashable], target: Target) -> np.ndarray:
    """(L,) the weight of each true label: "balanced", or a dict in which labels that are left out weigh 1.

    >>> import numpy as np
    >>> from crfield.core.topology import Chains
    >>> target = Target(Chains.from_lengths([4]), 2, np.array([0, 0, 0, 1]))
    >>> label_weights("balanced", ["O", "B"], target).round(3).tolist(), label_weights({"B": 5}, ["O", "B"], target)
    ([0.667, 2.0], array([1., 5.]))
    """
    check_class_weight(class_weight)
    if isinstance(class_weight, str):
        return balanced_weights(label_counts(target))
    place = {label: k for k, label in enumerate(labels)}
    if class_weight and not any(label in place for label in class_weight):
        raise LabelError(
            f"class_weight has none of the labels {list(labels)[:10]!r:.200}, got {class_weight!r:.100}."
        )
    out = np.ones(len(labels))
    for label, weight in class_weight.items():
        if label in place:
            out[place[label]] = float(weight)
    return out


def label_counts(target: Target) -> np.ndarray:
    """(L,) steps of each known label, by the weight of their sequence; counts of parts of the data add up."""
    known = target.labels != UNKNOWN
    per_node = np.ones(len(target.labels))
    if target.weight is not None:
        per_node = target.weight[target.topology.sequence_of_node]
    return np.bincount(target.labels[known], per_node[known], minlength=target.n_labels)


def balanced_weights(counts: np.ndarray) -> np.ndarray:
    """(L,) what "balanced" means for so many steps of each label; 1 for labels that do not occur.

    >>> balanced_weights(np.array([3.0, 1.0, 0.0])).round(3).tolist()
    [0.444, 1.333, 1.0]
    """
    n = len(counts)
    return np.divide(counts.sum(), n * counts, out=np.ones(n), where=counts > 0)


def cost_table(costs: Any, labels: Sequence[Hashable]) -> np.ndarray:
    """(L, L) rows for the true label, columns for the label taken instead.

    ``costs`` is such a table in the order of the labels, or a dict {(true, taken): cost} in which pairs that are left
    out cost 1.

    >>> cost_table({("I", "O"): 4.0}, ["I", "O"]).tolist()
    [[0.0, 4.0], [1.0, 0.0]]
    """
    size = len(labels)
    if isinstance(costs, Mapping):
        check_costs(costs)
        place = {label: k for k, label in enumerate(labels)}
        table = 1.0 - np.eye(size)
        if costs and not any(a in place and b in place for a, b in costs):
            raise LabelError(
                f"costs has no pair of two of the labels {list(labels)[:10]!r:.200}, got {costs!r:.100}."
            )
        for (true, taken), cost in costs.items():
            if true in place and taken in place:
                table[place[true], place[taken]] = float(cost)
    else:
        table = check_costs(costs)
        if table.shape != (size, size):
            raise InputError(
                f"a table of costs must be ({size}, {size}), rows for true labels and columns for those taken, both "
                f"in the order of the sorted labels, got {table.shape}."
            )
    if np.diag(table).any():
        raise InputError("costs must be 0 for a label taken for itself: the truth costs nothing.")
    return table


def node_costs(table: np.ndarray, mask: np.ndarray) -> np.ndarray:
    """(N, L) the smallest cost over the allowed true labels of each node, of the module's formula.

    >>> import numpy as np
    >>> node_costs(np.array([[0.0, 1.0], [3.0, 0.0]]), np.array([[False, True], [True, True]])).tolist()
    [[3.0, 0.0], [0.0, 0.0]]
    """
    extra = np.full(mask.shape, np.inf)
    for gold in range(len(table)):
        extra[mask[:, gold]] = np.minimum(extra[mask[:, gold]], table[gold])
    return extra


def check_class_weight(class_weight: Any) -> None:
    """InputError unless it is None, "balanced" or a dict of numbers ≥ 0."""
    if class_weight is None or (isinstance(class_weight, str) and class_weight == "balanced"):
        return
    if not isinstance(class_weight, Mapping):
        raise InputError(
            f"class_weight must be None, 'balanced' or a dict {{label: weight}}, got {class_weight!r:.60}."
        )
    for label, weight in class_weight.items():
        if not _usable(weight):
            raise InputError(f"the class weight of {label!r} must be a finite number ≥ 0, got {weight!r}.")


def check_costs(costs: Any) -> Any:
    """The costs, a table as an array; InputError unless they are None, a dict of pairs, or a square table."""
    if costs is None:
        return None
    if isinstance(costs, Mapping):
        for pair, cost in costs.items():
            if not isinstance(pair, tuple) or len(pair) != 2:
                raise InputError(f"costs must have pairs (true, taken) as keys, got {pair!r:.60}.")
            if not _usable(cost):
                raise InputError(f"the cost of {pair!r} must be a finite number ≥ 0, got {cost!r}.")
        return costs
    try:
        table = np.asarray(costs, dtype=np.float64)
    except (TypeError, ValueError):
        table = np.zeros(0)
    if table.ndim != 2 or table.shape[0] != table.shape[1] or not np.isfinite(table).all() or (table < 0).any():
        raise InputError(
            "costs must be a dict {(true, taken): cost} or a square table of finite numbers ≥ 0, got "
            f"{costs!r:.60}."
        )
    return table


def _usable(x: Any) -> bool:
    return is_number(x) and float(x) >= 0
