"""Comparison of models on recordings of people: how groups are left out, columns selected, settings chosen.

Groups (people, trials) are left out as wholes. Within the training groups of a fold

1. columns are selected out of all candidates by how well they tell labels apart, on every ``thin``-th step, since
   neighbouring steps tell nearly the same, and passing over columns that are nearly the same;
2. each model's settings are chosen by inner folds of groups, for all by one criterion, the mean of macro F1 and
   segment F1 at 50 % over the inner groups;
3. the model is fitted to all training groups with these settings and labels the left-out ones.

All models get the same columns, clipped at four deviations: a person who is unlike all others should not be given
scores that nothing in training ever had. The models are in `activity_models`.
"""

from __future__ import annotations

import warnings
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.errors import CrfieldWarning, InputError
from crfield.estimators.tuning.group_folds import macro_f1
from crfield.metrics import segment_f1
from crfield.selection.methods import separating
from studies.activities.models import MODELS, Grids, Inside, family

CLIP = 4.0


@dataclass(frozen=True, eq=False)
class Recorded:
    """Sequences of candidate columns with their labels and groups; labels None are not known."""

    columns: list[np.ndarray]
    labels: list[np.ndarray]
    groups: list[Hashable]
    names: list[str] = field(default_factory=list)

    @property
    def classes(self) -> list[Any]:
        """All labels, sorted by their text."""
        return sorted({label for row in self.labels for label in row if label is not None}, key=str)


@dataclass(frozen=True)
class Plan:
    """Sizes and grids of a comparison."""

    folds: int
    inner_folds: int = 3
    n_selected: int = 60
    most_alike: float = 0.9
    thin: int = 5
    grids: Grids = field(default_factory=Grids)
    models: tuple[str, ...] = MODELS


def run_fold(data: Recorded, plan: Plan, number: int, *, random_state: int = 0) -> dict[str, Any]:
    """Everything about one fold: the left-out sequences, their labels by each model, settings, selected columns."""
    names = list(dict.fromkeys(data.groups))
    if not 2 <= plan.folds <= len(names):
        raise InputError(f"folds must lie in 2 … {len(names)}, the number of groups, got {plan.folds}.")
    order = np.arange(len(names))
    if plan.folds < len(names):
        order = np.random.default_rng(random_state).permutation(len(names))
    out = {names[k] for k in np.array_split(order, plan.folds)[number]}
    learn = [k for k, group in enumerate(data.groups) if group not in out]
    test = [k for k, group in enumerate(data.groups) if group in out]
    found: dict[str, Any] = {"test": test, "labels": {}, "settings": {}}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CrfieldWarning)
        warnings.simplefilter("ignore", UserWarning)  # scikit-learn's words on convergence
        columns = separating_columns(data, learn, plan)
        found["columns"] = [data.names[c] for c in columns] if data.names else columns.tolist()
        inside = inside_of(data, columns, learn, plan)
        for model in plan.models:
            found["settings"][model], labels = chosen_and_predicted(model, inside, test)
            found["labels"][model] = [row.tolist() for row in labels]
    return found


def separating_columns(data: Recorded, learn: Sequence[int], plan: Plan) -> np.ndarray:
    """The ``n_selected`` columns that tell labels apart best, on every ``thin``-th step of the training sequences."""
    number = {label: k for k, label in enumerate(data.classes)}
    rows, codes = [], []
    for k in learn:
        keep = np.array([t for t in range(0, len(data.labels[k]), plan.thin) if data.labels[k][t] is not None], int)
        rows.append(data.columns[k][keep])
        codes += [number[data.labels[k][t]] for t in keep]
    table = np.concatenate(rows)
    return separating.separating_columns(table, np.array(codes), plan.n_selected, most_alike=plan.most_alike)


def inside_of(data: Recorded, columns: np.ndarray, learn: Sequence[int], plan: Plan) -> Inside:
    """The selected columns of all sequences, on the scale of the training ones and clipped."""
    table = np.concatenate([data.columns[k][:, columns] for k in learn])
    mean, deviation = table.mean(axis=0), table.std(axis=0)
    deviation = np.where(deviation > 0, deviation, 1.0)
    scaled = [
        np.ascontiguousarray(np.clip((own[:, columns] - mean) / deviation, -CLIP, CLIP)) for own in data.columns
    ]
    names = list(dict.fromkeys(data.groups[k] for k in learn))
    parts = [{k for k in learn if data.groups[k] in names[i :: plan.inner_folds]} for i in range(plan.inner_folds)]
    return Inside(
        scaled, data.labels, data.groups, data.classes, list(learn), parts, plan.thin, plan.grids, data.columns
    )


def chosen_and_predicted(model: str, inside: Inside, test: Sequence[int]) -> tuple[dict[str, Any], list[np.ndarray]]:
    """Settings chosen by inner folds of groups, and labels of the test sequences."""
    fit, grid, factors = family(model, inside.grids)
    best, most = {"setting": grid[0], "factor": factors[0]}, -np.inf
    if len(grid) * len(factors) > 1:
        for setting in grid:
            marks: dict[float, list[float]] = {factor: [] for factor in factors}
            for part in inside.parts:
                within = [k for k in inside.learn if k not in part]
                beside = [k for k in inside.learn if k in part]
                for factor, labels in fit(inside, within, setting)(beside, factors).items():
                    marks[factor] += _marks(inside, beside, labels)
            for factor, own in marks.items():
                if np.mean(own) > most:
                    best, most = {"setting": setting, "factor": factor}, float(np.mean(own))
    inside.chosen[model] = best["setting"]
    answer = fit(inside, inside.learn, best["setting"])
    return best, answer(test, (best["factor"],))[best["factor"]]


def _marks(inside: Inside, sequences: Sequence[int], labels: Sequence[np.ndarray]) -> list[float]:
    """(macro F1 + segment F1@50) / 2 of each group."""
    out = []
    for group in dict.fromkeys(inside.groups[k] for k in sequences):
        own = [i for i, k in enumerate(sequences) if inside.groups[k] == group]
        truth, said = [inside.labels[sequences[i]] for i in own], [labels[i] for i in own]
        out.append((macro_f1(truth, said) + segment_f1(truth, said, overlap=0.5)) / 2)
    return out
