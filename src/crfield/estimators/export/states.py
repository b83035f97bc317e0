"""States below labels in streams: scores of labels become scores of states, and answers go back to labels.

A latent-dynamic model, a label that must last, a chain of higher order, relations that reach further than one step
and several layers of labels are all chains over states, each of which belongs to one label (`crfield.core.states`).
The recursion of a stream runs over the states; probabilities of labels are sums over their states, and a committed
state is its label. What a state scores at a step is a sum of *parts* of what is scored below:

    node(s) = offset(s) + Σ_p score(parts(s, p))

A label that must last has one part; a pair of labels of two layers has two, and the score of the pair as its offset.

`remembered` lays out the states of labels that relate to those d steps before, for several d and several layers. With
the longest distance k, C labels (or tuples of labels) need C^k states, and shorter ones for the first steps, where
nothing lies so far back. The table of transitions has their square, so there is a limit (`MOST_STATES`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from crfield.core.states import StateSpace
from crfield.errors import InputError
from crfield.estimators.export.step_scores import StepScorer, hashed
from crfield.estimators.export.written import Exportable, Written, columns_read

MOST_STATES = 500  # whose table of transitions has 250,000 scores

_SUM = """\
  double node[NAME_STATES];
  for (int k = 0; k < NAME_STATES; k++) {
    node[k] = NAME_offset[k];
    for (int p = 0; p < NAME_PARTS; p++) node[k] += score[NAME_parts[k * NAME_PARTS + p]];
  }"""

_PYTHON_SUM = """\
    node = list(OFFSET)
    for k in range(STATES):
        for p in PARTS[k]:
            node[k] += score[p]
    score = node"""


def check_size(size: int, what: str, remedy: str) -> None:
    """InputError where a chain would have too many states.

    >>> check_size(600, "3 layers: 600 tuples of labels", "Leave a layer out")
    Traceback (most recent call last):
    crfield.errors.InputError: 3 layers: 600 tuples of labels are more than the 500 states that a stream or an
    exported model is exact over. Leave a layer out, or answer whole sequences with predict.
    """
    if size > MOST_STATES:
        raise InputError(
            f"{what} are more than the {MOST_STATES} states that a stream or an exported model is exact over. "
            f"{remedy}, or answer whole sequences with predict."
        )


class StateSteps:
    """Scores of states from scores of labels.

    ``parts`` (S, P) says which scores below a state adds up; None where what is below scores states already.

    >>> from crfield.estimators.export.step_scores import DenseSteps
    >>> labels = DenseSteps(np.array([[1.0, -1.0]]), np.zeros((2, 2)))
    >>> lasting = StateSpace.repeated([2, 1])
    >>> steps = StateSteps(labels, lasting, start=np.zeros(3), end=np.zeros(3), transitions=np.zeros((3, 3)),
    ...                    parts=lasting.label_of_state[:, None])
    >>> steps.score([[2.0]], [[]])[0].tolist()
    [[2.0, 2.0, -2.0]]
    """

    def __init__(
        self,
        inner: StepScorer,
        states: StateSpace,
        *,
        start: np.ndarray,
        end: np.ndarray,
        transitions: np.ndarray,
        parts: np.ndarray | None = None,
        offset: np.ndarray | None = None,
    ) -> None:
        self.inner, self.states = inner, states
        self.start, self.end, self.transitions = start, end, transitions
        self.parts = None if parts is None else np.ascontiguousarray(parts, np.int32)
        self.offset = np.zeros(states.n_states) if offset is None else offset
        self.varied, self.reach, self.dense = inner.varied, inner.reach, getattr(inner, "dense", None)
        if self.varied and parts is not None:
            raise InputError(
                "a stream over states needs transitions that no column changes. Train without transition features, "
                "or with labels alone."
            )

    @property
    def names(self) -> tuple[str, ...] | None:
        """Of the columns."""
        return getattr(self.inner, "names", None)

    @property
    def n_columns(self) -> int:
        """D."""
        return int(getattr(self.inner, "n_columns", 0))

    @property
    def columns_read(self) -> np.ndarray:
        """(D,) which columns are read."""
        return columns_read(self.inner, self.n_columns)

    def score(self, rows: Sequence[Any], pasts: Sequence[Sequence[Any]]) -> tuple[np.ndarray, np.ndarray | None]:
        """Node scores (k, S) and, if ``varied``, edge tables (k, S, S)."""
        node, edge = self.inner.score(rows, pasts)
        if self.parts is None:
            return node, edge
        summed = np.tile(self.offset, (len(node), 1))
        for part in self.parts.T:
            summed += node[:, part]
        return summed, None

    def digest(self) -> str:
        """A word that differs between models."""
        mine = [self.start, self.end, self.transitions, self.offset, self.states.label_of_state]
        return hashed(["states", self.inner.digest()], mine if self.parts is None else [*mine, self.parts])

    def tables(self) -> dict[str, np.ndarray]:
        """Every number of the model, by name."""
        assert isinstance(self.inner, Exportable)
        own = {"start": self.start, "end": self.end, "transitions": self.transitions}
        if self.parts is not None:
            own |= {"parts": self.parts, "offset": self.offset}
        return self.inner.tables() | own

    def written(self) -> Written:
        """How a step is scored."""
        assert isinstance(self.inner, Exportable)
        below = self.inner.written()
        if self.parts is None:
            return below
        states, parts = self.parts.shape
        return below.then(_SUM, _PYTHON_SUM, states * parts, {"PARTS": parts, "SCORES": self._n_scores()})

    def _n_scores(self) -> int:
        """Scores below: those of labels, of all layers."""
        assert isinstance(self.inner, Exportable)
        return len(self.inner.tables()["start"])


class Memory(NamedTuple):
    """What a chain over tuples of labels remembers; C tuples, P layers, S states."""

    states: StateSpace
    tuples: list[tuple[int, ...]]  # C: the label of each layer
    start: np.ndarray  # (S,) 0 for first steps, −∞ for states that have more behind them
    transitions: np.ndarray  # (S, S)
    parts: np.ndarray  # (S, P) places in the scores of all layers, one after the other
    offset: np.ndarray  # (S,) scores of the labels of one step beside each other


def remembered(
    sizes: Sequence[int],
    along: Mapping[tuple[int, int], np.ndarray],
    beside: Mapping[tuple[int, int], np.ndarray] | None = None,
    *,
    remedy: str = "Train with fewer labels or shorter distances",
) -> Memory:
    """The states of layers of ``sizes`` labels, coupled in time and at each step.

    ``along[(layer, d)]`` (L, L) scores the label d steps before (rows) and now; ``beside[(layer, other)]`` (L, L')
    the labels of two layers at one step.

    >>> two = remembered([2], {(0, 2): np.array([[1.0, 0.0], [0.0, 1.0]])})
    >>> two.states.label_of_state.tolist(), two.start.tolist()
    ([0, 1, 0, 1, 0, 1], [0.0, 0.0, -inf, -inf, -inf, -inf])
    >>> two.transitions[2].tolist()  # from 0, 0 one goes on to 0, 0 or 0, 1
    [-inf, -inf, 1.0, 0.0, -inf, -inf]
    """
    furthest = max((d for _, d in along), default=1)
    labels = prod(sizes)
    size = sum(labels**n for n in range(1, furthest + 1))
    told = " × ".join(map(str, sizes)) + " labels" + (f" at distances up to {furthest}" if furthest > 1 else "")
    check_size(size, f"{told}: {size:,} states", remedy)
    tuples = list(product(*map(range, sizes)))
    runs = [run for n in range(1, furthest + 1) for run in product(range(labels), repeat=n)]  # oldest first
    place = {run: number for number, run in enumerate(runs)}
    label = np.array([run[-1] for run in runs], np.int32)
    transitions = np.full((size, size), -np.inf)
    between = {d: np.zeros((labels, labels)) for _, d in along}
    code = np.array(tuples, np.int64).reshape(labels, len(sizes))
    for (layer, d), table in along.items():
        own = code[:, layer]
        between[d] += np.asarray(table)[np.ix_(own, own)]
    for number, run in enumerate(runs):
        for new in range(labels):
            score = sum(float(table[run[-d], new]) for d, table in between.items() if d <= len(run))
            transitions[number, place[(*run, new)[-furthest:]]] = score
    first = np.concatenate([[0], np.cumsum(sizes)[:-1]])
    offset = np.zeros(labels)
    for (layer, other), table in (beside or {}).items():
        offset += np.asarray(table)[code[:, layer], code[:, other]]
    start = np.where(np.arange(size) < labels, 0.0, -np.inf)
    states = StateSpace(label, labels, one_path=True)
    return Memory(states, tuples, start, transitions, (code + first)[label], offset[label])
