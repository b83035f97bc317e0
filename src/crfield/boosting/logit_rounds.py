"""The rounds of LogitBoost: responses, the best learner, a step; and the additive model that they leave.

    F_0 = log prior, centred        F ← F + ν · (K − 1)/K · (f − mean_c f)        p = softmax F

f is the weak learner fitted to the working responses (`crfield.boosting.weak_learners.responses`). Learners on
columns and tables on virtual evidence compete by gain in each round. A round costs the learner's search and three
passes over the rows.

Without a limit the responses of rows that the model is sure about and wrong would rule the round (on clipping them
see `crfield.boosting.weak_learners.responses`); without the prior the first rounds go to the class balance. Held-out
rows, if there are any, tell when to stop, and rounds after the best are dropped.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np

from crfield.boosting.round_table import Round
from crfield.boosting.virtual_evidence.evidence import Evidence, EvidenceTable, Expectations, best_evidence
from crfield.boosting.weak_learners.candidates import Candidates, Table
from crfield.boosting.weak_learners.responses import centred
from crfield.boosting.weak_learners.stumps import Categories, Stump, stump_of
from crfield.boosting.weak_learners.trees import RegressionTree, tree_of
from crfield.errors import InputError
from crfield.kernels.boost import LEAST_WEIGHT, add_by_code, histograms, logit_pairs


@dataclass(frozen=True)
class Stumps:
    """Fits the best stump of a round.

    >>> Stumps(ridge=1.0)
    Stumps(ridge=1.0, n_jobs=1)
    """

    ridge: float = 0.0
    n_jobs: int = 1

    def fit(self, candidates: Candidates, columns: Table, pairs: np.ndarray, *, mirrored: bool) -> Learner | None:
        """The best stump for working pairs (C, N, 2); None if no column can be cut."""
        sums = histograms(candidates.packed, pairs, n_jobs=self.n_jobs)
        return stump_of(candidates, sums, ridge=self.ridge, mirrored=mirrored)


@dataclass(frozen=True)
class Trees:
    """Fits a tree of a few leaves.

    >>> Trees(max_depth=3).min_leaf
    1
    """

    max_depth: int = 2
    min_leaf: int = 1
    ridge: float = 0.0
    n_jobs: int = 1

    def fit(self, candidates: Candidates, columns: Table, pairs: np.ndarray, *, mirrored: bool) -> Learner | None:
        """A tree for working pairs (C, N, 2); None if it has one leaf only."""
        tree = tree_of(
            candidates,
            pairs,
            mirrored=mirrored,
            max_depth=self.max_depth,
            min_leaf=self.min_leaf,
            ridge=self.ridge,
            n_jobs=self.n_jobs,
        )
        return None if len(tree.cuts) == 1 else tree


@dataclass(frozen=True, eq=False)
class FittedRegressors:
    """A regressor of scikit-learn's manner for each class."""

    regressors: tuple[Any, ...]
    mirrored: bool
    gain: float
    scale: float = 1.0

    def apply(self, columns: Table) -> np.ndarray:
        """Values (N, K), centred already."""
        found = np.stack(
            [np.asarray(one.predict(columns), np.float64).reshape(-1) for one in self.regressors], axis=1
        )
        return self.scale * centred(np.concatenate([-found, found], axis=1) if self.mirrored else found)


@dataclass(frozen=True)
class Regressors:
    """Fits clones of a regressor, one for each class, as in algorithm 6 of Friedman, Hastie & Tibshirani."""

    regressor: Any

    def fit(self, candidates: Candidates, columns: Table, pairs: np.ndarray, *, mirrored: bool) -> Learner | None:
        """Regressors of z with weights w."""
        from sklearn.base import clone

        made, gain = [], 0.0
        for pair in pairs:
            used = pair[:, 0] > 0
            response = np.divide(pair[:, 1], pair[:, 0], out=np.zeros(len(pair)), where=used)
            one = clone(self.regressor).fit(columns[used], response[used], sample_weight=pair[used, 0])
            left = response - np.asarray(one.predict(columns), np.float64).reshape(-1)
            gain += float((pair[:, 0] * (response**2 - left**2)).sum())
            made.append(one)
        return FittedRegressors(tuple(made), mirrored, gain * (2 if mirrored else 1))


