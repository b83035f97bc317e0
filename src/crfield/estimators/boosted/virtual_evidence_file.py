"""Boosted fields to a model file and back.

Weak learners are a few numbers each: what they ask stands in the header, what their leaves score in one array. Every
number is checked when read, since files may be damaged: columns must exist, trees must be trees, scores be finite.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.boosting.random_field import BeliefStep, FieldModel
from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.additive import PARTS, Additive, LocalStep
from crfield.boosting.virtual_evidence.couplings import groups_of
from crfield.boosting.weak_learners.stumps import Categories, Stump
from crfield.boosting.weak_learners.trees import RegressionTree
from crfield.data.graphs.batch import GraphSchema
from crfield.data.graphs.labels import GraphLabels
from crfield.errors import ModelFileError
from crfield.estimators.graph.file import own_arrays, restored_model, set_report, stored_parameters
from crfield.features.graphs.encoder import GraphEncoder
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section

_REPORT: dict[str, type] = {"converged_": bool, "stop_reason_": str, "n_rounds_": int}
_MOST_LEAVES = 1 << 20


def save_virtual(model: Any, path: Any) -> None:
    """Write a fitted `VirtualEvidenceBoosting`."""
    inner = model._fitted
    header, arrays = _common(model, inner.encoder, inner.labels, inner.additive.prior)
    header["trained_by"] = model.trained_by_
    header["steps"], arrays["values"] = steps_state(inner.additive.steps)
    arrays["tables"] = np.ascontiguousarray(inner.additive.tables)
    write_archive(path, header, arrays)


def load_virtual(archive: Archive) -> Any:
    """The `VirtualEvidenceBoosting` that an archive holds."""
    from crfield.estimators.boosted.model import BoostedModel
    from crfield.estimators.boosted.virtual_checks import check_virtual_parameters
    from crfield.estimators.boosted.virtual_evidence import VirtualEvidenceBoosting

    header, arrays = archive.header, archive.arrays
    model = restored_model(VirtualEvidenceBoosting, header, check_virtual_parameters)
    encoder, labels, prior = _restored(model, header, arrays)
    schema, sizes = encoder.schema, labels.sizes
    steps = steps_from_state(header.get("steps"), arrays.get("values"), schema, sizes)
    most = max(sizes)
    tables = _floats(arrays.get("tables"), (len(schema.relations), most, most))
    trained_by = header.get("trained_by")
    if not isinstance(trained_by, str):
        raise ModelFileError("the model file does not say what was trained: the file is damaged.")
    model._model = BoostedModel(encoder, labels, Additive(schema, sizes, prior, tuple(steps), tables))
    model.trained_by_ = trained_by
    model.accepted_relations_ = [schema.relations[number].name for number in model._model.additive.relations]
    return model


def save_field(model: Any, path: Any) -> None:
    """Write a fitted `BoostedRandomField`."""
    encoder, labels, field = model._fitted
    header, arrays = _common(model, encoder, labels, field.prior)
    locals_ = [local for local, _ in field.rounds if local is not None]
    header["steps"], arrays["values"] = steps_state(locals_)
    header["relations"] = sorted({group.relation for group in field.groups})
    header["rounds_played"] = [
        [local is not None, None if heard is None else [heard.group, heard.column, heard.threshold]]
        for local, heard in field.rounds
    ]
    heard_values = [heard.values.reshape(-1) for _, heard in field.rounds if heard is not None]
    arrays["heard"] = np.concatenate([np.zeros(0), *heard_values])
    write_archive(path, header, arrays)


def load_field(archive: Archive) -> Any:
    """The `BoostedRandomField` that an archive holds."""
    from crfield.estimators.boosted.random_field import BoostedRandomField, check_field_options

    header, arrays = archive.header, archive.arrays
    model = restored_model(BoostedRandomField, header, check_field_options)
    encoder, labels, prior = _restored(model, header, arrays)
    schema, sizes = encoder.schema, labels.sizes
    steps = steps_from_state(header.get("steps"), arrays.get("values"), schema, sizes)
    numbers = header.get("relations")
    if not isinstance(numbers, list) or not all(_whole(r, len(schema.relations)) for r in numbers):
        raise ModelFileError("the relations of the model file are damaged.")
    groups = groups_of(schema, tuple(numbers))
    flat, at = _floats(arrays.get("heard"), None), 0
    rounds: list[tuple[LocalStep | None, BeliefStep | None]] = []
    for item in _listed(header.get("rounds_played")):
        if not isinstance(item, list) or len(item) != 2 or not isinstance(item[0], bool):
            raise ModelFileError("a round of the model file is damaged.")
        if item[0] and not steps:
            raise ModelFileError("the rounds of the model file do not fit its weak learners: the file is damaged.")
        local, heard = steps.pop(0) if item[0] else None, None
        if item[1] is not None:
            group, column, threshold = _three(item[1])
            if not _whole(group, len(groups)) or not _whole(column + 1, sizes[groups[group].other] + 1):
                raise ModelFileError("a round of the model file names a relation or a label that does not exist.")
            own = sizes[groups[group].own]
            rows = sizes[groups[group].other] + 1 if column < 0 else 2
            heard = BeliefStep(group, _part(flat, at, rows, own), column, threshold)
            at += rows * own
        rounds.append((local, heard))
    if steps or at != len(flat):
        raise ModelFileError("the rounds of the model file do not fit its weak learners: the file is damaged.")
    model._model = (encoder, labels, FieldModel(schema, sizes, prior, tuple(groups), tuple(rounds)))
    return model


# -------------------------------------------------------------------------------------------- weak learners


def steps_state(steps: Any) -> tuple[list[Any], np.ndarray]:
    """Weak learners as JSON values, and what all their leaves score, end to end."""
    values = np.concatenate([np.zeros(0), *(step.values.reshape(-1) for step in steps)])
    return [[step.kind, step.part, len(step.values), _learner(step.learner)] for step in steps], values


def steps_from_state(items: Any, values: Any, schema: GraphSchema, sizes: tuple[int, ...]) -> list[LocalStep]:
    """The weak learners whose `steps_state` this is; ModelFileError for whatever does not fit."""
    flat, at = _floats(values, None), 0
    made = []
    for item in _listed(items):
        if not isinstance(item, list) or len(item) != 4 or not _whole(item[0], len(sizes)) or item[1] not in PARTS:
            raise ModelFileError("a weak learner of the model file is damaged.")
        kind, part, leaves, told = item
        start, stop = schema.kinds[kind].dense if part == "dense" else schema.kinds[kind].columns
        learner = _learner_of(told, stop - start)
        if not _whole(leaves, _MOST_LEAVES) or leaves != _n_leaves(learner):
            raise ModelFileError("a weak learner of the model file has the wrong number of leaves.")
        made.append(LocalStep(kind, part, learner, _part(flat, at, leaves, sizes[kind])))
        at += leaves * sizes[kind]
    if at != len(flat):
        raise ModelFileError(f"the model file must hold {at} scores of leaves, got {len(flat)}: it is damaged.")
    return made


def _learner(learner: Any) -> Any:
    if isinstance(learner, Stump):
        threshold = learner.threshold if math.isfinite(learner.threshold) else None
        return {"column": learner.column, "threshold": threshold, "missing": int(learner.missing)}
    if isinstance(learner, Categories):
        return {"column": learner.column, "categories": learner.categories.tolist()}
    return {
        "cuts": [None if cut is None else _learner(cut) for cut in learner.cuts],
        "children": [list(nodes) for nodes in learner.children],
        "leaf": list(learner.leaf),
    }


def _learner_of(told: Any, width: int) -> Any:
    if isinstance(told, dict) and "cuts" in told:
        return _tree_of(told, width)
    return _cut_of(told, width)


def _cut_of(told: Any, width: int) -> Stump | Categories:
    if not isinstance(told, dict) or not _whole(told.get("column"), width):
        raise ModelFileError("a weak learner of the model file asks for a column that does not exist.")
    column, nothing = told["column"], np.zeros((0, 0))
    if "categories" in told:
        categories = np.array(_numbers(told["categories"]), dtype=np.float64)
        if (np.diff(categories) <= 0).any():
            raise ModelFileError("the categories of a weak learner in the model file are damaged.")
        return Categories(column, categories, nothing, 0.0)
    threshold = told.get("threshold")
    threshold = math.inf if threshold is None else _numbers([threshold])[0]
    if not _whole(told.get("missing"), 2):
        raise ModelFileError("a stump of the model file is damaged.")
    return Stump(column, threshold, nothing, 0.0, told["missing"])


def _tree_of(told: dict[str, Any], width: int) -> RegressionTree:
    cuts, children, leaf = (_listed(told.get(name)) for name in ("cuts", "children", "leaf"))
    if not 0 < len(cuts) == len(children) == len(leaf):
        raise ModelFileError("a tree of the model file is damaged.")
    made: list[Stump | Categories | None] = []
    met = {0}
    ends = []
    for number, (cut, below, place) in enumerate(zip(cuts, children, leaf)):
        found = None if cut is None else _cut_of(cut, width)
        wanted = 0 if found is None else 2 if isinstance(found, Stump) else len(found.categories) + 1
        below = _listed(below)
        # Children come after their parents and have one each, so that every way down ends.
        if len(below) != wanted or any(not _whole(n, len(cuts)) or n <= number or n in met for n in below):
            raise ModelFileError("a tree of the model file is no tree: the file is damaged.")
        met.update(below)
        if found is None:
            ends.append(place)
        made.append(found)
    if len(met) != len(cuts) or not all(type(p) is int for p in leaf) or sorted(ends) != list(range(len(ends))):
        raise ModelFileError("a tree of the model file is damaged: its leaves do not fit.")
    return RegressionTree(tuple(made), tuple(map(tuple, children)), tuple(leaf), np.zeros((len(ends), 0)), 0.0)


def _n_leaves(learner: Any) -> int:
    if isinstance(learner, Stump):
        return 2
    return len(learner.categories) + 1 if isinstance(learner, Categories) else len(learner.values)


# ------------------------------------------------------------------------------------------- common parts


def _common(
    model: Any, encoder: GraphEncoder, labels: GraphLabels, prior: tuple[np.ndarray, ...]
) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    encoder_header, encoder_arrays = encoder.state()
    header = {
        "kind": model.file_kind,
        "parameters": stored_parameters(model),
        "labels": labels.to_json(),
        "encoder": encoder_header,
        "report": {name: kind(getattr(model, name)) for name, kind in _REPORT.items()},
        "rounds": [
            [r.number, r.kind, r.pick, _finite(r.gain), _finite(r.nll), r.held_out, bool(r.kept)]
            for r in model.rounds_
        ],
    }
    arrays = {f"encoder/{name}": value for name, value in encoder_arrays.items()}
    return header, arrays | {f"prior{number}": np.ascontiguousarray(one) for number, one in enumerate(prior)}


def _restored(
    model: Any, header: dict[str, Any], arrays: Mapping[str, np.ndarray]
) -> tuple[GraphEncoder, GraphLabels, tuple[np.ndarray, ...]]:
    set_report(model, header, _REPORT)
    encoder = GraphEncoder.from_state(section(header, "encoder"), own_arrays(arrays, "encoder/"))
    labels = GraphLabels.from_json(header.get("labels"))
    if tuple(kind.name for kind in encoder.schema.kinds) != labels.kinds:
        raise ModelFileError("the labels of the model file do not fit its kinds of nodes: the file is damaged.")
    prior = tuple(_floats(arrays.get(f"prior{number}"), (size,)) for number, size in enumerate(labels.sizes))
    model.rounds_ = _rounds(header.get("rounds"))
    model.classes_ = labels.classes[labels.kinds[0]] if len(labels.kinds) == 1 else labels.classes
    return encoder, labels, prior


def _rounds(rows: Any) -> RoundTable:
    try:
        return RoundTable(
            [
                Round(
                    int(n), str(kind), str(pick), _nan(gain), _nan(nll), None if out is None else float(out), bool(k)
                )
                for n, kind, pick, gain, nll, out, k in rows
            ]
        )
    except (TypeError, ValueError):
        raise ModelFileError("the rounds of the model file cannot be read: the file is damaged.") from None


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def _nan(value: Any) -> float:
    return math.nan if value is None else float(value)


def _floats(found: Any, shape: tuple[int, ...] | None) -> np.ndarray:
    if (
        not isinstance(found, np.ndarray)
        or found.dtype != np.float64
        or (found.ndim != 1 if shape is None else found.shape != shape)
        or not np.isfinite(found).all()
    ):
        raise ModelFileError("an array of scores in the model file does not fit: the file is damaged.")
    return np.array(found)


def _part(flat: np.ndarray, at: int, rows: int, columns: int) -> np.ndarray:
    if at + rows * columns > len(flat):
        raise ModelFileError("the model file holds too few scores of leaves: it is damaged.")
    return flat[at : at + rows * columns].reshape(rows, columns)


def _listed(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ModelFileError("a list in the header of the model file is missing: the file is damaged.")
    return value


def _three(value: Any) -> tuple[int, int, float]:
    if not isinstance(value, list) or len(value) != 3 or type(value[0]) is not int or type(value[1]) is not int:
        raise ModelFileError("a round of the model file is damaged.")
    return value[0], value[1], _numbers([value[2]])[0]


def _numbers(values: Any) -> list[float]:
    if not isinstance(values, list) or not all(
        isinstance(v, int | float) and not isinstance(v, bool) and math.isfinite(v) for v in values
    ):
        raise ModelFileError("numbers of a weak learner in the model file are damaged.")
    return [float(v) for v in values]


def _whole(value: Any, below: int) -> bool:
    return type(value) is int and 0 <= value < below
