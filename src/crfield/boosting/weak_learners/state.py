"""Weak learners in a model file: stumps, categories, trees and tables of evidence, in two forms.

A stump is a tree of one cut, so whatever asks columns is a list of nodes: a cut or none, the nodes below, and the row
of values at a leaf. Models of rows keep all steps in a few flat arrays, their nodes end to end (`steps_state`).
Models of graphs keep each learner as a few JSON values, and the scores of leaves, whose number depends on the kind of
node, apart (`learner_to_json`). Both are read by the same checks, since a file may be damaged: columns must exist,
categories rise, trees be trees, every leaf have its values.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from crfield.boosting.virtual_evidence.evidence import EvidenceTable
from crfield.boosting.weak_learners.stumps import Categories, Stump
from crfield.boosting.weak_learners.trees import RegressionTree
from crfield.core.checks import is_number
from crfield.errors import InputError
from crfield.storage.state import State, refuse

Cut = Stump | Categories
Learner = Cut | RegressionTree
Step = Learner | EvidenceTable
Nodes = tuple[Sequence[Cut | None], Sequence[tuple[int, ...]], Sequence[int]]  # cuts, children, rows of values
_STUMP, _CATEGORIES, _TREE, _EVIDENCE = range(4)
_BARE = np.zeros((0, 0))  # the values of a cut inside a tree
_MOST = 1 << 40


# ------------------------------------------------------------------------------------------------- flat arrays


def steps_state(steps: Sequence[object], n_classes: int, evidence: Sequence[str] = ()) -> State:
    """Steps of an additive model as flat arrays; InputError for a step that is code.

    >>> stump = Stump(3, 0.5, np.array([[1.0, -1.0], [-1.0, 1.0]]), 2.0)
    >>> steps_state((stump,), 2).arrays["node/column"].tolist()
    [3, -1, -1]
    """
    stored = [step for step in steps if isinstance(step, Step)]
    if len(stored) < len(steps):
        raise InputError(
            "a model file holds no code, so the steps of a model must be stumps, trees or tables of evidence. Use "
            "joblib.dump for others, and read only files that you trust."
        )
    parts = [_nodes_of(step) for step in stored]
    cuts = [cut for _, (own, _, _) in parts for cut in own]
    children = [below for _, (_, own, _) in parts for below in own]
    leaf = [end for _, (_, _, own) in parts for end in own]
    categories = [cut.categories if isinstance(cut, Categories) else np.zeros(0) for cut in cuts]
    of = [evidence.index(step.name) if isinstance(step, EvidenceTable) else -1 for step in stored]
    arrays: dict[str, np.ndarray] = {
        "step/kind": np.array([kind for kind, _ in parts], np.int32),
        "step/gain": np.array([step.gain for step in stored], np.float64),
        "step/evidence": np.array(of, np.int32),
        "step/leaves": np.array([len(step.values) for step in stored], np.int64),
        "step/nodes": np.array([len(own[0]) for _, own in parts], np.int64),
        "values": np.concatenate([np.zeros((0, n_classes)), *(step.values for step in stored)]),
        "node/column": np.array([-1 if cut is None else cut.column for cut in cuts], np.int32),
        "node/threshold": np.array([cut.threshold if isinstance(cut, Stump) else np.nan for cut in cuts], np.float64),
        "node/missing": np.array([cut.missing if isinstance(cut, Stump) else -1 for cut in cuts], np.int32),
        "node/gain": np.array([0.0 if cut is None else cut.gain for cut in cuts], np.float64),
        "node/leaf": np.array(leaf, np.int64),
        "node/children": np.array([len(below) for below in children], np.int64),
        "node/categories": np.array([len(own) for own in categories], np.int64),
        "children": np.array([node for below in children for node in below], np.int64),
        "categories": np.concatenate([np.zeros(0), *categories]),
    }
    return State({}, arrays)


def steps_from_state(
    state: State, n_classes: int, n_columns: int, evidence: Mapping[str, int] | None = None
) -> tuple[Step, ...]:
    """The steps whose `steps_state` this is, of columns and evidence (name: number of values) that there are."""
    kinds = state.array("step/kind", (None,), np.int32).tolist()
    names, widths = list(evidence or {}), list((evidence or {}).values())
    gains = state.array("step/gain", (len(kinds),)).tolist()
    of = state.array("step/evidence", (len(kinds),), np.int32).tolist()
    leaves, n_leaves = _runs(state, "step/leaves", len(kinds))
    nodes, n_nodes = _runs(state, "step/nodes", len(kinds))
    values = state.array("values", (n_leaves, n_classes))
    cuts, children, leaf = _stored_nodes(state, n_nodes, n_columns)
    found: list[Step] = []
    for k, kind in enumerate(kinds):
        own, at = values[leaves[k]], nodes[k]
        if kind == _EVIDENCE:
            if not 0 <= of[k] < len(names) or len(own) != widths[of[k]]:
                refuse("a step of the model file reads evidence that is not there")
            found.append(EvidenceTable(names[of[k]], own, gains[k]))
            continue
        tree = _tree((cuts[at], children[at], leaf[at]), own, gains[k])
        root = tree.cuts[0]
        if kind == _STUMP and isinstance(root, Stump) and len(tree.cuts) == 3:
            found.append(Stump(root.column, root.threshold, own, gains[k], root.missing))
        elif kind == _CATEGORIES and isinstance(root, Categories) and len(tree.cuts) == len(root.categories) + 2:
            found.append(Categories(root.column, root.categories, own, gains[k]))
        elif kind == _TREE:
            found.append(tree)
        else:
            refuse("a step of the model file cannot be read")
    return tuple(found)


def _nodes_of(step: Step) -> tuple[int, Nodes]:
    """The kind of a step, and its nodes; a table of evidence has none."""
    if isinstance(step, Stump | Categories):
        ends = range(len(step.values))
        below = (tuple(range(1, len(ends) + 1)), *(() for _ in ends))
        return _STUMP if isinstance(step, Stump) else _CATEGORIES, ((step, *(None for _ in ends)), below, (-1, *ends))
    if isinstance(step, RegressionTree):
        return _TREE, (step.cuts, step.children, step.leaf)
    return _EVIDENCE, ((), (), ())


def _stored_nodes(state: State, n: int, n_columns: int) -> Nodes:
    """All nodes of a file, end to end."""
    column = state.array("node/column", (n,), np.int32).tolist()
    missing = state.array("node/missing", (n,), np.int32).tolist()
    threshold = state.array("node/threshold", (n,), finite=False).tolist()
    gain = state.array("node/gain", (n,)).tolist()
    below, n_below = _runs(state, "node/children", n)
    own, n_own = _runs(state, "node/categories", n)
    children = state.array("children", (n_below,), np.int64).tolist()
    categories = state.array("categories", (n_own,))
    cuts: list[Cut | None] = []
    for k in range(n):
        if column[k] < 0:
            cuts.append(None)
        elif missing[k] < 0:
            cuts.append(_checked(Categories(column[k], categories[own[k]], _BARE, gain[k]), n_columns))
        else:
            cuts.append(_checked(Stump(column[k], threshold[k], _BARE, gain[k], missing[k]), n_columns))
    leaf = state.array("node/leaf", (n,), np.int64).tolist()
    return cuts, [tuple(children[place]) for place in below], leaf


def _runs(state: State, name: str, n: int) -> tuple[list[slice], int]:
    """Where each of ``n`` parts lies, whose lengths are stored, and the length of all."""
    counts = state.array(name, (n,), np.int64)
    if n and (counts.min() < 0 or counts.max() > _MOST):
        refuse(f"{name!r} in the model file holds no counts")
    ends = np.cumsum(counts).tolist()
    return [slice(end - count, end) for end, count in zip(ends, counts.tolist())], ends[-1] if n else 0


# ------------------------------------------------------------------------------------------------- JSON values


def learner_to_json(learner: Learner) -> dict[str, Any]:
    """What a learner asks, as JSON values: neither its gain nor the scores of its leaves.

    >>> learner_to_json(Stump(2, math.inf, np.zeros((2, 3)), 1.0))
    {'column': 2, 'threshold': None, 'missing': 1}
    """
    if isinstance(learner, Stump):
        threshold = learner.threshold if math.isfinite(learner.threshold) else None
        return {"column": learner.column, "threshold": threshold, "missing": int(learner.missing)}
    if isinstance(learner, Categories):
        return {"column": learner.column, "categories": learner.categories.tolist()}
    return {
        "cuts": [None if cut is None else learner_to_json(cut) for cut in learner.cuts],
        "children": [list(nodes) for nodes in learner.children],
        "leaf": list(learner.leaf),
    }


def learner_from_json(told: object, n_columns: int, n_leaves: object) -> Learner:
    """The learner of ``n_leaves`` whose `learner_to_json` this is, without scores; ModelFileError if it is none.

    >>> learner_from_json({"column": 2, "threshold": None, "missing": 1}, n_columns=3, n_leaves=2).threshold
    inf
    >>> learner_from_json({"column": 2, "threshold": None, "missing": 1}, n_columns=2, n_leaves=2)
    Traceback (most recent call last):
    crfield.errors.ModelFileError: a weak learner of the model file asks for a column that does not exist. ...
    """
    if not isinstance(told, dict):
        refuse("a weak learner of the model file is damaged")
    if "cuts" not in told:
        cut = _cut_from_json(told, n_columns)
        if type(n_leaves) is not int or n_leaves != _branches(cut):
            refuse("a weak learner of the model file has the wrong number of leaves")
        return cut
    cuts, children, leaf = (told.get(name) for name in ("cuts", "children", "leaf"))
    if not (isinstance(cuts, list) and isinstance(children, list) and isinstance(leaf, list)):
        refuse("a tree of the model file is damaged")
    if not len(cuts) == len(children) == len(leaf) or type(n_leaves) is not int or not 0 < n_leaves <= len(cuts):
        refuse("a tree of the model file has the wrong number of nodes")
    made = [None if cut is None else _cut_from_json(cut, n_columns) for cut in cuts]
    below = [tuple(nodes) if isinstance(nodes, list) else () for nodes in children]
    return _tree((made, below, leaf), np.zeros((n_leaves, 0)), 0.0)


def _cut_from_json(told: object, n_columns: int) -> Cut:
    if not isinstance(told, dict) or type(column := told.get("column")) is not int:
        refuse("a weak learner of the model file names no column")
    if "categories" in told:
        given = told["categories"]
        if not isinstance(given, list) or not all(map(is_number, given)):
            refuse("the categories of a weak learner in the model file are no numbers")
        return _checked(Categories(column, np.array(given, np.float64), _BARE, 0.0), n_columns)
    threshold, missing = told.get("threshold"), told.get("missing")
    if type(missing) is not int or not (threshold is None or is_number(threshold)):
        refuse("a stump of the model file is damaged")
    return _checked(
        Stump(column, math.inf if threshold is None else float(threshold), _BARE, 0.0, missing), n_columns
    )


# ------------------------------------------------------------------------------------------------------ checks


def _checked(cut: Cut, n_columns: int) -> Cut:
    """The cut itself, if it can be asked of so many columns."""
    if not 0 <= cut.column < n_columns:
        refuse("a weak learner of the model file asks for a column that does not exist")
    if isinstance(cut, Stump):
        good = cut.missing in (0, 1) and not math.isnan(cut.threshold)
    else:
        good = bool((np.diff(cut.categories) > 0).all())
    if not good:
        refuse("a cut of the model file is damaged")
    return cut


def _branches(cut: Cut | None) -> int:
    """How many ways lead on from a node."""
    return 0 if cut is None else 2 if isinstance(cut, Stump) else len(cut.categories) + 1


def _tree(nodes: Nodes, values: np.ndarray, gain: float) -> RegressionTree:
    """The tree of nodes that hang together, and of leaves that have a row of values each."""
    cuts, children, leaf = nodes
    met, ends = {0}, []
    for number, (cut, below, end) in enumerate(zip(cuts, children, leaf)):
        # Children come after their parents and have one each, so that every way down ends.
        fresh = all(type(n) is int and number < n < len(cuts) and n not in met for n in below)
        if not fresh or len(below) != _branches(cut) or len(set(below)) != len(below) or type(end) is not int:
            refuse("a tree of the model file is no tree")
        met.update(below)
        if cut is None:
            ends.append(end)
    if len(met) != len(cuts) or sorted(ends) != list(range(len(values))):
        refuse("the leaves of a tree in the model file do not fit it")
    return RegressionTree(tuple(cuts), tuple(children), tuple(leaf), values, gain)
