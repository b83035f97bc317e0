"""`LogitBoost` and the stump encoders to a model file and back.

All steps lie in a few flat arrays, whatever their kind. A stump is a tree of one cut, so nodes are stored alike: the
column of each (−1 at a leaf), threshold, the leaf of missing values, its categories and its children. Regressors are
code, and a model of them is refused with a word on what to do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from crfield.boosting.logit_rounds import AdditiveLogit
from crfield.boosting.round_table import Round, RoundTable
from crfield.boosting.virtual_evidence.evidence import EvidenceTable
from crfield.boosting.weak_learners.stumps import Categories, Stump
from crfield.boosting.weak_learners.trees import RegressionTree
from crfield.data.label_json import label_from_json, label_to_json
from crfield.data.labels import LabelCoder
from crfield.errors import InputError, ModelFileError
from crfield.estimators.boosted.boost_checks import check_boost_parameters
from crfield.estimators.boosted.logit_boost import LogitBoost
from crfield.estimators.graph.file import restored_model
from crfield.estimators.selected.stump_columns import Question, StumpColumns
from crfield.estimators.selected.stump_encoder import StumpEncoder
from crfield.estimators.selected.stump_selector import StumpSelector
from crfield.storage.archive import Archive, write_archive
from crfield.storage.checked import section, whole

_STUMP, _CATEGORIES, _TREE, _EVIDENCE = range(4)
_DAMAGED = "The file is damaged."


# ------------------------------------------------------------------------------------------------ LogitBoost


def save_logit_boost(model: LogitBoost, path: Any) -> None:
    """Write a fitted model; see `LogitBoost.save`."""
    inner = model._additive
    names = getattr(model, "feature_names_in_", None)
    header = {
        "kind": model.file_kind,
        "parameters": _parameters(model),
        "classes": [label_to_json(_python(label)) for label in model.classes_],
        "numbers": str(model.classes_.dtype) if model.classes_.dtype.kind in "biuf" else None,
        "n_features_in": int(model.n_features_in_),
        "feature_names_in": None if names is None else [str(name) for name in names],
        "evidence": [[name, width] for name, width in model._evidence.items()],
        "rounds": [[r.kind, r.pick, r.kept] for r in model.rounds_],
    }
    held = [np.nan if r.held_out is None else r.held_out for r in model.rounds_]
    arrays = steps_state(inner.steps, len(inner.start), list(model._evidence))
    arrays |= {
        "start": inner.start,
        "rounds/gain": np.array([r.gain for r in model.rounds_]),
        "rounds/nll": np.array([r.nll for r in model.rounds_]),
        "rounds/held_out": np.array(held),
    }
    write_archive(path, header, arrays)


def load_logit_boost(archive: Archive) -> LogitBoost:
    """The model that an archive holds."""
    header, arrays = archive.header, archive.arrays
    model: LogitBoost = restored_model(LogitBoost, header, check_boost_parameters)
    model.classes_ = _classes(header)
    _check_discrete(model.discrete)
    width, names = whole(header, "n_features_in", least=1), header.get("feature_names_in")
    if names is not None:
        if not isinstance(names, list) or len(names) != width or not all(isinstance(name, str) for name in names):
            raise ModelFileError(f"the model file's names of columns do not fit its {width} columns. {_DAMAGED}")
        model.feature_names_in_ = np.array(names, dtype=object)
    model.n_features_in_ = width
    model._evidence = _widths(header)
    start = _floats(arrays, "start", (len(model.classes_),))
    steps = steps_from_state(arrays, len(start), width, model._evidence)
    model._model, model.n_iter_ = AdditiveLogit(start, steps), len(steps)
    model.rounds_ = _rounds(header, arrays)
    return model


def _check_discrete(discrete: Any) -> None:
    if not isinstance(discrete, list) or any(type(one) not in (int, str) for one in discrete):
        raise ModelFileError(f"the model file's discrete columns are no list of numbers or names. {_DAMAGED}")


def _parameters(model: Any) -> dict[str, Any]:
    stored = {}
    for name, value in model.get_params(deep=False).items():
        plain = _python(value)
        if name == "learner" and not isinstance(plain, str):
            raise InputError(
                f"a model of {type(value).__name__} cannot be written to a model file, which holds no code. "
                "Use joblib for it, or learner='stump' or 'tree'."
            )
        if name == "discrete":
            plain = [_python(one) for one in plain]
        # a generator of random numbers is not stored: it has been used up
        stored[name] = plain if plain is None or isinstance(plain, bool | int | float | str | list) else None
    return stored


def _python(value: Any) -> Any:
    return value.item() if isinstance(value, np.generic) else value


def _classes(header: Mapping[str, Any]) -> np.ndarray:
    given, numbers = header.get("classes"), header.get("numbers")
    if not isinstance(given, list) or not given:
        raise ModelFileError(f"the model file lacks its classes. {_DAMAGED}")
    found = LabelCoder.from_classes([label_from_json(label) for label in given]).classes_
    if numbers is None:
        return found
    try:
        kind = np.dtype(str(numbers))
        if kind.kind not in "biuf":
            raise TypeError
        return found.astype(kind)
    except (TypeError, ValueError):
        raise ModelFileError(f"the model file's classes are not {numbers!r:.20}. {_DAMAGED}") from None


def _widths(header: Mapping[str, Any]) -> dict[str, int]:
    given = header.get("evidence")
    if not isinstance(given, list):
        raise ModelFileError(f"the model file does not say which evidence it reads. {_DAMAGED}")
    found = {}
    for row in given:
        if (
            not isinstance(row, list)
            or len(row) != 2
            or not isinstance(row[0], str)
            or type(row[1]) is not int
            or not 0 <= row[1] < 2**31
        ):
            raise ModelFileError(f"the model file's evidence cannot be read. {_DAMAGED}")
        found[row[0]] = row[1]
    return found


def _rounds(header: Mapping[str, Any], arrays: Mapping[str, np.ndarray]) -> RoundTable:
    given = header.get("rounds")
    if not isinstance(given, list):
        raise ModelFileError(f"the model file lacks its rounds. {_DAMAGED}")
    gain, nll, held = (_floats(arrays, f"rounds/{name}", (len(given),), finite=False) for name in _ROUND_NUMBERS)
    found = []
    for k, row in enumerate(given):
        if not isinstance(row, list) or [type(part) for part in row] != [str, str, bool]:
            raise ModelFileError(f"the model file's rounds cannot be read. {_DAMAGED}")
        outside = None if np.isnan(held[k]) else float(held[k])
        found.append(Round(k + 1, row[0], row[1], float(gain[k]), float(nll[k]), outside, row[2]))
    return RoundTable(found)


_ROUND_NUMBERS = ("gain", "nll", "held_out")


# ----------------------------------------------------------------------------------------------- weak learners


def steps_state(steps: tuple[Any, ...], n_classes: int, evidence: list[str]) -> dict[str, np.ndarray]:
    """Steps of an additive model as flat arrays.

    >>> stump = Stump(3, 0.5, np.array([[1.0, -1.0], [-1.0, 1.0]]), 2.0)
    >>> steps_state((stump,), 2, [])["node/column"].tolist()
    [3, -1, -1]
    """
    kinds, gains, leaves, counts, names = [], [], [np.zeros((0, n_classes))], [], []
    nodes: list[tuple[Any, tuple[int, ...], int]] = []
    made: list[tuple[Any, tuple[int, ...], int]]
    for step in steps:
        if isinstance(step, Stump | Categories):
            made = [(step, tuple(range(1, len(step.values) + 1)), -1)] + [
                (None, (), k) for k in range(len(step.values))
            ]
            kinds.append(_STUMP if isinstance(step, Stump) else _CATEGORIES)
        elif isinstance(step, RegressionTree):
            made = list(zip(step.cuts, step.children, step.leaf, strict=True))
            kinds.append(_TREE)
        elif isinstance(step, EvidenceTable):
            made = []
            kinds.append(_EVIDENCE)
        else:
            raise InputError(
                f"a step of {type(step).__name__} cannot be written to a model file, which holds no code."
            )
        names.append(evidence.index(step.name) if isinstance(step, EvidenceTable) else -1)
        gains.append(step.gain)
        leaves.append(step.values)
        counts.append((len(step.values), len(made)))
        nodes += made
    cuts = [node[0] for node in nodes]
    categories = [cut.categories if isinstance(cut, Categories) else np.zeros(0) for cut in cuts]
    return {
        "step/kind": np.array(kinds, np.int32),
        "step/gain": np.array(gains, np.float64),
        "step/evidence": np.array(names, np.int32),
        "step/leaves": np.array([count[0] for count in counts], np.int64),
        "step/nodes": np.array([count[1] for count in counts], np.int64),
        "values": np.concatenate(leaves),
        "node/column": np.array([-1 if cut is None else cut.column for cut in cuts], np.int32),
        "node/threshold": np.array([cut.threshold if isinstance(cut, Stump) else np.nan for cut in cuts]),
        "node/missing": np.array([cut.missing if isinstance(cut, Stump) else -1 for cut in cuts], np.int32),
        "node/gain": np.array([0.0 if cut is None else cut.gain for cut in cuts], np.float64),
        "node/leaf": np.array([node[2] for node in nodes], np.int64),
        "node/children": np.array([len(node[1]) for node in nodes], np.int64),
        "node/categories": np.array([len(own) for own in categories], np.int64),
        "children": np.array([child for node in nodes for child in node[1]], np.int64),
        "categories": np.concatenate([np.zeros(0), *categories]),
    }


def steps_from_state(
    arrays: Mapping[str, np.ndarray], n_classes: int, n_columns: int, evidence: Mapping[str, int]
) -> tuple[Any, ...]:
    """The steps whose `steps_state` this is; ModelFileError for whatever does not fit."""
    kinds = _whole(arrays, "step/kind", None)
    steps = len(kinds)
    gains = _floats(arrays, "step/gain", (steps,))
    of = _whole(arrays, "step/evidence", steps)
    n_leaves, n_nodes = _counts(arrays, "step/leaves", steps), _counts(arrays, "step/nodes", steps)
    values = _floats(arrays, "values", (int(n_leaves.sum()), n_classes))
    nodes = int(n_nodes.sum())
    column, missing = _whole(arrays, "node/column", nodes), _whole(arrays, "node/missing", nodes)
    threshold = _floats(arrays, "node/threshold", (nodes,), finite=False)
    node_gain = _floats(arrays, "node/gain", (nodes,))
    leaf = _whole(arrays, "node/leaf", nodes)
    n_children, n_categories = _counts(arrays, "node/children", nodes), _counts(arrays, "node/categories", nodes)
    children = _whole(arrays, "children", int(n_children.sum()))
    categories = _floats(arrays, "categories", (int(n_categories.sum()),))
    names = list(evidence)
    child_at, category_at = np.cumsum(n_children) - n_children, np.cumsum(n_categories) - n_categories
    found: list[Any] = []
    first_leaf = first_node = 0
    for k, kind in enumerate(kinds):
        own = values[first_leaf : first_leaf + n_leaves[k]]
        if kind == _EVIDENCE:
            if not 0 <= of[k] < len(names) or len(own) != evidence[names[of[k]]]:
                raise ModelFileError(f"a step of the model file reads evidence that is not there. {_DAMAGED}")
            found.append(EvidenceTable(names[of[k]], own, float(gains[k])))
        else:
            cuts: list[Stump | Categories | None] = []
            below: list[tuple[int, ...]] = []
            for n in range(first_node, first_node + int(n_nodes[k])):
                next_nodes = children[child_at[n] : child_at[n] + n_children[n]]
                here = n - first_node
                cut: Stump | Categories | None = None
                if column[n] >= 0:
                    kept = categories[category_at[n] : category_at[n] + n_categories[n]]
                    if missing[n] >= 0:
                        cut = Stump(
                            int(column[n]),
                            float(threshold[n]),
                            np.zeros((0, 0)),
                            float(node_gain[n]),
                            int(missing[n]),
                        )
                    else:
                        cut = Categories(int(column[n]), kept, np.zeros((0, 0)), float(node_gain[n]))
                    wanted = 2 if missing[n] >= 0 else len(kept) + 1
                    if (
                        column[n] >= n_columns
                        or missing[n] > 1
                        or (missing[n] >= 0 and np.isnan(threshold[n]))
                        or (np.diff(kept) <= 0).any()
                        or len(next_nodes) != wanted
                        or (next_nodes <= here).any()
                        or (next_nodes >= n_nodes[k]).any()
                    ):
                        raise ModelFileError(f"a cut of the model file leads nowhere. {_DAMAGED}")
                elif not 0 <= leaf[n] < len(own):
                    raise ModelFileError(f"a leaf of the model file has no values. {_DAMAGED}")
                cuts.append(cut)
                below.append(tuple(next_nodes.tolist()))
            ends = leaf[first_node : first_node + int(n_nodes[k])]
            found.append(_learner(int(kind), cuts, below, ends, own, float(gains[k])))
        first_leaf, first_node = first_leaf + int(n_leaves[k]), first_node + int(n_nodes[k])
    return tuple(found)


def _learner(
    kind: int,
    cuts: list[Stump | Categories | None],
    children: list[tuple[int, ...]],
    leaf: np.ndarray,
    values: np.ndarray,
    gain: float,
) -> Any:
    root = cuts[0] if cuts else None
    if kind == _TREE and cuts:
        return RegressionTree(tuple(cuts), tuple(children), tuple(leaf.tolist()), values, gain)
    if kind == _STUMP and isinstance(root, Stump) and len(values) == 2:
        return Stump(root.column, root.threshold, values, gain, root.missing)
    if kind == _CATEGORIES and isinstance(root, Categories) and len(values) == len(root.categories) + 1:
        return Categories(root.column, root.categories, values, gain)
    raise ModelFileError(f"a step of the model file cannot be read. {_DAMAGED}")


# ---------------------------------------------------------------------------------------------------- encoders


def save_encoder(model: Any, path: Any) -> None:
    """Write a fitted `StumpEncoder` or `StumpSelector`."""
    fitted = model._fitted
    header = {
        "kind": model.file_kind,
        "parameters": _parameters(model),
        "kinds": [[kind, model._widths[kind], len(fitted[kind])] for kind in fitted],
        "names": model._names,
    }
    every = [one for questions in fitted.values() for one in questions]
    arrays = {
        "column": np.array([one.column for one in every], np.int64),
        "threshold": np.array([one.threshold for one in every], np.float64),
        "worth": np.concatenate([np.zeros(0), *model._worth.values()]),
    }
    write_archive(path, header, arrays)


def load_stump_encoder(archive: Archive) -> StumpEncoder:
    """The encoder that an archive holds."""
    return _load_encoder(StumpEncoder, archive)


def load_stump_selector(archive: Archive) -> StumpSelector:
    """The selector that an archive holds."""
    return _load_encoder(StumpSelector, archive)


def _load_encoder(maker: type[Any], archive: Archive) -> Any:
    header, arrays = archive.header, archive.arrays
    section(header, "parameters")
    model: StumpColumns = restored_model(maker, header, lambda _: None)
    rows, names = header.get("kinds"), header.get("names")
    if not isinstance(rows, list) or not rows or not all(_is_kind(row) for row in rows):
        raise ModelFileError(f"the model file does not say what it encodes. {_DAMAGED}")
    if names is not None and (not isinstance(names, list) or not all(isinstance(name, str) for name in names)):
        raise ModelFileError(f"the model file's names of columns cannot be read. {_DAMAGED}")
    total = sum(row[2] for row in rows)
    column, worth = _whole(arrays, "column", total), _floats(arrays, "worth", (total,))
    threshold = _floats(arrays, "threshold", (total,), finite=False)
    if np.isnan(threshold).any():
        raise ModelFileError(f"a threshold of the model file is no number. {_DAMAGED}")
    model._questions, model._worth, model._widths, model._names = {}, {}, {}, names
    first = 0
    for kind, width, count in rows:
        part = slice(first, first + count)
        if count and not 0 <= column[part].min() <= column[part].max() < width:
            raise ModelFileError(f"a question of the model file reads a column that is not there. {_DAMAGED}")
        if names is not None and len(names) != width:
            raise ModelFileError(f"the model file's names do not fit its {width} columns. {_DAMAGED}")
        pairs = zip(column[part], threshold[part], strict=True)
        model._questions[kind] = [Question(int(f), float(t)) for f, t in pairs]
        model._worth[kind], model._widths[kind] = worth[part], width
        first += count
    return model


def _is_kind(row: Any) -> bool:
    return isinstance(row, list) and [type(part) for part in row] == [str, int, int] and row[1] >= 0 and row[2] >= 0


# ------------------------------------------------------------------------------------------------------ arrays


def _floats(
    arrays: Mapping[str, np.ndarray], name: str, shape: tuple[int, ...], *, finite: bool = True
) -> np.ndarray:
    array = arrays.get(name)
    if array is None or array.dtype != np.float64 or array.shape != shape:
        raise ModelFileError(f"the model file must hold numbers {shape} as {name!r}. {_DAMAGED}")
    if finite and not np.isfinite(array).all():
        raise ModelFileError(f"{name!r} in the model file is not finite. {_DAMAGED}")
    return array


def _whole(arrays: Mapping[str, np.ndarray], name: str, length: int | None) -> np.ndarray:
    array = arrays.get(name)
    if array is None or array.dtype.kind != "i" or array.ndim != 1 or (length is not None and len(array) != length):
        raise ModelFileError(f"the model file must hold {length} whole numbers as {name!r}. {_DAMAGED}")
    return array.astype(np.int64)


def _counts(arrays: Mapping[str, np.ndarray], name: str, length: int) -> np.ndarray:
    array = _whole(arrays, name, length)
    if len(array) and (array.min() < 0 or array.max() > 1 << 40):
        raise ModelFileError(f"{name!r} in the model file holds no counts. {_DAMAGED}")
    return array