# A learner on columns has a gain, Σ w z² − Σ w (z − f)² or the same with ridge, and values (N, K) to add to scores.
Learner: TypeAlias = Stump | Categories | RegressionTree | FittedRegressors
Step: TypeAlias = Learner | EvidenceTable


def scaled(learner: Step, rate: float) -> Step:
    """The learner with the values of a step: centred over classes, times the learning rate."""
    if isinstance(learner, FittedRegressors):
        return replace(learner, scale=rate)
    return replace(learner, values=rate * centred(learner.values))


@dataclass(frozen=True, eq=False)
class AdditiveLogit:
    """Scores F(x) = start + Σ steps, where a step is a learner on columns or a table on evidence.

    ``form`` says how tables on evidence score (`crfield.boosting.virtual_evidence.evidence`).

    >>> stump = Stump(0, 0.5, np.array([[0.5, -0.5], [-0.5, 0.5]]), 1.0)
    >>> AdditiveLogit(np.zeros(2), (stump, stump)).scores(np.array([[0.0], [1.0]]), Evidence(None, 2)).tolist()
    [[1.0, -1.0], [-1.0, 1.0]]
    """

    start: np.ndarray  # (K,)
    steps: tuple[Step, ...]
    form: str = "scores"

    def scores(self, columns: Table, evidence: Evidence) -> np.ndarray:
        """(N, K)."""
        found = np.repeat(self.start[None], evidence.n_rows, axis=0)
        expected = Expectations(evidence, self.form)
        for step in self.steps:
            found += _added(step, columns, expected)
        return found

    def staged(self, columns: Table, evidence: Evidence) -> Iterator[np.ndarray]:
        """Scores (N, K) after each round."""
        found = np.repeat(self.start[None], evidence.n_rows, axis=0)
        expected = Expectations(evidence, self.form)
        for step in self.steps:
            found = found + _added(step, columns, expected)
            yield found


def _added(step: Step, columns: Table, expected: Expectations) -> np.ndarray:
    if isinstance(step, EvidenceTable):
        return expected.added(step)
    return np.asarray(step.apply(columns))


@dataclass(frozen=True, eq=False)
class Rows:
    """Data of some rows: columns, evidence, codes of the labels (−1 unknown), weights or None for ones."""

    columns: Table  # (N, F)
    evidence: Evidence
    labels: np.ndarray  # (N,) int32
    weight: np.ndarray | None = None

    def some(self, chosen: np.ndarray) -> Rows:
        """Those of the numbers ``chosen``."""
        weight = None if self.weight is None else self.weight[chosen]
        return Rows(self.columns[chosen], self.evidence.rows(chosen), self.labels[chosen], weight)

    @property
    def mass(self) -> float:
        """How many rows count."""
        known = self.labels >= 0
        return float(known.sum() if self.weight is None else self.weight[known].sum())


def start_scores(rows: Rows, n_classes: int, start: str) -> np.ndarray:
    """Scores (K,) before the first round: 0, or the centred logs of the classes' shares.

    >>> rows = Rows(None, Evidence(None, 4), np.array([0, 1, 1, 1]))
    >>> start_scores(rows, 2, "prior").round(4).tolist()
    [-0.5493, 0.5493]
    """
    if start == "zero":
        return np.zeros(n_classes)
    if start != "prior":
        raise InputError(f"start must be 'prior' or 'zero', got {start!r}.")
    known = rows.labels >= 0
    weight = None if rows.weight is None else rows.weight[known]
    share = np.bincount(rows.labels[known], weight, minlength=n_classes).astype(np.float64)
    logs = np.log(np.maximum(share / share.sum(), 1e-12)) if share.sum() else np.zeros(n_classes)
    return np.asarray(logs - logs.mean())


