"""Labels with latent sub-structure: the same phases in another order.

A nod and a shake of the head are made of the same positions; what tells them apart is their order. Here every label
runs through the same phases, each label along a cycle of its own:

    state (label, phase)  →  another label at a random phase       with probability ``switch``
                             the same phase                        otherwise, with probability ``stay``
                             the next phase of the label's cycle   otherwise

    x_t = (place of the phase on a circle, ``hint`` if it is this label and 0 if not, for every label) + noise

So a step alone says no more of its label than the weak hint does. A model with one state for each label hears the
hints of neighbouring steps, but cannot know what order its phases come in; one with a state for each phase can. The
chances that made the data are kept: their marginals are the Bayes rule, which no learner can expect to beat.

The numbers are drawn in one fixed order, so a seed means the same data everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice, permutations
from math import factorial

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine


@dataclass(frozen=True, eq=False)
class SubStructure:
    """Sequences of labels with phases below, and the chances that made them.

    States are numbered label by label, ``label · n_phases + phase``.

    >>> world = make_sub_structure(n_sequences=3, length=20)
    >>> world
    <SubStructure: 3 sequences of 20 steps, 2 labels of 3 phases>
    >>> world.features[0].shape, world.labels[0].shape, world.states[0].shape
    ((20, 4), (20,), (20,))
    """

    features: list[np.ndarray]  # (length, 2 + L)
    labels: list[np.ndarray]  # (length,) int64
    states: list[np.ndarray]  # (length,) int64
    means: np.ndarray  # (S, 2 + L)
    transition: np.ndarray  # (S, S) p(next state | state)
    noise: float
    n_labels: int

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        length = len(self.labels[0]) if self.labels else 0
        return (
            f"<SubStructure: {len(self)} sequences of {length} steps, {self.n_labels} labels of "
            f"{len(self.means) // self.n_labels} phases>"
        )

    @cached_property
    def potentials(self) -> Potentials:
        """The model that made the data: log p(x | state) and log p(next state | state), over states."""
        chains = Chains.from_lengths([len(x) for x in self.features])
        x = np.concatenate(self.features) if self.features else np.zeros((0, self.means.shape[1]))
        node = -((x[:, None, :] - self.means) ** 2).sum(axis=2) / (2 * self.noise**2)
        with np.errstate(divide="ignore"):
            return Potentials(node, np.log(self.transition)[None], chains)

    def bayes_labels(self) -> list[np.ndarray]:
        """The most probable label of every step, given all observations of its sequence and all chances."""
        scores = self.potentials
        node = ChainEngine().infer(scores, Semiring.LOG).node
        best = node.reshape(len(node), self.n_labels, len(self.means) // self.n_labels).sum(axis=2).argmax(axis=1)
        return np.split(best, scores.topology.offsets[1:-1]) if len(self) else []


def make_sub_structure(
    *,
    n_sequences: int = 100,
    length: int = 50,
    n_labels: int = 2,
    n_phases: int = 3,
    switch: float = 0.05,
    stay: float = 0.3,
    hint: float = 0.25,
    noise: float = 0.5,
    random_state: int | np.random.Generator | None = 0,
) -> SubStructure:
    """Make sequences whose labels differ in the order of their phases; ``n_labels`` is at most (n_phases − 1)!.

    >>> world = make_sub_structure(n_sequences=1, length=500, switch=0.0, stay=0.0)
    >>> sorted(set(zip(world.states[0][:-1].tolist(), world.states[0][1:].tolist())))
    [(3, 5), (4, 3), (5, 4)]
    """
    if n_sequences < 0 or length < 1 or n_labels < 1 or n_phases < 1:
        raise InputError(
            "expected n_sequences ≥ 0, length ≥ 1, n_labels ≥ 1 and n_phases ≥ 1, got "
            f"n_sequences={n_sequences}, length={length}, n_labels={n_labels}, n_phases={n_phases}."
        )
    if n_labels > factorial(n_phases - 1):
        raise InputError(
            f"{n_phases} phases have only {factorial(n_phases - 1)} cyclic orders, fewer than {n_labels} "
            "labels. Raise n_phases."
        )
    for name, value in (("switch", switch), ("stay", stay)):
        if not 0 <= value <= 1:
            raise InputError(f"{name} must be a probability between 0 and 1, got {value!r}.")
    if not noise > 0:
        raise InputError(f"noise must be > 0, got {noise!r}.")
    rng = np.random.default_rng(random_state)
    transition = _transitions(n_labels, n_phases, switch=switch, stay=stay)
    angle = 2 * np.pi * np.arange(n_phases) / n_phases
    circle = np.tile(np.stack([np.cos(angle), np.sin(angle)], axis=1), (n_labels, 1))
    means = np.concatenate([circle, hint * np.repeat(np.eye(n_labels), n_phases, axis=0)], axis=1)
    steps = np.cumsum(transition, axis=1)
    steps[:, -1] = 1.0
    features, labels, states = [], [], []
    for _ in range(n_sequences):
        path = np.empty(length, np.int64)
        path[0] = rng.integers(n_labels * n_phases)
        for t, u in enumerate(rng.random(length - 1), start=1):
            path[t] = np.searchsorted(steps[path[t - 1]], u, side="right")
        features.append(means[path] + rng.normal(scale=noise, size=(length, means.shape[1])))
        labels.append(path // n_phases)
        states.append(path)
    return SubStructure(features, labels, states, means, transition, float(noise), n_labels)


def _transitions(n_labels: int, n_phases: int, *, switch: float, stay: float) -> np.ndarray:
    """(S, S) p(next | state); a single label never switches."""
    if n_labels == 1:
        switch = 0.0
    table = np.zeros((n_labels, n_phases, n_labels, n_phases))
    for label, rest in enumerate(islice(permutations(range(1, n_phases)), n_labels)):
        cycle = (0, *rest)
        table[label, :, [k for k in range(n_labels) if k != label], :] = switch / max((n_labels - 1) * n_phases, 1)
        for here, after in zip(cycle, (*cycle[1:], cycle[0])):
            table[label, here, label, here] += (1 - switch) * stay
            table[label, here, label, after] += (1 - switch) * (1 - stay)
    return table.reshape(n_labels * n_phases, n_labels * n_phases)
