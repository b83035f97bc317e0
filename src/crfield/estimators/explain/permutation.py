"""How much each column matters to a model of chains, by shuffling it.

    I_k = 1/N Σ_t log p(y_t | x)  −  1/N Σ_t log p(y_t | x with column k dealt anew among all steps)

(Breiman 2001, *Random forests*). p(y_t | x) is the exact marginal of the true label, so that it counts what
neighbours make up for: a column is worth what the whole model loses without it. Of two columns that say the same each
may seem worthless. Values are dealt among all steps of X, missing ones with them; a column costs one prediction of X.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crfield.core.checks import integer, random_generator
from crfield.core.typing import Labels, Seed, Sequences
from crfield.errors import InputError
from crfield.estimators.chain.answers import ChainAnswers
from crfield.estimators.explain.partial_dependence import arrays_of, column_name
from crfield.report.importance import FeatureImportance, ImportanceList

LEAST = 1e-300


def permuted_importances(
    model: ChainAnswers[Any], X: Sequences, y: Labels, n: int | None, random_state: Seed
) -> ImportanceList:
    """The n columns of X whose shuffling costs most, largest first; those that cost nothing are left out."""
    (integer(0) | None)("n", n)
    tables, rng = arrays_of(X), random_generator(random_state)
    ends = np.cumsum([len(x) for x in tables])[:-1]
    coder, lengths = model._coder, np.array([len(x) for x in tables])
    labels, _ = coder.encode(y, lengths)
    whole = np.concatenate(tables)
    if not (labels >= 0).any():
        raise InputError("y has no known label at all; importances are means over steps whose label is known.")
    base = _mean_log(model, tables, labels)
    found = []
    for column in range(whole.shape[1]):
        moved = whole.copy()
        moved[:, column] = rng.permutation(moved[:, column])
        worse = base - _mean_log(model, np.split(moved, ends), labels)
        if worse > 0:
            found.append((worse, column))
    found.sort(key=lambda one: (-one[0], one[1]))
    total = sum(worse for worse, _ in found)
    items = [
        FeatureImportance(column_name(model, column), None, float(worse), float(worse / total), len(whole), "dense")
        for worse, column in found[:n]
    ]
    return ImportanceList(tuple(items), "permutation")


def _mean_log(model: ChainAnswers[Any], tables: list[np.ndarray], labels: np.ndarray) -> float:
    """Mean log of the marginals of known labels."""
    chances = np.concatenate(list(model.predict_proba(tables)))
    known = np.flatnonzero(labels >= 0)
    return float(np.log(np.maximum(chances[known, labels[known]], LEAST)).mean())
