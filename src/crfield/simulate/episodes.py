"""Episodes: one world with four switches, each of which another model of the family is made for.

Labels come in episodes. An episode of label l lasts some steps, then another label follows, each as likely as any
other. Below the label a phase goes round, and a step shows where the phase stands and, weakly, which label it is:

    switch    off                                       on
    lengths   an episode ends with the same chance      it lasts c_l − 1, c_l or c_l + 1 steps
              at every step, 1 / c_l
    phases    each step has a phase drawn anew          phases go round, in an order of the label's own
    rings     the label l raises column l by ``hint``   it lies somewhere on a circle of radius r_l, so that every
                                                        column has the same mean under every label
    copies    columns of the label come once            they come several times, noise included

    x_t = (place of the phase on a circle, columns of the label) + noise

With all switches off a hidden Markov model is the truth. Durations are counted inside the state, (label, steps gone,
phase), so the world is a Markov chain whatever is switched on, and its marginals are the Bayes rule: the share of
steps that no learner can expect to beat. Copies tell nothing new and do not change it.

Columns of rings have the density exp(−(ρ² + r²) / 2σ²) I₀(ρ r / σ²) / 2πσ² with ρ the distance from the centre, the
normal noise averaged over the circle (Rice 1944, *Mathematical analysis of random noise*).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import islice, permutations

import numpy as np

from crfield.core.potentials import Potentials
from crfield.core.semiring import Semiring
from crfield.core.topology import Chains
from crfield.errors import InputError
from crfield.inference.chain import ChainEngine

N_LABELS, N_PHASES = 3, 4
MEAN_LENGTHS = (3, 7, 11)
RADII = (0.5, 1.75, 3.0)
REACH = 1.5


@dataclass(frozen=True, eq=False)
class Episodes:
    """Sequences of labels in episodes, and the chances that made them.

    >>> world = make_episodes(n_sequences=3, length=20, lengths=True)
    >>> world
    <Episodes: 3 sequences of 20 steps, 3 labels, 5 columns, with lengths>
    >>> world.features[0].shape, world.labels[0].shape
    ((20, 5), (20,))
    """

    features: list[np.ndarray]  # (length, 2 + own columns · copies)
    labels: list[np.ndarray]  # (length,) int64
    start: np.ndarray  # (S,) p(first state)
    transition: np.ndarray  # (S, S) p(next state | state)
    label_of: np.ndarray  # (S,) int64
    phase_of: np.ndarray  # (S,) int64
    switches: tuple[str, ...]
    hint: float
    noise: float

    def __len__(self) -> int:
        return len(self.labels)

    def __repr__(self) -> str:
        length, columns = self.features[0].shape if self.features else (0, 0)
        return (
            f"<Episodes: {len(self)} sequences of {length} steps, {N_LABELS} labels, {columns} columns, "
            f"with {' and '.join(self.switches) or 'nothing'}>"
        )

    @cached_property
    def potentials(self) -> Potentials:
        """The world's own scores over its states: log p(x | state), log p(first state), log p(next state | state)."""
        from scipy.special import ive

        chains = Chains.from_lengths([len(x) for x in self.features])
        x = np.concatenate(self.features) if self.features else np.zeros((0, 5))
        variance = self.noise**2
        phase = -((x[:, None, :2] - _places()) ** 2).sum(axis=2) / (2 * variance)  # (N, P)
        if "rings" in self.switches:
            distance, radius = np.hypot(x[:, 2], x[:, 3])[:, None], np.array(RADII)
            # ive is I₀ times exp(−its argument), which leaves the square of a difference.
            label = np.log(ive(0, distance * radius / variance)) - (distance - radius) ** 2 / (2 * variance)
        else:
            shown = x[:, 2 : 2 + N_LABELS]
            label = -((shown[:, None, :] - self.hint * np.eye(N_LABELS)) ** 2).sum(axis=2) / (2 * variance)
        node = phase[:, self.phase_of] + label[:, self.label_of]
        with np.errstate(divide="ignore"):
            node[chains.offsets[:-1]] += np.log(self.start)
            return Potentials(node, np.log(self.transition)[None], chains)

    def bayes_labels(self) -> list[np.ndarray]:
        """The most probable label of every step, given all observations of its sequence and all chances."""
        if not len(self):
            return []
        scores = self.potentials
        node = ChainEngine().infer(scores, Semiring.LOG).node
        best = (node @ np.eye(N_LABELS)[self.label_of]).argmax(axis=1)
        return np.split(best, scores.topology.offsets[1:-1])


