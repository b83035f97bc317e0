"""How much each feature matters over a data set, by the terms of the margins of its steps.

    margin:     I_k = 1/N Σ_t |x_tk · (w_k(y_t) − w_k(y'_t))|
    deviation:  I_k = sd(x_k) · (max_l w_k(l) − min_l w_k(l))

y_t is the most probable label of step t and y'_t the second, from exact marginals; a feature of pairs is compared for
(y_{t−1}, y_t) and (y_{t−1}, y'_t), and so are transitions, so that all importances by margin are in one unit, that of
scores. One forward–backward pass and one look-up for every active feature; only the names that are shown are made.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable

import numpy as np

from crfield.core.checks import integer
from crfield.core.typing import Sequences
from crfield.data.batch import Batch
from crfield.errors import InputError
from crfield.estimators.chain.model import ColumnModel
from crfield.estimators.explain.margins import feature_name
from crfield.report.explain import GROUPS
from crfield.report.importance import MEASURES, FeatureImportance, ImportanceList, field_of
from crfield.report.weights import LabelPair
from crfield.scoring.contributions import WeightedColumns
from crfield.scoring.higher_order import HigherOrderLayout

_Part = tuple[str, np.ndarray, np.ndarray, np.ndarray]  # kind, columns, importances, number of steps


def column_importances(
    model: ColumnModel,
    predict_proba: Callable[[Sequences], np.ndarray],
    X: Sequences,
    n: int | None,
    measure: str,
    by: str | Callable[[str], str],
) -> ImportanceList:
    """The n largest importances of the features of X; see `ChainCRF.feature_importance`."""
    (integer(0) | None)("n", n)
    if measure not in MEASURES:
        raise InputError(f"measure must be one of {', '.join(map(repr, MEASURES))}, got {measure!r}.")
    if by not in ("feature", "field") and not callable(by):
        raise InputError(f"by must be 'feature', 'field' or a function of a feature's name, got {by!r}.")
    batch = model.encode(X)
    if batch.topology.n_nodes == 0:
        raise InputError("X holds no steps at all; importances are means over steps.")
    if measure == "deviation":
        parts = _by_deviation(model, batch)
    else:
        parts = _by_margin(model, batch, np.concatenate(list(predict_proba(X)))) if _several(model) else []
    kinds = [kind for kind, column, *_ in parts for _ in range(len(column))]
    columns, amounts, steps = (
        np.concatenate([part[k] for part in parts]) if parts else np.zeros(0) for k in (1, 2, 3)
    )
    total = float(amounts.sum())
    order = np.argsort(-amounts, kind="stable")
    order = order[amounts[order] > 0]
    if by != "feature":
        group = by if callable(by) else field_of
        return ImportanceList(_grouped(model, kinds, columns, amounts, steps, order, group, total)[:n], measure)
    items = []
    for k in order[:n].tolist():
        kind, column = kinds[k], int(columns[k])
        name, label = (
            feature_name(model, kind, column),
            _favoured(model, batch, model.labels.labels, kind, column),
        )
        items.append(
            FeatureImportance(name, label, float(amounts[k]), float(amounts[k]) / total, int(steps[k]), kind)
        )
    return ImportanceList(tuple(items), measure)


def _several(model: ColumnModel) -> bool:
    return model.layout.n_labels > 1


def _sides(model: ColumnModel, batch: Batch) -> list[tuple[str, str, WeightedColumns]]:
    nodes = WeightedColumns.of_nodes(model.layout, model.weights, batch)
    edges = WeightedColumns.of_edges(model.layout, model.weights, batch)
    return [("node", "dense", nodes), *([] if edges is None else [("edge", "edge_dense", edges)])]


def _by_margin(model: ColumnModel, batch: Batch, chances: np.ndarray) -> list[_Part]:
    layout, weights, size = model.layout, model.weights, model.layout.n_labels
    steps, heads = np.arange(len(chances)), batch.topology.heads
    best = chances.argmax(axis=1)
    chances[steps, best] = -1.0
    second = chances.argmax(axis=1)
    before = best[heads - 1] * size
    items = {"node": (best, second), "edge": (before + best[heads], before + second[heads])}
    parts = []
    for kind, block, own in _sides(model, batch):
        first, less = items[kind]
        columns, count = own.columns, max(len(steps), 1)
        row = np.repeat(np.arange(columns.n_rows), np.diff(columns.indptr))
        apart = np.abs(own.lookup(columns.indices, first[row]) - own.lookup(columns.indices, less[row]))
        if columns.values is not None:
            apart *= np.abs(columns.values)
        sums = np.bincount(columns.indices, apart, minlength=columns.width) / count
        met = np.bincount(columns.indices, minlength=columns.width)
        parts.append((kind, np.arange(columns.width), sums, met))
        if columns.dense is not None:
            table = own.dense
            each = [np.abs(x * (w[first] - w[less])).sum() / count for x, w in zip(columns.dense.T, table)]
            parts.append(_dense_part(block, columns.dense, np.array(each)))

    def constant(kind: str, table: np.ndarray, own: np.ndarray, less: np.ndarray, column: int = -1) -> None:
        amount = np.abs(table[own] - table[less]).sum() / len(steps)
        parts.append((kind, np.array([column]), np.array([amount]), np.array([len(own)])))

    if layout.bias:
        constant("bias", weights[layout.part["bias"]], best, second)
    if layout.boundaries:
        full = batch.topology.lengths > 0
        for kind, at in (("start", batch.topology.offsets[:-1][full]), ("end", batch.topology.offsets[1:][full] - 1)):
            constant(kind, weights[layout.part[kind]], best[at], second[at])
    constant("transitions", np.nan_to_num(layout.transitions(weights)).ravel(), *items["edge"])
    if isinstance(layout, HigherOrderLayout):
        own_weights = np.append(weights[layout.part["runs"]], 0.0)  # the last for −1, no run
        states = layout.runs.walk(best, batch.topology)[heads - 1]
        for k, number in enumerate(layout.runs.weight_of):
            constant("runs", own_weights, number[states, best[heads]], number[states, second[heads]], k + 3)
    return parts


def _by_deviation(model: ColumnModel, batch: Batch) -> list[_Part]:
    parts = []
    for kind, block, own in _sides(model, batch):
        columns = own.columns
        count, width = max(columns.n_rows, 1), columns.width
        values = np.ones(len(columns.indices)) if columns.values is None else columns.values
        met = np.bincount(columns.indices, minlength=width)
        mean = np.bincount(columns.indices, values, minlength=width) / count
        square = np.bincount(columns.indices, (values - mean[columns.indices]) ** 2, minlength=width)
        deviation = np.sqrt((square + (count - met) * mean**2) / count)
        parts.append((kind, np.arange(width), deviation * _spread(own), met))
        if columns.dense is not None and columns.n_rows:
            spread = columns.dense.std(axis=0) * np.ptp(own.dense, axis=1)
            parts.append(_dense_part(block, columns.dense, spread))
    return parts


def _dense_part(kind: str, dense: np.ndarray, amounts: np.ndarray) -> _Part:
    return kind, np.arange(dense.shape[1]), amounts, np.count_nonzero(dense, axis=0)


def _spread(own: WeightedColumns) -> np.ndarray:
    """(K,) the largest less the least weight of each sparse column, a missing one being 0."""
    if own.ptr is None:
        return np.ptp(own.weights.reshape(-1, own.width), axis=1) if len(own.weights) else np.zeros(own.columns.width)
    met = np.diff(own.ptr)
    column = np.repeat(np.arange(len(met)), met)
    high, low = np.where(met < own.width, 0.0, -np.inf), np.where(met < own.width, 0.0, np.inf)
    np.maximum.at(high, column, own.weights)
    np.minimum.at(low, column, own.weights)
    return high - low


def _favoured(
    model: ColumnModel, batch: Batch, labels: list[Hashable], kind: str, column: int
) -> Hashable | LabelPair | None:
    for sparse, dense, own in _sides(model, batch):
        if kind in (sparse, dense):
            weights = own.sparse(np.array([column]))[0] if kind == sparse else own.dense[column]
            best = int(weights.argmax())
            if sparse == "node":
                return labels[best]
            return LabelPair(labels[best // len(labels)], labels[best % len(labels)])
    return None


def _grouped(
    model: ColumnModel,
    kinds: list[str],
    columns: np.ndarray,
    amounts: np.ndarray,
    steps: np.ndarray,
    order: np.ndarray,
    group: Callable[[str], str],
    total: float,
) -> tuple[FeatureImportance, ...]:
    """Importances of groups of features, largest first; what scores labels and what scores pairs stay apart."""
    sums: dict[tuple[str, str], tuple[float, int, str]] = {}
    for k in order.tolist():
        kind = kinds[k]
        key = str(group(feature_name(model, kind, int(columns[k])))), GROUPS[kind]
        amount, met, first = sums.get(key, (0.0, 0, kind))
        sums[key] = amount + float(amounts[k]), met + int(steps[k]), first
    items = [
        FeatureImportance(name, None, amount, amount / total, met, kind)
        for (name, _), (amount, met, kind) in sums.items()
    ]
    return tuple(sorted(items, key=lambda item: (-item.importance, item.name)))
