"""Scores of a step as text: what a scorer tells those who write it down as a program.

An exported model is two things. The recursion (filter, incremental Viterbi) is the same for all and is written once
for each language (`crfield.estimators.export.c_code`, `crfield.estimators.export.python_code`). What differs is how
the columns ``x`` of a step become scores, and every scorer that can be exported says that itself, beside the
formula in NumPy: its tables by name, and the statements that read them.

In C the statements fill ``score[NAME_SCORES]`` and may point ``edge`` to a table of (states, states) of their own; in
Python they set ``score``, a list, and ``edge``, a list of rows. Tables are called ``NAME_key`` and ``KEY``, sizes
``NAME_KEY`` and ``KEY``; NAME stands for the name of the model.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Protocol, runtime_checkable

import numpy as np

from crfield.core.states import StateSpace


@dataclass(frozen=True)
class OwnRecursion:
    """The program of a model that is no chain: everything behind the tables, and what it takes by ``max_lag``."""

    c: str
    python: str
    state_bytes: Callable[[int], int]
    operations: Callable[[int], int]
    sizes: Mapping[str, int]


@dataclass(frozen=True)
class Written:
    r"""Statements in both languages, and what they cost.

    >>> one = Written("  score[0] = x[0];", "    score = [x[0]]", operations=0)
    >>> one.then("  score[0] += 1.0;", "    score[0] += 1.0", operations=1).c
    '  score[0] = x[0];\n  score[0] += 1.0;'
    """

    c: str
    python: str
    operations: int  # with floating-point numbers at most; comparisons, exp and log are one each
    sizes: Mapping[str, int] = field(default_factory=dict)
    c_functions: str = ""  # what the statements call
    python_functions: str = ""
    missing: bool = False  # whether NaN is a column that is missing, and not an error
    zeros: bool = False  # whether −∞ in all scores is meant, and no overflow
    recursion: OwnRecursion | None = None  # where it is not that of a chain

    def then(self, c: str, python: str, operations: int, sizes: Mapping[str, int] | None = None) -> Written:
        """The same with more statements at the end."""
        return replace(
            self,
            c=f"{self.c}\n{c}",
            python=f"{self.python}\n{python}",
            operations=self.operations + operations,
            sizes={**self.sizes, **(sizes or {})},
        )


@runtime_checkable
class Exportable(Protocol):
    """A scorer of steps that can write itself down."""

    @property
    def varied(self) -> bool:
        """Whether every step has an edge table of its own."""
        ...

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the columns; None where they have none."""
        ...

    @property
    def n_columns(self) -> int:
        """D."""
        ...

    @property
    def states(self) -> StateSpace | None:
        """The states of each label where scores are of states."""
        ...

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name; start (S,), end (S,) and transitions (S, S) among them."""
        ...

    def written(self) -> Written:
        """How a step is scored."""
        ...


def refusal(scorer: object) -> str | None:
    """Why a scorer cannot be exported, in a sentence or two; None where it can."""
    inner = getattr(scorer, "inner", None)  # of one that changes the scores of another
    if inner is not None:
        return refusal(inner)
    if isinstance(scorer, Exportable):
        return None
    return getattr(scorer, "why", None) or (
        "only models of plain numbers can be exported: arrays (steps, features), not dicts, strings, sparse "
        "matrices, templates or functions. Train on arrays, for example of the features that were chosen."
    )


def columns_read(scorer: object, n_columns: int) -> np.ndarray:
    """(D,) which columns a scorer reads; all where it does not say."""
    return np.asarray(getattr(scorer, "columns_read", np.ones(n_columns, bool)))


def forward_scores(n_scores: int) -> int:
    """Operations of a log-sum-exp of so many numbers, with the difference taken from each.

    >>> forward_scores(2)
    12
    """
    return 5 * n_scores + 2
