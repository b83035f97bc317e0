"""Which columns matter to what was chosen, whichever models these are: by changing columns and looking.

    over data     I_k = mean over steps of ½ Σ_label |p(label | x) − p(label | x with column k of another step)|
    at a step     c_k = log p(label | x) − log p(label | x with column k at its mean, at this step)

p is the mean of the members before the decoding, so that neighbours do not hide what a column says. Mixing a column
up among steps is Breiman's (2001, *Random forests*). Each column costs one prediction; columns that no member reads
have no importance and cost nothing.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.checks import integer
from crfield.data.batch import Batch
from crfield.errors import InputError
from crfield.estimators.choice.decoding import log_floored
from crfield.estimators.choice.model import ChosenModel, split_rows
from crfield.report.importance import FeatureImportance, ImportanceList


def read_columns(model: ChosenModel) -> dict[int, float]:
    """The columns that some member reads, in order, with their means in training."""
    return dict(
        sorted((int(k), float(mean)) for own in model.columns for k, mean in zip(own.numbers, own.mean, strict=True))
    )


def mixed_up(model: ChosenModel, batch: Batch, n: int | None) -> ImportanceList:
    """The n columns whose mixing up changes probabilities most; ``steps`` counts those whose best label changes."""
    (integer(0) | None)("n", n)
    if batch.topology.n_nodes == 0:
        raise InputError("X holds no steps at all; importances are means over steps.")
    rows, names, rng = split_rows(batch), model.names, np.random.default_rng(0)
    plain = model.chances(rows)
    table, ends = np.concatenate(rows), batch.topology.offsets[1:-1]
    found = []
    for column in read_columns(model):
        mixed = table.copy()
        mixed[:, column] = rng.permutation(table[:, column])
        other = model.chances(np.split(mixed, ends))
        moved = int((plain.argmax(axis=1) != other.argmax(axis=1)).sum())
        found.append((names[column], None, float(np.abs(other - plain).sum(axis=1).mean() / 2), moved))
    return _listed(found, n, "mixed up")


def at_step(model: ChosenModel, batch: Batch, step: Any, n: int | None) -> ImportanceList:
    """The n columns that say most for or against the most probable label of a step of one sequence."""
    (integer(0) | None)("n", n)
    rows, names = split_rows(batch)[0], model.names
    integer(0, most=len(rows) - 1)("step", step)
    if model.single_steps:
        rows, step = rows[step : step + 1], 0
    logs = log_floored(model.chances([rows]))[step]
    label = int(logs.argmax())
    found = []
    for column, mean in read_columns(model).items():
        without = rows.copy()
        without[step, column] = mean
        amount = logs[label] - log_floored(model.chances([without]))[step, label]
        found.append((names[column], model.labels.labels[label], float(amount), 1))
    return _listed(found, n, "at its mean")


def _listed(found: list[tuple[str, Any, float, int]], n: int | None, measure: str) -> ImportanceList:
    """The largest amounts, whatever their sign."""
    total = max(sum(abs(amount) for _, _, amount, _ in found), 1e-300)
    order = sorted(found, key=lambda one: -abs(one[2]))[:n]
    items = [FeatureImportance(name, label, a, abs(a) / total, steps, "column") for name, label, a, steps in order]
    return ImportanceList(tuple(items), measure)