def boost_rounds(
    rows: Rows,
    candidates: Candidates,
    learner: Stumps | Trees | Regressors,
    n_classes: int,
    *,
    n_rounds: int,
    learning_rate: float = 1.0,
    limit: float = 4.0,
    least: float = LEAST_WEIGHT,
    ridge: float = 0.0,
    start: str = "prior",
    form: str = "scores",
    held: Rows | None = None,
    patience: int | None = None,
    tol: float = 0.0,
    n_jobs: int = 1,
    name: Callable[[Step], str] = str,
    after: Callable[[Round, float], None] | None = None,
) -> tuple[AdditiveLogit, list[Round]]:
    """Rounds of LogitBoost; with ``held`` rows, they end when ``patience`` of them brought no better held-out loss.

    >>> x, y = np.array([[0.0], [1.0], [2.0], [3.0]]), np.array([0, 0, 1, 1], np.int32)
    >>> model, diary = boost_rounds(Rows(x, Evidence(None, 4), y), Candidates.of(x), Stumps(), 2, n_rounds=1)
    >>> model.scores(x, Evidence(None, 4)).tolist()
    [[1.0, -1.0], [1.0, -1.0], [-1.0, 1.0], [-1.0, 1.0]]
    """
    first = start_scores(rows, n_classes, start)
    scores = np.repeat(first[None], len(rows.labels), axis=0)
    outside = None if held is None else np.repeat(first[None], len(held.labels), axis=0)
    expected = Expectations(rows.evidence, form)
    expected_outside = None if held is None else Expectations(held.evidence, form)
    mirrored = n_classes == 2
    pairs, loss = logit_pairs(scores, rows.labels, rows.weight, limit=limit, least=least, n_jobs=n_jobs)
    steps: list[Step] = []
    diary: list[Round] = []
    best, best_at = (np.inf if held is None else _loss(outside, held, limit)), 0
    for number in range(1, n_rounds + 1):
        found: Step | None = (
            learner.fit(candidates, rows.columns, pairs, mirrored=mirrored) if candidates.n_columns else None
        )
        table = best_evidence(rows.evidence, pairs, ridge=ridge)
        if table is not None and mirrored:
            table = replace(table, values=np.concatenate([-table.values, table.values], axis=1), gain=2 * table.gain)
        if table is not None and (found is None or table.gain > found.gain):
            found = table
        if found is None:
            break
        step = scaled(found, learning_rate)
        _advance(scores, step, candidates, rows.columns, expected, n_jobs)
        pairs, loss = logit_pairs(
            scores, rows.labels, rows.weight, limit=limit, least=least, out=pairs, n_jobs=n_jobs
        )
        outer = None
        if held is not None and expected_outside is not None:
            outside += _added(step, held.columns, expected_outside)
            outer = _loss(outside, held, limit)
        steps.append(step)
        kind = "evidence" if isinstance(step, EvidenceTable) else "feature"
        diary.append(Round(number, kind, name(step), float(found.gain), loss / max(rows.mass, 1e-300), outer))
        if after is not None:
            after(diary[-1], float(np.abs(pairs[:, :, 1].sum(axis=1)).max()))
        if outer is not None:
            if outer < best - tol:
                best, best_at = outer, number
            elif patience is not None and number - best_at >= patience:
                break
    if held is not None and patience is not None:
        diary = [one if one.number <= best_at else replace(one, kept=False) for one in diary]
        steps = steps[:best_at]
    return AdditiveLogit(first, tuple(steps), form), diary


def _loss(scores: np.ndarray | None, rows: Rows, limit: float) -> float:
    assert scores is not None
    return logit_pairs(scores, rows.labels, rows.weight, limit=limit)[1] / max(rows.mass, 1e-300)


def _advance(
    scores: np.ndarray, step: Step, candidates: Candidates, columns: Table, expected: Expectations, n_jobs: int
) -> None:
    """Add a step to the scores of training rows, in place."""
    if isinstance(step, Stump | Categories) and candidates.packed.word[step.column] >= 0:
        codes, table = step.by_word(candidates)
        add_by_code(scores, codes, table, n_jobs=n_jobs)
    elif isinstance(step, Stump | Categories | RegressionTree):
        scores += step.apply(candidates)
    else:
        scores += _added(step, columns, expected)