def make_episodes(
    *,
    n_sequences: int = 40,
    length: int = 60,
    lengths: bool = False,
    phases: bool = False,
    rings: bool = False,
    copies: int = 1,
    hint: float = 0.7,
    noise: float = 0.7,
    random_state: int | np.random.Generator | None = 0,
) -> Episodes:
    """Make sequences of episodes; the switches say what is special about them.

    >>> world = make_episodes(n_sequences=1, length=500, lengths=True)
    >>> changes = np.flatnonzero(np.diff(world.labels[0])) + 1
    >>> sorted(set(np.diff(changes).tolist()))
    [2, 3, 4, 6, 7, 8, 10, 11, 12]
    """
    if n_sequences < 0 or length < 1 or copies < 1:
        raise InputError(
            f"expected n_sequences ≥ 0, length ≥ 1 and copies ≥ 1, got n_sequences={n_sequences}, "
            f"length={length}, copies={copies}."
        )
    if not noise > 0:
        raise InputError(f"noise must be > 0, got {noise!r}.")
    rng = np.random.default_rng(random_state)
    start, transition, label_of, phase_of = _chances(lengths=lengths, phases=phases)
    first, after = np.cumsum(start), np.cumsum(transition, axis=1)
    first[-1] = after[:, -1] = 1.0
    features, labels = [], []
    for _ in range(n_sequences):
        path = np.empty(length, np.int64)
        for t, u in enumerate(rng.random(length)):
            path[t] = np.searchsorted(after[path[t - 1]] if t else first, u, side="right")
        shown, label = _places()[phase_of[path]], label_of[path]
        if rings:
            angle = rng.uniform(0, 2 * np.pi, length)
            own = np.array(RADII)[label, None] * np.stack([np.cos(angle), np.sin(angle)], axis=1)
        else:
            own = hint * np.eye(N_LABELS)[label]
        x = np.concatenate([shown, own], axis=1)
        x += rng.normal(scale=noise, size=x.shape)
        features.append(np.concatenate([x, *[x[:, 2:]] * (copies - 1)], axis=1))
        labels.append(label)
    said = {"lengths": lengths, "phases": phases, "rings": rings, "copies": copies > 1}
    switches = tuple(name for name, on in said.items() if on)
    return Episodes(features, labels, start, transition, label_of, phase_of, switches, float(hint), float(noise))


def _places() -> np.ndarray:
    """(P, 2) where the phases stand."""
    angle = 2 * np.pi * np.arange(N_PHASES) / N_PHASES
    return REACH * np.stack([np.cos(angle), np.sin(angle)], axis=1)


def _chances(*, lengths: bool, phases: bool) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(S,) of the first state, (S, S) of the next, label and phase of each; S runs over (label, steps gone, phase).

    Without ``lengths`` nobody needs to know how many steps are gone, and there is one such state for each label.
    """
    states = [
        (label, gone, phase)
        for label, mean in enumerate(MEAN_LENGTHS)
        for gone in range(1, mean + 2 if lengths else 2)
        for phase in range(N_PHASES)
    ]
    number = {state: k for k, state in enumerate(states)}
    table, start = np.zeros((len(states), len(states))), np.zeros(len(states))
    orders = [(0, *rest) for rest in islice(permutations(range(1, N_PHASES)), N_LABELS)]
    for (label, gone, phase), k in number.items():
        mean = MEAN_LENGTHS[label]
        ends = 1 / mean if not lengths else 0.0 if gone < mean - 1 else 1 / (mean + 2 - gone)
        if gone == 1:
            start[k] = 1 / (N_LABELS * N_PHASES)
        for other in range(N_LABELS):
            if other != label:
                for fresh in range(N_PHASES):
                    table[k, number[other, 1, fresh]] += ends / ((N_LABELS - 1) * N_PHASES)
        if ends < 1:
            onward = gone + 1 if lengths else 1
            order = orders[label]
            follower = order[(order.index(phase) + 1) % N_PHASES]
            for fresh in range(N_PHASES):
                chance = float(fresh == follower) if phases else 1 / N_PHASES
                table[k, number[label, onward, fresh]] += (1 - ends) * chance
    label_of = np.array([label for label, _, _ in states], np.int64)
    return start, table, label_of, np.array([phase for _, _, phase in states], np.int64)
