"""Inner folds of whole groups: who learns, who is asked, and how good the answers are.

A group (a person, a trial, a place) is in one fold as a whole, and everything that is learnt (columns, their scale,
models, transitions) is learnt from the others. Answers are judged group by group by the two scores that
`crfield.report.comparisons.models` shows.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.estimators.choice.columns import ChosenColumns
from crfield.estimators.choice.decoding import Decoding, Setting
from crfield.estimators.tuning.group_folds import macro_f1
from crfield.metrics import segment_f1

Width = tuple[int | None, float]  # most columns, and how alike two of them may be


@dataclass(frozen=True, eq=False)
class Fold:
    """Sequences to learn from, sequences that are asked, and the steps of the latter among all."""

    learn: list[int]
    asked: list[int]
    steps: np.ndarray
    chains: Chains  # of those asked


@dataclass(frozen=True, eq=False)
class GroupFolds:
    """Sequences of columns with codes of their labels, dealt into folds of groups.

    >>> rows, codes = [np.zeros((2, 1)) for _ in range(4)], [np.array([0, 1])] * 4
    >>> folds = GroupFolds.dealt(rows, codes, ["ann", "bob", "ann", "cy"], 2, n_labels=2)
    >>> len(folds.folds), folds.marks(np.array([0, 1, 0, 1, 0, 1, 0, 0])).tolist()
    (2, [[1.0, 1.0], [1.0, 1.0], [0.333..., 0.666...]])
    """

    rows: list[np.ndarray]  # (n, F) of every sequence
    codes: list[np.ndarray]  # (n,) int64, −1 where unknown
    groups: list[Hashable]
    n_labels: int
    folds: list[Fold]
    kept: dict[Any, Any] = field(default_factory=dict)  # columns and transitions of folds, computed once

    @classmethod
    def dealt(
        cls,
        rows: list[np.ndarray],
        codes: list[np.ndarray],
        groups: Sequence[Hashable],
        n_folds: int,
        *,
        n_labels: int,
        random_state: Any = 0,
    ) -> GroupFolds:
        """Groups in ``n_folds`` parts of nearly equal number, at random; fewer where there are fewer groups."""
        names = list(dict.fromkeys(groups))
        if len(names) < 2:
            raise InputError(
                f"at least two groups are needed, one to learn from and one to be asked, got {len(names)}. Give more "
                "sequences, or cut a long recording into parts where nothing reaches across."
            )
        order = np.random.default_rng(random_state).permutation(len(names))
        ends = np.cumsum([0, *map(len, codes)])
        folds = []
        for part in np.array_split(order, min(n_folds, len(names))):
            out = {names[k] for k in part}
            asked = [k for k, group in enumerate(groups) if group in out]
            learn = [k for k, group in enumerate(groups) if group not in out]
            steps = np.concatenate([np.arange(ends[k], ends[k + 1]) for k in asked])
            folds.append(Fold(learn, asked, steps, Chains.from_lengths([len(codes[k]) for k in asked])))
        return cls(list(rows), list(codes), list(groups), n_labels, folds)

    @property
    def n_steps(self) -> int:
        """Of all sequences."""
        return sum(map(len, self.codes))

    def columns(self, fold: Fold, width: Width) -> list[np.ndarray]:
        """The columns of all sequences as those who learn in a fold choose and scale them."""
        key = ("columns", id(fold), width)
        if key not in self.kept:
            learn = [self.rows[k] for k in fold.learn], [self.codes[k] for k in fold.learn]
            chosen = ChosenColumns.learnt(*learn, most=width[0], most_alike=width[1])
            self.kept[key] = [chosen.apply(own) for own in self.rows]
        return list(self.kept[key])

    def forget(self, width: Width) -> None:
        """Give back the memory of columns that nobody will ask for again."""
        for fold in self.folds:
            self.kept.pop(("columns", id(fold), width), None)

    def decoded(self, log_chances: np.ndarray, setting: Setting) -> np.ndarray:
        """(N,) codes for logs of held-out probabilities (N, L), by transitions of those who learn in each fold."""
        said = np.empty(self.n_steps, np.int64)
        for fold in self.folds:
            key = ("decoding", id(fold), setting.form)
            if key not in self.kept:
                self.kept[key] = Decoding.counted([self.codes[k] for k in fold.learn], self.n_labels, setting)
            decoding = self.kept[key].with_factor(setting.factor)
            said[fold.steps] = decoding.best(log_chances[fold.steps], fold.chains)
        return said

    def marks(self, said: np.ndarray) -> np.ndarray:
        """(G, 2) macro F1 and segment F1 at 50 % of every group, of codes (N,) for all steps."""
        if "truth" not in self.kept:
            self.kept["truth"] = [[None if code < 0 else code for code in own.tolist()] for own in self.codes]
        truth, ends = self.kept["truth"], np.cumsum(list(map(len, self.codes)))[:-1]
        parts = [own.tolist() for own in np.split(said, ends)]
        out = []
        for name in dict.fromkeys(self.groups):
            own = [k for k, group in enumerate(self.groups) if group == name]
            pair = [truth[k] for k in own], [parts[k] for k in own]
            out.append((macro_f1(*pair), segment_f1(*pair, overlap=0.5)))
        return np.array(out)
