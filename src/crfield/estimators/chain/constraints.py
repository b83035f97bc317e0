"""What a user says of labels besides the data: constraints, class weights, costs, and labels known beforehand.

Constraints become fixed scores of the layout (`crfield.core.constraints`), so training and decoding have them alike.
They are part of a fitted model: ``set_params(constraints=…)`` on it asks for other rules at prediction, with the same
weights, and is carried out when the model is next asked. Class weights and costs become costs of the target
(`crfield.core.costs`). Known labels are masks on the scores, as partial labels are in training: what they say has
probability one, and everything else is exact given them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from crfield.core.constraints import Constraints
from crfield.core.costs import check_class_weight, check_costs, cost_table, label_weights, node_costs
from crfield.core.fixed import FixedScores
from crfield.core.potentials import Potentials
from crfield.core.target import Target
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, LabelError, ModelFileError
from crfield.estimators.chain.model import ColumnModel, FunctionModel
from crfield.scoring.layout import Layout
from crfield.scoring.legal import refuse_illegal

RULES = ("constraints", "class_weight", "costs")


def check_rules(parameters: Mapping[str, Any]) -> None:
    """InputError unless ``constraints``, ``class_weight`` and ``costs`` can be used.

    >>> check_rules({"class_weight": "equal"})
    Traceback (most recent call last):
    crfield.errors.InputError: class_weight must be None, 'balanced' or a dict {label: weight}, got 'equal'.
    """
    given = parameters.get("constraints")
    if given is not None:
        if not _readable(given):
            raise InputError("constraints can be read only once: give a list of pairs, not an iterator.")
        Constraints.of(given)
        if parameters.get("label_functions") is not None:
            raise InputError(
                "constraints are for models of columns. A function of two labels may return -1e9 for a pair that is "
                "against the rules, with a fixed weight; or write the features as f(x, t)."
            )
    check_class_weight(parameters.get("class_weight"))
    check_costs(parameters.get("costs"))


def with_costs(target: Target, parameters: Mapping[str, Any], coder: LabelCoder) -> Target:
    """The target with the costs that ``class_weight`` and ``costs`` mean; both together multiply."""
    class_weight, costs = parameters.get("class_weight"), parameters.get("costs")
    if class_weight is None and costs is None:
        return target
    labels = coder.labels
    table = 1.0 - np.eye(len(labels)) if costs is None else cost_table(costs, labels)
    if class_weight is not None:
        table = table * label_weights(class_weight, labels, target)[:, None]
    return replace(target, cost=node_costs(table, target.mask))


def with_rules(layout: Layout, constraints: Any, coder: LabelCoder, target: Target | None = None) -> Layout:
    """The layout with the fixed scores that the constraints mean; LabelError if gold labels break a hard rule."""
    fixed = None if constraints is None else Constraints.of(constraints).scores(coder.labels)
    if fixed is not None and target is not None:
        refuse_illegal(fixed, target, coder.labels)
    return replace(layout, fixed=fixed)


def ruled(estimator: Any, model: ColumnModel | FunctionModel) -> ColumnModel | FunctionModel:
    """The fitted model under the constraints that the estimator has now; itself if they are those of training."""
    now = getattr(estimator, "constraints", None)
    if now is getattr(estimator, "_rules", None):
        return model
    check_rules(estimator.get_params(deep=False))
    if not isinstance(model, ColumnModel):
        raise InputError("constraints are for models of columns; this one has functions of two labels.")
    layout = with_rules(model.layout, now, estimator._labels_known)
    estimator._model, estimator._rules = model.with_layout(layout), now
    return estimator._model


def forbidden_pairs(model: ColumnModel | FunctionModel) -> np.ndarray | None:
    """(L, L) bool, the pairs of labels that fixed scores forbid; None where they forbid nothing."""
    fixed = model.layout.fixed if isinstance(model, ColumnModel) else None
    return None if fixed is None or not fixed.forbids else np.isneginf(fixed.edge)


def known_potentials(potentials: Potentials, known: Any, coder: LabelCoder, states: Any = None) -> Potentials:
    """Scores in which every step may only be what ``known`` says of it; None there, or for all, says nothing.

    ``states`` tells the states of each label where scores are of states (`crfield.scoring.latent`).
    """
    if known is None:
        return potentials
    topology = potentials.topology
    labels, allowed = coder.encode(known, topology.lengths)
    target = Target(topology, coder.n_labels, labels, allowed)
    mask = (target if states is None else states.target(target)).mask
    node = np.where(mask, potentials.node, -np.inf)
    return Potentials(node, potentials.edge, topology, potentials.table)


def refuse_impossible(total: np.ndarray, *, known: bool = False) -> None:
    """LabelError if a sequence has no possible labelling: total (B,) of −∞."""
    impossible = np.isneginf(total)
    if impossible.any():
        what = "known labels and constraints" if known else "constraints"
        raise LabelError(
            f"sequence {int(np.argmax(impossible))} has no labelling that the {what} allow. "
            + ("Say less of it, or relax the constraints." if known else "Relax them.")
        )


def dead_step(potentials: Potentials, sequence: int) -> int:
    """The first step of a sequence at which no label is left that some path leads to; its lowest step if none is.

    >>> from crfield.core.topology import Chains
    >>> edge = np.array([[[0.0, -np.inf], [-np.inf, 0.0]]])
    >>> scores = Potentials(np.array([[0.0, -np.inf], [0.0, 0.0], [-np.inf, 0.0]]), edge, Chains.from_lengths([3]))
    >>> dead_step(scores, 0)
    2
    """
    first, last = potentials.topology.offsets[sequence : sequence + 2].tolist()
    edge = int(potentials.topology.edge_offsets[sequence])
    alive = ~np.isneginf(potentials.node[first])
    for step in range(last - first):
        if step:
            table = potentials.edge[potentials.tables[edge + step - 1]]
            alive = (alive[:, None] & ~np.isneginf(table)).any(axis=0) & ~np.isneginf(potentials.node[first + step])
        if not alive.any():
            return step
    return int(potentials.node[first:last].max(axis=1).argmin())


def rules_to_json(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of `RULES` for the header of a model file.

    Constraints other than the name of a scheme are not among them: the layout has them, pair by pair.

    >>> rules_to_json({"constraints": "bio", "class_weight": {"B": 2}})
    {'constraints': 'bio', 'class_weight': [['B', 2.0]], 'costs': None}
    """
    constraints, weight, costs = (parameters.get(name) for name in RULES)
    if isinstance(weight, Mapping):
        weight = [[label_to_json(label), float(w)] for label, w in weight.items()]
    if isinstance(costs, Mapping):
        costs = {"pairs": [[label_to_json(a), label_to_json(b), float(cost)] for (a, b), cost in costs.items()]}
    elif costs is not None:
        costs = np.asarray(costs, dtype=np.float64).tolist()
    return {
        "constraints": constraints if isinstance(constraints, str) else None,
        "class_weight": weight,
        "costs": costs,
    }


def rules_from_json(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray], coder: LabelCoder) -> dict[str, Any]:
    """The parameters whose `rules_to_json` this is; ModelFileError if they cannot be used."""
    constraints, weight, costs = (header.get(name) for name in RULES)
    try:
        if isinstance(weight, list):
            weight = {label_from_json(label): w for label, w in weight}
        if isinstance(costs, dict):
            costs = {(label_from_json(a), label_from_json(b)): cost for a, b, cost in costs["pairs"]}
        if constraints is None:
            tables = FixedScores.none(1).arrays()
            named = {name: arrays[f"layout/{name}"] for name in tables if f"layout/{name}" in arrays}
            fixed = FixedScores.from_arrays(named, coder.n_labels)
            constraints = None if fixed is None else Constraints.from_scores(fixed, coder.labels)
        found = {"constraints": constraints, "class_weight": weight, "costs": costs}
        check_rules(found)
    except (InputError, KeyError, TypeError, ValueError) as error:
        raise ModelFileError(f"the model file's constraints or costs cannot be used: {error}") from None
    return found


def _readable(given: Any) -> bool:
    return not hasattr(given, "__next__")
