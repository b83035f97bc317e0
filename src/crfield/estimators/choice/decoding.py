"""One decoding for all: probabilities of labels at single steps become the scores of a Markov chain.

    score(state s at step t) = factor · log p(label of s | x_t)         edges: log p(s | state before), counted

A factor below 1 takes back what neighbouring steps tell twice. There are three forms:

- *steps*: no edges; each step has its most probable label;
- *Markov model*: a state is a label, transitions are counted (Bourlard & Morgan 1994);
- *memory*: a state is a pair (label of the segment before, label), so that the chain is of second order in segments
  (`crfield.training.segment_memory`).

Whatever the probabilities come from, be it a classifier, the marginals of a trained chain or the mean of several, the
form and the factor are chosen by held-out groups like any setting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import product

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.states import StateSpace
from crfield.core.topology import Chains
from crfield.inference.chain import ChainEngine
from crfield.storage.state import State, refuse
from crfield.training.segment_memory import SegmentStates

STEPS, MARKOV, MEMORY = "steps", "Markov model", "memory"
FORMS = (STEPS, MARKOV, MEMORY)
FACTORS = (0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0)
FLOOR = -12.0  # no source is so sure of what a label is not
SMOOTHING = 0.01


@dataclass(frozen=True)
class Setting:
    """A form and a factor.

    >>> Setting("memory", 0.2), len(SETTINGS)
    (memory × 0.2, 15)
    """

    form: str = STEPS
    factor: float = 1.0

    def __repr__(self) -> str:
        return self.form if self.form == STEPS else f"{self.form} × {self.factor:g}"


SETTINGS = (Setting(), *(Setting(*pair) for pair in product((MARKOV, MEMORY), FACTORS)))


@dataclass(frozen=True, eq=False)
class Decoding:
    """States with their labels, and logs of the probabilities of beginning with one and of going on to another.

    >>> decoding = Decoding.counted([np.array([0, 0, 0, 1, 1, 1])], 2, Setting("Markov model", 1.0))
    >>> sure = np.array([[0.9, 0.1], [0.8, 0.2], [0.4, 0.6], [0.7, 0.3], [0.1, 0.9]])
    >>> decoding.best(np.log(sure), Chains.from_lengths([5])).tolist()
    [0, 0, 1, 1, 1]
    """

    setting: Setting
    space: StateSpace
    start: np.ndarray  # (S,)
    edge: np.ndarray  # (S, S)

    @classmethod
    def counted(cls, codes: Sequence[np.ndarray], n_labels: int, setting: Setting) -> Decoding:
        """Transitions of sequences of label codes, −1 where unknown; a label without any step gets a state too."""
        if setting.form == STEPS:
            identity = np.arange(n_labels, dtype=np.int32)
            return cls(setting, StateSpace(identity, n_labels), np.zeros(n_labels), np.zeros((n_labels, n_labels)))
        rows = [[None if code < 0 else code for code in own.tolist()] for own in codes]
        seen = {code for own in rows for code in own}
        rows += [[code] for code in range(n_labels) if code not in seen]
        states = SegmentStates.counted(rows, range(n_labels), memory=setting.form == MEMORY, smoothing=SMOOTHING)
        order = np.argsort(states.label, kind="stable")  # as `StateSpace` has them: label by label
        space = StateSpace(states.label[order].astype(np.int32), n_labels)
        return cls(setting, space, states.start[order], np.ascontiguousarray(states.edge[np.ix_(order, order)]))

    def with_factor(self, factor: float) -> Decoding:
        """The same states and transitions with another factor."""
        return replace(self, setting=replace(self.setting, factor=factor))

    def potentials(self, log_chances: np.ndarray, chains: Chains) -> Potentials:
        """The chain over states, from logs of probabilities of labels (N, L)."""
        node = self.setting.factor * log_chances[:, self.space.label_of_state]
        node[chains.offsets[:-1][chains.lengths > 0]] += self.start
        return Potentials(node, self.edge[None], chains)

    def best(self, log_chances: np.ndarray, chains: Chains) -> np.ndarray:
        """(N,) codes of labels on the best paths."""
        if self.setting.form == STEPS:
            return np.asarray(log_chances.argmax(axis=1))
        return np.asarray(self.space.label_of_state[ChainEngine().best_path(self.potentials(log_chances, chains))[1]])

    def state(self) -> State:
        """Header and arrays."""
        header = {"form": self.setting.form, "factor": self.setting.factor}
        label = np.ascontiguousarray(self.space.label_of_state, np.int32)
        return State(header, {"label": label, "start": self.start, "edge": self.edge})

    @classmethod
    def from_state(cls, state: State, n_labels: int) -> Decoding:
        """The decoding whose `state` this is; ModelFileError for whatever does not fit."""
        form, factor = state.word("form", FORMS), state.header.get("factor")
        if type(factor) is not float or not 0 < factor < 1e6:
            refuse("the factor of the decoding must be a number above 0")
        label = state.array("label", (None,), np.int32)
        if np.any(np.diff(label) < 0) or sorted(set(label.tolist())) != list(range(n_labels)):
            refuse(f"the states of the decoding must be of all {n_labels} labels, in their order")
        start, edge = (state.array(name, shape, finite=False) for name, shape in _shapes(len(label)))
        if np.isnan(start).any() or np.isnan(edge).any() or max(start.max(), edge.max()) > 0:
            refuse("the decoding must hold logs of probabilities")
        return cls(Setting(form, factor), StateSpace(label, n_labels), start, edge)


def _shapes(n: int) -> tuple[tuple[str, tuple[int, ...]], ...]:
    return (("start", (n,)), ("edge", (n, n)))


def log_floored(chances: np.ndarray) -> np.ndarray:
    """Logs of probabilities, none below `FLOOR`.

    >>> log_floored(np.array([1.0, 0.0])).tolist()
    [0.0, -12.0]
    """
    return np.log(np.maximum(chances, np.exp(FLOOR)))
